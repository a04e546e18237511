# Two commands are enough: `make serve` and `make test`. Each sets up what it needs inside this checkout, and is quick if
# nothing has changed. `make help` lists the others.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The other accountants have an environment of their own, because they need old versions of packages that we use.
BENCH_VENV := .venv-bench
BENCH_BIN := $(BENCH_VENV)/bin
# The environment of JAX Privacy.
BENCH_JAX_VENV := .venv-bench-jax
BENCH_JAX_BIN := $(BENCH_JAX_VENV)/bin
# The environment of torch and Opacus, which take gigabytes that only these benchmarks need.
BENCH_TRAINER_VENV := .venv-bench-trainer
# The environment of the libraries that the client has adapters for.
ADAPTERS_VENV := .venv-adapters
BENCH_TRAINER_BIN := $(BENCH_TRAINER_VENV)/bin
# The environment of the fuzzer, which has wheels only for some versions of Python.
FUZZ_VENV := .venv-fuzz
CHECKED := app accounting calibrators trainer migrations tests benchmarks docs clients

# The tests start hundreds of interpreters. If this variable is set, Python keeps no compiled modules, and each interpreter
# compiles everything that it loads, which takes longer than its test.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help serve worker dask proofs tracing cuda12 cuda13 migrate test test-all check format docs site site-version lock openapi soak fuzz test-adapters bench-accounting bench-ledger bench-http bench-screens bench-first-model bench-runs bench-defaults bench-papers bench-trainer bench-gpu clean
.DELETE_ON_ERROR:

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Compiling the inner loops takes one core half a minute and needs only a few packages, so the others are installed
# meanwhile.
SET_UP = $(MAKE) --no-print-directory --jobs=2 $(VENV)/.runtime $(VENV)/.engine

serve:  ## set up, migrate and serve on http://127.0.0.1:8000, or on the port that PORT=8010 names
	@$(SET_UP)
	@$(if $(PORT),EPSILOND_PORT=$(PORT)) $(BIN)/python -m app serve --migrate

worker:  ## carry out queued runs in a separate process (the server starts one by itself)
	@$(SET_UP)
	@$(BIN)/python -m app worker

dask: $(VENV)/.dask  ## install the packages for training on a Dask cluster (docs/operating/dask.md)

proofs: $(VENV)/.runtime  ## install the package with which certificates are checked (docs/concepts/certificates.md)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes -r requirements/proofs.txt

tracing: $(VENV)/.runtime  ## install the packages that send traces (docs/operating/tracing.md)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes -r requirements/tracing.txt

cuda12 cuda13: $(VENV)/.runtime  ## install the packages for EPSILOND_DEVICE=cuda with this version of CUDA (docs/operating/gpu.md)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: -r requirements/$@.txt

migrate: $(VENV)/.runtime  ## bring the database named by EPSILOND_DATABASE_URL to the newest schema
	@$(BIN)/python -m app migrate

# Two processes more than there are cores, because many tests wait for a server or a clock.
TESTS = OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTEST_XDIST_AUTO_NUM_WORKERS=$$(( $$(getconf _NPROCESSORS_ONLN) + 2 )) \
	$(BIN)/python -m pytest

ifdef T
test: $(VENV)/.dev
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 0 $(T)
else
test: $(VENV)/.dev  ## check lint, types and layers, then run all tests except the thorough ones; T=path runs only one file or test
	@# These run at the same time, because neither uses more than one core.
	@$(MAKE) --no-print-directory --jobs=2 check $(VENV)/.compiled
	@echo "== tests"
	@$(TESTS) -m "not soak and not thorough"
endif

test-all: $(VENV)/.dev $(VENV)/.compiled  ## run the thorough tests, which `make test` leaves out; tests that need Chromium, nginx or Caddy run if it is installed
	@echo "== thorough tests"
	@$(TESTS) -m "thorough and not soak"

