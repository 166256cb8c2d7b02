"""Every operation of the models' closed forms, line by line."""

import pytest

from headcount.formulas import convolution, dit, encoder_decoder, llama, masked_lm
from headcount.formulas.ledger import STORED_KINDS
from tests.formulas.operations import (
    ATTENTION,
    EMBEDDING,
    FEED_FORWARD,
    OUTPUT,
    RESIDUAL,
    ROTARY,
    SIZES,
    attention,
    check,
    post_norm,
)

CONVOLUTION = """
    {0}.in_proj linear B T d_m 2 d_out | d_m 2 d_out x1
    {0}.in_proj bias B T 2 d_out | 2 d_out x1
    {0} elementwise B T d_m x1
    {1}
    {0}.out_proj linear B T d_m d_out | d_m d_out x1
    {0}.out_proj bias B T d_out | d_out x1
"""

LIGHT = """{0} softmax h_w w x1
    {0} conv B T d_m w | h_w w x1"""

DYNAMIC = """{0}.kernel_proj linear B T d_m h_w w | d_m h_w w x1
    {0} softmax B T h_w w x1
    {0} conv B T d_m w x1"""


@pytest.mark.parametrize("dynamic, kernels", [(False, LIGHT), (True, DYNAMIC)], ids=["light", "dynamic"])
def test_convolutions(dynamic, kernels):
    form = convolution.block("c", B=2, T=7, d_m=15, h_w=5, w=3, dynamic=dynamic)
    check(form, CONVOLUTION.format("c", kernels.format("c")))


@pytest.mark.parametrize("dynamic, kernels", [(False, LIGHT), (True, DYNAMIC)], ids=["light", "dynamic"])
def test_convolutions_as_bands_are_as_long_as_the_sequence(dynamic, kernels):
    form = convolution.block("c", B=2, T=7, d_m=15, h_w=5, w=3, dynamic=dynamic, band=True)
    check(form, CONVOLUTION.format("c", kernels.replace("conv B T d_m w", "contraction B T d_m S").format("c")))


@pytest.mark.parametrize("n, held, new, read", [(0, 1, 1, 0), (3, 4, 1, 3), (10, 10, 1, 10), (11, 10, 1, 10)])
def test_a_step_of_a_convolution_reads_what_is_left_of_its_window(n, held, new, read):
    form = convolution.block("c", B=2, T=1, d_m=15, h_w=5, w=11, dynamic=True, band=True, n=n)
    sizes = {entry.kind: entry.size for entry in form if entry.kind in STORED_KINDS}
    assert sizes == {"cache": 2 * 15 * held, "cache_write": 2 * 15 * new, "cache_read": 2 * 15 * read}
    assert [entry.size for entry in form if entry.kind == "conv"] == [2 * 15 * 11]


def test_a_convolutional_translation_step_of_all_tokens_is_the_decoder():
    sizes = {"B": 2, "S": 17, "d_m": 15, "F": 19, "V": 29, "h_w": 5, "decoder_kernels": (13, 3), "dynamic": True}
    step = convolution.step(attention, new=7, stored=7, **sizes)
    whole = convolution.model(attention, T=7, encoder_kernels=(3,), **sizes)

    def own(form):
        """All but the cross-attention, whose keys are projected before."""
        decoder = [entry for entry in form if entry.path.startswith(("decoder.", "output_proj"))]
        return [e for e in decoder if e.kind not in STORED_KINDS and "cross_attn." not in e.path]

    assert own(step) == own(whole) and len(own(step)) > 30
    assert convolution.turns(**sizes) == (2, 3, 12, 13)


def test_a_convolutional_encoder_decoder():
    def conv(path):
        return CONVOLUTION.format(f"{path}.conv", LIGHT.format(f"{path}.conv")) + RESIDUAL.format(path, "conv", 1)

    sizes = {"F": 19, "V": 29, "h_w": 5, "encoder_kernels": (3, 11), "decoder_kernels": (13,), "dynamic": False}
    expected = EMBEDDING
    for i in range(2):
        expected += conv(f"encoder.layers.{i}") + post_norm(f"encoder.layers.{i}", 1, "feed_forward")
    expected += conv("decoder.layers.0") + post_norm("decoder.layers.0", 1, "cross_attn", "feed_forward") + OUTPUT
    check(convolution.model(attention, **SIZES, **sizes), expected)


TRANSLATION = {"F": 19, "V": 29, "N_enc": 3, "N_dec": 5}

DECODER = post_norm("decoder.layers.*", 5, "self_attn", "cross_attn", "feed_forward")


def test_encoder_decoder():
    encoder = post_norm("encoder.layers.*", 3, "self_attn", "feed_forward")
    check(encoder_decoder.model(attention, **SIZES, **TRANSLATION), EMBEDDING + encoder + DECODER + OUTPUT)


