"""Options that the message on a model that does not run proposes: each has been tried, and counts it."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from headcount.bench.targets.config_file import _Trials
from headcount.bench.targets.model_inputs import Inputs
from headcount.bench.targets.target import Target
from headcount.bench.targets.user_code import UserCodeError
from tests.bench.targets.conftest import LLAMA, VISION, write

pytest.importorskip("transformers", reason="the optional extra hf is not installed")

FAILED = "a run raised ValueError: no"


class Image(nn.Module):
    """A model of images that runs on those whose side ``runs`` accepts."""

    def __init__(self, runs):
        super().__init__()
        self.runs, self.layer = runs, nn.Conv2d(3, 5, 7, 7)

    def forward(self, pixel_values):
        if not self.runs(pixel_values.shape[-1]):
            raise ValueError("it does not fit")
        return self.layer(pixel_values)


class Reads(nn.Module):
    """A model that reads a value of its weights."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 5, 7, 7)

    def forward(self, pixel_values):
        if self.layer.weight.sum().item() > 1e9:
            raise ValueError("too large")
        raise ValueError("it does not fit")


class Pair(Image):
    """A model of images that reads a text too."""

    def forward(self, pixel_values, input_ids=None):
        return super().forward(pixel_values)


MODELS = {
    "windows": (Image(lambda side: side % 28 == 0), {"image_size": 100}, "; --image-size 112 runs"),
    "own size": (Image(lambda side: side == 21), {"image_size": 100}, "; --image-size 21 runs"),
    "larger": (Image(lambda side: side > 350), {"image_size": 100}, "; --image-size 400 runs"),
    "none": (
        Image(lambda side: False),
        {"image_size": 100},
        "transformers itself does not run this configuration, with inputs of ",
    ),
    "none that is tried": (Image(lambda side: side == 1), {"image_size": 100}, "itself does not run"),
    "values": (Reads(), {"image_size": 100}, FAILED),
}


@pytest.mark.parametrize("name", MODELS)
def test_lengths_that_are_proposed_run(name):
    model, lengths, expected = MODELS[name]
    model = model.to("meta")

    def make(lengths):
        maker = Inputs(
            model, SimpleNamespace(image_size=21, patch_size=7, sub_configs={}), lengths, {}, torch.float32, dict
        )
        maker.transformers()
        return maker

    trials = _Trials("transformers", make(lengths), make, names_dtype=True, has_cache=False)
    error = trials.failure(UserCodeError(FAILED))
    assert expected in str(error)
    for option in error.options:
        model(**make({**lengths, option.name: option.value}).finish())


REAL = {
    # its positions are those of 21 pixels
    "vit": ({"model_type": "vit", "architectures": ["ViTModel"], **VISION}, {"image_size": 30}),
    "decoder": ({**LLAMA, "model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"]}, {"seq_len": 13}),
    "llama": (LLAMA, {}),
}


@pytest.mark.parametrize("name", REAL)
def test_options_of_a_message_count_the_model(count, name):
    content, lengths = REAL[name]
    given = ("input_ids=5:long",) if name == "llama" else ()
    with pytest.raises(UserCodeError) as error:
        count(content, lengths=lengths, inputs=given)
    assert error.value.options or "itself does not run" in str(error.value)
    for option in error.value.options:
        if option.name == "input":
            # a list of what forward takes
            message = str(error.value)
            assert "--input NAME=SIZES gives others of forward(" in message
            assert message.endswith("), and FILE.py:FUNCTION, which returns (module, inputs), objects")
        else:
            assert count(content, lengths={**lengths, option.name: option.value}).macs > 0


FOUND = {
    "model_type": "bros", "architectures": ["BrosModel"], "hidden_size": 64, "intermediate_size": 28,
    "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 53,
}  # fmt: skip


