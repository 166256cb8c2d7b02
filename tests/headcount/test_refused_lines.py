"""Endless work and endless files end with exit code 2 and one line.

Each line runs in a fork with limited memory and time, because a fault would read or compute forever.
"""

import resource
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.golden.conftest import ROUTED, run

SECONDS, MEMORY = 5, 6 * 2**30
"""Limits of a line: processor seconds, and bytes of address space."""
BIG = "1" + 30 * "0"
CLOSED = "count transformer-base --counter closed-form"
DERIVE = "derive --preset mlm-transformer --set num_layers=1 --part feed-forward --vars T"
TIMED = "latency --layer mha-base --seq-len 10 --blocks 1"
SIZES = " ".join(f"--set {field}={size}" for field, size in ROUTED.items())
ROUTING = f"routing --preset mlm-moa-8K8E128D --checkpoint model.pt --tokens tokens.txt {SIZES}"
MANY = ",".join(map(str, range(1, 1001)))
LINES = [
    f"{ROUTING} --tokens /dev/zero",
    "lock --check /dev/zero",
    "count /dev/zero:make",
    f"grid 'K={MANY} E={MANY} D={MANY} T={MANY}' --counter closed-form",
    f"grid 'K=1 E=2 D={BIG} T=5' --counter torch",
    "budget --macs 1G --range K=1:10000 E=1:10000 D=1:10000",
    "budget moh-llm-s-75 --macs 400G --range d_h=2:20000:2",
    f"budget --macs 1G --seq-len {BIG}",
    "budget --macs 1G --layers 1000000000",
    f"{CLOSED} --set num_encoder_layers=1000000000",
    "count transnext-tiny --set depths=1000000000,2,2,2 --counter closed-form",
    "count transformer-base --set num_decoder_layers=1000000000 --counter torch",
    f"count transformer-base --src-len {BIG} --counter torch",
    f"compare transformer-base transformer-big --src-len {BIG}",
    f"{DERIVE} --base T={BIG}",
    *(f"{ROUTING} --set {size}" for size in ("num_layers=1000000000", f"d_model={BIG}")),
    f"latency --layer mha-base --seq-len {BIG}",
    *(f"{TIMED} {option}" for option in (f"--tokens {BIG}", f"--blocks {BIG}", "--threads 1000000")),
    f"latency campaign --device cpu --out-dir d --tokens {BIG}",
]


def limit():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))


@pytest.mark.parametrize("line", LINES, ids=[line[:99] for line in LINES])
def test_line_raises_usage_error(line, folder, forks):
    # a fork cannot start the server of forks
    forks.start()
    with ProcessPoolExecutor(1, get_context("fork"), limit) as fork:
        ended = fork.submit(run, line).result()
    assert (ended.code, ended.out) == (2, "")
    assert len(ended.err.strip().splitlines()) <= 2, ended.err
