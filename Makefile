# make demo · test · dashboard · bench · setup · clean
# Needs Python 3.11 or newer. Everything lands in .venv; pip's own configuration is respected.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
RUNS ?= runs
WORKERS ?= 2

.PHONY: demo test lint dashboard bench setup clean

demo: $(VENV)/.core
	$(BIN)/interp demo

test: lint
	$(BIN)/pytest -n $(WORKERS)

lint: $(VENV)/.all
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

dashboard: $(VENV)/.dashboard
	$(BIN)/interp dashboard

bench: $(VENV)/.all
	$(BIN)/python -m benchmarks

setup: $(VENV)/.all

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.made:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; name one with PYTHON=..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	touch $@

# A stamp an extra: installed again only when pyproject.toml changes.
$(VENV)/.core: $(VENV)/.made pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.dashboard $(VENV)/.all: $(VENV)/.%: $(VENV)/.made pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[$*]"
	touch $@
