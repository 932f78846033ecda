VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-shapes test-all test-slow hostile kills lint docs install clean

help:
	@echo "make demo      virtual environment, install, the quickstart: train, attack, defend, report on embedded digits"
	@echo "make test      virtual environment, install, tests (about 5 minutes on 2 cores, after the installation)"
	@echo "make test-shapes  the tests of the numerical rooms again, with every annotated type and shape checked at every call"
	@echo "make test-all  the long tests"
	@echo "make test-slow the tests that take minutes each, the whole quickstart among them"
	@echo "make hostile   CASES=50000 SEED=0: a campaign of hostile files, values and calls, and its table"
	@echo "make kills     100 kills of an evaluation and 50 of a training: all bytes equal"
	@echo "make lint      ruff, mypy, import rules"
	@echo "make docs      the documentation, strictly, into site/"

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=23"
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev,docs]"
	@touch $(STAMP)

install: $(STAMP)

demo: install
	$(BIN)/robustdeq quickstart --out runs/quickstart

test: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not long and not slow" -n 2

CASES ?= 50000
SEED ?= 0

SHAPED := tests/solve tests/models tests/attacks tests/defences tests/threat tests/data

test-shapes: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --jaxtyping-packages=robustdeq,beartype.beartype \
	  -m "not long and not slow" -n 2 $(SHAPED)

test-all: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m long -n 2 --dist worksteal --durations=15

test-slow: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow

hostile: install
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.hostile --cases $(CASES) --seed $(SEED)

kills: install
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.hostile.kills --evaluations 100 --trainings 50 --seed $(SEED)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
