# Needs Python 3.11 or newer and make; everything else goes into .venv. Start with `make demo`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input

.PHONY: help install demo up test quick check format chaos planted bench lock clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(INSTALLED) ## make .venv, with what requirements.lock names and nothing else

$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo 'Headrace needs Python 3.11 or newer: make PYTHON=python3.11 …' >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP) install --quiet --require-hashes --no-deps --only-binary :all: -r requirements.lock
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: install ## index a part of this repository and ask a few questions, in a minute or two
	@$(BIN)/headrace demo

up: install ## servers, migrations and workers, until Ctrl-C
	@$(BIN)/headrace up

# one more than processors, since much of it is waiting
TESTERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')

test: check ## check, then every test
	$(BIN)/python -m pytest -n $(TESTERS) --dist worksteal

quick: check ## check, then the tests that need no server (a minute)
	$(BIN)/python -m pytest -n 2 --dist worksteal tests/unit

check: install ## format, lint, types, directions of import
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install ## put the code in shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

SEEDS ?= 10
ifndef FIRST
FIRST := $(shell od -An -N2 -tu2 /dev/urandom | tr -d ' ')
endif
chaos: install ## every fault with SEEDS random seeds (a minute each), or those from FIRST on
	HEADRACE_TEST_SEEDS=$(FIRST)-$$(($(FIRST) + $(SEEDS) - 1)) $(BIN)/python -m pytest -n 4 tests/chaos

planted: install ## take each promise away from a copy of the code: tests must notice
	$(BIN)/python -m tests.chaos.planted_bugs

bench: install ## every measured figure (minutes)
	@for name in indexing asking lanes replaying replay-load backlog; do $(BIN)/headrace bench $$name || exit 1; done

lock: ## renew requirements.lock after a change of dependencies
	tools/lock

clean: ## remove what was made here; the state under HEADRACE_HOME stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
