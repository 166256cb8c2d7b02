"""The table of models: stored rows are sums of their parts, are counted again alike, and are compared by version."""

import re
from dataclasses import replace
from importlib.metadata import version

import pytest
import torch

from headcount import CHECKOUT
from headcount.bench.targets.target import Target
from headcount.bench.targets.user_code import UserCodeError
from headcount.reports.model_costs import (
    COUNTED,
    NOT_BUILT,
    NOT_RUN,
    REFUSED,
    TABLE,
    ModelCost,
    changes,
    read,
    shares,
    write,
)
from tests.count_models import _asked, _failure, _phrase, count_model, is_missing
from tests.reports import chromium

ROWS = read(TABLE)
LIBRARIES = ("diffusers", "timm", "torchvision", "transformers")
RECOUNTED = 3
"""Rows that are counted again: those of the fewest parameters."""
LLAMA = ModelCost("transformers", "llama", parameters=6, macs=40, flop_counter_macs=40)
BERT = ModelCost("transformers", "bert", parameters=5, macs=30, flop_counter_macs=28, differences="-2 missed: aten.mv")
VIT = ModelCost("timm", "vit", state=REFUSED, reason='no input, or "none"', source="old")
SWIN = ModelCost("timm", "swin", state=NOT_BUILT, reason="no width", source="old")


def test_every_library_is_stored():
    assert sorted({row.library for row in ROWS}) == sorted(LIBRARIES)
    assert len({row.key for row in ROWS}) == len(ROWS)
    assert len({(row.library, row.versions) for row in ROWS}) == len(LIBRARIES)


def test_rows_have_a_count_or_a_reason():
    for row in ROWS:
        has_count = None not in (row.parameters, row.macs)
        is_without = row.state in (REFUSED, NOT_BUILT, NOT_RUN)
        assert (row.state == COUNTED, is_without) == (has_count, bool(row.reason)), row.key


def test_operations_explain_differences_of_flop_counter():
    found = [row for row in ROWS if row.flop_counter_macs is not None]
    assert found
    assert [row.key for row in found if row.macs + sum(macs for macs, _ in row.causes) != row.flop_counter_macs] == []


def test_stored_rows_are_counted_again_alike():
    names = {f"torch {version('torch').partition('+')[0]}, transformers {version('transformers')}"}
    rows = [row for row in ROWS if row.library == "transformers" and row.state == COUNTED]
    if {row.versions for row in rows} != names:
        pytest.skip("the stored rows are those of other versions")
    for row in sorted(rows, key=lambda row: row.parameters)[:RECOUNTED]:
        again = count_model(*row.key)
        assert replace(again, versions=row.versions, source=row.source) == row


def test_rows_are_written_and_read(tmp_path):
    path = tmp_path / "models.csv"
    assert read(path) == []
    write(path, [LLAMA, BERT, VIT])
    assert read(path) == [VIT, BERT, LLAMA]


def test_changes_between_versions():
    larger, counted = replace(LLAMA, macs=41), replace(VIT, state=COUNTED, macs=7, parameters=1, reason="")
    new = replace(VIT, model="new")
    found = changes([LLAMA, BERT, VIT, SWIN], [replace(BERT, versions="newer"), larger, counted, new])
    assert [(change.what, change.old, change.new) for change in found] == [
        ("new", None, new),
        ("gone", SWIN, None),
        ("changed", VIT, counted),
        ("changed", LLAMA, larger),
    ]
    assert changes([LLAMA], [replace(LLAMA, versions="newer", source="newer")]) == []


def test_shares_are_of_models_that_the_library_builds():
    none = replace(LLAMA, model="none", flop_counter_macs=None, followed=1)
    faulty = replace(SWIN, library="transformers", state=NOT_RUN)
    timm, transformers, every = shares([VIT, SWIN, LLAMA, BERT, none, faulty])
    assert (transformers.models, transformers.built) == (4, 3)
    assert (timm.models, timm.built, timm.counted, timm.percent) == (2, 1, 0, 0)
    assert (transformers.first, transformers.counted, transformers.percent) == (2, 3, 100)
    assert (transformers.equal, transformers.other, transformers.none) == (1, 1, 1)
    assert (every.library, every.models, every.built, every.counted, every.percent) == ("all", 6, 4, 3, 75)
    assert shares([SWIN])[0].percent is None


