"""Whatever is wrong with a command line: exit code 2, at most two lines that say it, nothing on stdout, no file left.

Classes of wrong values, and the places of each command where a value of that kind stands: every value in every place.
What could read or compute without an end runs in a fork, with 5 s of a processor and bounded memory (forked.py).
"""

import os
import time
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from headcount.bench.table import shown
from tests.headcount.forked import ROUTED, checkpoint, contents, furnish, outcomes

BIG = "1" + 30 * "0"
NUMBERS = (
    *(
        "-1",
        "1.5",
        "1e3",
        "nan",
        "inf",
        "²",
        "٣",
        "1_000",
        "0x10",
        "1/0",
        "two",
        "",
        " ",
        "True",
        "1e-999999999",
        "__import__('os').system('touch pwned')",
        "9**9**9**9",
    ),
    "9" * 5001,
)
"""No whole number above 0 that anybody means."""
NAMES = (
    "x",
    "",
    " ",
    "lambda",
    "\u202e",
    "\x1b[31m",
    "a\nb",
    "é" * 300,
    "x" * 70000,
    "../../x",
    "Z=1",
    "\udcff",
    "__import__('os').system('touch pwned')",
    "T.__class__.__mro__",
    "(T:=3)",
    "$(touch pwned)",
    "{0.__class__}",
    "9**9**9**9",
    "T\x00S",
)
"""No name of anything."""
ESTIMATE = "latency --estimate --layer mha-base"
CAMPAIGN = "latency campaign --device cpu --out-dir d"
CLOSED = "macs --counter closed-form --preset transformer-base"
DERIVE = "derive --preset mlm-transformer --set num_layers=1 --part feed-forward --vars T"
ROUTING = f"routing --checkpoint model.pt --tokens ids.txt --preset {' '.join(ROUTED)}"

