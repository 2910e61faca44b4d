# Everything a developer runs. `make help` lists it; CI runs `make test`.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# INSTALL BIN CONSTRAINTS: uv does it in half the time that pip takes. Where it finds no packages,
# for it reads no settings of pip's, pip does. All that is pinned comes first, at once: what PySpark
# depends on is known when it is here, and until then nothing else would be fetched. It comes as
# sources: to compress the wheel that is made of them and unpacked at once took as long as all the rest.
PACKAGES = --constraint $(2) --group dev --editable ".[zookeeper]"
UV = $(1)/uv pip install --quiet --system-certs --python $(1)/python \
  --config-settings-package pyspark:--build-option=--compression=stored
INSTALL = $(1)/python -m pip install --quiet --upgrade "pip>=25.1,<27" "uv>=0.13,<0.14" \
  && { { $(UV) --no-deps --requirements $(2) && $(UV) $(PACKAGES); } \
    || $(1)/python -m pip install --quiet --no-compile $(PACKAGES); }

.DEFAULT_GOAL := help
# No target here is a file.
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' Makefile)

# Tests start many processes, which would each compile the sources anew.
unexport PYTHONDONTWRITEBYTECODE

# Runs targets side by side; what each has to say comes in one piece when it is done.
BESIDE := --no-print-directory --jobs=2 --output-sync=target

# Unbuffered, because progress is to show when it is made; the slowest tests come at the end.
PYTEST := $(BIN)/python -u -m pytest --durations=10
# A single long test may take half an hour on a machine that has other work.
PATIENT := --timeout=14400
SUITES := $(BIN)/python scripts/suites.py
# RECORD=1 makes a suite that passes write down that it did, in docs/suites.json and docs/suites.md.
RECORDED = $(if $(RECORD),$(SUITES) record $@)

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

install: $(STAMP) ## make .venv with everything in it; does nothing when up to date

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "headwater needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(call INSTALL,$(BIN),constraints.txt)
	@touch $(STAMP)

java:
	@scripts/ensure-java.sh

fmt: install ## format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lint: install ## formatting and lint
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

# In one process: workers of mypy's must be up within three seconds, which a busy machine may not manage.
types: install ## mypy, strict
	@$(BIN)/mypy

layers: install ## imports point down only
	@$(BIN)/lint-imports

# Three workers would each compile all tests; compiled once, they are there for all of them.
collect: install
	@said="$$($(BIN)/python -m pytest --collect-only --quiet 2>&1)" || { echo "$$said"; exit 1; }

# Some of these wait more than they compute, so three share two cores.
unit: install java ## the tests that need no session of Spark, the short simulation among them
	@$(RECORDED) $(PYTEST) -n 3 --dist worksteal --ignore=tests/spark --ignore=tests/hudi --ignore=tests/stores

test-locks: install java ## the same on tables without a journal, whose writers share a lock
	@HEADWATER_TEST_TABLES=lock $(RECORDED) $(PYTEST) -n 3 --dist worksteal --ignore=tests/spark --ignore=tests/hudi --ignore=tests/stores --ignore=tests/simulation

test-spark: install java ## the tests that share one session of Spark, in one process
	@$(RECORDED) $(PYTEST) tests/spark

# The oldest Spark is that of constraints.txt, and the newest has an environment of its own.
NEWEST := .venv-newest

test-spark-newest: java ## the same with the newest Spark that is admitted, in .venv-newest
	@test -x $(NEWEST)/bin/python || $(PYTHON) -m venv $(NEWEST)
	@$(call INSTALL,$(NEWEST)/bin,constraints-newest.txt)
	@$(NEWEST)/bin/python -u -m pytest --durations=10 tests/spark

test-cluster: install java ## all Spark tests on a standalone cluster of two workers
	@HEADWATER_TEST_SPARK=standalone $(RECORDED) $(PYTEST) -m "" tests/spark

test-long: test-writers test-indexing chaos test-more test-history ## what takes minutes, and two hours of histories