check: $(VENV)/.dev  ## check lint, types and the direction of dependencies
	@echo "== lint"
	@$(BIN)/ruff check $(wildcard $(CHECKED))
	@$(BIN)/ruff format --check $(wildcard $(CHECKED))
	@echo "== types"
	@$(BIN)/mypy
	@echo "== layers"
	@$(BIN)/lint-imports --no-cache

soak: $(VENV)/.dev  ## run the long campaigns; reports go to tests/soak/reports
	@$(BIN)/python -m pytest -m soak -o addopts="-q -p no:cacheprovider" tests

fuzz: $(FUZZ_VENV)/.ready  ## fuzz everything that reads bytes from outside, for 11 minutes; writes tests/soak/reports/fuzz.json
	@$(FUZZ_VENV)/bin/python -m tests.fuzz

test-adapters: $(ADAPTERS_VENV)/.ready  ## test the client's adapters against the real libraries, from Opacus to Flower; writes clients/python/adapter_tests/report.json
	@$(ADAPTERS_VENV)/bin/python -m pytest -c clients/python/adapter_tests/pytest.ini \
		--report clients/python/adapter_tests/report.json clients/python/adapter_tests

# Both sides get one thread, so that a ratio compares the work and not the number of cores.
bench-accounting: $(BENCH_VENV)/.ready $(BENCH_JAX_VENV)/.ready  ## compare our numbers and times with five other accountants', and our matrices with JAX Privacy's; the results go to docs/measured.md
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BENCH_BIN)/python -m benchmarks.accounting
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BENCH_BIN)/python -m benchmarks.accounting.filter_prices
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BENCH_BIN)/python -m benchmarks.accounting.allocations
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BENCH_JAX_BIN)/python -m benchmarks.accounting.factorisations
	@$(BENCH_BIN)/python -m benchmarks.table

bench-ledger: $(VENV)/.dev  ## compare the ledger with pgbench and a bare endpoint, and verify a million entries; the results go to docs/measured.md
	@$(BIN)/python -m benchmarks.ledger
	@$(BIN)/python -m benchmarks.ledger.verifying
	@$(BIN)/python -m benchmarks.table

bench-http: $(VENV)/.dev  ## compare calibrations over HTTP with the engine in process and a bare endpoint, and uploads as NPZ with CSV; the results go to docs/measured.md
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.http
	@$(BIN)/python -m benchmarks.http.uploads
	@$(BIN)/python -m benchmarks.table

bench-screens: $(VENV)/.dev  ## compare the dashboard's screens in Chromium, at first and later visits, with a plain file; the results go to docs/measured.md
	@$(BIN)/python -m benchmarks.screens
	@$(BIN)/python -m benchmarks.table

bench-first-model: $(VENV)/.runtime  ## time a fresh clone up to its first answer and its first charged model, by the commands of README.md and a guide; the results go to docs/measured.md
	@$(BIN)/python -m benchmarks.first_model
	@$(BIN)/python -m benchmarks.table

bench-runs: $(VENV)/.dev  ## measure what a run costs beside its training, compare the time and memory of large runs with what is stated, and see how runs share a Dask cluster; the results go to docs/measured.md
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.runs
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.runs.minutes
	@$(BIN)/python -m benchmarks.runs.memory
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.runs.on_dask
	@$(BIN)/python -m benchmarks.table

bench-trainer: $(BENCH_TRAINER_VENV)/.ready  ## compare a private step with torch's and Opacus', on two cores; the results go to docs/measured.md
	@$(BENCH_TRAINER_BIN)/python -m benchmarks.trainer
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BENCH_TRAINER_BIN)/python -m benchmarks.trainer.release
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BENCH_TRAINER_BIN)/python -m benchmarks.trainer.correlated
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BENCH_TRAINER_BIN)/python -m benchmarks.trainer.few_epochs
	@$(BENCH_TRAINER_BIN)/python -m benchmarks.table