WHERE_NUMBERS = (
    *(f"{CLOSED} --{name} {{}}" for name in ("src-len", "tgt-len", "batch-size")),
    *(f"{CLOSED} --columns kv_bytes decode_macs --{name} {{}}" for name in ("context", "generate", "element-bytes")),
    *(f"{CLOSED} --set {name}={{}}" for name in ("d_model", "num_heads", "num_encoder_layers", "vocab_size")),
    *(f"macs --counter closed-form --grid {name}={{}}" for name in ("K", "E", "h", "T", "d_m")),
    "macs --counter closed-form --preset lightconv --set encoder_kernel_sizes=3,{},3,3,3,3,3",
    "macs --counter closed-form --compare transformer-base,d_ff={} transformer-big",
    "macs --preset llama3-8b --convert s={} r=8",
    "macs --module model.py:make --set n={}x",
    "macs --module model.py:make --depth {}",
    *(f"budget --macs 1G --{name} {{}}" for name in ("d-model", "layers", "seq-len", "batch-size", "element-bytes")),
    *(f"budget --macs 1G --range {text}" for text in ("K={}", "K={}:4", "K=1:{}", "K=1:4:{}", "D=16,{}")),
    *(f"budget --{name} {{}}X" for name in ("macs", "params", "active-params", "kv-bytes")),
    "budget --macs 1G --limit {}",
    *(f"{ESTIMATE} --{name} {{}}" for name in ("seq-len", "tokens", "batch-size", "blocks", "threads")),
    *(f"{CAMPAIGN} --{name} {{}}" for name in ("tokens", "blocks")),
    *(f"{DERIVE} --base T={text}" for text in ("{}", "3:{}x")),
    f"{DERIVE} --set d_model={{}}",
    "lock --module model.py:make --set n={}x",
    *(f"{ROUTING} --{name} {{}}" for name in ("top", "least")),
)
WHERE_SHARES = (
    *("budget --like transformer-big --tolerance {}", "budget --macs 1G --apart {}", f"{CAMPAIGN} --within {{}}"),
    *(f"{CLOSED} --columns decode_bound --context 9 --{name} {{}}" for name in ("peak-macs", "bandwidth")),
)
SHARES = tuple(value for value in NUMBERS if value not in ("1.5", "1e3"))
WHERE_NAMES = (
    *("macs --preset {}", "macs --table {}", "macs --counter {}", f"{CLOSED} --columns {{}}"),
    *("macs --preset {} --set d_model=3", f"{CLOSED} --set {{}}=3", f"{CLOSED} --set router={{}}", "macs --grid {}"),
    *("macs --compare {} transformer-big", "macs --preset llama3-8b --convert {}", "macs --module {}", "macs {}"),
    *(f"{CLOSED} --{name} {{}}" for name in ("format", "unit", "device")),
    *(
        f"budget --macs 1G --{name} {{}}"
        for name in ("attention", "preset", "sort", "maximise", "set", "range", "device")
    ),
    *("budget --like {}", "budget --like transformer-big --match {}", "budget {}"),
    *(
        f"latency --{name} {{}}"
        for name in ("layer", "model", "routing", "pass", "dtype", "device", "order", "hardware")
    ),
    *(f"{CAMPAIGN} --{name} {{}}" for name in ("dtype", "format")),
    *(
        "latency --layer mha-base --arm {}",
        "latency gates --layer {}",
        "latency gates --dtype {}",
        "latency compare {} x",
    ),
    *(
        "derive --preset {} --vars T",
        "derive --preset moa-8K8E128D --vars {}",
        f"{DERIVE} --part {{}}",
        f"{DERIVE} {{}}",
    ),
    *(f"{DERIVE} --base {{}}", f"{DERIVE} --set {{}}", "derive --module {} --vars n"),
    *("lock --module {}", "lock --check {}", "lock --update {}", "lock --module model.py:make --device {}", "lock {}"),
    *("routing --preset {} --checkpoint model.pt --tokens ids.txt", f"{ROUTING} --set {{}}", "routing --example {}"),
)
FILES = (
    *("missing", "folder", "loop", "/dev/zero", "/proc/self/mem", "pipe", "binary", "nested.json", "half.jsonl"),
    *("surrogate.txt", "empty", "x" * 300),
)
"""No file that a command reads."""
WHERE_FILES = (
    *("latency compare {} whole.jsonl", "latency compare whole.jsonl {}", f"{ROUTING} --tokens {{}}"),
    *(f"{ROUTING} --checkpoint {{}}", "lock --check {}", "lock --update {}"),
    "macs --compare {} model.py:make",
)
MODULES = (
    "missing.py",
    "folder.py",
    "/dev/zero",
    "/dev/null",
    "/proc/self/mem",
    "x" * 300 + ".py",
    "../../of-nobody.py",
)
"""No file of somebody's code."""
WHERE_MODULES = ("macs --module {}:make", "derive --module {}:make --vars n", "lock --module {}:make")
OUTS = ("/dev/full", "loop", "x" * 300, "ids.txt/below", "/proc/version/below", "/proc/below")
"""No place to write to."""
WHERE_OUT = (
    *(
        f"{CLOSED} -o {{}}",
        f"{CLOSED} --format json -o {{}}",
        "budget --macs 1G -o {}",
    ),
    *(f"{DERIVE} -o {{}}", "lock --module model.py:make -o {}", f"{ROUTING} -o {{}}"),
    *("latency compare whole.jsonl whole.jsonl -o {}", f"{ESTIMATE} --seq-len 10 -o {{}}"),
    *("latency gates --layer mha-base --json {}", "latency --layer mha-base --seq-len 10 --blocks 1 --json {}"),
    *("latency --layer mha-base --seq-len 10 --blocks 1 --out-dir {}", "latency campaign --device cpu --out-dir {}"),
)
MANY = ",".join(map(str, range(1, 1001)))
ENDLESS = {
    "points of a grid": ["macs", "--counter", "closed-form", "--grid", f"K={MANY} E={MANY} D={MANY} T={MANY}"],
    "sizes of a letter": "budget --macs 1G --range K=1:1000000000",
    "sizes beyond all": f"budget --macs 1G --range K=1:{BIG}",
    "points of a search": "budget --macs 1G --range K=1:10000 E=1:10000 D=1:10000",
    "sizes that are built": "budget --preset moh-llm-s-75 --macs 400G --range d_h=2:20000:2",
    "layers": f"{CLOSED} --set num_encoder_layers=1000000000",
    "layers that differ": "macs --preset llama3-8b --set num_layers=1000000000 --counter closed-form",
    "layers of stages": "macs --preset transnext-tiny --set depths=1000000000,2,2,2 --counter closed-form",
    "layers that are counted": "macs --preset transformer-base --set num_decoder_layers=1000000000 --counter torch",
    "layers that are searched": "budget --macs 1G --layers 1000000000",
    "layers that are derived": "derive --preset transformer-base --part model --vars N_enc --base N_enc=1000000000",
    "layers that are loaded": f"{ROUTING} --set num_layers=1000000000",
    "experts that are loaded": f"{ROUTING} --set num_experts=1000000000",
    "a width that is loaded": f"{ROUTING} --set d_model={BIG}",
    "a width that is counted": f"macs --preset transformer-base --set d_model={BIG} --counter torch",
    "a width of a grid": ["macs", "--grid", f"K=1 E=2 D={BIG} T=5", "--counter", "torch"],
    "a length that is counted": f"macs --preset transformer-base --src-len {BIG} --counter torch",
    "a length that is compared": f"macs --compare transformer-base transformer-big --src-len {BIG}",
    "a length that is derived": f"{DERIVE} --base T={BIG}",
    "a length that is searched": f"budget --macs 1G --seq-len {BIG}",
    "a length that is timed": f"latency --layer mha-base --seq-len {BIG}",
    "tokens that are timed": f"latency --layer mha-base --seq-len 10 --tokens {BIG}",
    "blocks": f"latency --layer mha-base --seq-len 10 --blocks {BIG}",
    "threads": "latency --layer mha-base --seq-len 10 --threads 1000000",
    "tokens of a campaign": f"{CAMPAIGN} --tokens {BIG}",
    "blocks of a campaign": f"{CAMPAIGN} --blocks {BIG}",
}
"""What would be listed, built or run without an end."""


