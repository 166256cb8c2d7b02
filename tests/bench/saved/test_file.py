"""The file of a count: an entry a line, and what is not one is refused in a line."""

import json
import os
import sys
from importlib.metadata import PackageNotFoundError

import pytest

import headcount
from headcount.bench.errors import UsageError
from headcount.bench.saved import file
from headcount.bench.saved.saved import Asked, Parameter, Saved
from headcount.formulas.ledger import Entry, Ledger

LOCK = Saved(
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
    asked=Asked("model.py:make", {"n": 7}, formulas={"mylib.op": "a0*o"}),
)
TEXT = """{
  "lock_version": 1,
  "versions": {"headcount": "0.2.0", "torch": "2.13.0", "python": "3.12"},
  "name": "model.py:make",
  "module": "model.py:make",
  "settings": {"n": 7},
  "options": {"device": null, "allow_uncounted": false, "elementwise": "report", "formulas": {"mylib.op": "a0*o"}},
  "inputs": ["0: 7x11 float32"],
  "included": false,
  "macs": 4207,
  "elementwise_macs": 0,
  "params": 286,
  "contractions": [
    {"path": "attn", "kind": "scores", "sizes": {"b": 3, "m": 7, "i": 5, "j": 7}, "times": 2, "macs": 1470},
    {"path": "attn", "kind": "values", "sizes": {"b": 3, "m": 7, "i": 7, "j": 5}, "times": 1, "macs": 735},
    {"path": "layers.2", "kind": "linear", "sizes": {"m": 7, "i": 11, "j": 13}, "times": 1, "macs": 1001},
    {"path": "layers.10", "kind": "linear", "sizes": {"m": 7, "i": 11, "j": 13}, "times": 1, "macs": 1001}
  ],
  "parameters": [
    {"path": "layers.2.weight", "shape": [13, 11], "params": 143, "trainable": true},
    {"path": "layers.10.weight", "shape": [13, 11], "params": 143, "trainable": false}
  ],
  "uncounted": []
}
"""


def test_the_file_is_an_entry_a_line_in_an_order_of_its_own():
    assert file.text(LOCK) == TEXT


def test_reading_gives_back_what_was_written(tmp_path):
    (tmp_path / "macs.lock").write_text(TEXT)
    found = file.read(tmp_path / "macs.lock")
    assert found.asked == LOCK.asked and file.text(found) == TEXT


