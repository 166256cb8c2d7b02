"""Parts of presets, first values of sizes, requests and LaTeX names of headcount derive."""

import pytest
import sympy

from headcount.bench.derive import __main__ as command
from headcount.bench.derive.parts import part
from headcount.bench.derive.result import Derivation
from headcount.formulas.symbols import symbol
from headcount.models.configs.base import ConfigError
from headcount.models.configs.presets import preset

PRESET = "moa-8K8E128D"
PARTS = ("attention", "feed-forward", "model")


@pytest.mark.parametrize(
    ("without", "refused"),
    [("model", {"model": "encoder_decoder"}), ("attention", {"attention": "moa", "model": "moa"})],
)
def test_part_without_module_raises(without, refused, monkeypatch):
    config = preset(PRESET)
    monkeypatch.setattr(type(config if without == "model" else config.attention), "module", None)
    for which in PARTS:
        if which in refused:
            with pytest.raises(ConfigError, match=f"^{refused[which]} has a closed form only, no module$"):
                part(PRESET, which, {}, ("T",))
        else:
            assert part(PRESET, which, {}, ("T",)).closed


def test_starts_of_presets():
    # d_h starts at 5, and half of a rotated head is no whole number
    assert part("llm-s", "model", {}, ("N", "d_h", "T")).starts == {"N": 1, "d_h": 64, "T": 11}
    assert part("llm-s", "attention", {}, ("d_h", "T")).starts == {"d_h": 5, "T": 11}
    assert part("moa-8K8E128D", "attention", {"top_k": 2}, ("E", "K")).starts == {"E": 17, "K": 3}


def test_kv_heads_equal_heads_by_default():
    # 10 tokens, d_model 512, head_dim 64
    h, g = symbol("h"), symbol("g")
    for names, shared in ((("h",), h), (("h", "g"), g)):
        found = part("transformer-base", "attention", {}, names)
        assert sympy.expand(found.closed["linear"] - 10 * 512 * 64 * (2 * h + 2 * shared)) == 0
        layer, _, _ = found.build(**dict(zip(names, (6, 2), strict=False)))
        assert layer.k_proj.out_features == 64 * (2 if shared == g else 6)


def test_request_has_settings_starts_and_steps(monkeypatch):
    asked = []
    answer = Derivation({"linear": 7 * symbol("T") * symbol("d") ** 2}, "")
    monkeypatch.setattr(command, "derive_module", lambda *given: asked.extend(given) or answer)
    words = ["--module", "mine.py:net", "--vars", "T,d", "--set", "n=7", "--base", "d=6:2"]
    command.command(command.parser().parse_args(words))
    assert asked == ["mine.py:net", {"n": 7}, {"T": 11, "d": 6}, {"T": 1, "d": 2}]


def test_latex_names_of_sizes():
    n, width = symbol("n"), symbol("width")
    rows = command._rows(Derivation({"conv": 7 * n * width}, ""), {"n": "mlp_ratio", "width": "d_m"})
    (latex,) = {row.latex for row in rows}
    assert set(latex.split()) == {"7", r"\mathit{mlp\_ratio}", "d_m"}
