"""Random values of every option give an answer or a one-line error, never a traceback."""

import json
import re
from functools import cache
from importlib import import_module

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headcount.__main__ import COMMANDS
from headcount.bench.column import escape_controls
from tests.golden.conftest import run

LINES = [
    "table --counter closed-form",
    "count transformer-base --counter closed-form --columns decode_bound --context 7",
    "count model.py:gone",
    "latency --estimate --layer mha-base",
    "latency compare a.jsonl a.jsonl",
    "latency gates --device cuda",
    "latency campaign --device cuda --out-dir d",
    "derive --preset mlm-transformer --part feed-forward --vars T",
    "budget --macs 1G --limit 1 --records none",
    "routing --checkpoint model.py --preset mlm-moa-8K8E128D --tokens tokens.txt",
    "lock model.py:gone",
]
NUMBERS = st.from_regex(r"[-+]?[0-9٣²]{1,7}([.,_/][0-9]{1,3})?([eE][-+]?[0-9]{1,9})?[kMGi%x]{0,2}", fullmatch=True)
TEXTS = st.sampled_from(
    ["", " ", "nan", "inf", "True", "0x10", "9" * 5001, "9**9**9**9", "x" * 70000, "é" * 300, "../../x", "a\nb"]
    + ["\x1b[31m", "\u202e", "\udcff", "__import__('os').system('touch pwned')", "{0.__class__}", "$(touch pwned)"]
)
WORDS = st.text(st.characters(exclude_characters="\0"), max_size=9)
"""Texts without NUL, which no argument of a process can hold."""
PREFIXES = st.sampled_from(["", "", "T=", "K=", "K=1:", "E=2:4:", "d_model=", "num_heads=", "s=1 r=", "_fft_r2c="])
SETTINGS = settings(
    derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@cache
def options(line):
    """Return the type of each option of a command that takes a value; "" is a positional argument."""
    command, word = line.split()[:2]
    below = f"bench.{command}.{word}" if word.isalpha() else ""
    parser = import_module(f"headcount.{below or COMMANDS[command][0]}").parser(f"headcount {command}")
    return {"": None} | {a.option_strings[-1]: a.type for a in parser._actions if a.option_strings and a.nargs != 0}


@pytest.mark.parametrize("line", LINES)
@settings(SETTINGS, max_examples=120)
@given(data=st.data(), value=st.builds(str.__add__, PREFIXES, NUMBERS | TEXTS | WORDS))
def test_any_value_gives_answer_or_error(line, data, value, folder, warm):
    kinds = options(line)
    option = data.draw(st.sampled_from(sorted(kinds)))
    before = set(folder.rglob("*"))
    ended = run([*line.split(), f"{option}={value}" if option else value])
    assert ended.code in (0, 1, 2, 3) and "Traceback" not in ended.err
    if ended.code > 1:
        assert not ended.out and len(ended.err.strip().splitlines()) <= 2 and ended.err == escape_controls(ended.err)
        assert {path for path in folder.rglob("*") if "__pycache__" not in path.parts} <= before
    elif kinds[option] is int:
        assert re.fullmatch("[-+]?([0-9]+|[0-9.]+(k|M|G|T|P|Ki|Mi|Gi|Ti))", value)


@SETTINGS
@given(number=st.integers(-9, 10**9), form=st.sampled_from("{} +{} 0{} {}.0 {}e0 {}_0 {:,} {}k {}{}".split()))
def test_sizes_are_read_exactly(number, form, folder):
    text = form.format(number, number)
    ended = run(["grid", f"h=2 d_h=5 T={text}", "--counter", "closed-form", "--format", "json"])
    if ended.code == 0:
        rows = [row for table in json.loads(ended.out)["tables"] for row in table["rows"]]
        sizes = [1000 * int(size[:-1]) if size.endswith("k") else int(size) for size in text.split(",")]
        assert [row["count"]["macs"] for row in rows] == [4 * T * 512 * 10 + 2 * T * T * 10 for T in sizes]
    is_size = all(re.fullmatch("[+]?[0-9]+k?", size) and int(size.strip("k")) > 0 for size in text.split(","))
    assert (ended.code == 0) == is_size
