# Everything runs in .venv, which `make setup` makes; every other target does that first by itself.
#
#   make setup PYTHON=python3.12       with another Python
#   make setup TORCH_INDEX=https://download.pytorch.org/whl/cpu
#                                      with PyTorch's own CPU builds (smaller than the ones on PyPI)
#   make test JOBS=0 PYTEST_ARGS=-v    in one process, telling more

PYTHON      ?= python3
TORCH_INDEX ?=
JOBS        ?= 2
PYTEST_ARGS ?=

VENV := .venv
BIN  := $(VENV)/bin
PIP  := $(BIN)/python -m pip install --disable-pip-version-check $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -c constraints.txt
# All tests of a file go to one worker: what they train together is trained once.
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadscope $(PYTEST_ARGS)

# A stamp says: installed since pyproject.toml or constraints.txt last changed.
READY := $(VENV)/.ready
BENCH := $(VENV)/.ready-bench
DOCS  := $(VENV)/.ready-docs

.DEFAULT_GOAL := help
.PHONY: help setup check browser test test-slow fuzz bench demo docs clean

help: ## say what there is
	@echo "make <target>:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' Makefile | while IFS='|' read -r name what; do printf '  %-10s %s\n' $$name "$$what"; done

setup: $(READY) ## make .venv and install regard in it, with the tools of a developer

check: $(READY) ## lint, formatting, types, who imports whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

browser: ## install Chromium from Debian's packages, for the tests that use a real browser
	@if command -v chromium >/dev/null; then :; \
	elif command -v apt-get >/dev/null && test "$$(id -u)" = 0; then \
	  (apt-get install -y --no-install-recommends chromium fonts-noto-cjk || \
	    (apt-get update && apt-get install -y --no-install-recommends chromium fonts-noto-cjk)) >/dev/null 2>&1 \
	    || echo "Chromium could not be installed; the tests in a browser are skipped."; \
	else echo "No chromium here, and only root on Debian can install it; the tests in a browser are skipped."; fi

test: $(READY) browser ## every test but the slow ones: first with shapes checked, then the bare ones (see conftest.py)
	$(PYTEST)
	$(PYTEST) -m "bare and not slow"

test-slow: $(READY) ## the slow tests
	$(PYTEST) -m "slow and not bare" || test $$? -eq 5 # 5: there are none
	$(PYTEST) -m "slow and bare" || test $$? -eq 5

fuzz: $(READY) ## hostile input by the thousands: requests, damaged checkpoints, files of random bytes
	REGARD_FUZZ=full $(PYTEST) tests/fuzz
	REGARD_FUZZ=full $(PYTEST) -m "bare and not slow" tests/fuzz

bench: $(BENCH) ## measure against the textbook, PyTorch and other libraries
	$(BIN)/python -m benchmarks

demo: $(READY) ## see attention at work
	$(BIN)/python examples/demo.py

docs: $(DOCS) ## build the documentation into docs/_build
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

clean: ## remove what was built, but not .venv
	rm -rf build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print | xargs rm -rf

$(READY): pyproject.toml constraints.txt
	$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip
	$(PIP) -e ".[dev,draw,export,images,recipes,serve,tensorboard]"
	@touch $@

$(BENCH): $(READY)
	$(PIP) -e ".[bench]"
	@touch $@

$(DOCS): $(READY)
	$(PIP) -e ".[docs]"
	@touch $@
