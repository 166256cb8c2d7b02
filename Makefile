PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
INSTALL := $(PY) -m pip install --disable-pip-version-check -c constraints.txt

# Hundreds of processes import the packages: write bytecode even where a shell turns it off.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: macs test kernels times nightly matrix readings libraries models lint benchmark reports docs clean

macs: $(VENV)/.stamp
	$(PY) -m bench.macs

test: lint
	$(PY) -m pytest -n 2 --dist loadfile -p no:benchmark -m "not compiles and not nightly"

# Triton kernels in the interpreter, and compiled ahead of time into the stored table and build/kernels, where a campaign
# on a GPU with the same Triton and Python finds them. The folder is relative, because Triton stores paths. Needs no GPU.
kernels: export TRITON_CACHE_DIR = build/kernels
kernels: $(VENV)/.stamp
	$(INSTALL) -e '.[gpu]' >&2
	$(PY) -m pytest -n 2 --dist loadfile -p no:benchmark tests/models/test_triton_*.py
	$(PY) -m tests.models.triton_compile reports/records/kernels.csv

# The kernels of stored latencies as their own commits launched them, the constants of expected times fitted on these.
times: $(VENV)/.stamp
	$(PY) -m tests.models.stored_kernels reports/records/nvidia-h200
	$(PY) -m headcount latency efficiencies

# Recount every number of the report, LLaMA 3 405B on 16,384 ranks, modules divided over 4 processes, the tests that take
# long, such as that of the wheel, and thousands of random programs.
nightly: $(VENV)/.stamp
	$(PY) -m reports --check --recount
	$(PY) -m headcount count llama3-405b --seq-len 8192 --plan tp=8,sp,pp=16,dp=128,fsdp --backward --brief
	ALL_RANKS=1 $(PY) -m pytest -p no:benchmark tests/agreement/test_ranks.py tests/agreement/test_processes.py
	$(PY) -m pytest -p no:benchmark -m nightly
	PROGRAMS=2000 $(PY) -m pytest -p no:benchmark tests/bench/contractions/test_random_programs.py

# The core of the suite with torch 2.11 to the newest, the oldest of every dependency, and each installed Python.
matrix: $(VENV)/.stamp
	$(INSTALL) 'tox>=4.26' >&2
	$(PY) -m tox run

# What other tools count for three models, with the newest torch of the index. Downloads 5 GB with its CUDA build.
readings: $(VENV)/.stamp
	$(PY) -m tests.readings

# What the models of timm and torchvision cost whose figures these print: about half an hour.
libraries: $(VENV)/.stamp
	$(INSTALL) timm torchvision >&2
	$(PY) -m tests.library_counts

# Parameters, MACs and caches of every model of transformers, diffusers, timm and torchvision, for hours: what is stored
# with the same versions stays, but for models that this version may count after all. ONLY: some models or libraries,
# RECOUNT=1: stored ones too.
models: $(VENV)/.stamp
	$(PY) -m tests.count_models $(if $(RECOUNT),--recount) $(if $(ONLY),--only $(ONLY))

lint: $(VENV)/.stamp
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(VENV)/bin/lint-imports --no-cache
	$(PY) -m mypy

# Without the tests' type checks, which would be timed too.
benchmark: $(VENV)/.stamp
	JAXTYPING_DISABLE=1 $(PY) -m pytest tests/benchmarks/test_commands.py --benchmark-json=reports/records/commands.json
	JAXTYPING_DISABLE=1 $(PY) -m pytest tests/benchmarks/test_limits.py tests/benchmarks/test_beside_torch.py

reports: $(VENV)/.stamp
	$(PY) -m reports

# The documentation site, offline once its tools are installed. Search needs a server: python3 -m http.server -d build/docs
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build -f reports/site/mkdocs.yml

$(VENV)/.docs: $(VENV)/.stamp
	$(INSTALL) -e '.[docs]' >&2
	@touch $@

$(VENV)/.stamp: pyproject.toml constraints.txt tests/constraints.txt
	@echo "Once, some minutes: torch, ptflops, fvcore, pandas and the tests' tools are downloaded and installed into" \
	"$(VENV), 1.3 GB with torch's CPU build, more with CUDA's" >&2
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) -e '.[test]' >&2
	@du -sh $(VENV) >&2
	@touch $@

clean:
	rm -rf $(VENV) build .pytest_cache .ruff_cache .hypothesis .benchmarks
