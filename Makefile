PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python

.PHONY: macs test lint benchmark mutate reports clean

macs: $(VENV)/.stamp
	$(PY) -m bench.macs

test: lint
	$(PY) -m pytest -n 2 --dist loadfile -p no:benchmark

lint: $(VENV)/.stamp
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(VENV)/bin/lint-imports --no-cache

# The type checks of the tests would be timed too.
benchmark: $(VENV)/.stamp
	JAXTYPING_DISABLE=1 $(PY) -m pytest bench --benchmark-only --benchmark-json=reports/records/commands.json -k commands

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
