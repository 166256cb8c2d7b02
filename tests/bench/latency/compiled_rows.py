"""``python -m tests.bench.latency.compiled_rows``: print the status of rows of the compiled implementations as JSON.

Graphs of torch.compile run eagerly, and on the CPU. It runs in its own process because torch.compile cannot trace the
type checks of a test run.
"""

import json
from functools import partial

import torch

from headcount.bench.latency import implementations, measure, timing
from headcount.bench.latency.timing_cases import TimingCase
from headcount.models.configs.make import make_config
from tests.bench.latency.conftest import ENVIRONMENT, LAYERS


def measured_rows():
    """Return subject, pass, implementation and status of the rows of several cases, measured one after another."""
    shared, found = measure.Shared(), []
    for name, which in (("some", "forward"), ("all", "both"), ("heads", "forward"), ("dense", "both")):
        shape = dict(seq_len=7, batch_size=2, dtype="float32", which=which, device="cpu", routing="balanced")
        case = TimingCase("layer", name, **shape, requested=("compiled",))
        rows = measure.measure_case(case, None, environ=ENVIRONMENT, blocks=1, shared=shared)
        found += [(row.name, row.which, row.implementation_used, row.status) for row in rows if row.layer == name]
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.compile = partial(torch.compile, backend="eager")
    timing.WARM_UP_S = {"cpu": 0.0}
    implementations.layer = lambda name: make_config(LAYERS[name])
    implementations.missing_on = lambda impl, device: None
    print(json.dumps(measured_rows()))
