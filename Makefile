# Everything a newcomer or a build machine needs. `make help` lists the targets.
#
# Set-up steps leave a stamp in .cache/make, so they run once and again only when what they read
# has changed. Nothing is installed outside the tree except Debian packages (kcat, a JDK, Maven),
# and those only for the tests.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Its owner may want no __pycache__, but tests start hundreds of processes, each of which would
# compile all of its modules.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CACHE := .cache
STAMPS := $(CACHE)/make
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input --quiet --retries 10 --timeout 60

# What may be set on the command line.
PORT ?= 9092
DATA ?= data
BOOTSTRAP ?=
N ?=
STEPS ?= 1000000
MUTANTS ?= 50
SEED ?=
ARGS ?=
# Processes that share the suites of `make test`; 1 for one after another, in the order of the layers.
WORKERS ?= 4

# In the order of the layers, so that a broken foundation is reported first.
TYPES := $(wildcard $(foreach depth,* */* */*/*,$(addprefix kohort/,$(addsuffix /$(depth).pxd,protocol client broker))))
COMPILED := $(TYPES) $(TYPES:.pxd=.py) \
            kohort/protocol/hot.py \
            $(wildcard accelerated/codecs/* kohort/protocol/compiler/*.py kohort/protocol/messages/*.py)
SUITES ?= $(wildcard $(addprefix tests/,unit property simulation integration interop crash fuzz pipeline))
PYTEST := $(BIN)/python -m pytest $(ARGS)
PREPARED := $(addprefix $(STAMPS)/,test java archive jars)
# Downloads, compilers and checkers wait for different things.
SIDE_BY_SIDE := --no-print-directory --jobs=4

.PHONY: help run test test-long mutants lint types imports format unit property simulation simulate integration \
        interop crash fuzz pipeline pipeline-demo bench docs site dist check clean setup

help: ## this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(STAMPS)/core ## start the broker on localhost:9092, data under ./data (PORT=, DATA=)
	exec $(BIN)/kohort serve --port $(PORT) --data $(DATA) $(ARGS)

test: ## everything: static checks, then every suite in its short form (WORKERS= processes)
	@$(MAKE) $(SIDE_BY_SIDE) lint types imports $(PREPARED)
	$(PYTEST) --durations=20 $(if $(filter-out 1,$(WORKERS)),-n $(WORKERS) --dist loadgroup --no-loadscope-reorder) $(SUITES)

# Each suite on its own, so that one that fails or hangs leaves the others their turn and their report.
# pytest ends with 5 where ARGS="-k ..." leaves nothing to run.
LONG := $(PYTEST) --long --asyncio-debug --timeout=3600 --verbose --durations=20

test-long: $(STAMPS)/long $(PREPARED) ## hours: the long form of every suite, and mutants, with progress (SUITES="tests/crash tests/fuzz", STEPS=, MUTANTS=)
	@failed=; number=0; \
	for suite in $(SUITES); do \
	    number=$$((number + 1)); \
	    echo "== $$(date +%H:%M:%S) suite $$number of $(words $(SUITES)), then tests.simulation: $$suite"; \
	    $(LONG) $$suite || test $$? -eq 5 || failed="$$failed $$suite"; \
	done; \
	echo "== $$(date +%H:%M:%S) new seeds: tests.simulation"; \
	$(BIN)/python -m tests.simulation --steps $(STEPS) || failed="$$failed tests.simulation"; \
	echo "== $$(date +%H:%M:%S) mutants: $(MUTANTS)"; \
	test $(MUTANTS) = 0 || $(BIN)/python -m scripts.mutants --count $(MUTANTS) || failed="$$failed mutants"; \
	echo "== $$(date +%H:%M:%S) $${failed:+failed:$$failed}"; \
	test -z "$$failed"

mutants: $(STAMPS)/test $(PREPARED) ## mutation testing: change one line at a time; a test must fail (MUTANTS=, ARGS="--seed 7")
	$(BIN)/python -m scripts.mutants --count $(MUTANTS) $(ARGS)

lint: $(STAMPS)/test ## style and formatting, without changing anything
	$(BIN)/ruff check --quiet
	$(BIN)/ruff format --check --quiet

types: $(STAMPS)/test ## mypy --strict over sources and tests
	$(BIN)/mypy

imports: $(STAMPS)/test ## the import rules of the packages
	$(BIN)/lint-imports --cache-dir $(CACHE)/import-linter --no-logo

format: $(STAMPS)/test ## format the sources with ruff
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format --quiet

unit: $(STAMPS)/test ## every module on its own, on all cores
	$(PYTEST) -n logical tests/unit

property: $(STAMPS)/test $(STAMPS)/java ## codecs against construct and Java; log and group against models
	$(PYTEST) tests/property

simulation: $(STAMPS)/test ## the whole broker and its clients on virtual time, from fixed seeds
	$(PYTEST) tests/simulation

simulate: $(STAMPS)/test ## go on with groups, whole brokers and lives of many consumers from new seeds (STEPS=1000000, SEED= to repeat)
	$(BIN)/python -m tests.simulation --steps $(STEPS) $(if $(SEED),--seed $(SEED))

integration: $(STAMPS)/test ## real sockets and files, one process
	$(PYTEST) tests/integration

interop: $(STAMPS)/archive ## real clients against Kohort, or any broker (BOOTSTRAP=host:port)
	BOOTSTRAP=$(BOOTSTRAP) $(PYTEST) tests/interop --long

crash: $(STAMPS)/test ## kill -9 under load, restart, read everything back (N= times in each test)
	$(PYTEST) tests/crash $(if $(N),--timeout=0 $(addsuffix =$(N),--crash-runs --group-kills --watch-kills))

fuzz: $(STAMPS)/test ## mutated frames and random bytes (N= frames; the default here is 2,000,000)
	$(PYTEST) tests/fuzz --timeout=0 --fuzz-frames=$(or $(N),2000000)

LAKE ?= .cache/demo-lake
DEMO = --lake $(LAKE) --jars .cache/jars

# A PySpark other than that of constraints-dev.txt, in front of it.
SPARK ?=
OTHER_SPARK := $(if $(SPARK),$(CACHE)/pyspark-$(SPARK))
$(CACHE)/pyspark-%:
	$(PIP) install --no-deps --target $@ pyspark==$*
	PYTHONPATH=$@ scripts/retry scripts/fetch-spark-jars $(BIN)/python $(CACHE)/jars

pipeline: $(STAMPS)/long $(STAMPS)/java $(STAMPS)/jars $(OTHER_SPARK) ## the Spark jobs against real brokers, with 20 kills of each kind (N= kills, SPARK=4.0.1)
	$(if $(SPARK),PYTHONPATH=$(abspath $(OTHER_SPARK))) $(PYTEST) tests/pipeline tests/simulation/test_what_if.py --timeout=0 --long --pipeline-kills=$(or $(N),20) \
		--what-if-traces=120

pipeline-demo: $(STAMPS)/spark ## a recorded week: tables, advice and report (LAKE= directory)
	$(BIN)/kohort pipeline rebalances $(DEMO) --from examples/rebalance-week/week.jsonl.gz --cluster-id example
	$(BIN)/kohort pipeline advise $(DEMO) --topic ""
	$(BIN)/kohort pipeline report $(DEMO) --output $(LAKE)/report.html

bench: $(STAMPS)/test $(STAMPS)/java ## speed and memory in one table, beside a real Kafka in the same run (ARGS="rpc --runs=1")
	$(BIN)/python -m benchmarks $(ARGS)

docs: $(STAMPS)/test ## rewrite the documents that are derived from the sources
	$(BIN)/python -m scripts.derived_docs

site: docs ## the documents as pages with a search, in .cache/site; a broken link is an error
	$(BIN)/python -m scripts.docs_site $(CACHE)/site-sources
	$(BIN)/mkdocs build --quiet --strict --config-file $(CACHE)/site-sources/mkdocs.yml --site-dir $(CURDIR)/$(CACHE)/site
	@echo "$(CACHE)/site/index.html"

PYTHONS ?= python3.11 python3.12 python3.13 python3.14

dist: ## an sdist and wheels in dist/, for each Python that is there, installed and started (PYTHONS=)
	scripts/make-dist $(CACHE) $(PYTHONS)

check: lint types imports unit ## all that is quick, for before a commit

clean: ## remove everything that can be rebuilt; ./data stays
	rm -rf $(VENV) $(CACHE) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# What an extra needs, where Kohort itself is installed and would only be compiled once more.
install-extra = $(BIN)/python -m scripts.extra_requirements $(1) | \
    $(PIP) install --constraint constraints-dev.txt --requirement /dev/stdin

setup: ## install what the tests need, without running them
	@$(MAKE) $(SIDE_BY_SIDE) $(PREPARED)

# These take most of the minute before the first start, so pip may say what it does.
$(BIN)/python:
	@echo "Creating the virtual environment $(VENV): some seconds"
	@scripts/make-venv $(PYTHON) $(VENV)

# Building compiles the hot codecs and the modules that have a .pxd, if there is a compiler.
$(STAMPS)/core: pyproject.toml constraints.txt accelerated/build_hook.py $(COMPILED) | $(BIN)/python
	@mkdir -p $(STAMPS)
	@echo "Installing Kohort and its packages, and compiling $(words $(TYPES) hot_codecs) modules if there is a C compiler: about a minute"
	@$(filter-out --quiet,$(PIP)) install --constraint constraints.txt --editable .
	@touch $@

$(STAMPS)/test: constraints-dev.txt $(STAMPS)/core
	@command -v cc >/dev/null || \
	    { scripts/apt-install gcc libc6-dev python3-dev && \
	        $(PIP) install --constraint constraints.txt --no-deps --editable .; } || \
	    echo "no C compiler: what would be compiled runs as Python, and is tested so" >&2
	@echo "Installing what the tests need: some minutes if Spark has to be fetched"
	@$(call install-extra,dev)
	@touch $@

$(STAMPS)/long: $(STAMPS)/test
	@echo "Installing what the long forms of the tests need"
	@$(call install-extra,dev-long)
	@touch $@

# What users of the pipeline install, and Java, for the demo alone.
$(STAMPS)/spark: kohort/pipeline/jars.lock constraints-dev.txt $(STAMPS)/core
	@command -v java >/dev/null || scripts/apt-install default-jre-headless
	@echo "Installing Spark and Delta, and fetching their jars: one to three minutes"
	@$(call install-extra,spark)
	scripts/retry scripts/fetch-spark-jars $(BIN)/python $(CACHE)/jars
	@touch $@

# Debian packages: the librdkafka that Debian ships (kcat), and Java for Kafka's own client.
$(STAMPS)/system: scripts/install-system-tools
	@mkdir -p $(STAMPS)
	scripts/install-system-tools
	@touch $@

# Spark's connector and Delta, exactly as listed. Without Java nothing is fetched; tests/pipeline then skips.
$(STAMPS)/jars: kohort/pipeline/jars.lock $(STAMPS)/test $(STAMPS)/system
	scripts/retry scripts/fetch-spark-jars $(BIN)/python $(CACHE)/jars
	@touch $@

$(STAMPS)/java: tests/java/pom.xml $(wildcard tests/java/*.java tests/java/*/*.java) scripts/fetch-jars $(STAMPS)/system
	scripts/fetch-jars $(CACHE)/java
	@touch $@

# Without Java there is nothing to archive, and a Kafka would start without it, in twice the time.
$(STAMPS)/archive: $(STAMPS)/java $(STAMPS)/test tests/support/brokers/class_archive.py
	@! test -d $(CACHE)/java/broker || $(BIN)/python -m tests.support.brokers.class_archive
	@touch $@
