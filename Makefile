# All targets run in .venv and create it first if it is missing.
#
#   make setup PYTHON=python3.12       with another version of Python
#   make setup TORCH_INDEX=https://download.pytorch.org/whl/cpu
#                                      with the CPU builds of PyTorch (smaller than those on PyPI)
#   make test JOBS=0 PYTEST_ARGS=-v    in one process, verbose

PYTHON      ?= python3
TORCH_INDEX ?=
JOBS        ?= 2
PYTEST_ARGS ?=

VENV := .venv
BIN  := $(VENV)/bin
PIP  := $(BIN)/python -m pip install --disable-pip-version-check $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -c constraints.txt
# All tests of a file run in one worker, so that a model shared by them is trained once. They start in the order of
# collection, so that the many short doctests fill the gaps at the end.
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadscope --no-loadscope-reorder $(PYTEST_ARGS)

# The many processes of a test run share compiled modules, also where the environment switches this off.
export PYTHONDONTWRITEBYTECODE :=

# Stamp files, newer than pyproject.toml and constraints.txt if the environment is up to date.
READY := $(VENV)/.ready
BENCH := $(VENV)/.ready-bench
DOCS  := $(VENV)/.ready-docs
RELEASE := $(VENV)/.ready-release

.DEFAULT_GOAL := help
.PHONY: help setup check browser test test-slow fuzz bench demo docs dist lock clean

help: ## list the targets
	@echo "make <target>:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' Makefile | while IFS='|' read -r name what; do printf '  %-10s %s\n' $$name "$$what"; done

setup: $(READY) ## create .venv and install regard with the development tools

check: $(READY) ## lint, formatting, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

browser: ## install Chromium from Debian's packages for the browser tests
	@if command -v chromium >/dev/null; then :; \
	elif command -v apt-get >/dev/null && test "$$(id -u)" = 0; then \
	  (apt-get install -y --no-install-recommends chromium fonts-noto-cjk || \
	    (apt-get update && apt-get install -y --no-install-recommends chromium fonts-noto-cjk)) >/dev/null 2>&1 \
	    || echo "Chromium could not be installed; the browser tests are skipped."; \
	else echo "No chromium here, and only root on Debian can install it; the browser tests are skipped."; fi

test: $(READY) browser ## all tests except the slow ones, in two passes: with and without shape checks (see conftest.py)
	$(PYTEST)
	$(PYTEST) -m "bare and not slow"

test-slow: $(READY) ## the slow tests
	$(PYTEST) -m "slow and not bare" || test $$? -eq 5 # 5: there are none
	$(PYTEST) -m "slow and bare" || test $$? -eq 5

fuzz: $(READY) ## fuzz tests with many more examples: requests, damaged checkpoints, random files
	REGARD_FUZZ=full $(PYTEST) tests/fuzz
	REGARD_FUZZ=full $(PYTEST) -m "bare and not slow" tests/fuzz

bench: $(BENCH) ## benchmarks against textbook code, PyTorch and other libraries
	$(BIN)/python -m benchmarks

demo: $(READY) ## train a small translator and draw its attention weights
	$(BIN)/python examples/demo.py

docs: $(DOCS) ## update the generated pages and build the documentation in docs/_build
	$(BIN)/python docs/generate.py
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

dist: $(RELEASE) ## build wheel and sdist in dist/, try the wheel in a clean environment, write its SBOM
	rm -rf dist build
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python tests/clean_install.py dist/*.whl build/clean
	$(BIN)/cyclonedx-py environment build/clean --pyproject pyproject.toml --output-file build/sbom.json

lock: $(RELEASE) ## update requirements.lock and that of the Docker image: all dependencies with hashes
	$(BIN)/uv pip compile pyproject.toml --quiet --upgrade --no-config --universal --python-version 3.10 --all-extras \
	  $(foreach group,dev docs bench release,--group $(group)) -c constraints.txt --generate-hashes --no-annotate \
	  --custom-compile-command "make lock" --output-file requirements.lock
	$(BIN)/uv pip compile pyproject.toml --quiet --no-config --universal --python-version 3.13 \
	  $(foreach extra,export images serve,--extra $(extra)) -c requirements.lock --overrides docker/overrides.txt \
	  --generate-hashes --no-annotate --custom-compile-command "make lock" --output-file docker/requirements.lock

clean: ## remove build output, but not .venv
	rm -rf build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print | xargs rm -rf

$(READY): pyproject.toml constraints.txt
	$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --upgrade "pip>=25.1" # for --group
	$(PIP) -e ".[draw,export,images,recipes,serve,tensorboard]" --group dev
	@touch $@

$(BENCH): $(READY)
	$(PIP) --group bench
	@touch $@

$(DOCS): $(READY)
	$(PIP) --group docs
	@touch $@

$(RELEASE): $(READY)
	$(PIP) --group release
	@touch $@
