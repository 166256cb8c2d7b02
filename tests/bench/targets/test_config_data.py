"""A configuration is data: what it names is neither opened nor imported, and its sizes are bounded."""

import json
import sys
from types import SimpleNamespace

import pytest
from torch import nn

from headcount.bench.targets import config_file
from headcount.bench.targets.config_file import build_from_config
from headcount.bench.targets.user_code import UserCodeError
from tests.bench.targets.conftest import LLAMA, LLAVA, write

pytest.importorskip("transformers", reason="the optional extra hf is not installed")

EVIL = "evil_name"
REPOSITORY = f"{EVIL}/kernel"
LENGTH = {"seq_len": 13}
_seen: list[str] | None = None


def _audit(event, arguments):
    if _seen is not None and event in ("open", "import", "socket.getaddrinfo", "os.listdir", "subprocess.Popen"):
        _seen.append(f"{event} {arguments[0]}")


sys.addaudithook(_audit)


@pytest.fixture
def opened(monkeypatch):
    """Return the list of files, modules and hosts that are opened during a test."""
    found: list[str] = []
    monkeypatch.setattr(sys.modules[__name__], "_seen", found)
    return found


def nested(field, value):
    """Return configurations with a field at the top, in a part, and in a part of the default."""
    text = {**LLAMA, field: value}
    return [text, {**LLAVA, "text_config": text}, {**LLAVA, "vision_config": {**LLAVA["vision_config"], field: value}}]


NAMED = [
    ("auto_map", {"AutoConfig": f"{EVIL}.Config", "AutoModelForCausalLM": f"{EVIL}.Model"}, "auto_map is not followed"),
    ("_attn_implementation", REPOSITORY, "is not loaded: it names a repository"),
    ("attn_implementation", f"paged|{REPOSITORY}@main:f", "is not loaded: it names a repository"),
    ("_attn_implementation_internal", REPOSITORY, "is not loaded: it names a repository"),
    ("experts_implementation", REPOSITORY, "is not loaded: it names a repository"),
]


@pytest.mark.parametrize(("field", "value", "note"), NAMED, ids=[name for name, *_ in NAMED])
@pytest.mark.parametrize("place", [0, 1, 2], ids=["top", "text", "vision"])
def test_names_of_code_are_dropped(tmp_path, opened, field, value, note, place):
    built = build_from_config(write(tmp_path, nested(field, value)[place]), {}, LENGTH, {})
    assert any(note in line for line in built.notes)
    assert not [line for line in opened if EVIL in line]


def test_implementation_by_part_is_dropped(tmp_path, opened):
    config = {**LLAVA, "attn_implementation": {"": "sdpa", "text_config": REPOSITORY}}
    assert any(EVIL in line for line in build_from_config(write(tmp_path, config), {}, LENGTH, {}).notes)
    config = {"attn_implementation": REPOSITORY, "text_config": {**LLAMA, "_attn_implementation": REPOSITORY}}
    build_from_config(write(tmp_path, LLAVA), {"text_config": config["text_config"]}, LENGTH, {})
    assert not [line for line in opened if EVIL in line]


def test_implementation_of_the_library_is_kept(tmp_path):
    for name in ("eager", "sdpa"):
        config = {**LLAMA, "attn_implementation": name}
        built = build_from_config(write(tmp_path, config), {}, LENGTH, {})
        assert built.module.config._attn_implementation == name and len(built.notes) == 1


@pytest.mark.parametrize(
    "field", ["checkpoint_path", "pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir"]
)
def test_files_of_timm_wrapper_are_refused(tmp_path, opened, field):
    config = {"model_type": "timm_wrapper", "architecture": "resnet18", "model_args": {field: EVIL}}
    parts = [config, {**LLAVA, "vision_config": config}, {"architecture": "resnet18", "model_args": {field: EVIL}}]
    for one in parts:
        if one.get("model_type") or config_file.find_spec("timm"):
            with pytest.raises(UserCodeError, match=f"{field}: no weights or files are loaded"):
                build_from_config(write(tmp_path, one), {}, LENGTH, {})
    assert not [line for line in opened if EVIL in line]


@pytest.mark.parametrize("name", ["hf-hub:evil/model", "local-dir:/evil", "../evil", "evil/model"])
def test_names_of_repositories_are_refused(tmp_path, opened, name):
    detr = {"model_type": "detr", "use_timm_backbone": False, "backbone": name, "backbone_kwargs": {"out_indices": [1]}}
    wrapper = {"model_type": "timm_wrapper", "architecture": name}
    for config in (detr, wrapper, {"model_type": "timm_backbone", "backbone": name}):
        with pytest.raises(UserCodeError, match="names a file or a repository"):
            build_from_config(write(tmp_path, config), {}, {"image_size": 32}, {})
    assert not [line for line in opened if "evil" in line.lower() and "evil" in name]


