"""Models built from configurations: class, dtype, fields, inputs, and errors of one line."""

import json
import time
from types import SimpleNamespace

import pytest
import torch

from headcount.bench.counting.devices import FAKE
from headcount.bench.errors import EnvironmentMissing
from headcount.bench.targets import config_file
from headcount.bench.targets.config_file import build_from_config
from headcount.bench.targets.model_inputs import Inputs
from headcount.bench.targets.user_code import UserCodeError
from tests.bench.targets.conftest import LLAMA, LLAVA, VISION, write

pytest.importorskip("transformers", reason="the optional extra hf is not installed")

MACS = 2 * (13 * 24 * 24 * 2 + 13 * 24 * 24 + 2 * 4 * 13 * 13 * 6 + 3 * 13 * 24 * 32) + 13 * 24 * 53
"""MACs of 13 tokens: queries and outputs, keys and values, scores, feed-forwards, the head."""
GPT2 = dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], n_embd=20, n_layer=1, n_head=4, n_positions=31)
BERT = dict(
    hidden_size=20, intermediate_size=28, num_hidden_layers=1, num_attention_heads=4, vocab_size=53,
    max_position_embeddings=33, num_conv_pos_embedding_groups=2,
)  # fmt: skip
RESNET = dict(
    model_type="resnet", architectures=["ResNetModel"], embedding_size=5, hidden_sizes=[8], depths=[1],
    layer_type="basic",
)  # fmt: skip
LENGTH = {"seq_len": 13}


@pytest.fixture
def build(tmp_path):
    """Return a function that builds the model of a configuration."""

    def make(config, lengths=LENGTH, fields=(), inputs=(), dtype=None, device="meta"):
        return build_from_config(write(tmp_path, config), dict(fields), lengths, dict(inputs), dtype, device)

    return make


def test_class_dtype_and_notes(build):
    built = build({**LLAMA, "quantization_config": {"quant_method": "gptq", "bits": 4}})
    assert type(built.module).__name__ == "LlamaForCausalLM" and not built.module.training
    assert {(p.device.type, p.dtype) for p in built.module.parameters()} == {("meta", torch.bfloat16)}
    assert built.notes[0].startswith("LlamaForCausalLM of transformers 5.") and built.notes[0].endswith("bfloat16")
    assert "quantization_config (gptq) is not applied" in built.notes[1]
    ids = built.kwargs["input_ids"]
    # 0 begins a text, 2 ends it
    assert ids.tolist() == [[1, *range(3, 15)]] and ids.device.type == "cpu"
    assert build({**LLAMA, "eos_token_id": [1, 2]}).kwargs["input_ids"].tolist() == [list(range(3, 16))]
    assert build({**LLAMA, "torch_dtype": "float16"}).module.dtype == torch.float16
    assert build({**LLAMA, "torch_dtype": "float16"}, dtype="float32").module.dtype == torch.float32


@pytest.mark.parametrize(
    ("names", "config", "chosen"),
    [
        ([], LLAMA, "LlamaForCausalLM"),
        (["LlamaOfTomorrow"], LLAMA, "LlamaForCausalLM"),
        ([], {"model_type": "t5", "num_layers": 1, "d_model": 20, "vocab_size": 53}, "T5ForConditionalGeneration"),
        ([], {"model_type": "vit", **VISION}, "ViTForImageClassification"),
        ([], {"model_type": "clip_vision_model", **VISION}, "CLIPVisionModel"),
        (["LlamaModel"], LLAMA, "LlamaModel"),
    ],
)
def test_class_without_architecture(build, names, config, chosen):
    lengths = {} if "Vi" in chosen else LENGTH
    built = build({**config, "architectures": names}, lengths)
    assert type(built.module).__name__ == chosen
    assert any("was chosen" in note for note in built.notes) == (chosen != "LlamaModel")


def test_fields_are_set(build):
    built = build(LLAMA, fields={"num_hidden_layers": 1, "vocab_size": 47})
    assert len(built.module.model.layers) == 1 and built.module.lm_head.out_features == 47
    assert build(GPT2, fields={"num_hidden_layers": 2}).module.config.n_layer == 2
    assert len(build(LLAVA, fields={"text_config.num_hidden_layers": 1}).module.model.language_model.layers) == 1
    mixed = {**LLAMA, "model_type": "qwen2", "architectures": [], "layer_types": ["full_attention"] * 2}
    assert build(mixed, fields={"num_hidden_layers": 1}).module.config.layer_types == ["full_attention"]


