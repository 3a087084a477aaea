# `make help` lists the targets. Everything else is `python -m benchmarks.NAME` or `python -m tests.NAME` in .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SHARED := $(firstword $(wildcard ../shared/data))
ifneq ($(SHARED),)
export DPSQL_DATA ?= $(abspath $(SHARED))
endif
RETAIL_SEED := 20250101
QUICK := not slow and not publishes and not long
# Small matrices: more than one BLAS thread only makes two test processes wait for each other.
export OPENBLAS_NUM_THREADS ?= 1

# Hundreds of tests start programs: without compiled modules each start costs half a second more.
export PYTHONDONTWRITEBYTECODE :=

# Nothing here belongs into the memory of whoever runs it: measurements and pictures publish the same rows in throw-away
# ledgers and remember nothing, the demo has a memory that `make clean` removes with its ledger, tests make their own.
export DPSQL_STATE := /dev/null

.PHONY: demo test quick slow docs bench figures structure dist lock explore wire withstand clean help

help: ## this list
	@sed -nE 's/^([a-z]+):.*## (.*)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

$(VENV)/.core: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

# Tests run with the versions and hashes of tests/locked.txt, whoever runs them and whenever. Modules are compiled when they
# are first imported: most of what is installed never is.
$(VENV)/.dev: pyproject.toml tests/locked.txt
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --no-compile --no-deps --require-hashes --requirement tests/locked.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $(VENV)/.core $@

# In a fresh environment each worker would compile all that it imports; one process does it for all, beside mypy. What is wrong
# with a module, the tests say.
$(VENV)/.compiled: $(VENV)/.dev
	-$(BIN)/python -m pytest --collect-only -q > /dev/null
	touch $@

$(VENV)/.types: FORCE $(VENV)/.dev
	$(BIN)/mypy

$(VENV)/.lint: FORCE $(VENV)/.dev
	$(BIN)/ruff format --check dpsql tests benchmarks docs
	$(BIN)/ruff check dpsql tests benchmarks
	$(BIN)/lint-imports --no-cache

FORCE:

data/sales.parquet: $(VENV)/.core
	$(BIN)/python -m dpsql.examples.retail data --seed $(RETAIL_SEED)

demo: $(VENV)/.core data/sales.parquet ## publish the bundled retail star and ask it six questions
	DPSQL_STATE=$(abspath build/state) $(BIN)/python -m dpsql.examples.demo

# Three workers for two cores: tests that wait for servers and killed children leave a tenth of the time.
test: $(VENV)/.dev ## linters, types, import contracts and all tests: what continuous integration runs
	$(MAKE) --jobs=2 $(VENV)/.types $(VENV)/.lint $(VENV)/.compiled
	$(BIN)/python -m pytest -n 3 --dist worksteal --durations=20
	$(BIN)/python -m tests.kernels

quick: $(VENV)/.dev ## tests of a minute, for after every small change (marks: tests/README.md)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "$(QUICK)" tests

slow: $(VENV)/.dev ## long statistics, kill loops, large random programs, with fresh entropy
	DPSQL_TEST_ENTROPY=system HYPOTHESIS_PROFILE=slow $(BIN)/python -m pytest -n 2 -m "slow or not slow"
	$(BIN)/python -m tests.kernels all

structure: $(VENV)/.dev ## sizes, names, import circles and unreached code of the package, each with its bound
	$(BIN)/python -m tests.structure

docs: $(VENV)/.dev ## generated pages, then the documentation as a site: build/site/index.html
	$(BIN)/python -m pip install --quiet --group docs
	PYTHONPATH=. $(BIN)/python docs/make_reference.py
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -b html docs build/site
	! grep -rlE '(src|srcset)="(https?:)?//|<link[^>]*href="(https?:)?//|(@import|url\() *["'"'"']?(https?:)?//' build/site --include=*.html --include=*.css

bench: $(VENV)/.dev data/sales.parquet ## `make bench TOPIC=userlevel`: the figures and tables of one topic
	$(BIN)/python -m benchmarks $(TOPIC)

withstand: $(VENV)/.dev ## exact losses of neighbours, hostile files and frames, faults, kills: an hour of one core
	$(BIN)/python -m benchmarks withstand

figures: $(VENV)/.dev ## every promised figure, kept with commit and date, and benchmarks/results/figures.md; can be stopped and goes on
	$(BIN)/python -m benchmarks.kept

# PostgreSQL clients in an environment of their own: psql, Python's and node's drivers; where Debian's `libpostgresql-jdbc-java`
# and `odbc-postgresql` are installed, JDBC and ODBC.
wire: $(VENV)/.dev ## clients of many languages against `dpsql serve`, and recorded statements
	test -d .venv-wire || $(PYTHON) -m venv .venv-wire
	.venv-wire/bin/pip install --quiet psycopg2-binary 'psycopg[binary]' asyncpg pg8000 adbc-driver-postgresql connectorx \
		'SQLAlchemy[asyncio]>=2' pgcli pyodbc pandas pyarrow
	if command -v npm > /dev/null; then npm install --silent --no-fund --no-audit --prefix build/wire pg pg-cursor pg-copy-streams postgres sequelize typeorm reflect-metadata; fi
	WIRE_PYTHON=$(abspath .venv-wire/bin/python) WIRE_NODE=$(abspath build/wire) \
		$(BIN)/python -m pytest -q -s -m "slow or not slow" tests/interfaces/test_wire.py tests/interfaces/test_wire_zoo.py > $(VENV)/wire.log || (cat $(VENV)/wire.log; exit 1)
	grep -o 'figure .*' $(VENV)/wire.log
	test $$(grep -c 'figure ' $(VENV)/wire.log) -ge 6 && ! grep -q ' short$$' $(VENV)/wire.log

# Needs Debian's `chromium`, and npm for axe-core.
explore: $(VENV)/.dev ## the web pages in headless Chromium: journeys by keyboard and mouse, axe-core, docs/images
	$(BIN)/python -m pip install --quiet --editable '.[explore]' 'playwright>=1.48'
	npm install --silent --no-fund --no-audit --prefix build/axe axe-core@4
	$(BIN)/python -m tests.explore.journeys build/explore build/axe/node_modules/axe-core/axe.min.js docs/images

lock: $(VENV)/.dev ## newest versions with hashes for tests/locked.txt, and the bill of materials deploy/dpsql.cdx.json
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate \
		--group dev --group stars --extra mcp --output-file tests/locked.txt pyproject.toml
	rm -rf build/bare && $(PYTHON) -m venv build/bare
	$(BIN)/uv pip compile --quiet --constraint tests/locked.txt --no-header --no-annotate --output-file build/bare/core.txt pyproject.toml
	build/bare/bin/python -m pip install --quiet --requirement build/bare/core.txt
	build/bare/bin/python -m pip uninstall --quiet --yes pip setuptools
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --output-file deploy/dpsql.cdx.json build/bare

dist: $(VENV)/.dev ## source distribution and wheel, built twice and compared
	rm -rf dist build/again
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/python -m build --no-isolation --outdir build/again
	$(BIN)/python -m tests.distribution dist build/again

clean: ## removes environments, data and whatever was built
	rm -rf $(VENV) .venv-wire .venv-superset .venv-sa14 .venv-lowest data build dist *.dpsql catalog/.dpsql
