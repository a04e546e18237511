# Two commands are enough: `make serve` and `make test`. Each sets up what it needs inside this checkout and is quick
# when nothing changed. `make help` lists the rest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The peers have an environment of their own: their old dependencies never touch ours.
BENCH_VENV := .venv-bench
BENCH_BIN := $(BENCH_VENV)/bin
# JAX Privacy beside ours.
BENCH_JAX_VENV := .venv-bench-jax
BENCH_JAX_BIN := $(BENCH_JAX_VENV)/bin
# Torch and Opacus beside ours, on one NumPy: gigabytes that nobody else has to load.
BENCH_TRAINER_VENV := .venv-bench-trainer
# The libraries that the adapters of the client are for.
ADAPTERS_VENV := .venv-adapters
BENCH_TRAINER_BIN := $(BENCH_TRAINER_VENV)/bin
# The fuzzer beside ours: it has wheels for some versions of Python alone.
FUZZ_VENV := .venv-fuzz
CHECKED := app accounting calibrators trainer migrations tests benchmarks docs clients

# A run of the tests starts hundreds of interpreters. Where Python is told to keep no compiled modules, each of them
# compiles all that it loads, which takes longer than what it does.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help serve worker dask proofs tracing cuda12 cuda13 migrate test test-all check format docs site site-version lock openapi soak fuzz test-adapters bench-accounting bench-ledger bench-http bench-screens bench-runs bench-defaults bench-papers bench-trainer bench-gpu clean
.DELETE_ON_ERROR:

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Side by side: what is compiled needs one core for half a minute, and few of the packages.
SET_UP = $(MAKE) --no-print-directory --jobs=2 $(VENV)/.runtime $(VENV)/.engine

serve:  ## set up, migrate and serve on http://127.0.0.1:8000
	@$(SET_UP)
	@$(BIN)/python -m app serve --migrate

worker:  ## execute queued runs in a process of their own (the server starts one by itself)
	@$(SET_UP)
	@$(BIN)/python -m app worker

dask: $(VENV)/.dask  ## install what runs need to be trained on a Dask cluster (docs/operating/dask.md)

proofs: $(VENV)/.runtime  ## install what certificates are checked with before they are handed out (docs/concepts/certificates.md)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes -r requirements/proofs.txt

tracing: $(VENV)/.runtime  ## install what traces are sent with (docs/operating/tracing.md)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes -r requirements/tracing.txt

cuda12 cuda13: $(VENV)/.runtime  ## install what workers need for EPSILOND_DEVICE=cuda, by the machine's CUDA (docs/operating/gpu.md)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: -r requirements/$@.txt

migrate: $(VENV)/.runtime  ## bring the database named by EPSILOND_DATABASE_URL to the newest schema
	@$(BIN)/python -m app migrate

# Two processes more than there are cores: many tests wait for a server or a clock.
TESTS = OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTEST_XDIST_AUTO_NUM_WORKERS=$$(( $$(getconf _NPROCESSORS_ONLN) + 2 )) \
	$(BIN)/python -m pytest

ifdef T
test: $(VENV)/.dev
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 0 $(T)
else
test: $(VENV)/.dev  ## lint, types, layers, then all tests but the thorough ones; T=path runs one file or one test alone
	@# Side by side, as neither uses more than one core.
	@$(MAKE) --no-print-directory --jobs=2 check $(VENV)/.compiled
	@echo "== tests"
	@$(TESTS) -m "not soak and not thorough"
endif

test-all: $(VENV)/.dev $(VENV)/.compiled  ## the thorough tests, which `make test` leaves out; those with Chromium, nginx and Caddy where they are installed
	@echo "== thorough tests"
	@$(TESTS) -m "thorough and not soak"

check: $(VENV)/.dev  ## lint, types and the direction of dependencies
	@echo "== lint"
	@$(BIN)/ruff check $(wildcard $(CHECKED))
	@$(BIN)/ruff format --check $(wildcard $(CHECKED))
	@echo "== types"
	@$(BIN)/mypy
	@echo "== layers"
	@$(BIN)/lint-imports --no-cache

soak: $(VENV)/.dev  ## the long campaigns; reports go to tests/soak/reports
	@$(BIN)/python -m pytest -m soak -o addopts="-q -p no:cacheprovider" tests

fuzz: $(FUZZ_VENV)/.ready  ## coverage-guided fuzzing of what reads bytes of others, 11 minutes; writes tests/soak/reports/fuzz.json
	@$(FUZZ_VENV)/bin/python -m tests.fuzz

test-adapters: $(ADAPTERS_VENV)/.ready  ## the client's adapters against the real libraries, Opacus to Flower; writes clients/python/adapter_tests/report.json
	@$(ADAPTERS_VENV)/bin/python -m pytest -c clients/python/adapter_tests/pytest.ini \
		--report clients/python/adapter_tests/report.json clients/python/adapter_tests

# One thread for either side: a ratio then compares the work, not the number of cores.
bench-accounting: $(BENCH_VENV)/.ready $(BENCH_JAX_VENV)/.ready  ## our numbers and times beside five other accountants', our matrices beside JAX Privacy's; the results go to docs/measured.md
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BENCH_BIN)/python -m benchmarks.accounting
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BENCH_BIN)/python -m benchmarks.accounting.filter_prices
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BENCH_BIN)/python -m benchmarks.accounting.allocations
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BENCH_JAX_BIN)/python -m benchmarks.accounting.factorisations
	@$(BENCH_BIN)/python -m benchmarks.table

bench-ledger: $(VENV)/.dev  ## the ledger beside pgbench and a bare endpoint on one machine, and verification of a million entries; the results go to docs/measured.md
	@$(BIN)/python -m benchmarks.ledger
	@$(BIN)/python -m benchmarks.ledger.verifying
	@$(BIN)/python -m benchmarks.table

bench-http: $(VENV)/.dev  ## calibrations over HTTP beside the engine in process and a bare endpoint, and uploads as NPZ beside CSV; the results go to docs/measured.md
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.http
	@$(BIN)/python -m benchmarks.http.uploads
	@$(BIN)/python -m benchmarks.table

bench-screens: $(VENV)/.dev  ## the dashboard's screens in Chromium, first and next visits, beside a plain file; the results go to docs/measured.md
	@$(BIN)/python -m benchmarks.screens
	@$(BIN)/python -m benchmarks.table

bench-runs: $(VENV)/.dev  ## what a run costs beside its training, the time and memory of large runs beside what is stated of them, and how runs share a Dask cluster; the results go to docs/measured.md
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.runs
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.runs.minutes
	@$(BIN)/python -m benchmarks.runs.memory
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.runs.on_dask
	@$(BIN)/python -m benchmarks.table

bench-trainer: $(BENCH_TRAINER_VENV)/.ready  ## a private step beside torch's and Opacus', on two cores; the results go to docs/measured.md
	@$(BENCH_TRAINER_BIN)/python -m benchmarks.trainer
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BENCH_TRAINER_BIN)/python -m benchmarks.trainer.release
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BENCH_TRAINER_BIN)/python -m benchmarks.trainer.correlated
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BENCH_TRAINER_BIN)/python -m benchmarks.trainer.few_epochs
	@$(BENCH_TRAINER_BIN)/python -m benchmarks.table

# CuPy has to be the one for the machine's CUDA: `make cuda12` or `make cuda13` before.
bench-gpu: $(VENV)/.runtime  ## a private step on a GPU beside a plain one there and ours on the host; says so where there is no GPU
	@$(BIN)/python -m benchmarks.gpu
	@$(BIN)/python -m benchmarks.table

bench-defaults: $(VENV)/.dev $(BENCH_TRAINER_VENV)/.ready  ## what a run attains that is given data, model and target, beside a grid by hand, Opacus and no privacy, and beside correlated noise and other step sizes (hours; goes on where it was stopped); the results go to docs/measured.md
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.defaults
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.defaults.correlated
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.defaults.step_sizes
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BENCH_TRAINER_BIN)/python -m benchmarks.defaults.with_opacus
	@$(BIN)/python -m benchmarks.table

