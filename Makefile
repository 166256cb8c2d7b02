PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python

.PHONY: macs test lint benchmark mutate reports clean

macs: $(VENV)/.stamp
	$(PY) -m bench.macs

test: lint
	$(PY) -m pytest

lint: $(VENV)/.stamp
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(VENV)/bin/lint-imports --no-cache

benchmark: $(VENV)/.stamp
	$(PY) -m pytest bench --benchmark-only

mutate: $(VENV)/.stamp
	$(PY) -m pip install -q --disable-pip-version-check -e '.[mutate]'
	$(PY) -m bench.mutate

reports: $(VENV)/.stamp
	$(PY) -m reports

$(VENV)/.stamp: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -q --disable-pip-version-check -e '.[test]'
	touch $@

clean:
	rm -rf $(VENV) mutants .pytest_cache .ruff_cache .hypothesis .benchmarks