def test_hub_is_not_asked_for_a_part(tmp_path, opened):
    config = {"model_type": "detr", "use_timm_backbone": False, "backbone": EVIL, "backbone_kwargs": {"depth": 1}}
    with pytest.raises(UserCodeError, match="offline"):
        build_from_config(write(tmp_path, config), {}, {"image_size": 32}, {})
    assert not [line for line in opened if line.startswith("socket")]


class Stub(nn.Module):
    """A model of a library like timm."""

    pretrained_cfg = {"input_size": (3, 8, 8)}  # noqa: RUF012

    def __init__(self, width=4, depth=1, num_classes=3, checkpoint_path=None):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, width) for _ in range(depth))

    def forward(self, x):
        return [layer(x) for layer in self.layers]


class Derived(Stub):
    def __init__(self, *args, scale=1, **kwargs):
        super().__init__(*args, **kwargs)


def test_arguments_of_timm_are_the_constructor_s(tmp_path, monkeypatch):
    calls = []

    def create_model(name, pretrained=False, **arguments):
        calls.append(arguments)
        return Derived(**arguments)

    package = SimpleNamespace(
        __version__="1", is_model=lambda name: name == "derived", list_models=lambda: ["derived"],
        create_model=create_model,
    )  # fmt: skip
    monkeypatch.setattr(config_file, "require_library", lambda name: None)
    monkeypatch.setattr(config_file, "import_module", lambda name: package)
    data = {"architecture": "derived", "num_classes": 7, "model_args": {"depth": 2, "scale": 2}}
    built = build_from_config(write(tmp_path, data), {}, {}, {})
    # a first model is built for the names of its constructor's arguments
    assert len(built.module.layers) == 2 and calls == [{}, {"num_classes": 7, "depth": 2, "scale": 2}]
    for arguments, settings in (({"checkpoint_path": EVIL}, {}), ({}, {"checkpoint_path": EVIL})):
        with pytest.raises(UserCodeError, match="checkpoint_path: no weights"):
            build_from_config(write(tmp_path, data | {"model_args": arguments}), settings, {}, {})
    assert len(calls) == 2
    with pytest.raises(UserCodeError, match="model_args 'widht': .* takes depth, num_classes,.* width"):
        build_from_config(write(tmp_path, data | {"model_args": {"widht": 5}}), {}, {}, {})


PARTS = ["num_labels", "num_hidden_layers", "num_attention_heads"]


@pytest.mark.parametrize("size", [10**5 + 1, 10**30])
@pytest.mark.parametrize("field", PARTS)
def test_number_of_parts_is_bounded(tmp_path, field, size):
    for place, config in enumerate(nested(field, size)):
        with pytest.raises(UserCodeError, match=f"{field} is .*; it is at most 100,000"):
            build_from_config(write(tmp_path, config), {}, LENGTH, {})
        if place == 0:
            with pytest.raises(UserCodeError, match=f"{field} is .*; it is at most 100,000"):
                build_from_config(write(tmp_path, LLAMA), {field: size}, LENGTH, {})


def test_digits_are_bounded(tmp_path):
    with pytest.raises(UserCodeError, match="hidden_size has 4,001 digits; a number has at most 40"):
        build_from_config(write(tmp_path, {**LLAMA, "hidden_size": 10**4000}), {}, LENGTH, {})
    # a tokenizer's "any length"
    build_from_config(write(tmp_path, {**LLAMA, "model_max_length": int(1e30)}), {}, LENGTH, {})


def test_duplicate_key_is_refused(tmp_path):
    text = json.dumps(LLAVA)
    for key in ('"text_config": {', "{"):
        path = tmp_path / "config.json"
        path.write_text(text.replace(key, f'{key}"vocab_size": 1, "vocab_size": 2, ', 1))
        with pytest.raises(UserCodeError, match="cannot read config.json as JSON: an object has a key twice"):
            build_from_config(str(path), {}, LENGTH, {})


def test_opened_files_are_seen(tmp_path, opened):
    build_from_config(write(tmp_path, LLAMA), {}, LENGTH, {})
    assert any(str(tmp_path / "config.json") in line for line in opened)
