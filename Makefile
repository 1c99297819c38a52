# Two commands for a fresh machine: `make demo` and `make test`. Each sets up .venv first, which is instant the second time.
.DEFAULT_GOAL := help
.PHONY: help venv demo lint test test-all format bench

PYTHON ?= python3
BIN := .venv/bin

help:  ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

venv:  ## make .venv and install everything pinned in constraints.txt
	@$(PYTHON) tools/install.py

demo: venv  ## train a small network to a fifth of its multiply–accumulates
	@$(BIN)/lzero train digits --out runs/demo --overwrite --compare

lint: venv  ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

test: lint  ## lint, types and tests
	@$(BIN)/pytest

test-all: lint  ## the same with the long tests
	@$(BIN)/pytest -m ""

format: venv  ## rewrite the sources as ruff formats them
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: venv  ## print the ratios of benchmarks/
	@for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done