# This needs the CuPy for the machine's CUDA: run `make cuda12` or `make cuda13` first.
bench-gpu: $(VENV)/.runtime  ## compare a private step on a GPU with a plain one there and with ours on the host; says so if there is no GPU
	@$(BIN)/python -m benchmarks.gpu
	@$(BIN)/python -m benchmarks.table

bench-defaults: $(VENV)/.dev $(BENCH_TRAINER_VENV)/.ready  ## compare a run that is given only data, model and target with a grid by hand, Opacus, no privacy, correlated noise and other step sizes (takes hours, and continues where it was stopped); the results go to docs/measured.md
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.defaults
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.defaults.correlated
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.defaults.step_sizes
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BENCH_TRAINER_BIN)/python -m benchmarks.defaults.with_opacus
	@$(BIN)/python -m benchmarks.table

bench-papers: $(VENV)/.dev  ## measure what the papers' theorems promise, in their own settings; the results go to docs/algorithms/reproductions.md
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.papers
	@$(BIN)/python -m benchmarks.table

format: $(VENV)/.dev  ## apply the formatter
	@$(BIN)/ruff format $(wildcard $(CHECKED))
	@$(BIN)/ruff check --fix $(wildcard $(CHECKED))

openapi: $(VENV)/.dev  ## regenerate openapi.json and its examples, which are answers of a fresh server (tests compare both)
	@$(BIN)/python -m tests.contract.make_openapi

docs: $(VENV)/.dev  ## regenerate the pages of settings, errors, commands, endpoints and campaigns (tests compare them), and write those of the algorithms
	@$(BIN)/python -m docs.reference.generate
	@$(BIN)/python -m docs.reference.http_pages
	@$(BIN)/python -m docs.reference.evidence
	@$(BIN)/python -m docs.reference.published
	@$(BIN)/python -m docs.algorithms.generate

site: $(VENV)/.dev  ## build the documentation as a site in .site/html, offline; warnings are errors
	@$(BIN)/python -m docs.algorithms.generate
	@$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --conf-dir docs/site --doctree-dir .site/doctrees \
		. .site/html

site-version: site  ## put the site of this version into .site/versions, beside those of other versions and `latest`
	@$(BIN)/python -m docs.site.versions .site/html .site/versions "$$($(BIN)/python -c 'from app import VERSION; print(VERSION)')"

lock: $(VENV)/.dev  ## resolve the dependencies of pyproject.toml again into requirements/*.lock
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

clean:  ## remove the virtual environments and caches, but not var/, which has the data
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

# The packages that are needed to compile the inner loops come first; the others are installed while these compile.
$(VENV)/.numbers: requirements/runtime.lock | $(BIN)/epsilond
	@echo "== installing the locked dependencies (once; later calls skip this)"
	@for each in cffi cryptography llvmlite numba numpy pycparser randomgen scipy; do sed -n "/^$$each==/,/[^\\]$$/p" $<; done > $(VENV)/numbers.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes --only-binary :all: \
		-r $(VENV)/numbers.lock
	@touch $@

# Loading the modules once leaves their compiled form on the disk, so that the first start need not wait for it.
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

# The inner loops are compiled here, so that no request and no test waits for numba's compiler.
$(VENV)/.engine: accounting/compiled.py accounting/warm_up.py trainer/warm_up.py \
		$(wildcard accounting/fourier/*.py trainer/exact/*.py) | $(VENV)/.numbers
	@$(BIN)/python -m trainer.warm_up
	@touch $@

# Collecting the tests once compiles every module and rewrites every test; otherwise each test process would do it.
$(VENV)/.compiled: $(VENV)/.dev $(VENV)/.engine
	@$(BIN)/python -m pytest -n 0 --collect-only -qq >/dev/null || true  # Errors show when the tests run.
	@touch $@

# --no-deps is used because the lock is complete, except for packages that pyproject.toml excludes. setuptools comes
# first, because it builds autodp, which has no wheel, and otherwise the newest setuptools would be used.
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
