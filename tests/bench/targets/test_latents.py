"""Inputs of models in the style of diffusers: the layouts and widths that their layers read, and MACs by hand."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import headcount as hc
from headcount.bench.targets.latents import LatentInputs
from headcount.bench.targets.user_code import UserCodeError

D = 8


def make_inputs(model, lengths=None, given=None, **fields):
    """Return the inputs that are made for a model of a configuration, and the notes on them."""
    maker = LatentInputs(model, SimpleNamespace(**fields), lengths or {}, given or {}, torch.float32, dict)
    maker.diffusers()
    return maker.finish(), maker.notes


def shapes(inputs):
    """Return the sizes of inputs by name."""
    return {name: tuple(one.shape) if isinstance(one, torch.Tensor) else one for name, one in inputs.items()}


class ImageDenoiser(nn.Module):
    """Patches of an image by a convolution, a text through a projection, one attention between them."""

    def __init__(self, channels, patch, width):
        super().__init__()
        self.patches = nn.Conv2d(channels, D, patch, patch)
        self.text, self.out = nn.Linear(width, D), nn.Linear(D, D)

    def forward(self, hidden_states, encoder_hidden_states=None, timestep=None, return_dict=True):
        image = self.patches(hidden_states).flatten(2).transpose(1, 2)
        text = self.text(encoder_hidden_states)
        return self.out(F.scaled_dot_product_attention(image, text, text) * timestep[:, None, None])


@pytest.mark.parametrize(
    ("channels", "patch", "width", "size", "batch", "length"),
    [(4, 2, 12, 16, 1, 7), (5, 3, 20, [6, 9], 2, 11), (16, 1, 6, (5, 7), 3, 4)],
)
def test_image_denoiser(channels, patch, width, size, batch, length):
    model = ImageDenoiser(channels, patch, width)
    # the width of the text is that of its projection, not that of the attention
    fields = dict(in_channels=channels, patch_size=patch, sample_size=size, cross_attention_dim=D)
    inputs, notes = make_inputs(model, {"batch_size": batch, "seq_len": length}, **fields)
    height, side = size if not isinstance(size, int) else (size, size)
    assert shapes(inputs) == {
        "hidden_states": (batch, channels, height, side), "encoder_hidden_states": (batch, length, width),
        "timestep": (batch,),
    }  # fmt: skip
    places = (height // patch) * (side // patch)
    macs = places * D * channels * patch**2 + length * width * D + 2 * places * length * D + places * D * D
    assert hc.count(model, **inputs).macs == batch * macs and notes == []


def test_assumed_lengths_are_noted():
    model = ImageDenoiser(4, 2, 12)
    inputs, notes = make_inputs(model, in_channels=4)
    assert shapes(inputs)["hidden_states"] == (1, 4, 64, 64) and shapes(inputs)["encoder_hidden_states"] == (1, 512, 12)
    assert notes == ["assumed: 64 latents along a side of 512 pixels (--image-size), 512 tokens of a text (--seq-len)"]
    inputs, notes = make_inputs(model, {"image_size": 128, "seq_len": 9}, in_channels=4)
    assert shapes(inputs)["hidden_states"] == (1, 4, 16, 16)
    assert notes == ["an image of 128 pixels has 16 latents along a side"]


def test_given_input_stays():
    given = {"hidden_states": torch.ones(1, 4, 6, 10)}
    inputs, _ = make_inputs(ImageDenoiser(4, 2, 12), {"seq_len": 3}, given)
    assert inputs["hidden_states"] is not None and shapes(inputs)["hidden_states"] == (1, 4, 6, 10)
    assert shapes(inputs)["encoder_hidden_states"] == (1, 3, 12)


class Conditioned(nn.Module):
    """A denoiser that reads a text, its mask, two times and the sizes of the image."""

    def forward(self, encoder_hidden_states, encoder_attention_mask, timestep, timestep_r, original_size):
        """Nothing is computed."""


@pytest.mark.parametrize("field", ["cross_attention_dim", "joint_attention_dim", "text_embed_dim", "text_dim"])
def test_text_that_no_layer_reads_has_the_width_of_the_configuration(field):
    inputs, _ = make_inputs(Conditioned(), {"seq_len": 13, "batch_size": 2}, **{field: 6})
    assert shapes(inputs) == {
        "encoder_hidden_states": (2, 13, 6), "encoder_attention_mask": (2, 13), "timestep": (2,), "timestep_r": (2,),
        "original_size": (2, 2),
    }  # fmt: skip


class PackedDenoiser(nn.Module):
    """Tokens of an image and of a text with positions, as in Flux; a guidance where it is distilled."""

    def __init__(self, axes):
        super().__init__()
        self.axes = axes
        self.image, self.text, self.pooled = nn.Linear(24, D), nn.Linear(10, D), nn.Linear(14, D)

    def forward(
        self, hidden_states, encoder_hidden_states=None, pooled_projections=None, timestep=None, img_ids=None,
        txt_ids=None, guidance=None,
    ):  # fmt: skip
        ids = torch.cat((txt_ids, img_ids))
        assert ids.shape[1] == self.axes
        tokens = torch.cat((self.text(encoder_hidden_states), self.image(hidden_states)), 1)
        return tokens * ids.sum(1)[:, None] + self.pooled(pooled_projections)[:, None] * guidance[:, None, None]


@pytest.mark.parametrize("axes", [3, 4])
def test_packed_denoiser(axes):
    model = PackedDenoiser(axes)
    fields = dict(in_channels=24, axes_dims_rope=[2] * axes, guidance_embeds=True)
    inputs, _ = make_inputs(model, {"image_size": 96, "seq_len": 5, "batch_size": 2}, **fields)
    # an image of 96 pixels has 12 x 12 latents, of which 2 x 2 are a token
    assert shapes(inputs) == {
        "hidden_states": (2, 36, 24), "encoder_hidden_states": (2, 5, 10), "pooled_projections": (2, 14),
        "timestep": (2,), "img_ids": (36, axes), "txt_ids": (5, axes), "guidance": (2,),
    }  # fmt: skip
    assert hc.count(model, **inputs).macs == 2 * (36 * 24 * D + 5 * 10 * D + 14 * D)


class FilmDenoiser(nn.Module):
    """A film whose frames come before or after its channels, or channels last."""

    def __init__(self, axes, channels):
        super().__init__()
        self.axes = axes
        self.layer = nn.Linear(channels, D) if axes == "BFHWC" else nn.Conv2d(channels, D, 1)

    def forward(self, sample, timestep):
        if self.axes == "BFHWC":
            assert sample.dim() == 5
            return self.layer(sample)
        if self.axes == "BCFHW":
            sample = sample.permute(0, 2, 1, 3, 4)
        frames = sample.flatten(0, 1)
        return self.layer(frames).unflatten(0, (len(sample), -1)) * timestep[:, None, None, None, None]


FILMS = {"BFCHW": (2, 3, 6, 5, 7), "BCFHW": (2, 6, 3, 5, 7), "BFHWC": (2, 3, 5, 7, 6)}


@pytest.mark.parametrize("axes", FILMS)
def test_film_denoiser(axes):
    model = FilmDenoiser(axes, 6)
    # 9 frames make 3 of latents
    fields = dict(in_channels=6, sample_frames=9, temporal_compression_ratio=4, sample_height=5, sample_width=7)
    inputs, notes = make_inputs(model, {"batch_size": 2}, **fields)
    assert shapes(inputs)["sample"] == FILMS[axes] and notes == []
    assert hc.count(model, **inputs).macs == 2 * 3 * 5 * 7 * 6 * D


def test_film_without_fields_has_frames_that_are_noted():
    inputs, notes = make_inputs(FilmDenoiser("BCFHW", 6), {"image_size": 16}, in_channels=6)
    assert shapes(inputs)["sample"] == (1, 6, 17, 2, 2) and notes[-1] == "assumed: 17 frames (--input)"


class Coder(nn.Module):
    """An autoencoder: it reads pixels or samples of a wave, and no time."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def encode(self, sample):
        return self.layer(sample)

    def forward(self, sample, return_dict=True):
        if isinstance(self.layer, nn.Conv3d):
            _, _, _, _, _ = sample.shape
        return self.encode(sample)


