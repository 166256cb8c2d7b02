"""Inputs that are made for each kind of model, by its signature and its configuration."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import headcount as hc
from headcount.bench.targets.config_file import build_from_config
from headcount.bench.targets.latents import LatentInputs
from headcount.bench.targets.model_inputs import Inputs
from headcount.bench.targets.user_code import UserCodeError
from tests.bench.targets.conftest import LLAMA, LLAVA, VISION, write

pytest.importorskip("transformers", reason="the optional extra hf is not installed")

T = 13
SMALL = dict(hidden_size=20, intermediate_size=28, num_hidden_layers=1, num_attention_heads=4, vocab_size=53)
WAVE = dict(conv_dim=[6, 6], conv_kernel=[9, 3], conv_stride=[5, 2], num_conv_pos_embedding_groups=2)
SPEECH = dict(
    d_model=20, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
    encoder_ffn_dim=28, decoder_ffn_dim=28, vocab_size=53, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    decoder_start_token_id=1,
)  # fmt: skip
GRID = dict(
    depth=1, hidden_size=16, num_heads=2, intermediate_size=28, out_hidden_size=16, patch_size=7, image_size=56,
    spatial_merge_size=2, temporal_patch_size=2,
)  # fmt: skip
CODED = dict(
    hidden_size=16, intermediate_size=28, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, head_dim=8,
    vocab_size=53,
)  # fmt: skip
VIDEO = {**VISION, "num_frames": 3, "tubelet_size": [1, 7, 7], "image_size": 21}


def executed_flops(built):
    """Return the FLOPs that torch's counter finds in a run of a built model."""
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        built.module.requires_grad_(False)(**built.kwargs)
    return counter.get_total_flops()


def config(kind, name, **fields):
    """Return a configuration of a small model."""
    return {"model_type": kind, "architectures": [name], **fields}