def test_window_of_a_configuration(build):
    windowed = {**LLAMA, "model_type": "mistral", "architectures": [], "sliding_window": 5}
    assert build(windowed).window == 5 and build(LLAMA).window is None


def test_class_of_a_library_that_is_no_module():
    package = SimpleNamespace(Scheduler=dict, __version__="1")
    with pytest.raises(EnvironmentMissing, match="diffusers 1 has no model 'Scheduler'"):
        config_file._from_diffusers(package, {"_class_name": "Scheduler"}, {}, None, [])


@pytest.mark.parametrize(
    ("config", "more", "message"),
    [
        (LLAMA, {"fields": {"num_hidden_layer": 1}}, r"unknown field; did you mean num_hidden_layers"),
        (LLAVA, {"fields": {"num_hidden_layers": 1}}, r"did you mean .*text_config.num_hidden_layers"),
        (LLAMA, {"fields": {"num_hidden_layers": "two"}}, "^the configuration cannot be built: "),
        (LLAMA, {"dtype": "bf16"}, "^the configuration cannot be built: AttributeError: .*bf16"),
        (LLAMA, {"lengths": {"src_len": 7}}, "behind the configuration's name, not --src-len"),
        (LLAMA, {"lengths": {}}, r"^LlamaForCausalLM.forward\(input_ids, .*\) needs --seq-len, or T=128 behind"),
        (LLAMA, {"lengths": {**LENGTH, "image_size": 32}}, "^--image-size: Llama.* has no input of that length"),
        (LLAMA, {"inputs": {"ids": torch.ones(1, 13)}}, "^--input ids: .* has no such input"),
        (GPT2, {"lengths": {"seq_len": 32}}, "^input_ids has 32 tokens, and transformer.wpe has 31 positions"),
        ({**BERT, "model_type": "opt"}, {"lengths": {"seq_len": 34}}, "has 34 tokens, .* has 33 positions"),
        ({"model_type": "decision_transformer", "hidden_size": 20, "n_layer": 1}, {"lengths": {}}, "--seq-len, or"),
        (LLAVA, {"lengths": {"seq_len": 9, "images": 1}}, "^--seq-len 9: 1 image of 9 tokens: the least is 10"),
        ({"model_type": "llava_next"}, {"lengths": {**LENGTH, "images": 1}}, "are tiled: add --input pixel_values="),
        ({"model_type": "musicgen"}, {}, "^the configuration cannot be built: ValueError: Multiple valid text"),
        ({"hidden_size": 24}, {}, "names no model; it needs one of model_type"),
        ([1], {}, "holds a list, no JSON object"),
    ],
)  # fmt: skip
def test_wrong_configuration_raises(build, config, more, message):
    with pytest.raises(UserCodeError, match=message) as error:
        build(config, **more)
    assert "\n" not in str(error.value) and not error.value.trace


def test_field_that_a_class_only_reads_is_set(build):
    config = {"model_type": "vit", "architectures": ["ViTForImageClassification"], **VISION, "num_labels": 7}
    built = [build(config, lengths={}, fields=fields) for fields in ({}, {"num_labels": 11})]
    assert [one.module.classifier.out_features for one in built] == [7, 11]


def test_first_cause_of_a_failed_import_is_named(build, monkeypatch):
    def fail(*_):
        try:
            raise RuntimeError("operator lib::nms does not exist")
        except RuntimeError as error:
            raise ModuleNotFoundError("Could not import module 'A'. Are its requirements defined correctly?") from error

    monkeypatch.setitem(config_file._BUILDERS, "transformers", fail)
    words = r"Could not import module 'A'\. RuntimeError: operator lib::nms does not exist$"
    with pytest.raises(EnvironmentMissing, match=words):
        build(LLAMA)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "chatglm", "auto_map": {"AutoModel": "code.Model"}}, "code of its own"),
        ({**LLAMA, "architectures": ["OwnLlama"], "auto_map": {"AutoModel": "code.Model"}}, "code of its own"),
        ({"model_type": "lama"}, "has no model_type 'lama'; did you mean llama"),
    ],
)
def test_unknown_model_raises(build, config, message):
    with pytest.raises(EnvironmentMissing, match=message) as error:
        build(config)
    assert "\n" not in str(error.value)


def test_missing_library_raises(build, monkeypatch):
    monkeypatch.setattr(config_file, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentMissing, match="transformers is missing, .* pip install transformers"):
        build(LLAMA)


