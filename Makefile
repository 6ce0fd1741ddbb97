# Every target sets up what it needs: .venv, the locked packages (with a Node of its own for the clients in tests/clients
# and what checks the console's scripts) and, as root on Debian, missing system packages.
.DEFAULT_GOAL := help
BIN := .venv/bin
ARGS ?=
# Tests wait for servers at least as long as they compute: with one for each core, half of the time would be lost.
WORKERS ?= 6
# Hundreds of processes that tests start need not compile the same source each.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup serve test test-full test-lowest lint format types bench bench-full bench-peers docs manifests lock dist clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:
	@scripts/setup dev

serve:  ## start the server with embedded defaults: make serve ARGS="--port 9000"
	@scripts/setup serve
	@exec $(BIN)/antwort serve $(ARGS)

test: setup  ## run every test, in parallel: make test ARGS="-k registry"
	@$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

test-full: setup  ## the same with the large counts, and with a real model
	@scripts/setup model
	@ANTWORT_TEST_FULL=1 $(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

test-lowest: setup  ## the tests that use each dependency, with the lowest versions pyproject.toml names
	@scripts/lowest $(ARGS)

lint: setup  ## ruff: rules and formatting; the scripts of the console: types and rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@scripts/lint_console

format: setup  ## let ruff mend what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: setup  ## mypy, strict, on source and tests
	@$(BIN)/mypy

bench: setup  ## measure: ratios taken in one run; make bench ARGS="--only gateway"
	@$(BIN)/python -m benchmarks $(ARGS)

bench-full: setup  ## the same with more rounds, retrieval, ingestion, agents, growth, endurance, everything at once and attacks; takes two hours
	@$(BIN)/python -m benchmarks --full $(ARGS)

bench-peers: setup  ## other gateways beside antwort, in one run: make bench-peers ARGS="--markdown --plot"
	@$(BIN)/python -m benchmarks.peers $(ARGS)

docs: setup  ## regenerate the generated parts of docs/ and README.md
	@$(BIN)/python scripts/docs.py $(ARGS)

manifests: setup  ## render deploy/kubernetes/ from the Helm chart in deploy/chart/
	@$(BIN)/python scripts/chart.py

lock: setup  ## refresh requirements/*.txt from pyproject.toml
	@scripts/lock $(ARGS)

dist: setup  ## build the wheel and the source archive, and try the wheel in an empty environment: make dist ARGS="python3.13"
	@$(BIN)/python scripts/dist.py $(ARGS)

clean:  ## remove .venv, node_modules and caches
	rm -rf dist .venv .venv-lowest .venv-searxng .venv-moto .venv-litellm .venv-peers tests/clients/node/node_modules tests/console/node/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis
