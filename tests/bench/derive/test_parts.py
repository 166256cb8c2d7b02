"""Parts of presets that headcount derive builds, and their first points."""

import pytest

from headcount.bench.derive.parts import part
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