def test_every_command_runs_with_the_inputs_that_are_found(tmp_path, count, monkeypatch):
    """The model reads boxes of its tokens, which it takes for optional; a closed form is counted at one point."""
    from headcount.bench.derive import derivation
    from headcount.bench.latency.time_targets import time_targets

    def count_example(build, grid, own):
        macs = derivation.count_at(build, derivation.FakeTensorMode, own)
        return derivation.Derivation(macs, f"at {own}")

    monkeypatch.setattr(derivation, "derive", count_example)
    target = Target(write(tmp_path, FOUND), lengths={"seq_len": 13})
    how = {"backward": False, "blocks": 1, "threads": 1, "mode": "eval"}
    assert time_targets([target], device="cpu", **how)["targets"][0]
    derived = derivation.derive_module(target, [], {})
    assert derived.method.startswith("at {'bbox_0': 1, 'bbox_1': 13, 'bbox_2': 4}. Counted with --input bbox=1,13,4:")
    assert sum(derived.by_kind.values()) == count(FOUND, lengths={"seq_len": 13}).macs


def test_part_of_timm_has_the_size_of_its_images():
    model = Image(lambda side: True)
    model.layer.pretrained_cfg = {"input_size": (3, 21, 28)}
    maker = Inputs(model.to("meta"), SimpleNamespace(sub_configs={}), {}, {}, torch.float32, dict)
    maker.transformers()
    assert maker.finish()["pixel_values"].shape == (1, 3, 21, 28)


def make_trials(model, lengths):
    """Return trials of a model of texts and sounds."""
    settings = SimpleNamespace(num_mel_bins=3, vocab_size=53, sub_configs={}, to_dict=lambda: {"vocab_size": 53})
    settings.get_text_config = lambda: settings

    def make(lengths):
        maker = Inputs(model.to("meta"), settings, lengths, {}, torch.float32, dict)
        maker.transformers()
        return maker

    return _Trials("transformers", make(lengths), make, names_dtype=True, has_cache=False)


class Spoken(nn.Module):
    """Four spectra of a sound are added to each token of a text."""

    def __init__(self):
        super().__init__()
        self.text, self.sound = nn.Embedding(53, 5), nn.Conv1d(3, 5, 4, 4)

    def forward(self, input_ids, input_features):
        return self.text(input_ids) + self.sound(input_features).mT


def test_sound_is_as_long_as_its_text():
    trials = make_trials(Spoken(), {"seq_len": 13, "batch_size": 2})
    (target, words), *_ = trials.alternatives(Target("config.json"))
    assert target.inputs == ("input_features=2,3,52:float32",) and words == f"--input {target.inputs[0]}"


class Part(nn.Module):
    """A part that reads a text and a condition."""

    def forward(self, input_ids, condition=None):
        raise TypeError("no tensor")


class Whole(nn.Module):
    """A model that gives its part the condition."""

    def __init__(self):
        super().__init__()
        self.part = Part()

    def forward(self, input_ids, input_features):
        raise ValueError(f"{input_features.numel()} numbers do not fit")


class Second(nn.Module):
    """A model that needs an input which has a default."""

    def forward(self, input_ids, lengths=None):
        raise TypeError("lengths cannot be None" if lengths is None else "no")


@pytest.mark.parametrize(
    ("model", "error", "expected"),
    [
        (Part(), TypeError("no tensor"), "transformers itself does not run it on texts of 3 lengths: TypeError: no t"),
        (Whole(), ValueError("300 numbers do not fit"), FAILED),
        (Second(), TypeError("lengths cannot be None"), FAILED),
    ],
    ids=["library", "condition-of-a-part", "input-with-a-default"],
)
def test_failures_for_want_of_other_inputs(model, error, expected):
    failed = UserCodeError(FAILED, advice=["--input gives others"])
    failed.__cause__ = error
    trials = make_trials(model, {"seq_len": 13})
    assert not [*trials.alternatives(Target("config.json"))]
    message = str(trials.failure(failed))
    assert message.startswith(expected) and message.endswith("; --input gives others")
