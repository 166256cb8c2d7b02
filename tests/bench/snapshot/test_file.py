"""The file of a lock: sorted JSON; a broken file is an error of one line."""

import json
from dataclasses import replace

import pytest

from headcount.bench.contractions.audit import COUNTED, UNKNOWN, AuditLine
from headcount.bench.counting.result import Count, Parameter
from headcount.bench.errors import UsageError
from headcount.bench.snapshot import file
from headcount.bench.targets.target import Target
from headcount.formulas.ledger import Entry, Ledger

WRITTEN = Entry("mix", "elementwise_contraction", {"m": 7, "i": 3}, times=2)
FFT = AuditLine("_fft_r2c", UNKNOWN, "mix", 1, ((7, 13),))
LOCK = Count(
    "Net",
    Ledger(
        (
            Entry("layers.10", "linear", {"m": 7, "i": 11, "j": 13}),
            Entry("layers.2", "linear", {"m": 7, "i": 11, "j": 13}),
            Entry("attn", "values", {"b": 3, "m": 7, "i": 7, "j": 5}),
            Entry("attn", "scores", {"b": 3, "m": 7, "i": 5, "j": 7}, times=2),
        )
    ),
    Target("model.py:make", {"n": 7}, formulas={"mylib.op": "a0*o"}),
    "meta",
    elementwise=Ledger((WRITTEN, Entry("norm", "square_sum", {"m": 7, "i": 3}))),
    parameters=(Parameter("layers.2.weight", (13, 11)), Parameter("layers.10.weight", (13, 11), trainable=False)),
    audit=(FFT, AuditLine("addmm", COUNTED, "layers.2", 1, ((13,), (7, 11), (11, 13)))),
    uncalled=("vision",),
    inputs=("0: 7x11 float32",),
    versions={"headcount": "0.2.0", "torch": "2.13.0", "python": "3.12"},
)
MACS, PARAMS = 2 * 7 * 11 * 13 + 3 * 3 * 7 * 5 * 7, 2 * 13 * 11
TEXT = file.text(LOCK)


def test_lock_holds_what_a_check_compares():
    (found,) = file.parse(TEXT, "macs.lock")
    assert file.text(found) == TEXT
    same = ("name", "target", "included", "parameters", "collectives", "inputs", "versions", "uncalled", "limits")
    assert {name: getattr(found, name) for name in same} == {name: getattr(LOCK, name) for name in same}
    in_order = [LOCK.ledger.entries[place] for place in (3, 2, 1, 0)]
    assert found.ledger == Ledger(tuple(in_order))
    assert (found.elementwise, found.unsupported) == (Ledger((WRITTEN,)), (FFT,))
    rest = ("device", "modules", "tools", "columns", "bytes_moved", "causal_macs", "other_flops", "notes")
    assert {getattr(found, name) for name in rest} == {None}
    assert (found.macs, found.params, found.elementwise_macs, found.active_params) == (MACS, PARAMS, 2 * 7 * 3, None)


def test_several_targets_are_read_by_name(tmp_path):
    other = replace(LOCK, target=replace(LOCK.target, settings={}), limits={"macs": 5000})
    (tmp_path / "two.lock").write_text(file.text(LOCK, other))
    assert file.text(*file.parse(file.text(LOCK, other), "two.lock")) == file.text(LOCK, other)
    for target, one in {"model.py:make,n=7": LOCK, "model.py:make": other}.items():
        assert file.text(file.read(tmp_path / "two.lock", target)) == file.text(one)
    for target, end in ((None, "all"), ("other", "other")):
        with pytest.raises(UsageError, match=f"model.py:make,n=7, model.py:make; one is expected, not {end}$"):
            file.read(tmp_path / "two.lock", target)


def edit_file(**fields):
    return json.dumps({**json.loads(TEXT), **fields})


def edit_lock(**fields):
    (target,) = json.loads(TEXT)["targets"]
    return edit_file(targets=[{**target, **fields}])


