"""The form of many layers, derived from a few of them, is that of all of them."""

import json

import pytest

from headcount.bench.closed_form import derivation, layers, observe
from headcount.bench.closed_form.store import LETTERS
from headcount.bench.targets.target import Target
from tests.bench.closed_form.families import FAMILIES, config

pytest.importorskip("transformers", reason="the optional extra hf is not installed")

DAILY = "gemma2"
"""A family whose layers have a window in turn."""
KINDS = [kind if kind == DAILY else pytest.param(kind, marks=pytest.mark.nightly) for kind in FAMILIES]
LAYERS = 4


@pytest.fixture
def derive(tmp_path, monkeypatch):
    """Return a function that derives the form of a family with LAYERS layers, from all of them where ``whole``."""

    def derive(kind, whole, sizes=""):
        given = config(kind)
        number = next((name for name in ("num_hidden_layers", "n_layer", "n_layers") if name in given), "num_layers")
        if "attention_types" in given:
            given["attention_types"] = [[["global", "local"], LAYERS // 2]]
        (tmp_path / "config.json").write_text(json.dumps({**given, number: LAYERS}))
        monkeypatch.setattr(derivation, "fewer_layers", (lambda _: None) if whole else fewer)
        observe._DECODERS.clear()
        return derivation.derive(Target(str(tmp_path / "config.json"), lengths={"seq_len": 8}), sizes)

    def fewer(decoder):
        used.append(layers.fewer_layers(decoder))
        return used[-1]

    used = derive.used = []
    return derive


@pytest.mark.parametrize("kind", KINDS)
def test_form_is_that_of_all_layers(kind, derive):
    assert derive(kind, False, LETTERS) == derive(kind, True, LETTERS)
    if kind == DAILY:
        (few,) = derive.used
        assert few.decoder.module.config.num_hidden_layers == 2 and few.equal_to == (0, 1) * 2


@pytest.mark.parametrize("kind", [DAILY, pytest.param("deepseek_v3", marks=pytest.mark.nightly)])
def test_layers_that_only_look_equal_are_derived_one_by_one(kind, derive, monkeypatch):
    monkeypatch.setattr(layers, "_signature", lambda *_: [])
    found = derive(kind, whole=False)
    assert derive.used[0].equal_to == (0,) * LAYERS
    assert found == derive(kind, whole=True)