def test_a_translation_step_of_all_tokens_is_the_decoder():
    sizes = {letter: size for letter, size in (SIZES | TRANSLATION).items() if letter != "T"}
    step = encoder_decoder.step(attention, **sizes, new=7, stored=7)
    step = step.select(lambda entry: entry.kind not in STORED_KINDS)
    check(step, "embedding embedding B T d_m x1\n . elementwise 2 B T d_m x1" + DECODER + OUTPUT)


def test_masked_language_model():
    layers = post_norm("encoder.layers.*", 3, "self_attn", "feed_forward")
    expected = f"""
        embedding embedding B T d_m | V d_m x1
        position_embedding embedding T d_m | P d_m x1
        . elementwise B T d_m x1
        embedding_norm norm B T d_m | 2 d_m x1
        {layers}
        lm_head.dense linear B T d_m d_out | d_m d_out x1
        lm_head.dense bias B T d_out | d_out x1
        lm_head activation B T d_m x1
        lm_head.norm norm B T d_m | 2 d_m x1
        lm_head.output_proj linear B T d_m V x1
        lm_head.output_proj bias B T V | V x1
    """
    check(masked_lm.model(attention, B=2, T=7, d_m=15, F=19, V=29, N=3, P=11), expected)


def test_llama():
    layer = """
        {0}.self_attn_norm rms_norm B T d_m | d_m x{1}
        {2}
        {0} elementwise B T d_m x{1}
        {0}.feed_forward_norm rms_norm B T d_m | d_m x{1}
        {0}.feed_forward.gate_proj linear B T d_m F | d_m F x{1}
        {0}.feed_forward.up_proj linear B T d_m F | d_m F x{1}
        {0}.feed_forward activation B T F x{1}
        {0}.feed_forward elementwise B T F x{1}
        {0}.feed_forward.down_proj linear B T F d_m | F d_m x{1}
        {0} elementwise B T d_m x{1}
    """
    expected = (
        "embedding embedding B T d_m | V d_m x1"
        + layer.format("layers.*", 3, ROTARY.format("layers.*.self_attn", 3))
        + "\nnorm rms_norm B T d_m | d_m x1\noutput_proj linear B T d_m V | d_m V x1"
    )
    check(llama.model([attention] * 3, B=2, T=7, d_m=15, F=19, V=29), expected)


def test_diffusion_transformer():
    def other(path, **lengths):
        return attention(path, **lengths)

    block = """
        {0}.modulation activation B d_m x{1}
        {0}.modulation.proj linear B d_m 6 d_out | d_m 6 d_out x{1}
        {0}.modulation.proj bias B 6 d_out | 6 d_out x{1}
        {0}.self_attn_norm norm B T d_m x{1}
        {0} elementwise 2 B T d_m x{1}
        {2}
        {0} elementwise 2 B T d_m x{1}
        {0}.feed_forward_norm norm B T d_m x{1}
        {0} elementwise 2 B T d_m x{1}
        {3}
        {0} elementwise 2 B T d_m x{1}
    """
    runs = (("blocks.0-1", 2), ("blocks.2", 1))
    blocks = "".join(
        block.format(
            path,
            times,
            ATTENTION.format(f"{path}.self_attn", times),
            FEED_FORWARD.format(f"{path}.feed_forward", times),
        )
        for path, times in runs
    )
    expected = f"""
        patch_embedding linear B T C_in p_h p_w d_m | C_in p_h p_w d_m x1
        patch_embedding bias B T d_m | d_m x1
        . elementwise B T d_m | (T d_m) x1
        timestep_embedding.fc1 linear B d_t d_m | d_t d_m x1
        timestep_embedding.fc1 bias B d_m | d_m x1
        timestep_embedding activation B d_m x1
        timestep_embedding.fc2 linear B d_m d_out | d_m d_out x1
        timestep_embedding.fc2 bias B d_out | d_out x1
        label_embedding embedding B d_m | N_y d_m x1
        . elementwise B d_m x1
        {blocks}
        final_layer.modulation activation B d_m x1
        final_layer.modulation.proj linear B d_m 2 d_out | d_m 2 d_out x1
        final_layer.modulation.proj bias B 2 d_out | 2 d_out x1
        final_layer.norm norm B T d_m x1
        final_layer elementwise 2 B T d_m x1
        final_layer.proj linear B T d_m p_h p_w C_out | d_m p_h p_w C_out x1
        final_layer.proj bias B T p_h p_w C_out | p_h p_w C_out x1
    """
    form = dit.model([attention, attention, other], B=2, T=7, d_m=15, F=19, p=3, C_in=4, C_out=8, d_t=22, N_y=31)
    check(form, expected)