def test_image_size_is_read_from_preprocessor(build, tmp_path):
    sizes = {}
    for name, found in {"size": {"height": 17, "width": 19}, "crop_size": 23, "shortest_edge": 29}.items():
        content = {name: found} if name != "shortest_edge" else {"size": {name: found}}
        content["do_center_crop"] = name == "crop_size"
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(content))
        sizes[name] = tuple(build(RESNET, {"batch_size": 2}).kwargs["pixel_values"].shape)
    assert sizes == {"size": (2, 3, 17, 19), "crop_size": (2, 3, 23, 23), "shortest_edge": (2, 3, 29, 29)}
    assert build(RESNET, {"image_size": 31}).kwargs["pixel_values"].shape[2:] == (31, 31)


def test_user_inputs_replace_made_ones(build):
    built = build(LLAMA, {}, inputs={"0": torch.ones(2, 5, dtype=torch.long)})
    assert built.kwargs["input_ids"].shape == (2, 5)
    waves = {"model_type": "wav2vec2", "architectures": ["Wav2Vec2Model"], **BERT}
    assert build(waves, {}, inputs={"input_values": torch.ones(1, 400)}).kwargs["input_values"].dtype == torch.bfloat16


def test_images_have_placeholders(build):
    built = build(LLAVA, {"seq_len": 23, "images": 2, "batch_size": 3})
    assert built.kwargs["pixel_values"].shape == (6, 3, 21, 21)
    places = (built.kwargs["input_ids"][1] == 50).tolist()
    assert places == [True] * 9 + [False] + [True] * 9 + [False] * 4
    assert "18 of 23 tokens are placeholders of 2 images" in built.notes
    assert "pixel_values" not in build(LLAVA).kwargs


OWN = """
import torch
from torch import nn
class Reads(nn.Module):
    def __init__(self, of_weight):
        super().__init__()
        self.inner = nn.Linear(5, 7, device="meta")
        self.of_weight = of_weight
    def forward(self, x):
        n = self.inner.weight.sum() if self.of_weight else x.sum()
        return self.inner(x[: int(n)])
class Outer(nn.Sequential): pass
def inputs(): return Outer(Reads(False)), (torch.full((3, 5), 2 / 15),)
def weights(): return Outer(Reads(True)), (torch.ones(3, 5),)
"""


def test_fake_weights_and_real_inputs(count, tmp_path):
    (tmp_path / "fake_weights.py").write_text(OWN)
    found = count("fake_weights:inputs")
    assert (found.macs, found.device) == (2 * 5 * 7, FAKE)
    assert found.why_there.startswith("a run on meta raised ")
    # a number that the weights decide, drawn between 0 and 1: no rows
    assert count("fake_weights:weights").macs == 0


def test_infinity_is_read_as_the_library_writes_it(build):
    config = {"model_type": "mamba2", "hidden_size": 8, "num_hidden_layers": 1, "num_heads": 4, "head_dim": 4}
    config |= {"architectures": ["Mamba2ForCausalLM"], "time_step_limit": [0.0, {"__float__": "Infinity"}]}
    assert build(config).module.config.time_step_limit[1] == float("inf")


