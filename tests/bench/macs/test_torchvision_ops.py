"""torchvision's own table of operation counts, judged row by row."""

import json
import sys
from collections import Counter
from importlib.util import find_spec

import pytest

from headcount.bench.macs import torchvision_ops
from headcount.bench.macs.__main__ import main
from headcount.bench.macs.torchvision_ops import AGREES, DIFFERS, WITH_BOXES, judged, published

SOME = ("alexnet", "vit_b_32", "regnet_x_400mf", "quantized_inception_v3", "ssd300_vgg16", "fasterrcnn_resnet50_fpn")
needs_torchvision = pytest.mark.skipif(not find_spec("torchvision"), reason="the extra torchvision is not installed")


def test_the_table_is_whole():
    rows = published()
    assert Counter(row["kind"] for row in rows) == {
        "classification": 115, "detection": 13, "quantization": 14, "segmentation": 6, "video": 10, "optical_flow": 8,
    }  # fmt: skip
    assert len({row["weights"] for row in rows}) == 166
    assert all(int(row["num_params"]) > 0 and float(row["ops"]) > 0 for row in rows)


def test_a_printed_number_agrees_to_its_last_digit_or_differs():
    assert judged("0.714", 714_188_480) == (AGREES, "")
    assert judged("3.36", 3_359_843_328) == (AGREES, "")
    assert judged("0.715", 714_188_480) == (DIFFERS, "counted 0.714")


def test_the_number_of_boxes_is_solved_for():
    # 1,000 boxes of 7 x 7 x 256 inputs through 1,024, 1,024 and 91 x 5 outputs.
    per_box = 7 * 7 * 256 * 1024 + 1024 * 1024 + 1024 * 91 * 5
    assert judged("134.38", 120_020_169_216, per_box) == (WITH_BOXES, "120,020,169,216 + 1,000 boxes x 14,359,552")
    assert judged("134.382", 120_020_169_216, per_box)[0] == DIFFERS
    assert judged("4.494", 4_493_592_256, per_box) == (AGREES, "no box is looked at again")


@needs_torchvision
def test_rows_of_every_kind_agree(monkeypatch, capfd):
    rows = [next(row for row in published() if row["model"] == name) for name in SOME]
    monkeypatch.setattr(torchvision_ops, "published", lambda: rows)
    assert main(["--published", "torchvision", "--check", "--format", "json"]) == 0
    (table,) = json.loads(capfd.readouterr().out)["tables"]
    verdicts = {row["weights"].partition("_Weights")[0]: row["verdict"] for row in table["rows"][:-1]}
    assert len(verdicts) == len(SOME)
    assert [name for name, verdict in verdicts.items() if verdict != AGREES] == ["FasterRCNN_ResNet50_FPN"]
    assert table["rows"][-1]["tally"] == {AGREES: len(SOME) - 1, WITH_BOXES: 1}


@needs_torchvision
def test_a_row_that_differs_fails_the_check(monkeypatch, capfd):
    (row,) = [row for row in published() if row["model"] == "alexnet"]
    monkeypatch.setattr(torchvision_ops, "published", lambda: [{**row, "ops": "0.715"}])
    assert main(["--published", "torchvision", "--check"]) == 1
    assert "0.715 printed, counted 0.714" in capfd.readouterr().err


def test_without_torchvision_it_says_what_to_install(monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    assert main(["--published", "torchvision"]) == 3
    assert "torchvision is not installed; pip install 'headcount[torchvision]'" in capfd.readouterr().err


@pytest.mark.parametrize("option", [["--counter", "torch"], ["--device", "cpu"], ["--preset", "moa-8K8E128D"]])
def test_options_of_other_tables_are_refused(option, capfd):
    assert main(["--published", "torchvision", *option]) == 2
    assert "do not go together" in capfd.readouterr().err
