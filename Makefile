# make demo    publish the bundled retail star and ask it questions, from nothing but Python 3.11 and make
# make test    the checks that .ci/run runs
# make check   linters, types and import contracts alone
# make bench*  measured figures, one `figure` line each; make slow: the long suites

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SHARED := $(firstword $(wildcard ../shared/data))
ifneq ($(SHARED),)
export DPSQL_DATA ?= $(abspath $(SHARED))
endif
RETAIL_SEED := 20250101
# Small matrices: more than one BLAS thread only makes two test processes wait for each other.
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: demo test check slow bench bench-accuracy bench-local bench-stream bench-userlevel data clean

$(VENV)/.core: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

data/sales.parquet: $(VENV)/.core
	$(BIN)/python -m dpsql.examples.retail data --seed $(RETAIL_SEED)

data: data/sales.parquet

demo: $(VENV)/.core data/sales.parquet
	$(BIN)/python -m dpsql.examples.demo

check: $(VENV)/.dev
	$(BIN)/ruff check dpsql tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: check
	$(BIN)/python -m pytest -n 2

slow: $(VENV)/.dev
	HYPOTHESIS_PROFILE=slow $(BIN)/python -m pytest -n 2 -m "slow or not slow"

bench: $(VENV)/.dev data/sales.parquet
	$(BIN)/python -m benchmarks.speed

bench-accuracy: $(VENV)/.dev
	$(BIN)/python -m benchmarks.central_errors
	$(BIN)/python -m benchmarks.accuracy

bench-local: $(VENV)/.dev
	$(BIN)/python -m benchmarks.local

bench-stream: $(VENV)/.dev
	$(BIN)/python -m benchmarks.stream

bench-userlevel: $(VENV)/.dev
	$(BIN)/python -m benchmarks.userlevel --write docs/accuracy

clean:
	rm -rf $(VENV) data build *.dpsql .dpsql