test-more: install java ## tests with more rows, shapes and examples than make test takes
	@$(RECORDED) $(PYTEST) $(PATIENT) -n 2 --dist worksteal -m "long or hypothesis" --hypothesis-profile=long --ignore=tests/spark --ignore=tests/hudi --ignore=tests/stores --ignore=tests/processes --ignore=tests/console \
	  $(HISTORIES:%=--ignore=%)

# Of each of these a few steps are in make test.
HISTORIES := tests/unit/test_one_history.py tests/unit/test_bounded_journal.py

test-history: install ## 20,000 steps of random histories on tables of every kind; ten thousand commits without a lock; two hours
	@$(RECORDED) $(PYTEST) $(PATIENT) -n 2 --dist worksteal -m long $(HISTORIES)

# Atheris has wheels for Linux only; where it cannot be had, changes at random do what they can.
fuzz: install ## damaged bytes for every parser, led by coverage; every single bit of small files
	-@$(BIN)/python -m pip install --quiet "atheris>=3,<4"
	@if $(BIN)/python -c "import atheris" 2>/dev/null; \
	  then $(BIN)/python -m tests.support.coverage_fuzz --inputs $${HEADWATER_FUZZ_INPUTS:-40000}; \
	  else HEADWATER_FUZZ_INPUTS=$${HEADWATER_FUZZ_INPUTS:-40000} $(PYTEST) -m long tests/unit/fuzz; fi
	@$(PYTEST) -m long tests/unit/format/test_flipped_bits.py

test-stalls: install ## processes that stand still before any call of storage, on tables without a lock, and go on later
	@$(RECORDED) $(PYTEST) -n 2 --dist worksteal -m "" tests/processes/test_stalled_processes.py tests/processes/test_stalled_indexing.py

test-writers: install ## eight writer processes, fifty commits each: killed, with the same new keys, beside restores
	@HEADWATER_TEST_WRITERS=8 HEADWATER_TEST_COMMITS=50 $(RECORDED) $(PYTEST) -m "" tests/processes/test_writer_processes.py

test-indexing: install ## indexes of 2,000 files built beside four writers, killed and resumed; minutes
	@HEADWATER_TEST_INDEXED_FILES=2000 $(RECORDED) $(PYTEST) tests/processes/test_indexing_processes.py

kafka: install ## fetch Kafka's broker and Spark's package for it into a cache outside the project
	-@scripts/get-kafka.sh "$$($(BIN)/python -c 'from importlib.metadata import version; print(version("pyspark"))')"

test-ingest: install java kafka ## jobs of headwater ingest into one table, killed twenty times; Kafka's among them
	@$(RECORDED) $(PYTEST) -m "" tests/processes/test_ingest_processes.py

chaos: install ## five minutes of ingestion and table services while processes are killed
	@HEADWATER_CHAOS_SECONDS=300 $(RECORDED) $(PYTEST) tests/processes/test_chaos.py

auto: install ## ten minutes of service run --auto beside four writers, with figures
	@HEADWATER_AUTO_SECONDS=600 $(RECORDED) $(PYTEST) -s -m "" tests/processes/test_auto.py

hudi: install java ## fetch Apache Hudi's bundle for Spark into a cache outside the project
	-@PYTHON=$(PYTHON) scripts/get-hudi.sh

test-hudi: install java hudi stores ## both directions against Apache Hudi itself; skips where it cannot be had
	@$(RECORDED) $(PYTEST) tests/hudi

soak-hudi: install java hudi stores ## ten minutes of Hudi and us at once for each kind of lock and control, with kills
	@HEADWATER_SOAK_SECONDS=600 $(RECORDED) $(PYTEST) -m "" tests/hudi/test_both_at_once.py

still-hudi: install java hudi ## Hudi or us standing still before a call of storage, beside each operation of the other
	@HEADWATER_STILL_CASES=$${HEADWATER_STILL_CASES:-150} $(RECORDED) $(PYTEST) tests/hudi/test_one_stands_still.py

turns-hudi: install java hudi ## fifty commits of Hudi and us in turns, and the services of both, for each kind of table and index
	@$(RECORDED) $(PYTEST) -m long tests/hudi/test_in_turns.py

stores: ## fetch the object stores that tests run on loopback into a cache outside the project
	-@scripts/get-stores.sh

test-stores: install stores ## storage, operations, services and files on servers of S3 and Azure
	@$(RECORDED) $(PYTEST) -m "" tests/stores

chaos-stores: install stores ## ten minutes of six writers, services and an index build on a faulty S3 server
	@HEADWATER_STORE_CHAOS_MINUTES=10 $(RECORDED) $(PYTEST) -m "" tests/stores/test_store_chaos.py

test-console: install ## the console in the system's Chromium; SHOTS=docs/guide/console writes the guide's pictures
	-@scripts/get-console-tools.sh
	@HEADWATER_CONSOLE_SHOTS=$(SHOTS) $(RECORDED) $(PYTEST) -m "" tests/console tests/unit/console

test: install java ## all that CI runs; some ten minutes on two cores
	@$(MAKE) $(BESIDE) types lint layers collect
	@$(SUITES) beside "$(MAKE)" unit test-spark

# What is quick and looks everywhere comes first, so that a night that is cut short has said most.
ALL := test test-locks sim sim-long sim-fenced test-cluster test-more test-history test-writers test-stalls test-ingest chaos auto test-indexing test-stores test-console test-hudi \
  chaos-stores turns-hudi still-hudi soak-hudi

test-all: install java ## all of these in turn and to the end, recorded in docs/suites.md; for a night
	@$(SUITES) all "$(MAKE)" $(ALL)

sim: install ## every scenario to its bounds, every mutant, 500 seeds of the swarm; two minutes
	@$(RECORDED) $(BIN)/python -m headwater.testing.sim

sim-long: install ## 5,000 seeds of the swarm; minutes
	@$(RECORDED) $(BIN)/python -m headwater.testing.sim --swarm --count 5000

sim-fenced: install ## every scenario on tables without a lock, as far as two thousand states, and 5,000 seeds; ten minutes
	@$(RECORDED) $(BIN)/python -m headwater.testing.sim --fenced --states 2000 --count 5000

check: fmt test ## format, then all that CI runs

demo: install java ## many writers and services on one table, a minute and a half; ARGS=--hudi adds Apache Hudi
	@$(BIN)/python examples/demo.py $(ARGS)

# Those beside Hudi have a target of their own; the others that are left out are parts of some.
BENCHMARKS := $(filter-out benchmarks/hudi_% benchmarks/index_% benchmarks/spark_bench.py benchmarks/check.py benchmarks/targets.py benchmarks/slow_line.py benchmarks/scale_model.py,$(wildcard benchmarks/*.py))

bench-check: install java ## the targets of the benchmarks: which are held, which are missed
	@PYTHONPATH=. $(BIN)/python benchmarks/check.py $(ARGS)

bench: install java ## the benchmarks, each beside its floor
	@for file in $(BENCHMARKS); do PYTHONPATH=. $(BIN)/python $$file || exit 1; done

bench-hudi: install java ## the same jobs in Headwater and Apache Hudi; ARGS="--rows 100000" for a short one
	-@PYTHON=$(PYTHON) scripts/get-hudi.sh
	@PYTHONPATH=. $(BIN)/python benchmarks/hudi_bench.py --json docs/benchmarks/hudi.json --plot docs/benchmarks/hudi.svg $(ARGS)

docs: install ## regenerate the reference pages and build the site, build/site/index.html
	@$(BIN)/python -m headwater.config.reference > docs/reference/options.md
	@$(BIN)/python -m headwater.config.reference hudi > docs/reference/hudi-options.md
	@$(BIN)/python scripts/reference.py
	@$(SUITES) page
	@test -x build/docs/bin/python || $(PYTHON) -m venv build/docs
	@build/docs/bin/python -m pip install --quiet --upgrade "pip>=25.1,<27"
	@build/docs/bin/python -m pip install --quiet --group docs
	@build/docs/bin/zensical build --config-file mkdocs.yml --strict
	@echo "build/site/index.html"

release: install ## build wheel and sdist into dist, and check them: contents, metadata, an empty environment
	@PYTHON=$(PYTHON) scripts/release.sh

clean: ## remove .venv and caches
	rm -rf $(VENV) $(NEWEST) .mypy_cache .ruff_cache .pytest_cache .hypothesis
