# Everything from a fresh machine that has Python 3.11 or newer and make. `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python -m
PIP := $(RUN) pip install --quiet --disable-pip-version-check --constraint constraints.txt
CODE := src tests benchmarks

# Every test of the command line starts Python: compiled modules are kept, whatever the surroundings say.
unexport PYTHONDONTWRITEBYTECODE

.NOTPARALLEL:
.PHONY: help demo test test-all check browser clean

help:
	@echo "make demo      install into $(VENV), then train, score and look inside a small translator (minutes, offline)"
	@echo "make test      style, types, import layers and the quick tests"
	@echo "make test-all  the same with the long tests"
	@echo "make clean     remove $(VENV), demo/ and all caches"

demo: $(VENV)/.installed
	@$(VENV)/bin/headway demo --out demo --overwrite

# Two at a time: most tests have one thread to keep busy.
test: check browser
	@$(RUN) pytest -n 2 --dist worksteal

test-all: check browser $(VENV)/.installed-long
	@$(RUN) pytest -m "not gpu"

check: $(VENV)/.installed-test
	@$(RUN) ruff check --quiet $(CODE)
	@$(RUN) ruff format --quiet --check $(CODE) || \
		{ echo "not formatted: run '$(RUN) ruff format $(CODE)'" >&2; exit 1; }
	@$(RUN) mypy
	@$(VENV)/bin/lint-imports --no-logo

# The page is tested in a real browser: Debian's, where it is missing and we may install it; else one line, and skips.
browser:
	@{ command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "installing chromium for the tests of the page" && \
		export DEBIAN_FRONTEND=noninteractive && \
		{ timeout 300 apt-get install -y -qq chromium || { timeout 120 apt-get update -qq && timeout 300 apt-get install -y -qq chromium; }; } </dev/null >/dev/null 2>&1; } || \
		echo "no Chromium and no way to install it: the tests of the page in a browser are skipped"

# Stamps: installing happens once, and again when what is to be installed has changed.
$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing headway into $(VENV) (torch is large: the first time takes minutes)"
	@$(PIP) --editable .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	@echo "installing the test tools"
	@$(PIP) --editable ".[test]"
	@touch $@

$(VENV)/.installed-long: $(VENV)/.installed-test
	@echo "installing what the long tests need"
	@$(PIP) --editable ".[test-long]"
	@touch $@

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "headway needs Python 3.11 or newer: name one, as in make PYTHON=python3.12 demo" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) demo build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache src/*.egg-info
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
