# make env    the environment, .venv
# make demo   train on the embedded data set with and without curation, and print the scores
# make test   all tests
# make lint   style and formatting
# make bench  the benchmarks (minutes)
# The first three need Python 3.11 or newer and a package index, nothing else.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: env demo test lint bench

env: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed, $(PYTHON) is %d.%d: make env PYTHON=python3.12" % sys.version_info[:2])'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable ".[dev]" --constraint constraints.txt
	@touch $(STAMP)

demo: env
	$(BIN)/python -m captioning.training.demo

test: env
	$(BIN)/python -m pytest

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: env
	@set -e; for script in benchmarks/bench_*.py; do echo "== $$script"; $(BIN)/python $$script; done