CODERS = {
    "pixels": (nn.Conv2d(3, D, 1), {}, {"image_size": 20}, (1, 3, 20, 20)),
    "pixels-of-a-film": (nn.Conv3d(3, D, 1), {"sample_size": 12}, {"batch_size": 2}, (2, 3, 17, 12, 12)),
    "wave": (nn.Conv1d(1, D, 1), {"sampling_rate": 50}, {"audio": 3}, (1, 1, 150)),
    "spectra": (nn.Conv2d(2, D, 1), {"sample_rate": 60, "mel_hop_length": 4, "mel_bins": 11}, {}, (1, 2, 15, 11)),
    "spectra-as-channels": (nn.Conv1d(11, D, 1), {"sample_rate": 60, "hop_length": 4, "mel_bins": 11}, {}, (1, 11, 15)),
}


@pytest.mark.parametrize("name", CODERS)
def test_autoencoder_reads_pixels_or_a_wave(name):
    layer, fields, lengths, shape = CODERS[name]
    model = Coder(layer)
    inputs, _ = make_inputs(model, lengths, **fields)
    assert shapes(inputs) == {"sample": shape}
    assert hc.count(model, **inputs).macs == torch.ones(shape).numel() * D


class JoinedDenoiser(nn.Module):
    """One layer reads the latents beside those of a condition, after they are folded into patches."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4 * (6 + 3), D)

    def forward(self, hidden_states, context_latents, timestep):
        batch, _, height, width = hidden_states.shape
        joined = torch.cat((hidden_states, context_latents), 1).view(batch, -1, height // 2, 2, width // 2, 2)
        return self.layer(joined.permute(0, 2, 4, 1, 3, 5).flatten(3))


def test_condition_has_the_channels_that_are_left():
    model = JoinedDenoiser()
    inputs, _ = make_inputs(model, sample_size=[4, 6], in_channels=6)
    assert shapes(inputs)["hidden_states"] == (1, 6, 4, 6) and shapes(inputs)["context_latents"] == (1, 3, 4, 6)
    assert hc.count(model, **inputs).macs == 2 * 3 * 36 * D


class Controlled(nn.Module):
    """An image in pixels conditions latents; a second text and a mask are needed though they have defaults."""

    def __init__(self, stride):
        super().__init__()
        self.layer, self.condition = nn.Conv2d(4, D, 1), nn.Conv2d(3, D, stride, stride)
        self.text, self.second = nn.Linear(10, D), nn.Linear(9, D)

    def forward(
        self, sample, timestep, encoder_hidden_states, controlnet_cond, conditioning_scale=1.0, attention_mask=None,
        encoder_hidden_states_2=None,
    ):  # fmt: skip
        mixed = self.layer(sample) + self.condition(controlnet_cond) * conditioning_scale
        if attention_mask is not None:
            raise AssertionError("it is not needed")
        text = self.text(encoder_hidden_states).mean(1) + self.second(encoder_hidden_states_2).mean(1)
        return mixed + text[..., None, None]


@pytest.mark.parametrize(("stride", "side"), [(8, 40), (1, 5)])
def test_condition_in_pixels_or_latents_and_inputs_that_are_needed(stride, side):
    model = Controlled(stride)
    inputs, _ = make_inputs(model, {"seq_len": 3}, sample_size=5, in_channels=4)
    assert shapes(inputs) == {
        "sample": (1, 4, 5, 5), "timestep": (1,), "encoder_hidden_states": (1, 3, 10),
        "controlnet_cond": (1, 3, side, side), "encoder_hidden_states_2": (1, 3, 9),
    }  # fmt: skip
    assert hc.count(model, **inputs).macs == 25 * 4 * D + side**2 * 3 * D + 3 * 10 * D + 3 * 9 * D


class ListDenoiser(nn.Module):
    """Latents and texts in lists, one tensor for each of the batch."""

    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(5, D), nn.Linear(7, D)

    def forward(self, x: list[torch.Tensor], t, cap_feats: list[torch.Tensor]):
        assert x[0].dim() == 3
        return [
            self.image(one.permute(1, 2, 0)).sum((0, 1)) + self.text(text).sum(0)
            for one, text in zip(x, cap_feats, strict=True)
        ]


def test_list_of_the_batch():
    inputs, _ = make_inputs(ListDenoiser(), {"batch_size": 2, "seq_len": 3}, sample_size=4, in_channels=5)
    assert [tuple(one.shape) for one in inputs["x"]] == [(5, 4, 4)] * 2
    assert [tuple(one.shape) for one in inputs["cap_feats"]] == [(3, 7)] * 2


class Layered(nn.Module):
    """A text's embeddings of each block, and cosines and sines of positions."""

    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(6, 4), nn.ModuleList(nn.Linear(7, 4) for _ in range(3))
        # some models have rows with gaps
        self.gaps = nn.ModuleList((nn.Identity(), nn.Identity(), None))

    def forward(self, hidden_states, image_rotary_emb, text_encoder_layers: list = None):
        cosines, sines = image_rotary_emb
        image = self.image(hidden_states) * cosines + sines
        for layer, text in zip(self.text, text_encoder_layers, strict=True):
            image = image + layer(text).mean(1, keepdim=True)
        return image


def test_lists_of_layers_and_of_rotary_embeddings():
    fields = dict(num_layers=2, num_single_layers=1, num_attention_heads=2, attention_head_dim=2, in_channels=6)
    inputs, _ = make_inputs(Layered(), {"batch_size": 2, "seq_len": 5, "image_size": 64}, **fields)
    assert [tuple(one.shape) for one in inputs["image_rotary_emb"]] == [(2, 16, 4)] * 2
    assert [tuple(one.shape) for one in inputs["text_encoder_layers"]] == [(2, 5, 7)] * 3
    assert hc.count(Layered(), **inputs).macs == 2 * (16 * 6 * 4 + 3 * 5 * 7 * 4)


class Packed(nn.Module):
    """Text and image in one sequence: no input of another layout comes further by itself."""

    def __init__(self):
        super().__init__()
        self.text, self.image = nn.Linear(7, D), nn.Linear(6, D)

    def forward(self, hidden_states, encoder_hidden_states, indicator):
        _, _, _ = hidden_states.shape
        text = self.text(encoder_hidden_states * (indicator == 0)[..., None])
        return torch.stack((text, self.image(hidden_states * (indicator == 1)[..., None])))


def test_inputs_of_one_sequence():
    inputs, _ = make_inputs(Packed(), {"seq_len": 5, "image_size": 96}, in_channels=6)
    assert shapes(inputs) == {
        "hidden_states": (1, 41, 6), "encoder_hidden_states": (1, 41, 7), "indicator": (1, 41),
    }  # fmt: skip
    assert hc.count(Packed(), **inputs).macs == 41 * (6 + 7) * D


class Indexed(nn.Module):
    """Rows of a film, a sound and a text at their places in one sequence."""

    def __init__(self):
        super().__init__()
        self.film, self.sound, self.text = nn.Linear(6, D), nn.Linear(5, D), nn.Linear(7, D)

    def forward(
        self, hidden_states, audio_hidden_states, encoder_hidden_states, timestep, timestep_indices, token_tags,
        video_indices, audio_indices, text_indices,
    ):  # fmt: skip
        rows = hidden_states.new_zeros(len(hidden_states), len(timestep_indices), D)
        rows = rows.index_copy(1, video_indices, self.film(hidden_states))
        rows = rows.index_copy(1, audio_indices, self.sound(audio_hidden_states))
        rows = rows.index_copy(1, text_indices, self.text(encoder_hidden_states))
        return rows * timestep[:, None, None] + (timestep_indices + token_tags)[:, None]


def test_places_in_one_sequence():
    inputs, _ = make_inputs(Indexed(), {"seq_len": 3, "image_size": 64, "batch_size": 2}, targets_length=11)
    assert shapes(inputs) == {
        "hidden_states": (2, 16, 6), "audio_hidden_states": (2, 11, 5), "encoder_hidden_states": (2, 3, 7),
        "timestep": (2,), "timestep_indices": (30,), "token_tags": (30,), "video_indices": (16,),
        "audio_indices": (11,), "text_indices": (3,),
    }  # fmt: skip
    assert hc.count(Indexed(), **inputs).macs == 2 * (16 * 6 + 11 * 5 + 3 * 7) * D