def test_only_refused_rows_of_other_code_are_counted_again():
    assert is_missing(None, "new") and is_missing(VIT, "new")
    assert not (is_missing(VIT, "old") or is_missing(SWIN, "new") or is_missing(LLAMA, "new"))


MESSAGES = {
    "--seq-len 64: 1 image of 64 tokens: the least is 65": {"seq_len": 65},
    "input_ids has 64 tokens, and text.wpe has 32 positions": {"seq_len": 32},
    # of a text that the run has lengthened already
    "--seq-len 65: 1 image of 80 tokens: the least is 81": {},
    "TvpModel.forward(…) needs --image-size": {"image_size": 512},
    "TvpModel.forward(…) needs --seq-len": {},
    "TvpModel.forward(…) needs --elsewhere": {},
    "a run on meta raised ValueError: it has 64 tokens": {},
}


@pytest.mark.parametrize("reason", MESSAGES)
def test_options_that_a_message_asks_for_are_followed(reason):
    assert _asked(reason, Target("config.json", lengths={"seq_len": 64})) == MESSAGES[reason]


def _builds_on(device, error):
    def build():
        if torch.empty(1).device.type != device:
            raise error

    return build


def test_library_that_does_not_build_a_model():
    assert _failure(_builds_on("meta", TypeError("no width"))) is None
    # some constructors read values
    assert _failure(_builds_on("cpu", NotImplementedError("no values on meta"))) is None
    assert _failure(_builds_on("none", RuntimeError("odd width"))) == "RuntimeError: odd width"
    # an error of Python does not depend on values, and the CPU may have too little memory
    assert _failure(_builds_on("cpu", TypeError("no width"))) == "TypeError: no width"


@chromium.needed
def test_search_finds_rows_with_all_words(tmp_path):
    path = tmp_path / "models.csv"
    write(path, [LLAMA, replace(BERT, macs=12345678901234567890), VIT])
    script = (CHECKOUT / "reports" / "site" / "guides" / "models.js").read_text("utf-8")
    stub = f"window.fetch = async () => ({{ text: async () => {path.read_text('utf-8')!r} }});"
    page = f"<html><head><title>Models</title></head><body><div id='models'><p>few</p></div><script>{stub}</script>"
    page += f"<script>{script}</script></body></html>"
    program = """
    await new Promise((resolve) => setTimeout(resolve, 50));
    const texts = (row) => [...row.cells].map((one) => one.textContent);
    const cells = () => [...document.querySelectorAll("tbody tr")].map(texts);
    const box = document.querySelector("input");
    const found = [];
    for (const words of ["", "transformers BERT", "vit", "absent"]) {
      box.value = words;
      box.dispatchEvent(new Event("input"));
      const few = document.querySelector("#models > p");
      found.push([document.querySelector("[role=status]").textContent, cells(), few.hidden]);
    }
    answer(found);
    """
    none, bert, vit, absent = chromium.run_in_page(tmp_path, page, program)
    assert (none, absent) == (["3 models; the table has a few that many know", [], False], ["0 models", [], True])
    assert bert == [
        "1 model",
        [["transformers", "bert", "–", "–", "5", "–", "12,345,678,901,234,567,890", "–", "28", "–"]],
        True,
    ]
    assert vit[1][0][-1] == VIT.reason


def test_page_has_the_place_of_the_search():
    page = (CHECKOUT / "reports" / "pages" / "models.md").read_text("utf-8")
    assert re.search(r'^<div id="models" markdown>$', page, re.MULTILINE)


@pytest.mark.parametrize(
    "error, phrase",
    [
        (
            UserCodeError("Net.forward(a, b, c, d) needs inputs: a; add --input a=SIZES"),
            "Net.forward(…) needs inputs: a",
        ),
        (
            UserCodeError("unsupported operations: fft (12 times); --formula counts it"),
            "unsupported operations: fft (12 times)",
        ),
        (ValueError("two\n  lines"), "ValueError: two lines"),
        (UserCodeError("x" * 201), "x" * 200 + "…"),
    ],
)
def test_reasons_are_one_phrase(error, phrase):
    assert _phrase(error) == phrase