bench-papers: $(VENV)/.dev  ## the papers' theorems in their own settings; the results go to docs/algorithms/reproductions.md
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.papers
	@$(BIN)/python -m benchmarks.table

format: $(VENV)/.dev  ## apply the formatter
	@$(BIN)/ruff format $(wildcard $(CHECKED))
	@$(BIN)/ruff check --fix $(wildcard $(CHECKED))

openapi: $(VENV)/.dev  ## regenerate openapi.json, with the answers of a fresh server as its examples (tests compare both)
	@$(BIN)/python -m tests.contract.make_openapi

docs: $(VENV)/.dev  ## regenerate the pages of settings, errors, commands, paths and campaigns (tests compare them), and write those of algorithms
	@$(BIN)/python -m docs.reference.generate
	@$(BIN)/python -m docs.reference.http_pages
	@$(BIN)/python -m docs.reference.evidence
	@$(BIN)/python -m docs.reference.published
	@$(BIN)/python -m docs.algorithms.generate

site: $(VENV)/.dev  ## the documentation as a site in .site/html, offline; warnings are errors
	@$(BIN)/python -m docs.algorithms.generate
	@$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --conf-dir docs/site --doctree-dir .site/doctrees \
		. .site/html

site-version: site  ## the site as that of this version in .site/versions, beside those of other versions and `latest`
	@$(BIN)/python -m docs.site.versions .site/html .site/versions "$$($(BIN)/python -c 'from app import VERSION; print(VERSION)')"

lock: $(VENV)/.dev  ## resolve pyproject.toml anew into requirements/*.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-annotate \
		--custom-compile-command "make lock" pyproject.toml -o requirements/runtime.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-annotate \
		--custom-compile-command "make lock" pyproject.toml --group dask -o requirements/dask.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-annotate \
		--custom-compile-command "make lock" pyproject.toml --group dev -o requirements/dev.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-annotate \
		--custom-compile-command "make lock" pyproject.toml --group bench -o requirements/bench.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-annotate \
		--custom-compile-command "make lock" --group release -o requirements/release.lock