def command(line):
    """The function of a line's command, and its words; a line may be words already."""
    name, *words = line.split() if isinstance(line, str) else line
    return import_module(f"headcount.bench.{name}.__main__").main, words


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to be in, with what lines name; nothing may be left there beside it."""
    place = tmp_path / "work"
    furnish(place)
    (place / "model.pt").write_bytes(b"")
    monkeypatch.chdir(place)
    return place


def wrong(place, values, capsys, folder):
    """What is not as it must be of each value in a place."""
    before, found = contents(folder), []
    main, words = command(place)
    for value in values:
        began = time.process_time()
        code = main([word.replace("{}", value) for word in words])
        out, err = capsys.readouterr()
        held = code == 2 and not out and len(err.strip().splitlines()) <= 2 and err == shown(err)
        if not held or "Traceback" in err or contents(folder) != before or time.process_time() - began > 5:
            found.append((value[:40], code, out[:80], err[:200]))
    return found


IN_PROCESS = (
    *((place, NUMBERS) for place in WHERE_NUMBERS),
    *((place, SHARES) for place in WHERE_SHARES),
    *((place, NAMES) for place in WHERE_NAMES),
)


@pytest.mark.parametrize("place, values", IN_PROCESS, ids=[place for place, _ in IN_PROCESS])
def test_wrong_values_are_refused(place, values, folder, capsys):
    assert wrong(place, values, capsys, folder) == []


@pytest.fixture(scope="module")
def files():
    return {"model.pt": checkpoint(), "empty": b""}


def ended(line, files, values=("",)):
    """The values with which a line, in a fork, does not end as it must: with its exit code, and what is wrong."""
    main, words = command(line)

    def forked(value):
        os.mkfifo("pipe")
        code = main([word.replace("{}", value) for word in words])
        Path("pipe").unlink()
        return code

    found = outcomes([partial(forked, value) for value in values], files)
    return {value: ends for value, ends in zip(values, found, strict=True) if ends != (2, "")}


IN_FORK = (
    *((place, FILES) for place in WHERE_FILES),
    *((place, MODULES) for place in WHERE_MODULES),
    *((place, OUTS) for place in WHERE_OUT),
)


@pytest.mark.parametrize("place, values", IN_FORK, ids=[place for place, _ in IN_FORK])
def test_wrong_files_are_refused(place, values, files, warm):
    assert ended(place, files, values) == {}


@pytest.mark.parametrize("case", ENDLESS)
def test_endless_work_is_refused(case, files):
    assert ended(ENDLESS[case], files) == {}