def test_window_that_differs_by_layer_is_unknown():
    class ByLayer:
        window_size = 7

        @property
        def sliding_window(self):
            raise ValueError("it may vary across layers")

        def get_text_config(self):
            return self

    assert config_file._own_window(ByLayer()) == 7


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Set up a cache of the Hugging Face hub with one configuration, and make the hub unreachable."""
    import huggingface_hub

    repository = tmp_path / "models--some--llama"
    (repository / "snapshots" / "abc123").mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc123")
    (repository / "snapshots" / "abc123" / "config.json").write_text(json.dumps(LLAMA))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")


def test_hub_name_is_read_from_cache(cache, count):
    built = build_from_config("hf:some/llama", {}, LENGTH, {})
    assert "hf:some/llama is revision abc123" in built.notes
    found = count("hf:some/llama@abc123", lengths=LENGTH)
    assert (found.macs, found.versions["hf:some/llama@abc123"]) == (MACS, "abc123")


def test_unreachable_hub_raises(cache, monkeypatch):
    import huggingface_hub

    with pytest.raises(EnvironmentMissing, match="^not in the local cache, .* at revision v2[^\n]*$"):
        config_file.find_file("hf:some/other@v2")
    with pytest.raises(UserCodeError, match="is no hf:NAME"):
        config_file.find_file("hf:some/llama/with/parts")
    monkeypatch.setattr(config_file, "TIMEOUT_S", 0.01)
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", lambda *_, **__: time.sleep(1))
    with pytest.raises(EnvironmentMissing, match=r"no answer within 0\.01 s"):
        config_file.find_file("hf:some/other")


def test_hub_downloads(cache, monkeypatch, tmp_path):
    import huggingface_hub

    path = tmp_path / "snapshots" / "def456" / "config.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(LLAMA))
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", lambda *_, **__: None)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda name, file, revision: str(path.with_name(file)))
    assert config_file.find_file("hf:some/other@v3") == path


BAMBA = dict(
    model_type="bamba", architectures=["BambaForCausalLM"], hidden_size=16, intermediate_size=28, num_hidden_layers=2,
    num_attention_heads=2, num_key_value_heads=2, vocab_size=53, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=8,
    mamba_n_groups=1, tie_word_embeddings=False,
)  # fmt: skip


def test_model_without_attention_does_not_fill_its_cache(count):
    """The library asks the cache for its length, which one of no layer with attention does not have."""
    found, without = (count(BAMBA, fields, lengths=LENGTH) for fields in ({}, {"use_cache": False}))
    assert found.macs == without.macs > 13 * (2 * 3 * 16 * 28 + 16 * 53)
    note = "Counted with --set use_cache=false, as it does not run without: a run with weights that have no "
    assert any(one.startswith(note) for one in found.notes)
    assert not any("use_cache" in one for one in without.notes)
    with pytest.raises(UserCodeError, match="itself does not run it on texts of 3 lengths: ValueError: `get_seq"):
        count(BAMBA, {"use_cache": True}, lengths=LENGTH)


EXPERTS = dict(
    LLAMA, model_type="deepseek_v2", architectures=["DeepseekV2ForCausalLM"], n_routed_experts=4, n_shared_experts=1,
    moe_intermediate_size=8, first_k_dense_replace=0, q_lora_rank=None, kv_lora_rank=8, qk_nope_head_dim=6,
    qk_rope_head_dim=4, v_head_dim=6, num_hidden_layers=1, num_key_value_heads=4,
)  # fmt: skip
SECTIONS = dict(
    model_type="glm4v", architectures=["Glm4vForConditionalGeneration"],
    text_config=dict(LLAMA, model_type="glm4v_text", head_dim=8, pad_token_id=0),
    vision_config=dict(VISION, depth=1, num_heads=2, out_hidden_size=24),
)  # fmt: skip


@pytest.mark.parametrize(
    ("config", "part", "reason"),
    [
        (EXPERTS, "it", r"TypeError: topk\(\): argument 'k' must be int"),
        (SECTIONS, "model.language_model", "RuntimeError: split_with_sizes expects"),
    ],
)
def test_model_that_its_library_does_not_run(count, config, part, reason):
    message = f"^transformers itself does not run {part} on texts of 3 lengths: {reason}"
    with pytest.raises(UserCodeError, match=message):
        count(config, lengths=LENGTH)


class Widths(torch.nn.Module):
    """Two convolutions of the channels that a configuration states."""

    def __init__(self, channels, made, read):
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(channels, made, 1), torch.nn.Conv2d(read, 5, 1)

    def forward(self, pixel_values):
        return self.second(self.first(pixel_values))


@pytest.mark.parametrize(
    ("widths", "given", "reason"),
    [
        ((3, 7, 7), {}, None),
        ((3, 7, 11), {}, "this configuration, with inputs of 13 lengths: UserCodeError: two layers"),
        # that of the images, which the user chooses
        ((4, 7, 7), {"pixel_values": torch.ones(1, 3, 8, 8)}, None),
    ],
)
def test_convolutions_that_do_not_fit(widths, given, reason):
    def make(lengths):
        maker = Inputs(model, SimpleNamespace(image_size=64, sub_configs={}), lengths, given, torch.float32, dict)
        maker.transformers()
        return maker

    model = Widths(*widths).to("meta")
    trials = config_file._Trials("transformers", make({}), make, names_dtype=True, has_cache=False)
    length = trials.length_that_runs("image_size")
    message = str(trials.failure(UserCodeError("two layers")))
    assert (length is None) == (widths != (3, 7, 7))
    assert message.startswith(f"transformers itself does not run {reason}" if reason else "two layers")


def test_field_without_which_the_library_does_not_run(count):
    """Of 13 tokens each passes 2 of 4 experts and the shared one, three products of width 8 each."""
    less, more = (count(EXPERTS, {"num_experts_per_tok": k}, lengths=LENGTH).macs for k in (1, 2))
    assert more - less == 13 * 3 * 24 * 8


def test_error_of_the_users_input_is_not_the_librarys(count):
    with pytest.raises(UserCodeError, match="^a run with weights that have no values raised .*it ran on input_ids: 5"):
        count(LLAMA, inputs=("input_ids=5:long",))
