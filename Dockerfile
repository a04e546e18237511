# syntax=docker/dockerfile:1
# Stage 1 installs the locked dependencies into a virtual environment; stage 2 has no compiler and no pip cache.

FROM python:3.13-slim-trixie AS build
# Set this to `dask` for a service whose runs are trained on a Dask cluster, and for the cluster: docs/operating/dask.md.
ARG LOCK=runtime
# Set this to `yes` to send traces: docs/operating/tracing.md.
ARG TRACING=
# Set this to the version of CUDA, 12 or 13, for workers on a GPU: docs/operating/gpu.md.
ARG CUDA=
WORKDIR /build
COPY requirements/${LOCK}.lock ./packages.lock
COPY requirements/tracing.txt requirements/cuda12.txt requirements/cuda13.txt ./
RUN python -m venv /opt/epsilond/venv \
    && /opt/epsilond/venv/bin/python -m pip install --no-cache-dir --disable-pip-version-check \
        --require-hashes --only-binary :all: -r packages.lock \
    && if [ -n "${TRACING}" ]; then \
        /opt/epsilond/venv/bin/python -m pip install --no-cache-dir --disable-pip-version-check \
            --require-hashes --only-binary :all: -r tracing.txt; \
    fi \
    && if [ -n "${CUDA}" ]; then \
        /opt/epsilond/venv/bin/python -m pip install --no-cache-dir --disable-pip-version-check \
            --only-binary :all: -r "cuda${CUDA}.txt"; \
    fi

FROM python:3.13-slim-trixie
LABEL org.opencontainers.image.title="epsilond" \
    org.opencontainers.image.description="The privacy-accounting daemon" \
    org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --system --gid 10001 epsilond \
    && useradd --system --uid 10001 --gid epsilond --home-dir /var/lib/epsilond --shell /usr/sbin/nologin epsilond \
    && install --directory --owner=epsilond --group=epsilond --mode=0700 /var/lib/epsilond
COPY --from=build /opt/epsilond/venv /opt/epsilond/venv
WORKDIR /opt/epsilond
COPY accounting accounting
COPY calibrators calibrators
COPY trainer trainer
COPY app app
COPY migrations migrations
COPY openapi.json openapi.json
# The modules are compiled here because the service's user may not write beside them: otherwise each process would compile
# them again.
RUN /opt/epsilond/venv/bin/python -m app.cli.launcher \
    && /opt/epsilond/venv/bin/python -m compileall -q accounting calibrators trainer app migrations \
    && /opt/epsilond/venv/bin/python -m trainer.warm_up
ENV PATH=/opt/epsilond/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    EPSILOND_HOST=0.0.0.0 \
    EPSILOND_PORT=8000 \
    EPSILOND_DATA_DIR=/var/lib/epsilond
USER 10001:10001
VOLUME /var/lib/epsilond
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ['EPSILOND_PORT'] + '/health/live', timeout=4)"]
CMD ["python", "-m", "app", "serve", "--migrate"]