def test_versions_are_those_of_this_software_whatever_the_build_of_torch_is_called(monkeypatch):
    own = {"headcount": headcount.__version__, "python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    monkeypatch.setattr(file, "version", {"torch": "2.99.1+cu999"}.__getitem__)
    assert file.versions() == own | {"torch": "2.99.1"}

    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(file, "version", missing)
    assert file.versions() == own | {"torch": "none"}


def edited(**fields):
    return json.dumps({**json.loads(TEXT), **fields})


def without(name):
    data = json.loads(TEXT)
    del data[name]
    return json.dumps(data)


def term(**fields):
    first, *others = json.loads(TEXT)["contractions"]
    return edited(contractions=[{**first, **fields}, *others])


def parameter(**fields):
    first, other = json.loads(TEXT)["parameters"]
    return edited(parameters=[{**first, **fields}, other])


FIELDS = [name for name in json.loads(TEXT) if name != "lock_version"]
LINES = ("uncounted", "inputs")
CONFLICT = TEXT.replace('  "macs": 4207,', '<<<<<<< HEAD\n  "macs": 4207,\n=======\n  "macs": 1,\n>>>>>>> theirs')
BROKEN = {
    "empty": ("", "is not JSON: "),
    "not JSON": ("macs: 7", "is not JSON: "),
    "a merge conflict": (CONFLICT, "is not JSON: "),
    "cut off": (TEXT[:400], "is not JSON: "),
    "not UTF-8": (TEXT.replace("attn", "é").encode("latin-1"), "is not JSON: "),
    "nested deep": ("[" * 100_000, "is not JSON: "),
    "a number beyond all": (TEXT.replace("4207", "9" * 5001), "is not JSON: "),
    "a list": ("[]", "is neither a lock nor the JSON of headcount macs --module"),
    "other JSON": ('{"name": "x"}', "is neither a lock nor the JSON of headcount macs --module"),
    "a later version": (edited(lock_version=2), "has lock_version 2; this software reads 1"),
    "no version": (edited(lock_version=True), "has lock_version True; this software reads 1"),
    "another sum": (edited(macs=4208), "is broken: its lines sum to 4,207 macs, its head says 4208"),
    "another sum beside": (
        edited(elementwise_macs=1),
        "is broken: its lines sum to 0 elementwise_macs, its head says 1",
    ),
    "another params": (edited(params=1), "is broken: its lines sum to 286 params, its head says 1"),
    "a size edited": (term(sizes={"b": 3}), "is broken: attn: its sizes make 6 MACs, not 1470"),
    "a size of text": (term(sizes={"b": "3"}), "is broken: b is '3', no whole number"),
    "a size below 0": (term(sizes={"b": -3}), "is broken: b is -3, no whole number"),
    "a size that is true": (term(times=True), "is broken: times is True, no whole number"),
    "another kind": (term(kind="magic"), "is broken: 'magic' is no kind of contraction"),
    "a path of numbers": (term(path=3), "is broken: path is 3, no str"),
    "a shape of text": (parameter(shape="13x11"), "is broken: shape is '13x11', no list"),
    "params of another shape": (parameter(params=144), "is broken: layers.2.weight has 143 elements, not 144"),
    "formulas": (edited(options={**LOCK.asked.options(), "formulas": {"a": 7}}), "is broken: formulas is 7, no str"),
    **{
        f"{name} of another type": (edited(**{name: 7}), f"is broken: {name} is 7, no {kind}")
        for name, kind in {
            **dict.fromkeys(("name", "module"), "str"),
            "included": "bool",
            **dict.fromkeys(("contractions", "parameters", "uncounted", "inputs"), "list"),
        }.items()
    },
    **{f"{name} of numbers": (edited(**{name: [7]}), f"is broken: {name} is 7, no str") for name in LINES},
    **{
        f"option {name}": (edited(options={**LOCK.asked.options(), name: 7}), f"is broken: {name} is 7, no {kind}")
        for name, kind in {"device": "str", "allow_uncounted": "bool", "elementwise": "str"}.items()
    },
    "a setting of text": (edited(settings={"n": "7"}), "is broken: n is '7', no whole number"),
    "a version of a number": (edited(versions={"torch": 2}), "is broken: versions is 2, no str"),
    "terminal codes": (term(kind="\x1b[2J\nx"), "is broken: '\\x1b[2J\\nx' is no kind of contraction"),
    **{f"no {name}": (without(name), f"is broken: it has no '{name}'") for name in FIELDS},
    "null": (edited(**dict.fromkeys(FIELDS)), "is broken: "),
    "tables of others": (
        '{"schema_version": 1, "tables": [{"name": "moa-table1"}]}',
        "holds moa-table1: not the count",
    ),
    "two tables of others": (
        '{"schema_version": 1, "tables": [{"name": "grid"}, {"name": "grid-2"}]}',
        "holds grid, grid-2: not the count",
    ),
    "no tables": ('{"schema_version": 1, "tables": []}', "holds no table: not the count of a module"),
    "tables that are none": ('{"schema_version": 1, "tables": 7}', "is broken: "),
    "a later schema": ('{"schema_version": 99}', "has schema_version 99; this software reads 1"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_no_lock_is_said_in_a_line(what, tmp_path):
    content, reason = BROKEN[what]
    path = tmp_path / "macs.lock"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError) as raised:
        file.read(path)
    said = str(raised.value)
    assert said.startswith(f"{path} {reason}") and "\n" not in said and said.isprintable()


def test_of_a_long_text_the_first_80_signs_are_said():
    with pytest.raises(UsageError) as raised:
        file.of_data(json.loads(term(kind="x" * 200)), "it")
    assert str(raised.value) == f"it is broken: {repr('x' * 200)[:80]}"


def test_what_cannot_be_read_is_said_in_a_line(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    wanted = {
        "missing": "No such file or directory", ".": "it is no file", "pipe": "it is no file",
        "loop": "Too many levels of symbolic links",
    }  # fmt: skip
    for name, reason in wanted.items():
        with pytest.raises(UsageError, match=f"^cannot read {tmp_path / name}: {reason}$"):
            file.read(tmp_path / name)


LINEAR = Entry("up", "linear", {"m": 7, "i": 11, "j": 13})
WRITTEN = Entry("", "elementwise_contraction", {"m": 7, "i": 3}, times=2)


def printed(*terms, macs, elementwise=()):
    """What ``headcount macs --module`` prints as JSON of these terms, and of an operation in each state."""
    states = {"addmm": "counted", "relu": "no contraction", "_fft_r2c": "unknown"}
    audit = [{"operation": name, "state": state, "text": f"{name} on 7x13"} for name, state in states.items()]
    main = {"name": "module", "spec": "m.py:make", "dispatched": 1001, "params": 0, "parameters": [], "audit": audit}
    main |= {"macs": macs, "rows": Ledger(terms).as_records()}
    return {"schema_version": 1, "tables": [main, {"name": "module-elementwise", "rows": list(elementwise)}]}


def test_of_printed_tables_those_operations_are_uncounted_that_nobody_knows():
    found = file.of_data(printed(LINEAR, macs=7 * 11 * 13), "count.json")
    assert (found.name, found.terms, found.uncounted) == ("m.py:make", (LINEAR,), ("_fft_r2c on 7x13",))


def test_printed_tables_without_elementwise_products_have_contractions_and_parameters_alone():
    data = printed(LINEAR, macs=1001)
    del data["tables"][1]
    weight = {"path": "up", "name": "weight", "shape": [13, 11], "trainable": False}
    data["tables"][0] |= {"params": 143, "parameters": [weight, weight | {"path": "", "shape": []}]}
    data["tables"][0]["params"] += 1
    found = file.of_data(data, "count.json")
    assert found.terms == (LINEAR,)
    assert found.parameters == (Parameter("up.weight", (13, 11), False), Parameter("weight", (), False))


@pytest.mark.parametrize(
    "edited, said",
    [
        ({"macs": 1002}, "its rows sum to 1,001 macs, it says 1002"),
        ({"params": "7"}, "its rows sum to 0 params, it says '7'"),
    ],
)
def test_printed_tables_whose_headline_is_not_the_sum_of_their_rows_are_refused(edited, said):
    data = printed(LINEAR, macs=1001)
    data["tables"][0] |= edited
    with pytest.raises(UsageError) as raised:
        file.of_data(data, "count.json")
    assert str(raised.value) == f"count.json is broken: {said}"


def test_of_printed_tables_what_is_written_elementwise_is_in_the_count_where_the_headline_has_it():
    line = {"path": "", "kind": WRITTEN.kind, "dims": {"m": 7, "i": 3}, "times": 2}
    apart = file.of_data(printed(LINEAR, macs=1001, elementwise=[line, line | {"kind": "square_sum"}]), "count.json")
    within = file.of_data(printed(LINEAR, WRITTEN, macs=1001 + 2 * 7 * 3, elementwise=[line]), "count.json")
    assert apart.terms == within.terms == (LINEAR, WRITTEN)
    assert (apart.macs, apart.included) == (1001, False) and (within.macs, within.included) == (1043, True)