MODELS = {
    "image-without-size": (
        config("resnet", "ResNetModel", embedding_size=5, hidden_sizes=[8], depths=[1], layer_type="basic"),
        {},
        {"pixel_values": (1, 3, 224, 224)},
    ),
    "tower-with-another-main-input": (
        config("smolvlm_vision", "SmolVLMVisionTransformer", **VISION),
        {"batch_size": 2},
        {"pixel_values": (2, 3, 21, 21)},
    ),
    "wave": (
        config("wav2vec2", "Wav2Vec2Model", **SMALL, **WAVE),
        {"audio": 2, "batch_size": 3},
        {"input_values": (3, 2 * 16000)},
    ),
    "wave-of-a-codec": (
        config("encodec", "EncodecModel", num_filters=4, hidden_size=16, codebook_size=16, codebook_dim=16),
        {},
        {"input_values": (1, 1, 24000)},
    ),
    "spectra-as-channels": (
        config("whisper", "WhisperModel", **SPEECH, num_mel_bins=11, max_source_positions=17),
        {"seq_len": T},
        {"input_features": (1, 11, 34), "decoder_input_ids": (1, T)},
    ),
    "spectra-over-time": (
        config("speech_to_text", "Speech2TextModel", **SPEECH, input_feat_per_channel=12, conv_channels=8),
        {"seq_len": T, "audio": 2},
        {"input_features": (1, 200, 12), "decoder_input_ids": (1, T)},
    ),
    # a convolution over time and frequency, whose width is in a part of the configuration
    "spectra-as-an-image": (
        config(
            "parakeet_ctc", "ParakeetForCTC", vocab_size=53, pad_token_id=0,
            encoder_config=dict(
                hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=28, num_mel_bins=40,
                subsampling_conv_channels=4,
            ),
        ),
        {"audio": 2},
        {"input_features": (1, 200, 40)},
    ),
    "patches": (
        config("glm4v_vision", "Glm4vVisionModel", **GRID),
        {"image_size": 56, "batch_size": 2},
        {"hidden_states": (2 * 64, 3 * 2 * 7 * 7), "grid_thw": [[1, 8, 8]] * 2},
    ),
    "video": (
        config("vivit", "VivitModel", **VIDEO),
        {"batch_size": 2},
        {"pixel_values": (2, 3, 3, 21, 21)},
    ),
    "ids-under-another-name": (
        config(
            "perceiver", "PerceiverForMaskedLM", num_latents=4, d_latents=16, d_model=16, num_blocks=1, vocab_size=53,
            num_self_attends_per_block=1, num_self_attention_heads=2, num_cross_attention_heads=2, qk_channels=8,
            v_channels=16, max_position_embeddings=T,
        ),
        {"seq_len": T},
        {"input_ids": (1, T)},
    ),
    "flattened-patches": (
        config(
            "pix2struct", "Pix2StructForConditionalGeneration",
            text_config=dict(
                vocab_size=53, hidden_size=16, d_kv=8, d_ff=28, num_layers=1, num_heads=2, decoder_start_token_id=0,
            ),
            vision_config=dict(
                hidden_size=16, patch_embed_hidden_size=12, d_ff=28, d_kv=8, num_hidden_layers=1, num_attention_heads=2,
                seq_len=9,
            ),
        ),
        {"seq_len": T},
        {"flattened_patches": (1, 9, 2 + 12), "decoder_input_ids": (1, T)},
    ),
    "states-and-actions": (
        config(
            "decision_transformer", "DecisionTransformerModel", state_dim=5, act_dim=3, hidden_size=16, n_layer=1,
            n_head=2, max_ep_len=20,
        ),
        {"seq_len": T},
        {"states": (1, T, 5), "actions": (1, T, 3), "rewards": (1, T, 1), "timesteps": (1, T)},
    ),
    "codebooks": (
        config(
            "dia", "DiaForConditionalGeneration", encoder_config=CODED, delay_pattern=[0, 1, 2], pad_token_id=50,
            eos_token_id=51, bos_token_id=52,
            decoder_config={
                **CODED, "cross_num_attention_heads": 2, "cross_num_key_value_heads": 2, "cross_head_dim": 8,
                "cross_hidden_size": 16, "num_channels": 3,
            },
        ),
        {"seq_len": T},
        {"input_ids": (1, T), "decoder_input_ids": (1, T, 3)},
    ),
    "series": (
        config("patchtst", "PatchTSTForPrediction", num_input_channels=3, context_length=32, patch_length=4),
        {},
        {"past_values": (1, 32, 3)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_inputs_by_kind(tmp_path, name, count):
    content, lengths, shapes = MODELS[name]
    built = build_from_config(write(tmp_path, content), {}, lengths, {})
    found = {
        key: value.tolist() if isinstance(shapes.get(key), list) else tuple(value.shape)
        for key, value in built.kwargs.items()
    }
    assert {key: found[key] for key in shapes} == shapes
    assert count(content, lengths=lengths).macs > 0


OTHER_COUNTER = [
    "flattened-patches",
    "ids-under-another-name",
    "states-and-actions",
    "codebooks",
]


@pytest.mark.parametrize("name", OTHER_COUNTER)
def test_count_equals_flop_counter(tmp_path, name, count):
    content, lengths, _ = MODELS[name]
    built = build_from_config(write(tmp_path, content), {}, lengths, {}, "float32", "cpu")
    assert 2 * count(content, lengths=lengths).macs == executed_flops(built)


def test_missing_image_size_is_noted(tmp_path):
    content, _, _ = MODELS["image-without-size"]
    path = write(tmp_path, content)
    assert any("--image-size" in note for note in build_from_config(path, {}, {}, {}).notes)
    built = build_from_config(path, {}, {"image_size": 31}, {})
    assert built.kwargs["pixel_values"].shape[2:] == (31, 31)
    assert not any("--image-size" in note for note in built.notes)


TOWERS = {
    "vision_tower": LLAVA,
    # 10 positions of an image, as many of a frame of a video
    "video_tower": config(
        "video_llava", "VideoLlavaForConditionalGeneration", image_token_index=50, video_token_index=51,
        text_config=LLAMA, vision_config={"model_type": "clip_vision_model", **VISION},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TOWERS)
def test_positions_of_towers_do_not_limit_texts(tmp_path, name):
    path = write(tmp_path, TOWERS[name])
    built = build_from_config(path, {}, {"seq_len": 29}, {})
    assert built.kwargs["input_ids"].shape == (1, 29) and built.absent == ("--images 1",)


def test_positions_of_the_text_limit_it(tmp_path):
    text = dict(SMALL, max_position_embeddings=11, projection_dim=8)
    content = config("clip", "CLIPModel", text_config=text, vision_config=VISION, projection_dim=8)
    path = write(tmp_path, content)
    assert build_from_config(path, {}, {"seq_len": 11}, {}).kwargs["input_ids"].shape == (1, 11)
    with pytest.raises(UserCodeError, match="input_ids has 12 tokens, and .*text_model.* has 11 positions"):
        build_from_config(path, {}, {"seq_len": 12}, {})


def test_part_that_did_not_run_is_named(count):
    from headcount.bench.macs.module import sentence

    text = sentence(count(LLAVA, lengths={"seq_len": T}), False)
    projector = 20 * 24 + 24 + 24 * 24 + 24
    assert "(matrix products and convolutions, text only)" in text
    assert f"model.multi_modal_projector ({projector:,} parameters) were not called: --images 1 adds them." in text
    with_image = sentence(count(LLAVA, lengths={"seq_len": T, "images": 1}), False)
    assert "text only" not in with_image and "adds" not in with_image


def test_model_that_runs_in_float32_alone(count):
    content = config("xlnet", "XLNetLMHeadModel", d_model=20, n_layer=1, n_head=4, d_inner=28, vocab_size=53)
    found, wide = count(content, lengths={"seq_len": T}), count(content, lengths={"seq_len": T}, dtype="float32")
    assert found.macs == wide.macs and any(note.startswith("Counted with --dtype float32, as ") for note in found.notes)
    assert not any("--dtype" in note for note in wide.notes)
    with pytest.raises(UserCodeError, match="bfloat16"):
        count({**content, "dtype": "bfloat16"}, lengths={"seq_len": T})


AUDIO = dict(num_mel_bins=11, max_source_positions=16)
SPOKEN = {
    # 16 positions of width 20 make 4 tokens of width 80
    "voxtral": (
        config(
            "voxtral", "VoxtralForConditionalGeneration", audio_token_id=50, text_config=LLAMA,
            audio_config=dict(
                model_type="voxtral_encoder", hidden_size=20, num_hidden_layers=1, num_attention_heads=4,
                intermediate_size=80, **AUDIO,
            ),
        ),
        4,
    ),
    # the library puts the sound's tokens in place of one
    "qwen2_audio": (
        config(
            "qwen2_audio", "Qwen2AudioForConditionalGeneration", audio_token_index=50, text_config=LLAMA,
            audio_config=dict(
                model_type="qwen2_audio_encoder", d_model=20, encoder_layers=1, encoder_attention_heads=4,
                encoder_ffn_dim=28, **AUDIO,
            ),
        ),
        1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPOKEN)
def test_sound_has_placeholders(count, tmp_path, name):
    content, tokens = SPOKEN[name]
    path = write(tmp_path, content)
    text = build_from_config(path, {}, {"seq_len": T}, {})
    assert text.absent == ("--audio 30",) and list(text.kwargs) == ["input_ids"]
    built = build_from_config(path, {}, {"seq_len": T, "audio": 30}, {})
    assert built.kwargs["input_features"].shape == (1, 11, 32) and built.absent == ()
    assert (built.kwargs["input_ids"] == 50).sum() == tokens
    found = count(content, lengths={"seq_len": T, "audio": 30})
    assert not found.uncalled and found.macs > count(content, lengths={"seq_len": T}).macs
    with pytest.raises(UserCodeError, match=f"--seq-len {tokens}: sound of {tokens} token"):
        build_from_config(path, {}, {"seq_len": tokens, "audio": 30}, {})


def test_given_values_are_inputs(tmp_path):
    grid = torch.tensor([[1, 4, 6]])
    content, _, _ = MODELS["patches"]
    built = build_from_config(write(tmp_path, content), {}, {}, {"grid_thw": grid, "0": torch.ones(24, 294)})
    assert built.kwargs["grid_thw"].tolist() == [[1, 4, 6]]
    assert built.kwargs["hidden_states"].dtype == torch.bfloat16


class MergedPatches(torch.nn.Module):
    """An image as one square for each token of a text, which a layer reads in 2 x 2 patches."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3 * 7 * 7, 5)

    def forward(self, pixel_values, image_grid_thw):
        """Project patches.

        pixel_values (`torch.Tensor` of shape `(tokens, patch_size * spatial_merge_size, patch_size, num_channels)`):
            The squares.
        """
        assert len(pixel_values) == image_grid_thw.prod(-1).sum()
        patches = pixel_values.reshape(-1, 2, 7, 2, 7, pixel_values.shape[-1]).transpose(2, 3)
        return self.layer(patches.reshape(-1, 3 * 7 * 7))


def test_squares_of_several_patches():
    settings = SimpleNamespace(image_size=(28, 42), patch_size=7, spatial_merge_size=2, sub_configs={})
    maker = Inputs(MergedPatches(), settings, {"batch_size": 2}, {}, torch.float32, dict)
    maker.transformers()
    inputs = maker.finish()
    assert (
        inputs["pixel_values"].shape == (2 * 2 * 3, 14, 14, 3) and inputs["image_grid_thw"].tolist() == [[1, 2, 3]] * 2
    )
    assert hc.count(MergedPatches(), **inputs).macs == 2 * 4 * 6 * 147 * 5


def test_only_documented_inputs_that_are_not_optional_are_given():
    class Documented(torch.nn.Module):
        def forward(self, scores=None, weights=None, ratios=None):
            """Run.

            scores (`torch.Tensor` of shape `(batch_size, 3, 5)`):
                Given.
            weights (`torch.Tensor` of shape `(batch_size, 3, 5)`, *optional*):
                Left out, as ratios without documentation.
            """

    settings = SimpleNamespace(sub_configs={})
    maker = Inputs(Documented(), settings, {"batch_size": 2}, {}, torch.float32, dict)
    maker.transformers()
    assert {name: one.shape for name, one in maker.finish().items()} == {"scores": (2, 3, 5)}


MISSING = "Model.forward needs inputs that no configuration gives: "
FILE = "write FILE.py:FUNCTION, which returns (module, inputs)"


def refusal(forward):
    """Return the message on a model of diffusers with this forward."""
    model = type("Model", (torch.nn.Module,), {"forward": forward})()
    maker = LatentInputs(model, SimpleNamespace(), {}, {}, torch.float32, dict)
    maker.diffusers()
    with pytest.raises(UserCodeError) as error:
        maker.finish()
    return str(error.value)


def test_message_names_sizes_of_missing_tensors():
    def forward(self, atoms: torch.Tensor, bonds, charge: torch.LongTensor, timestep=None):
        """Run.

        Args:
            atoms (`torch.Tensor`): Positions `(batch, atoms, 3)` in nanometers.
            bonds (`torch.Tensor` of shape `(batch, bonds)`):
                Pairs.
        """

    sizes = "atoms (torch.Tensor of shape (batch, atoms, 3)), bonds (torch.Tensor of shape (batch, bonds))"
    options = "--input atoms=SIZES --input bonds=SIZES --input charge=SIZES, NAME=[VALUES] or NAME=@FILE.json"
    assert refusal(forward) == f"{MISSING}{sizes}, charge (torch.LongTensor); add {options}, or {FILE}"


def test_objects_lists_and_numbers_are_no_option():
    def session(self, session: SimpleNamespace, atoms: torch.Tensor):
        """Run."""

    def numbers(self, count: int):
        """Run."""

    def lists(self, atoms: list[torch.Tensor]):
        """Run."""

    def documented(self, pairs):
        """Run.

        pairs (`list` of `tuple` of `torch.Tensor`):
            Pairs.
        """

    assert refusal(session) == f"{MISSING}session (types.SimpleNamespace), atoms (torch.Tensor); {FILE}"
    assert refusal(numbers) == f"{MISSING}count (int); {FILE}"
    assert refusal(lists) == f"{MISSING}atoms (list[torch.Tensor]); {FILE}"
    assert refusal(documented) == f"{MISSING}pairs (list of tuple of torch.Tensor); {FILE}"


def test_model_without_forward_is_refused():
    with pytest.raises(UserCodeError, match=r"^Module has no forward; FILE.py:FUNCTION"):
        Inputs(torch.nn.Module(), {}, {}, {}, torch.float32, dict)


def test_image_of_timm():
    def image(lengths):
        maker = Inputs(torch.nn.Conv2d(2, 3, 1), {"input_size": [2, 7, 9]}, lengths, {}, torch.float32, dict)
        maker.timm()
        return tuple(maker.tensors["input"].shape)

    assert image({}) == (1, 2, 7, 9) and image({"image_size": 5, "batch_size": 4}) == (4, 2, 5, 5)


class Reader(torch.nn.Module):
    """A model that reads what another one makes."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, latents, text_input_ids, text_attention_mask):
        return self.layer(latents)


LAYERS = {
    "linear": (torch.nn.Linear(6, 2), (3, 4, 6)),
    "convolution": (torch.nn.Conv1d(5, 2, 1), (3, 5, 4)),
    "transposed": (torch.nn.Sequential(torch.nn.ConvTranspose1d(5, 2, 1), torch.nn.Linear(4, 7)), (3, 5, 4)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_embeddings_have_the_width_of_their_reader(name):
    layer, shape = LAYERS[name]
    ids, lengths = torch.ones(3, 7, dtype=torch.long), {"seq_len": 4, "batch_size": 3}
    maker = Inputs(Reader(layer), SimpleNamespace(), lengths, {"text_input_ids": ids}, torch.float32, dict)
    maker._add_documented()
    found = maker.finish()
    assert tuple(found["latents"].shape) == shape and found["text_attention_mask"].equal(ids)


class Images(torch.nn.Module):
    """A convolution of images with an axis for those of a text, of which it takes ``number``; None for any."""

    def __init__(self, number):
        super().__init__()
        self.number = number
        self.conv = torch.nn.Conv2d(3, 5, 7, stride=7, bias=False)

    def forward(self, pixel_values):
        batch, number, *sizes = pixel_values.shape
        if len(sizes) != 3 or self.number not in (None, number):
            raise ValueError("images have five axes")
        return self.conv(pixel_values.view(batch * number, *sizes))


@pytest.mark.parametrize(("number", "axis"), [(None, 1), (1, 1), (2, 2)])
def test_images_have_the_axes_that_the_model_reads(number, axis):
    settings = SimpleNamespace(image_size=21, sub_configs={})
    made = Inputs(Images(number).to("meta"), settings, {"batch_size": 2}, {}, torch.float32, dict)
    made.transformers()
    assert made.finish()["pixel_values"].shape == (2, 3, 21, 21)
    found = made.search_all()
    assert found["pixel_values"].shape == (2, axis, 3, 21, 21)
    places = 3 * 3
    assert hc.count(Images(number), **found).macs == 2 * axis * places * 5 * 3 * 7 * 7


@pytest.mark.parametrize("number", [3, 5])
def test_images_that_no_axis_fits_are_not_found(number):
    settings = SimpleNamespace(image_size=21, sub_configs={})
    made = Inputs(Images(number).to("meta"), settings, {}, {}, torch.float32, dict)
    made.transformers()
    assert made.search_all() is None


NEEDED = {
    # (2, 5) regions and positions of an image, as many as tokens
    "regions-of-an-image": (
        config("lxmert", "LxmertModel", **SMALL, l_layers=1, x_layers=1, r_layers=1, visual_feat_dim=6),
        {"seq_len": T, "batch_size": 2},
        {"visual_feats": (2, T, 6), "visual_pos": (2, T, 4)},
    ),
    "boxes-of-a-text": (
        config("bros", "BrosModel", **{**SMALL, "hidden_size": 64}),
        {"seq_len": T},
        {"bbox": (1, T, 4)},
    ),
    "images-and-their-mask": (
        config(
            "idefics", "IdeficsForVisionText2Text", **{**SMALL, "hidden_size": 24}, additional_vocab_size=0,
            cross_layer_interval=1, max_position_embeddings=T,
            vision_config=dict(
                embed_dim=20, intermediate_size=28, num_hidden_layers=1, num_attention_heads=4, image_size=21,
                patch_size=7,
            ),
        ),
        {"seq_len": T},
        {"pixel_values": (1, 1, 3, 21, 21), "image_attention_mask": (1, T, 1)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NEEDED)
def test_inputs_that_a_model_needs_are_found(tmp_path, count, name):
    content, lengths, shapes = NEEDED[name]
    found = count(content, lengths=lengths)
    (note,) = (note for note in found.notes if note.startswith("Counted with --input "))
    assert all(f"--input {key}={','.join(map(str, shape))}:" in note for key, shape in shapes.items())
    given = {key: torch.ones(shape, dtype=torch.bool if "mask" in key else None) for key, shape in shapes.items()}
    built = build_from_config(write(tmp_path, content), {}, lengths, given, "float32", "cpu")
    assert 2 * found.macs == executed_flops(built)
    texts = tuple(f"{key}={','.join(map(str, shape))}" for key, shape in shapes.items())
    texts = tuple(f"{text}:bool" if "mask" in text else text for text in texts)
    assert count(content, lengths=lengths, inputs=texts).macs == found.macs


WINDOWED = config(
    "rf_detr", "RfDetrForObjectDetection", d_model=32, decoder_layers=1, num_queries=5, decoder_ffn_dim=28,
    decoder_self_attention_heads=2, decoder_cross_attention_heads=2, group_detr=1,
    backbone_config=dict(
        model_type="rf_detr_dinov2", hidden_size=24, num_hidden_layers=2, num_attention_heads=2, image_size=70,
        patch_size=7, num_windows=4, out_indices=[2],
    ),
)  # fmt: skip


def test_image_size_that_runs_is_found(count):
    # 4 x 4 windows of whole patches of 7 pixels: 70 is no multiple of 28
    found = count(WINDOWED)
    assert any(text.startswith("pixel_values: 1x3x84x84 ") for text in found.inputs)
    assert any(note.startswith("Counted with --image-size 84, as it does not run without: ") for note in found.notes)
    assert count(WINDOWED, lengths={"image_size": 84}).macs == found.macs
    with pytest.raises(UserCodeError, match="; --image-size 112 runs$"):
        count(WINDOWED, lengths={"image_size": 100})


@pytest.mark.filterwarnings("ignore:Initializing zero-element")
def test_configuration_that_runs_with_no_image_is_named(count):
    backbone = dict(
        model_type="lw_detr_vit", hidden_size=24, num_hidden_layers=1, num_attention_heads=2, window_block_indices=[0],
        out_indices=[1],
    )  # fmt: skip
    content = config(
        "lw_detr", "LwDetrForObjectDetection", d_model=32, decoder_layers=1, num_queries=5, group_detr=1,
        projector_scale_factors=[], backbone_config=backbone,
    )  # fmt: skip
    with pytest.raises(
        UserCodeError, match=r"^transformers itself does not run this configuration, with inputs of \d+ "
    ):
        count(content)


BLIP = dict(
    vision_config=dict(VISION, intermediate_size=28),
    qformer_config=dict(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=28, encoder_hidden_size=20,
        vocab_size=53, max_position_embeddings=99,
    ),
    text_config=dict(
        model_type="opt", hidden_size=24, ffn_dim=32, num_hidden_layers=1, num_attention_heads=4, vocab_size=53,
        max_position_embeddings=99, word_embed_proj_dim=24,
    ),
    num_query_tokens=4,
)  # fmt: skip
PLACED = {
    "image": (config("blip-2", "Blip2ForConditionalGeneration", **BLIP), {"seq_len": T}, (1, 3, 21, 21), 4),
    # 16 frames
    "film": (
        config("instructblipvideo", "InstructBlipVideoForConditionalGeneration", **BLIP),
        {"seq_len": 65}, (1, 16, 3, 21, 21), 64,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLACED)
def test_images_that_a_model_requires_are_placed(tmp_path, count, name):
    content, lengths, shape, places = PLACED[name]
    path = write(tmp_path, content)
    built = build_from_config(path, {}, lengths, {}, "float32", "cpu")
    assert built.kwargs["pixel_values"].shape == shape and (built.kwargs["input_ids"] == 52).sum() == places
    assert any("is 52, the last token: the configuration names none; --set" in note for note in built.notes)
    assert 2 * count(content, lengths=lengths).macs == executed_flops(built)
    with pytest.raises(UserCodeError, match=f"--seq-len {places}: 1 {'image' if name == 'image' else 'video'} of "):
        build_from_config(path, {}, {"seq_len": places}, {})
    field = "image_token_index" if name == "image" else "video_token_index"
    named = build_from_config(path, {field: 7}, lengths, {})
    assert (named.kwargs["input_ids"] == 7).sum() == places and not any("last token" in note for note in named.notes)


def test_mask_of_places_without_a_token(tmp_path, count):
    text = dict(embed_dim=16, layers=1, ffn_dim=28, attention_heads=2, vocab_size=53, max_position_embeddings=40)
    content = config(
        "kosmos-2", "Kosmos2ForConditionalGeneration", text_config=text, vision_config=VISION, latent_query_num=4
    )
    path = write(tmp_path, content)
    built = build_from_config(path, {}, {"seq_len": T, "batch_size": 2}, {})
    assert built.kwargs["image_embeds_position_mask"].tolist() == [[1] * 4 + [0] * (T - 4)] * 2
    with pytest.raises(UserCodeError, match="--seq-len 4: 1 image of 4 tokens: the least is 5"):
        build_from_config(path, {}, {"seq_len": 4}, {})
    built = build_from_config(path, {}, {"seq_len": T}, {}, "float32", "cpu")
    assert 2 * count(content, lengths={"seq_len": T}).macs == executed_flops(built)


class Spectra(torch.nn.Module):
    """A linear layer of ``together`` spectra, which the model puts together where ``stacks``."""

    def __init__(self, together, stacks):
        super().__init__()
        self.together, self.stacks = together, stacks
        self.layer = torch.nn.Linear(together * 6, 5, bias=False)

    def forward(self, input_features):
        if self.stacks:
            batch, frames, width = input_features.shape
            input_features = input_features.reshape(batch, frames // self.together, self.together * width)
        return self.layer(input_features)


@pytest.mark.parametrize(("together", "stacks", "width"), [(1, False, 6), (4, False, 24), (4, True, 6), (10, True, 6)])
def test_spectra_that_a_model_puts_together(together, stacks, width):
    settings = SimpleNamespace(num_mel_bins=6, sub_configs={})
    made = Inputs(Spectra(together, stacks).to("meta"), settings, {"batch_size": 2}, {}, torch.float32, dict)
    made.transformers()
    inputs = made.finish()
    assert inputs["input_features"].shape == (2, 100, width)
    rows = 2 * 100 // together if stacks else 2 * 100
    assert hc.count(Spectra(together, stacks), **inputs).macs == rows * together * 6 * 5