class Positioned(nn.Module):
    """Embeddings of several layers, as channels, get positions before a layer reads them."""

    def __init__(self, layers, width):
        super().__init__()
        self.layers = layers
        self.positions, self.layer = nn.Embedding(9, width), nn.Linear(width, D)

    def forward(self, inputs_embeds):
        one, length, _ = inputs_embeds.shape
        places = self.positions(torch.arange(length, device=self.positions.weight.device))
        if self.layers > 1:
            inputs_embeds = inputs_embeds.reshape(one, length, self.layers, places.shape[-1]).sum(2)
        return self.layer(inputs_embeds + places)


@pytest.mark.parametrize("layers", [1, 3])
def test_width_of_positions_and_of_a_shape(layers):
    inputs, _ = make_inputs(Positioned(layers, 10), max_position_embeddings=9)
    assert shapes(inputs) == {"inputs_embeds": (1, 9, layers * 10)}


class Guarded(nn.Module):
    """A text of which a branch depends on values, and a second one that is optional and needed."""

    def __init__(self):
        super().__init__()
        self.layer, self.second = nn.Linear(4, D), nn.Linear(5, D)

    def forward(self, encoder_hidden_states, encoder_attention_mask, timestep, encoder_hidden_states_2=None):
        text = self.layer(encoder_hidden_states)[encoder_attention_mask.bool()]
        if not encoder_attention_mask.any():
            return text
        return text + self.second(encoder_hidden_states_2)


def test_values_of_masks_are_read():
    inputs, _ = make_inputs(Guarded(), {"seq_len": 3})
    assert shapes(inputs)["encoder_hidden_states_2"] == (1, 3, 5)


def test_part_that_one_layout_misses():
    class Grid(nn.Module):
        def __init__(self):
            super().__init__()
            self.missing, self.layer = None, nn.Conv3d(5, D, 1)

        def forward(self, hidden_states, timestep):
            hidden_states = hidden_states if hidden_states.dim() > 4 else self.missing(hidden_states)
            return self.layer(hidden_states) * timestep.to(hidden_states.dtype)

    maker = LatentInputs(Grid(), SimpleNamespace(sample_size=4, num_frames=3), {}, {}, torch.float32, dict)
    maker.diffusers()
    assert shapes(maker.tensors)["hidden_states"] == (1, 5, 3, 4, 4)


