"""The tables of somebody's modules and of counts that were kept, as a reader meets them."""

from dataclasses import replace

import pytest

from headcount.bench.macs.__main__ import parser, plan
from headcount.bench.snapshot.sections import LOCKED, sections
from headcount.bench.snapshot.snapshot import CountRequest, CountSnapshot, Parameter
from headcount.formulas.ledger import Entry
from tests.bench.output.typed import described, typed

MODEL = """
import torch

class Mixed(torch.nn.Linear):
    def forward(self, x):
        return super().forward(torch.fft.rfft(x).real) + (x[:, :7] * x[:, 1:8]).sum(1, keepdim=True)

def mixed(n=3): return Mixed(7, 5), (torch.ones(n, 13),)
"""
MODULE = {
    "module": """
        model.py:mixed: a part of the count, without 1 calls that nobody knows, dispatched contractions
        module                       code              always
        kind                         text              80
        sizes                        text              80
        MACs                         MACs              always
        share %                      0.33              80
        params                       params            80
    """,
    "module-counters": """
        counters
        counter                      text              always
        reading                      MACs              always
        reading less right           ±MACs             always
        by its calls                 verdict           always
    """,
    "module-causes": """
        where each tool's error comes from
        counter                      text              always
        MACs                         ±MACs             always
        what                         text              80
        call                         text, broken      always
        calls                        integer           80
        place in the tool's source   text, broken      80
    """,
    "module-elementwise": """
        products written elementwise and summed
        module                       code              always
        call                         text              80
        kind                         text              80
        sizes                        text              80
        multiplications              MACs              always
    """,
    "uncounted": """
        operations that nobody knows
        operation                    code, broken      always
    """,
}
CHANGES = """
    {old} against {new}: {what}
    module                           code, broken      always
    kind                             text              80
    what                             text              always
    sizes                            text, broken      80
    {old} {unit}                     {unit}            80
    {new} {unit}                     {unit}            80
    {less} {unit}                    ±{unit}           always
"""
HOW = """
    {old} against {new}: how they were counted
    what                             text              always
    {old}                            code, broken      80
    {new}                            code, broken      80
"""


def lines(found):
    return [(section.table.name, *line) for section in found for line in described(section)]


def expected(texts):
    return [(name, *line) for name, text in texts.items() for line in typed(text)]


@pytest.mark.usefixtures("warm")
def test_every_table_of_a_module_has_these_columns(tmp_path, monkeypatch):
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    words = ["--module", "model.py:mixed", "--allow-uncounted", "--counter", "torch"]
    found = list(plan(parser().parse_args(words)).sections)
    assert lines(found) == expected(MODULE)
    assert [section.table.name for section in found if section.detail] == ["module", "module-causes"]


def test_what_changed_since_a_lock_has_these_columns():
    term = Entry("", "linear", {"m": 7, "i": 11, "j": 13})
    old = CountSnapshot("net", (term,), (Parameter("weight", (13, 11)),), request=CountRequest("x.py:net"))
    new = replace(old, terms=(term, term), parameters=(), uncounted=("fft on 7x11 (in the model)",))
    words = {"old": "locked", "new": "counted", "less": "change"}
    found = sections(old, new, LOCKED)
    assert [section.table.name for section in found if not section.detail] == ["lock-terms"]
    assert lines(found) == expected({
        "lock-terms": CHANGES.format(unit="MACs", what="multiply-accumulates by term", **words),
        "lock-params": CHANGES.format(unit="params", what="parameters by tensor", **words),
        "lock-how": HOW.format(**words),
    })  # fmt: skip
