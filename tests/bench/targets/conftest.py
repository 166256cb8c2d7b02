"""A small configuration, and a fixture that counts targets in the process of the tests."""

import json

import pytest

from headcount.bench.accounts import Assumptions
from headcount.bench.counting import module
from headcount.bench.targets.target import Target

LLAMA = dict(
    model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=24, head_dim=6, intermediate_size=32,
    num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=53, bos_token_id=0, eos_token_id=2,
)  # fmt: skip
VISION = dict(
    hidden_size=20, intermediate_size=28, num_hidden_layers=1, num_attention_heads=4, image_size=21, patch_size=7
)
LLAVA = {
    "model_type": "llava", "architectures": ["LlavaForConditionalGeneration"], "image_token_index": 50,
    "vision_feature_layer": -1, "text_config": LLAMA, "vision_config": {"model_type": "clip_vision_model", **VISION},
}  # fmt: skip


@pytest.fixture
def count(tmp_path, monkeypatch):
    """Return a function that counts a target in the folder tmp_path; a dictionary is the content of a config.json."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def answer(target, settings=(), *, counters=(), columns=(), context=None, window=None, **options):
        spec = target if isinstance(target, str) else write(tmp_path, target)
        given = Assumptions(context=context, window=window)
        return module.count(Target(spec, dict(settings), **options), counters, columns=columns, given=given, roots={})

    return answer


def write(folder, config):
    """Write a configuration and return its path."""
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return str(path)