clean:  ## remove the virtual environments and caches (var/, where the data are, stays)
	rm -rf .site $(VENV) $(BENCH_VENV) $(BENCH_JAX_VENV) $(BENCH_TRAINER_VENV) $(FUZZ_VENV) $(ADAPTERS_VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' \
		|| { echo "epsilond needs Python 3.11 to 3.14; $(PYTHON) is another. Try: make PYTHON=python3.13 serve"; exit 1; }
	@echo "== creating $(VENV)"
	@$(PYTHON) -m venv $(VENV) \
		|| { echo "Python's venv module is missing; on Debian: apt install python3-venv"; rm -rf .site $(VENV); exit 1; }

# The program `epsilond`, which runs this checkout from any folder.
$(BIN)/epsilond: app/cli/launcher.py | $(VENV)/bin/python
	@$(BIN)/python -m app.cli.launcher

# The packages that the inner loops are compiled with come first, and the rest while that is done.
$(VENV)/.numbers: requirements/runtime.lock | $(BIN)/epsilond
	@echo "== installing the locked dependencies (once; later calls skip this)"
	@for each in cffi cryptography llvmlite numba numpy pycparser randomgen scipy; do sed -n "/^$$each==/,/[^\\]$$/p" $<; done > $(VENV)/numbers.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes --only-binary :all: \
		-r $(VENV)/numbers.lock
	@touch $@

# What Python makes of the modules when they are first loaded is kept; the first start would wait for it.
$(VENV)/.runtime: requirements/runtime.lock | $(VENV)/.numbers
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes --only-binary :all: -r $<
	@$(BIN)/python -c "import app.main"
	@touch $@

$(VENV)/.dev: requirements/dev.lock | $(BIN)/epsilond
	@echo "== installing the locked development dependencies (once; later calls skip this)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes --only-binary :all: -r $<
	@touch $@ $(VENV)/.numbers $(VENV)/.runtime $(VENV)/.dask

$(VENV)/.dask: requirements/dask.lock | $(BIN)/epsilond
	@echo "== installing the locked dependencies with Dask's (once; later calls skip this)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes --only-binary :all: -r $<
	@touch $@ $(VENV)/.numbers $(VENV)/.runtime

# No request and no test waits for numba's compiler.
$(VENV)/.engine: accounting/compiled.py accounting/warm_up.py trainer/warm_up.py \
		$(wildcard accounting/fourier/*.py trainer/exact/*.py) | $(VENV)/.numbers
	@$(BIN)/python -m trainer.warm_up
	@touch $@

# The first collection compiles every module and rewrites every test; otherwise each process of the tests would do it.
$(VENV)/.compiled: $(VENV)/.dev $(VENV)/.engine
	@$(BIN)/python -m pytest -n 0 --collect-only -qq >/dev/null || true  # What is wrong is told when the tests run.
	@touch $@

# --no-deps: the lock is complete but for what pyproject.toml excludes. setuptools first: it builds autodp, which has
# no wheel, and is then the locked one and not whatever is newest.
$(BENCH_VENV)/.ready: requirements/bench.lock
	@echo "== installing the peers into $(BENCH_VENV) (once; later calls skip this)"
	@$(PYTHON) -m venv --clear $(BENCH_VENV) && echo '*' > $(BENCH_VENV)/.gitignore
	@sed -n '/^setuptools==/,/[^\\]$$/p' $< > $(BENCH_VENV)/setuptools.lock
	@$(BENCH_BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
		--only-binary :all: -r $(BENCH_VENV)/setuptools.lock
	@$(BENCH_BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
		--only-binary :all: --no-binary autodp --no-build-isolation -r $<
	@touch $@

$(FUZZ_VENV)/.ready: requirements/runtime.lock requirements/fuzz.txt
	@echo "== installing the fuzzer into $(FUZZ_VENV) (once; later calls skip this)"
	@$(PYTHON) -m venv --clear $(FUZZ_VENV) && echo '*' > $(FUZZ_VENV)/.gitignore
	@$(FUZZ_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		--only-binary :all: -r requirements/runtime.lock
	@$(FUZZ_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		--only-binary :all: -r requirements/fuzz.txt
	@touch $@

$(BENCH_JAX_VENV)/.ready: requirements/runtime.lock requirements/bench-jax.txt
	@echo "== installing JAX Privacy into $(BENCH_JAX_VENV) (once; later calls skip this)"
	@$(PYTHON) -m venv --clear $(BENCH_JAX_VENV) && echo '*' > $(BENCH_JAX_VENV)/.gitignore
	@$(BENCH_JAX_BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		--only-binary :all: -r requirements/runtime.lock
	@$(BENCH_JAX_BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: \
		-r requirements/bench-jax.txt
	@touch $@

$(BENCH_TRAINER_VENV)/.ready: requirements/runtime.lock requirements/bench-trainer.txt
	@echo "== installing torch and Opacus into $(BENCH_TRAINER_VENV) (once; later calls skip this)"
	@$(PYTHON) -m venv --clear $(BENCH_TRAINER_VENV) && echo '*' > $(BENCH_TRAINER_VENV)/.gitignore
	@$(BENCH_TRAINER_BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		--only-binary :all: -r requirements/runtime.lock
	@$(BENCH_TRAINER_BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: \
		-r requirements/bench-trainer.txt
	@touch $@

$(ADAPTERS_VENV)/.ready: requirements/runtime.lock $(wildcard clients/python/adapter_tests/requirements*.txt)
	@echo "== installing torch, JAX and what is built on them into $(ADAPTERS_VENV) (once; later calls skip this)"
	@$(PYTHON) -m venv --clear $(ADAPTERS_VENV) && echo '*' > $(ADAPTERS_VENV)/.gitignore
	@$(ADAPTERS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		--only-binary :all: -r requirements/runtime.lock
	@$(ADAPTERS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: \
		-r clients/python/adapter_tests/requirements.txt
	@$(ADAPTERS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --no-deps \
		-r clients/python/adapter_tests/requirements-alone.txt
	@touch $@
