# Needs Python 3.11 or newer and make; everything else goes into .venv. Start with `make demo`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
DEVELOPMENT := $(VENV)/development-installed
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
INSTALL_LOCKED := $(PIP) install --quiet --require-hashes --no-deps --only-binary :all: --requirement

# tests start hundreds of processes, each of which would compile every module
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install demo up test quick check format docs chaos planted bench lock clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(INSTALLED) ## make .venv with exactly the packages of requirements.lock

$(INSTALLED): requirements.lock pyproject.toml clients/python/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo 'Headrace needs Python 3.11 or newer: make PYTHON=python3.11 …' >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(INSTALL_LOCKED) requirements.lock
	$(PIP) install --quiet --no-deps --no-build-isolation --editable . --editable ./clients/python
	@touch $@

$(DEVELOPMENT): $(INSTALLED) requirements-dev.lock
	$(INSTALL_LOCKED) requirements-dev.lock
	@touch $@

demo: install ## index a part of this repository and ask a few questions, in a minute or two
	@$(BIN)/headrace demo

up: install ## run servers, a worker and a gateway until Ctrl-C; prints a link to the pages
	@$(BIN)/headrace up

# two more than there are processors, because tests wait for half of their time
TESTERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 2)')

test: check ## check, then run every test
	$(BIN)/python -m pytest -n $(TESTERS) --dist worksteal

quick: check ## check, then run the tests that need no server (a minute)
	$(BIN)/python -m pytest -n 2 --dist worksteal tests/unit

check: $(DEVELOPMENT) ## check format, lint, types and the direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@# its processes have 3 s to start, which a busy machine may exceed; it ends with 2 then
	$(BIN)/mypy || { test $$? -eq 2 && $(BIN)/mypy --num-workers 0; }
	$(BIN)/lint-imports

format: $(DEVELOPMENT) ## fix format and lint
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: install ## write the generated parts of docs/reference/ again
	$(BIN)/python -m gateway.reference

SEEDS ?= 10
ifndef FIRST
FIRST := $(shell od -An -N2 -tu2 /dev/urandom | tr -d ' ')
endif
chaos: $(DEVELOPMENT) ## run every fault with SEEDS random seeds from FIRST on (a minute each)
	HEADRACE_TEST_SEEDS=$(FIRST)-$$(($(FIRST) + $(SEEDS) - 1)) $(BIN)/python -m pytest -n 4 tests/chaos

planted: $(DEVELOPMENT) ## break each promise in a copy of the code, and check that a test fails
	$(BIN)/python -m tests.chaos.planted_bugs

bench: install ## print every measured figure (minutes)
	@for name in indexing asking lanes replaying replay-load backlog doors watch; do $(BIN)/headrace bench $$name || exit 1; done

lock: ## write the two lock files again after a change of dependencies
	tools/lock

clean: ## remove .venv and caches; the state under HEADRACE_HOME stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