@pytest.mark.parametrize(("width", "refusal"), [(D, None), (D + 3, "a layer of 11 channels reads 8")])
def test_layers_that_do_not_fit(width, refusal):
    class Stacked(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(5, D, 1), nn.Linear(width, 3)

        def forward(self, hidden_states, timestep):
            return self.second(self.first(hidden_states).flatten(2).transpose(1, 2))

    maker = LatentInputs(Stacked(), SimpleNamespace(sample_size=4), {}, {}, torch.float32, dict)
    maker.diffusers()
    assert maker.refusal == (refusal and f"this configuration: {refusal}")
    assert shapes(maker.tensors)["hidden_states"] == (1, 5, 4, 4)


def test_image_denoiser_reads_one_frame():
    class Image2D(FilmDenoiser):
        """A class of images, by its name, with an axis of frames."""

    inputs, notes = make_inputs(Image2D("BCFHW", 6), {"image_size": 16}, in_channels=6)
    assert shapes(inputs)["sample"] == (1, 6, 1, 2, 2) and notes[-1] == "assumed: 1 frame (--input)"
    inputs, _ = make_inputs(Image2D("BCFHW", 6), {"image_size": 16}, in_channels=6, num_frames=3)
    assert shapes(inputs)["sample"] == (1, 6, 3, 2, 2)


def test_mask_of_a_second_text_is_given():
    class Second(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, D)

        def forward(
            self, encoder_hidden_states, timestep, encoder_hidden_states_2=None, encoder_attention_mask_2=None,
            encoder_hidden_states_3=None,
        ):  # fmt: skip
            text = self.layer(torch.cat((encoder_hidden_states, self.layer.bias * 0 + encoder_hidden_states_2), 1))
            # a value that a trial run does not have
            return text if (text > 0).any() else text * encoder_attention_mask_2[..., None]

    inputs, _ = make_inputs(Second(), {"seq_len": 3})
    assert sorted(inputs) == [
        "encoder_attention_mask_2",
        "encoder_hidden_states",
        "encoder_hidden_states_2",
        "timestep",
    ]


def test_input_beside_others_that_fill_a_layer_is_refused():
    class Joined(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Conv1d(2, D, 1)

        def forward(self, sample, timestep):
            return self.layer(torch.cat((sample, timestep[:, None, None].expand(-1, 5, sample.shape[2])), 1))

    maker = LatentInputs(Joined(), SimpleNamespace(in_channels=2, sample_size=9000), {}, {}, torch.float32, dict)
    maker.diffusers()
    assert maker.refusal == "this configuration: a layer of 2 channels reads 7"


def test_one_of_several_values():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Conv3d(4, D, 1)

        def forward(self, latents, scale):
            assert scale in (2, 4)
            return self.layer(latents)

    inputs, _ = make_inputs(Scaled(), scales=(2, 4), sample_size=4, num_frames=3)
    assert shapes(inputs) == {"scale": 2, "latents": (1, 4, 3, 4, 4)}


def test_class_and_values_of_fields():
    class Labelled(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.labels = nn.Conv2d(4, D, 1), nn.Embedding(11, D)

        def forward(self, hidden_states, timestep, scale, class_labels=None):
            assert scale == 3
            return self.layer(hidden_states) + self.labels(class_labels)[..., None, None]

    inputs, _ = make_inputs(Labelled(), in_channels=4, sample_size=4, scales=3, num_embeds_ada_norm=11)
    assert shapes(inputs)["class_labels"] == (1,) and inputs["scale"] == 3


def test_trial_runs_leave_the_model_as_it_is():
    class Cached(ImageDenoiser):
        positions = None

        def forward(self, hidden_states, encoder_hidden_states=None, timestep=None):
            if self.positions is None:
                self.positions = torch.ones(1, device=hidden_states.device)
            return super().forward(hidden_states * self.positions, encoder_hidden_states, timestep)

    model = Cached(4, 2, 12)
    inputs, _ = make_inputs(model, {"image_size": 64, "seq_len": 3}, in_channels=4)
    assert model.positions is None and not model.patches._forward_pre_hooks
    assert model(**inputs).shape == (1, 16, D)


def test_unknown_input_and_length_are_refused():
    class Strange(nn.Module):
        def forward(self, hidden_states, neighbours):
            """Nothing is computed."""

    with pytest.raises(UserCodeError, match="no configuration gives: neighbours; add --input neighbours=SIZES"):
        make_inputs(Strange())
    with pytest.raises(UserCodeError, match=r"^--audio: ImageDenoiser.forward.* has no input of that length"):
        make_inputs(ImageDenoiser(4, 2, 12), {"audio": 3}, in_channels=4)
