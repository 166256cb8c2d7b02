"""Unreadable and unwritable files and endless work end with exit code 2 and one line, and leave no file.

Each line runs in a fork with limited memory and time, because a fault would read or compute forever.
"""

import multiprocessing
import os
import resource
import time

import pytest

from headcount.bench.column import escape_controls
from tests.golden.conftest import ROUTED, run

SECONDS, MEMORY = 5, 6 * 2**30
"""Limits of a line: processor seconds, and bytes of address space."""
BIG = "1" + 30 * "0"
CLOSED = "count transformer-base --counter closed-form"
DERIVE = "derive --preset mlm-transformer --set num_layers=1 --part feed-forward --vars T"
ESTIMATE = "latency --estimate --layer mha-base --seq-len 10"
TIMED = "latency --layer mha-base --seq-len 10 --blocks 1"
CAMPAIGN = "latency campaign --device cpu --out-dir d"
SIZES = " ".join(f"--set {field}={size}" for field, size in ROUTED.items())
ROUTING = f"routing --preset mlm-moa-8K8E128D --checkpoint model.pt --tokens tokens.txt {SIZES}"

UNREADABLE = ["missing", "empty", "loop", "/dev/zero", "/proc/self/mem", "pipe", "binary", "nested.json", "half.jsonl"]
UNREADABLE += ["folder", "surrogate.txt", "x" * 300]
READ = ["latency compare {} a.jsonl", "latency compare a.jsonl {}", f"{ROUTING} --tokens {{}}", "lock --check {}"]
READ += [f"{ROUTING} --checkpoint {{}}", "lock --update {}", "compare {} model.py:make"]
NO_MODULE = ["missing.py", "folder", "/dev/zero", "/dev/null", "/proc/self/mem", "x" * 300 + ".py", "../../none.py"]
IMPORTED = ["count {}:make", "derive --module {}:make --vars n", "lock {}:make"]
UNWRITABLE = ["/dev/full", "loop", "x" * 300, "tokens.txt/below", "/proc/version/below", "/proc/below"]
WRITTEN = [f"{CLOSED} -o {{}}", f"{CLOSED} --format json -o {{}}", "budget --macs 1G -o {}", f"{DERIVE} -o {{}}"]
WRITTEN += ["lock model.py:make -o {}", f"{ROUTING} -o {{}}", "latency compare a.jsonl a.jsonl -o {}"]
WRITTEN += [f"{ESTIMATE} -o {{}}", "latency gates --layer mha-base --json {}", f"{TIMED} --json {{}}"]
WRITTEN += [f"{TIMED} --out-dir {{}}", "latency campaign --device cpu --out-dir {}"]
MANY = ",".join(map(str, range(1, 1001)))
ENDLESS = [
    f"grid 'K={MANY} E={MANY} D={MANY} T={MANY}' --counter closed-form",
    f"budget --macs 1G --range K=1:{BIG}",
    "budget --macs 1G --range K=1:10000 E=1:10000 D=1:10000",
    "budget moh-llm-s-75 --macs 400G --range d_h=2:20000:2",
    f"{CLOSED} --set num_encoder_layers=1000000000",
    "count llama3-8b --set num_layers=1000000000 --counter closed-form",
    "count transnext-tiny --set depths=1000000000,2,2,2 --counter closed-form",
    "count transformer-base --set num_decoder_layers=1000000000 --counter torch",
    "budget --macs 1G --layers 1000000000",
    "derive --preset transformer-base --part model --vars N_enc --base N_enc=1000000000",
    *(f"{ROUTING} --set {size}" for size in ("num_layers=1000000000", "num_experts=1000000000", f"d_model={BIG}")),
    f"count transformer-base --set d_model={BIG} --counter torch",
    f"grid 'K=1 E=2 D={BIG} T=5' --counter torch",
    f"count transformer-base --src-len {BIG} --counter torch",
    f"compare transformer-base transformer-big --src-len {BIG}",
    f"{DERIVE} --base T={BIG}",
    f"budget --macs 1G --seq-len {BIG}",
    f"latency --layer mha-base --seq-len {BIG}",
    *(f"{TIMED} {option}" for option in (f"--tokens {BIG}", f"--blocks {BIG}", "--threads 1000000")),
    *(f"{CAMPAIGN} {option}" for option in (f"--tokens {BIG}", f"--blocks {BIG}")),
]
CASES = [(line, values) for lines, values in ((READ, UNREADABLE), (IMPORTED, NO_MODULE), (WRITTEN, UNWRITABLE))
         for line in lines] + [(line, [""]) for line in ENDLESS]  # fmt: skip


def run_in_fork(lines):
    """Run lines in a fork and return the result of each; None for those from a line that does not end."""

    def child():
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        for line in lines:
            resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + SECONDS, most))
            theirs.send(run(line))

    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=child)
    process.start()
    theirs.close()
    found = []
    try:
        while len(found) < len(lines) and ours.poll(20 * SECONDS):
            found.append(ours.recv())
    except EOFError:
        pass
    finally:
        process.kill()
        process.join()
    return found + [None] * (len(lines) - len(found))


@pytest.fixture
def unusual(folder):
    """Add unreadable files of every kind to the folder, and return it."""
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "empty").write_bytes(b"")
    (folder / "binary").write_bytes(bytes(range(256)) * 8)
    (folder / "nested.json").write_text("[" * 20000)
    (folder / "half.jsonl").write_text('{"kind": "latency"}\n{"kind": \n')
    (folder / "surrogate.txt").write_bytes(b"\xed\xa0\x80 1 2\n")
    os.mkfifo(folder / "pipe")
    return folder


@pytest.mark.parametrize("line, values", CASES, ids=[line[:99] for line, _ in CASES])
def test_line_raises_usage_error(line, values, unusual, warm):
    before = set(unusual.rglob("*"))
    for value, ended in zip(values, run_in_fork([line.replace("{}", value) for value in values]), strict=True):
        assert ended is not None, f"{value}: no end"
        assert (ended.code, ended.out) == (2, ""), (value, ended)
        assert len(ended.err.strip().splitlines()) <= 2 and ended.err == escape_controls(ended.err), value
    assert {path for path in unusual.rglob("*") if "__pycache__" not in path.parts} == before