def drop_field(name):
    (target,) = json.loads(TEXT)["targets"]
    return edit_file(targets=[{key: value for key, value in target.items() if key != name}])


def edit_first(field, **values):
    (target,) = json.loads(TEXT)["targets"]
    first, *others = target[field]
    return edit_lock(**{field: [{**first, **values}, *others]})


(TARGET,) = json.loads(TEXT)["targets"]
CONFLICT = TEXT.replace(f'"macs": {MACS},', f'<<<<<<< HEAD\n"macs": {MACS},\n=======\n"macs": 1,\n>>>>>>> theirs')
BROKEN = {
    "merge conflict": (CONFLICT, "is no lock, which headcount lock TARGET --out FILE writes: not JSON, "),
    "key twice": (
        TEXT.replace(f'"macs": {MACS},', f'"macs": 1,\n"macs": {MACS},'),
        "is no lock, which headcount lock TARGET --out FILE writes: not JSON, an object has a key twice",
    ),
    "other JSON": ('{"name": "x"}', "is neither "),
    "earlier version": (edit_file(lock_version=2), "has lock_version 2; this software reads 4"),
    "no targets": (edit_file(targets=[]), "is broken: it has a target twice, or none"),
    "target twice": (edit_file(targets=[TARGET] * 2), "is broken: it has a target twice, or none"),
    "misspelt limit": (
        edit_lock(limits={"macs": 7, "param": 3}),
        "is broken: limits are of macs and params, not of param",
    ),
    **{
        f"other sum of {name}": (edit_lock(**{name: 1}), f"is broken: {name}: ")
        for name in ("macs", "elementwise_macs", "params", "sent")
    },
    "edited size": (edit_first("ledger", dims={"b": 3}), "is broken: size of attn scores: 6 "),
    "edited shape": (edit_first("parameters", shape=[13, 12]), f"is broken: params: {PARAMS + 13} "),
    **{
        f"size of an entry: {size}": (edit_first("ledger", size=size), "is broken: size of attn scores: 1470 ")
        for size in (1, 1470.0, None)
    },
    "unknown kind": (edit_first("ledger", kind="speed"), "is broken: unknown kind 'speed'"),
    "no size": (edit_lock(ledger=[{"path": "", "kind": "linear", "dims": {}}]), "is not the count of a module"),
    "option of another type": (
        edit_lock(target={**TARGET["target"], "device": 7}),
        "is broken: device has the wrong type: 7",
    ),
    "terminal codes": (
        edit_first("ledger", path=["\x1b[2J\nx"]),
        "is broken: path has the wrong type: ['\\x1b[2J\\nx']",
    ),
    **{f"{name} of another type": (edit_lock(**{name: 7.5}), "is broken: ") for name in TARGET},
    **{f"no {name}": (drop_field(name), f"is not the count of a module: it has no '{name}'") for name in TARGET},
    "other tables": ('{"schema_version": 2, "tables": [{"name": "grid"}]}', "is not the count of a module"),
    "later schema": ('{"schema_version": 99}', "has schema_version 99"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_broken_file_is_an_error_of_one_line(what):
    content, reason = BROKEN[what]
    with pytest.raises(UsageError) as raised:
        file.parse(content, "macs.lock")
    message = str(raised.value)
    assert message.startswith(f"macs.lock {reason}") and "\n" not in message and message.isprintable()


def printed(**fields):
    """Return what ``headcount count --format json`` prints of the count, with other fields."""
    count = json.loads(json.dumps(LOCK.to_json()))
    return json.dumps({"schema_version": 2, "tables": [{"name": "modules", "count": count | fields}]})


def test_output_of_count_is_read():
    assert file.parse(printed(), "count.json") == (LOCK,)
    for wrong in ({"macs": MACS + 1}, {"params": "7"}, {"ledger": 7}, {"name": 7.5}, {"audit": [7]}):
        with pytest.raises(UsageError, match="^count.json is broken: "):
            file.parse(printed(**wrong), "count.json")
