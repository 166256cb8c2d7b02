"""The file of a count snapshot: sorted JSON; a broken file is an error of one line."""

import json
from dataclasses import replace

import pytest

from headcount.bench.errors import UsageError
from headcount.bench.snapshot import file
from headcount.bench.snapshot.snapshot import CountSnapshot, Parameter, Target
from headcount.formulas.ledger import Entry, Ledger

LOCK = CountSnapshot(
    "model.py:make",
    (
        Entry("layers.10", "linear", {"m": 7, "i": 11, "j": 13}),
        Entry("layers.2", "linear", {"m": 7, "i": 11, "j": 13}),
        Entry("attn", "values", {"b": 3, "m": 7, "i": 7, "j": 5}),
        Entry("attn", "scores", {"b": 3, "m": 7, "i": 5, "j": 7}, times=2),
    ),
    (Parameter("layers.2.weight", (13, 11)), Parameter("layers.10.weight", (13, 11), trainable=False)),
    inputs=("0: 7x11 float32",),
    versions={"headcount": "0.2.0", "torch": "2.13.0", "python": "3.12"},
    request=Target("model.py:make", {"n": 7}, formulas={"mylib.op": "a0*o"}),
)
TEXT = file.text(LOCK)
OLD = TEXT.replace('"lock_version": 2', '"lock_version": 1').replace("unsupported", "uncounted")
"""The same lock in version 1."""


@pytest.mark.parametrize("text", [TEXT, OLD], ids=["new", "old"])
def test_read_returns_what_was_written(text, tmp_path):
    (tmp_path / "macs.lock").write_text(text)
    found = file.read(tmp_path / "macs.lock")
    assert found.request == LOCK.request and file.text(found) == TEXT


def test_several_targets_are_read_by_name(tmp_path):
    other = replace(LOCK, request=replace(LOCK.request, settings={}), limits={"macs": 5000})
    (tmp_path / "two.lock").write_text(file.text(LOCK, other))
    assert file.text(*file.parse(file.text(LOCK, other), "two.lock")) == file.text(LOCK, other)
    for target, one in {"model.py:make,n=7": LOCK, "model.py:make": other}.items():
        assert file.text(file.read(tmp_path / "two.lock", target)) == file.text(one)
    for target, end in ((None, "all"), ("other", "other")):
        with pytest.raises(UsageError, match=f"model.py:make,n=7, model.py:make; one is expected, not {end}$"):
            file.read(tmp_path / "two.lock", target)


def edit_lock(**fields):
    return json.dumps({**json.loads(TEXT), **fields})


def drop_field(name):
    data = json.loads(TEXT)
    del data[name]
    return json.dumps(data)


def edit_term(**fields):
    first, *others = json.loads(TEXT)["contractions"]
    return edit_lock(contractions=[{**first, **fields}, *others])


