"""Parts of presets, first values of sizes, and requests of headcount derive."""

import sympy

from headcount.bench.derive import __main__ as command
from headcount.bench.derive.parts import part
from headcount.bench.derive.result import Derivation
from headcount.bench.targets.target import Target
from headcount.formulas.symbols import symbol
from headcount.models.configs.targets import make


def test_starts_of_presets():
    # d_h starts at 5, and half of a rotated head is no whole number
    assert part(make("llm-s", {}), "model", ("N", "d_h", "T")).starts == {"N": 1, "d_h": 64, "T": 11}
    assert part(make("llm-s", {}), "attention", ("d_h", "T")).starts == {"d_h": 5, "T": 11}
    assert part(make("moa-8K8E128D", {"top_k": 2}), "attention", ("E", "K")).starts == {"E": 17, "K": 3}


def test_kv_heads_equal_heads_by_default():
    # 10 tokens, d_model 512, head_dim 64
    h, g = symbol("h"), symbol("g")
    for names, shared in ((("h",), h), (("h", "g"), g)):
        found = part(make("transformer-base", {}), "attention", names)
        assert sympy.expand(found.closed["linear"] - 10 * 512 * 64 * (2 * h + 2 * shared)) == 0
        layer, _, _ = found.build(**dict(zip(names, (6, 2), strict=False)))
        assert layer.k_proj.out_features == 64 * (2 if shared == g else 6)


def test_request_has_settings_starts_and_steps(monkeypatch):
    asked = []
    answer = Derivation({"linear": 7 * symbol("T") * symbol("d") ** 2}, "")
    monkeypatch.setattr(command, "derive_module", lambda *given: asked.extend(given) or answer)
    words = ["--module", "mine.py:net", "--vars", "T,d", "--set", "n=7", "--base", "d=6:2"]
    command.command(command.parser().parse_args(words))
    assert asked == [Target("mine.py:net", {"n": 7}), ("T", "d"), {"d": (6, 2)}]


def test_preset_without_names_has_its_letters():
    assert tuple(part(make("moa-8K8E128D", {}), "attention").letters) == ("S", "T", "d_m", "E", "K", "D")
    # as many key/value heads as heads; layers are no letter
    assert tuple(part(make("transformer-base", {}), "model").letters) == ("S", "T", "d_m", "F", "V", "h", "d_h")
    assert "g" in part(make("llama3-8b", {}), "attention").letters
