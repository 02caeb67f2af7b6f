# make demo        builds tables from real flights with Spark, serves them, asks them
# make test        everything that must pass
# make test-long   what finds more the longer it runs, for longer

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help demo test test-long check bench bench-full format docs hooks clean

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY) ## install what is needed, then the guided tour on real data (ARGS="--keep" leaves the server running)
	$(BIN)/stelae demo $(ARGS)

test: $(READY) ## all checks and tests, as in CI (ARGS="tests/stelae -k keys" runs some tests)
ifdef ARGS
	$(PYTEST) $(ARGS)
else
	@.ci/test $(BIN)
endif

test-long: $(READY) ## long forms of the tests that have one: random tables, schedules, crashes (ARGS="-k crash")
	$(PYTEST) --long $(ARGS)

check: $(READY) ## linters, types, deployment files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PATH="$(BIN):$$PATH" deploy/check

bench: $(READY) ## the benchmarks, quick: ratios to Redis, PostgreSQL and others (ARGS="--only lookup,latency")
	$(BIN)/python -m benchmarks --quick $(ARGS)

bench-full: $(READY) ## the benchmarks at full size
	$(BIN)/python -m benchmarks $(ARGS)

format: $(READY) ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY) ## regenerate the pages that are made from code
	$(BIN)/python -m docs.make_tables

hooks: $(READY) ## from now on, the checks run before each commit (pre-commit)
	$(BIN)/pre-commit install

clean: ## remove the environment and caches
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Made again when the dependencies change. The demo brings its own Java if the machine has none.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Stelae needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { echo "Python lacks venv. Install it: sudo apt-get install -y python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $(READY)