FIELDS = [name for name in json.loads(TEXT) if name not in ("lock_version", "uncalled")]
"""Fields that every lock has; earlier versions have no field ``uncalled``."""
CONFLICT = TEXT.replace(' "macs": 4207,', '<<<<<<< HEAD\n "macs": 4207,\n=======\n "macs": 1,\n>>>>>>> theirs')
OPTIONS = LOCK.request.options()
BROKEN = {
    "merge conflict": (CONFLICT, "is not JSON: "),
    "key twice": (
        TEXT.replace(' "macs": 4207,', ' "macs": 1,\n "macs": 4207,'),
        "is not JSON: an object has a key twice",
    ),
    "half a surrogate pair": (TEXT.replace("model.py", r"\ud800.py"), "is not JSON: "),
    "other JSON": ('{"name": "x"}', "is neither "),
    "later version": (edit_lock(lock_version=4), "has lock_version 4"),
    "no targets": (edit_lock(lock_version=3, targets=[]), "is broken: it has a target twice, or none"),
    "target twice": (
        edit_lock(lock_version=3, targets=[json.loads(TEXT)] * 2),
        "is broken: it has a target twice, or none",
    ),
    "misspelt limit": (
        edit_lock(limits={"macs": 7, "param": 3}),
        "is broken: limits are of macs and params, not of param",
    ),
    "boolean version": (edit_lock(lock_version=True), "is "),
    "other sum": (edit_lock(macs=4208), "is broken: sum of macs"),
    "other elementwise sum": (edit_lock(elementwise_macs=1), "is broken: sum of elementwise_macs"),
    "other sum of params": (edit_lock(params=1), "is broken: sum of params"),
    "edited size": (edit_term(sizes={"b": 3}), "is broken: macs of attn scores: the sizes give 6, the file has 1470"),
    **{
        f"macs of a contraction: {macs}": (edit_term(macs=macs), "is broken: macs of attn scores: the sizes give 1470")
        for macs in (1, 1470.0, float("nan"), True, None, "1470")
    },
    "params of a parameter": (
        TEXT.replace('"params": 143', '"params": 144', 1),
        "is broken: params of layers.2.weight: the sizes give 143, the file has 144",
    ),
    "fractional size": (edit_term(times=2.0), "is broken: sum of macs"),
    "unknown kind": (edit_term(kind="speed"), "is broken: unknown kind 'speed'"),
    "option of another type": (edit_lock(options={**OPTIONS, "device": 7}), "is broken: device has the wrong type: 7"),
    "misspelt option": (
        edit_lock(options={**OPTIONS, "dtipe": "half"}),
        "is broken: unknown key 'dtipe' of request",
    ),
    "boolean length": (
        edit_lock(options={**OPTIONS, "lengths": {"n": True}}),
        "is broken: lengths has the wrong type: True",
    ),
    "terminal codes": (edit_term(path=["\x1b[2J\nx"]), "is broken: path has the wrong type: ['\\x1b[2J\\nx']"),
    **{f"{name} of another type": (edit_lock(**{name: 7.5}), "is broken: ") for name in FIELDS},
    **{f"no {name}": (drop_field(name), f"is not the count of a module: it has no '{name}'") for name in FIELDS},
    "other tables": ('{"schema_version": 1, "tables": [{"name": "grid"}]}', "is not the count of a module"),
    "later schema": ('{"schema_version": 99}', "has schema_version 99"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_broken_file_is_an_error_of_one_line(what):
    content, reason = BROKEN[what]
    with pytest.raises(UsageError) as raised:
        file.parse(content, "macs.lock")
    message = str(raised.value)
    assert message.startswith(f"macs.lock {reason}") and "\n" not in message and message.isprintable()


LINEAR = Entry("up", "linear", {"m": 7, "i": 11, "j": 13})
WRITTEN = Entry("", "elementwise_contraction", {"m": 7, "i": 3}, times=2)


def count_as_json(*terms, macs, elementwise=()):
    """Return what ``headcount count`` prints as JSON of these terms, with an operation in each state."""
    states = {"addmm": "counted", "relu": "no contraction", "_fft_r2c": "unknown"}
    audit = [{"operation": name, "state": state, "text": f"{name} on 7x13"} for name, state in states.items()]
    main = {"name": "module", "spec": "m.py:make", "dispatched": 1001, "params": 0, "parameters": [], "audit": audit}
    main |= {"macs": macs, "rows": Ledger(terms).as_records()}
    return {"schema_version": 1, "tables": [main, {"name": "module-elementwise", "rows": list(elementwise)}]}


def read(data):
    (found,) = file.parse(json.dumps(data), "count.json")
    return found


def test_macs_json_is_read():
    data = count_as_json(LINEAR, macs=7 * 11 * 13)
    del data["tables"][1]
    weight = {"path": "up", "name": "weight", "shape": [13, 11], "trainable": False}
    data["tables"][0] |= {"params": 144, "parameters": [weight, weight | {"path": "", "shape": []}]}
    found = read(data)
    assert (found.name, found.terms, found.unsupported) == ("m.py:make", (LINEAR,), ("_fft_r2c on 7x13",))
    assert found.parameters == (Parameter("up.weight", (13, 11), False), Parameter("weight", (), False))
    for wrong in ({"macs": 1002}, {"params": "7"}, {"rows": 7}, {"spec": 7.5}, {"audit": [7]}):
        with pytest.raises(UsageError, match="count.json is broken: "):
            read({**data, "tables": [data["tables"][0] | wrong]})


def test_macs_json_with_elementwise_included():
    line = {"path": "", "kind": WRITTEN.kind, "dims": {"m": 7, "i": 3}, "times": 2}
    apart = read(count_as_json(LINEAR, macs=1001, elementwise=[line, line | {"kind": "square_sum"}]))
    within = read(count_as_json(LINEAR, WRITTEN, macs=1001 + 2 * 7 * 3, elementwise=[line]))
    assert apart.terms == within.terms == (LINEAR, WRITTEN)
    assert (apart.macs, apart.included) == (1001, False) and (within.macs, within.included) == (1043, True)
