PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
INSTALL := $(PY) -m pip install --disable-pip-version-check -c constraints.txt

# Hundreds of processes import the rooms: what they compiled is kept, wherever a shell says not to.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: macs test kernels nightly matrix ptflops faults fuzz lint benchmark reports clean

macs: $(VENV)/.stamp
	$(PY) -m bench.macs

test: lint
	$(PY) -m pytest -n 2 --dist loadfile -p no:benchmark

# Triton's kernels in its interpreter, and compiled: no GPU is needed, the package is.
kernels: $(VENV)/.stamp
	$(INSTALL) -e '.[gpu]' >&2
	$(PY) -m pytest -n 2 --dist loadfile -p no:benchmark tests/models/test_triton_*.py tests/bench/latency/test_compile.py
	$(PY) -m bench.latency.compile --arch 80 90 100

# Every number of the report counted anew, and thousands of programs that the suite does not try.
nightly: $(VENV)/.stamp
	$(PY) -m reports --check --recount
	PROGRAMS=2000 $(PY) -m pytest -p no:benchmark tests/bench/contractions/test_random_programs.py

# The core of the suite with torch 2.11 to the newest, the oldest of everything, and each Python that is here.
matrix: $(VENV)/.stamp
	$(PY) -m tests.matrix

# What ptflops read of the same modules when the papers were written.
ptflops: $(VENV)/.stamp
	$(PY) -m tests.older_ptflops

# What is done to commands, from kill -9 to a full disk, and what must hold afterwards; some need root.
faults: $(VENV)/.stamp
	$(PY) -m tests.faults

# 2,000 command lines of each family with something wrong in each.
fuzz: $(VENV)/.stamp
	$(PY) -m tests.fuzz

lint: $(VENV)/.stamp
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(VENV)/bin/lint-imports --no-cache

# The type checks of the tests would be timed too.
benchmark: $(VENV)/.stamp
	JAXTYPING_DISABLE=1 $(PY) -m pytest tests/benchmarks/test_commands.py --benchmark-json=reports/records/commands.json
	JAXTYPING_DISABLE=1 $(PY) -m pytest tests/benchmarks/test_limits.py tests/benchmarks/test_beside_torch.py

reports: $(VENV)/.stamp
	$(PY) -m reports

$(VENV)/.stamp: pyproject.toml constraints.txt
	@echo "Once, some minutes: torch, ptflops, fvcore, pandas and the tests' tools are downloaded and installed into" \
	"$(VENV), 1.3 GB with torch's CPU build, more with CUDA's" >&2
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) -e '.[test]' >&2
	@du -sh $(VENV) >&2
	@touch $@

clean:
	rm -rf $(VENV) build .pytest_cache .ruff_cache .hypothesis .benchmarks
