"""What each form lists, typed here: every operation by module path, kind, letters of its size, letters of its weight.

Sums cannot tell two letters of the same size apart, or paths that nothing built has (arXiv 1901.10430's convolutions
and arXiv 2005.06537's gate have closed forms only). Letters are legend letters; a frozen parameter is in brackets.
"""

import pytest

from headcount.formulas import convolution, dit, encoder_decoder, llama, mae, masked_lm, mha, moa, moh, moh_ideal
from headcount.formulas.ledger import STORED_KINDS
from headcount.formulas.symbols import by_letter


def operations(form):
    for entry in form:
        weight = " ".join(entry.weight)
        weight = f" | {weight}" if entry.trainable and weight else f" | ({weight})" if weight else ""
        yield f"{entry.path or '.'} {entry.kind} {' '.join(entry.dims)}{weight} x{entry.times}"


def lines(text):
    return [" ".join(line.split()) for line in text.strip().splitlines()]


def attention(path, *, B, T, S, n=None, rotary=False):
    assert (B, T, S, n) in ((2, 7, 7, None), (2, 7, 17, None), (2, 17, 17, None), (2, 7, 7, 0), (2, 7, 17, 17))
    return mha.layer(path, B=B, T=T, S=S, n=n, d_m=15, h=6, d_h=5, g=2, bias=False, rotary=rotary)


ATTENTION = """
    {0}.q_proj linear B T d_m h d_h | d_m h d_h x{1}
    {0}.k_proj linear B S d_m g d_h | d_m g d_h x{1}
    {0}.v_proj linear B S d_m g d_h | d_m g d_h x{1}
    {0} scores B h T S d_h x{1}
    {0} softmax B h T S x{1}
    {0} values B h T S d_h x{1}
    {0}.out_proj linear B T h d_h d_m | h d_h d_m x{1}
"""
ROTARY = ATTENTION.replace("    {0} scores", "    {0} rope B T h d_h x{1}\n    {0} rope B S g d_h x{1}\n    {0} scores")
RESIDUAL = """
    {0} elementwise B T d_m x{2}
    {0}.{1}_norm norm B T d_m | 2 d_m x{2}
"""
FEED_FORWARD = """
    {0}.fc1 linear B T d_m F | d_m F x{1}
    {0}.fc1 bias B T F | F x{1}
    {0} activation B T F x{1}
    {0}.fc2 linear B T F d_m | F d_m x{1}
    {0}.fc2 bias B T d_m | d_m x{1}
"""


def post_norm(path, times, *names):
    text = ""
    for name in names:
        text += (FEED_FORWARD if name == "feed_forward" else ATTENTION).format(f"{path}.{name}", times)
        text += RESIDUAL.format(path, name, times)
    return text.replace("\n\n", "\n")


EMBEDDING = """
    embedding embedding B S d_m | V d_m x1
    embedding embedding B T d_m x1
    . elementwise 2 B S d_m x1
    . elementwise 2 B T d_m x1
"""
OUTPUT = "output_proj linear B T d_m V x1"


def check(form, text):
    assert list(operations(form)) == [line for line in lines(text) if line]
    for entry in form:
        assert isinstance(entry.trainable, bool)
        for letter in (*entry.dims, *entry.weight):
            assert by_letter(letter)


SIZES = {"B": 2, "T": 7, "S": 17, "d_m": 15}


def test_grouped_multi_head_attention():
    check(mha.layer("a", **SIZES, h=6, d_h=5, g=2, bias=False), ATTENTION.format("a", 1))
    check(mha.layer("a", **SIZES, h=6, d_h=5, g=2, bias=False, rotary=True), ROTARY.format("a", 1))
    biased = ATTENTION.format("a", 1)
    for name, sizes in (("q_proj", "B T h d_h"), ("k_proj", "B S g d_h"), ("v_proj", "B S g d_h"), ("out_proj", "")):
        line = next(line for line in biased.splitlines() if f"a.{name}" in line)
        bias = f"a.{name} bias {sizes} | {sizes[4:]} x1" if sizes else "a.out_proj bias B T d_m | d_m x1"
        biased = biased.replace(line, f"{line}\n{bias}")
    check(mha.layer("a", **SIZES, h=6, d_h=5, g=2), biased)


MOA = """
    a.router.proj linear B T d_m E | d_m E x1
    a.router.noise_proj linear B T d_m E | d_m E x1
    a.router softmax B T E x1
    a.q_proj expert_linear B T K d_m D | E d_m D x1
    a.q_proj expert_bias B T K D | E D x1
    a.k_proj linear B S d_m D | d_m D x1
    a.k_proj bias B S D | D x1
    a.v_proj linear B S d_m D | d_m D x1
    a.v_proj bias B S D | D x1
    a scores B K T S D x1
    a softmax B K T S x1
    a values B K T S D x1
    a elementwise B T K D x1
    a.out_proj expert_linear B T K D d_m | E D d_m x1
    a.out_proj expert_bias B T K d_m | E d_m x1
"""


def without(text, *words):
    return "\n".join(line for line in text.splitlines() if not any(word in line for word in words))


@pytest.mark.parametrize("path", ["a", ""], ids=["named", "root"])
def test_mixture_of_attention_heads(path):
    expected = MOA if path else MOA.replace("    a.", "    ").replace("    a ", "    . ")
    form = {"E": 11, "K": 3, "D": 5}
    check(moa.layer(path, **SIZES, **form, bias=True, noisy=True), expected)
    check(moa.layer(path, **SIZES, **form), without(expected, "bias", "noise"))


MOH = """
    a.q_proj {q} B T d_m {rows} d_h | d_m h d_h x1
    a.q_proj {qb} B T {rows} d_h | h d_h x1
    a.router.routed_proj linear B T d_m E | d_m E x1
    a.router softmax B T E x1
    a.router.shared_proj linear B T d_m s | d_m s x1
    a.router softmax B T s x1
    a.router.group_proj linear B T d_m 2 | d_m 2 x1
    a.router softmax B T 2 x1
    a.k_proj linear B S d_m g d_h | d_m g d_h x1
    a.k_proj bias B S g d_h | g d_h x1
    a.v_proj linear B S d_m g d_h | d_m g d_h x1
    a.v_proj bias B S g d_h | g d_h x1
    a rope B T {heads} d_h x1
    a rope B S g d_h x1
    a scores B {heads} T S d_h x1
    a softmax B {heads} T S x1
    a values B {heads} T S d_h x1
    a elementwise B T {heads} d_h x1
    a.out_proj {out} B T {heads} d_h d_m | h d_h d_m x1
    a.out_proj {outb} B T d_m | d_m x1
"""
DENSE = {"q": "linear", "qb": "bias", "out": "linear", "outb": "bias", "rows": "h", "heads": "h"}
IDEAL = {"q": "expert_linear", "qb": "expert_bias", "out": "expert_linear", "outb": "expert_bias"}
IDEAL |= {"rows": "k", "heads": "k"}


@pytest.mark.parametrize("form, words", [(moh, DENSE), (moh_ideal, IDEAL)], ids=["released", "ideal"])
def test_mixture_of_head_attention(form, words):
    sizes = SIZES | {"h": 6, "s": 2, "r": 3, "d_h": 5, "g": 2}
    expected = MOH.format(**words)
    check(form.layer("a", **sizes, bias=True, rotary=True), expected)
    check(form.layer("a", **sizes), without(expected, "bias", "rope"))
    by_norm = MOH.format(**words | {"q": "linear", "qb": "bias", "rows": "h"})
    norm = "    a.router elementwise B T E d_h x1\n    a.router softmax B T E x1\n    a.k_proj linear"
    by_norm = without(by_norm, "router").replace("    a.k_proj linear", norm)
    check(form.layer("a", **sizes, bias=True, rotary=True, router="query_norm"), by_norm)


@pytest.mark.parametrize(
    "s, r, matrices",
    [
        (2, 3, ["routed", "shared", "group"]),
        (1, 3, ["routed", "group"]),
        (0, 3, ["routed"]),
        (6, 0, ["shared"]),
        (1, 0, []),
    ],
)
def test_a_router_has_the_matrices_that_choose_between_several(s, r, matrices):
    form = moh.layer("a", **SIZES, h=6, s=s, r=r, d_h=5, g=2)
    assert [e.path for e in form if "router" in e.path and e.weight] == [f"a.router.{m}_proj" for m in matrices]
    assert len([e for e in form if e.path == "a.router"]) == len(matrices)
    by_norm = moh.layer("a", **SIZES, h=6, s=s, r=r, d_h=5, g=2, router="query_norm")
    assert [e.kind for e in by_norm if "router" in e.path] == (["elementwise", "softmax"] if r else [])


CACHE = """
    a cache B S {0} x1
    a cache_write B S {0} x1
    a cache_read B S {0} x1
"""


def test_a_decode_step_stands_at_the_path_of_its_layer():
    sizes = {"d_m": 15, "h": 6, "d_h": 5, "g": 2, "bias": False}
    check(mha.layer("a", B=2, T=1, S=8, n=7, **sizes), ATTENTION.format("a", 1) + CACHE.format("2 g d_h"))
    check(
        moa.layer("a", B=2, T=1, S=8, n=7, d_m=15, E=11, K=3, D=5), without(MOA, "bias", "noise") + CACHE.format("2 D")
    )
    step = moh.layer("a", B=2, T=1, S=8, n=7, s=2, r=3, **sizes)
    check(step, without(MOH.format(**DENSE), "bias", "rope") + CACHE.format("2 g d_h"))
    assert {(entry.dims.get("T", 1), entry.dims.get("S", 8)) for entry in step} == {(1, 8), (1, 1)}


def test_mixture_of_attentive_experts():
    gate = """
        a.gate.fc1 linear B d_m G | d_m G x1
        a.gate.fc1 bias B G | G x1
        a.gate activation B G x1
        a.gate.fc2 linear B G h | G h x1
        a.gate.fc2 bias B h | h x1
        a.gate softmax B h x1
    """
    heads = ATTENTION.format("a", 1) + " a elementwise B T h d_h x1"
    form = mae.layer("a", **SIZES, h=3, d_h=5, G=11, bias=False)
    check(form, without(gate, "bias") + heads)
    assert [line for line in operations(mae.layer("a", **SIZES, h=3, d_h=5, G=11)) if "gate" in line] == [
        line for line in lines(gate) if line
    ]


CONVOLUTION = """
    {0}.in_proj linear B T d_m 2 d_out | d_m 2 d_out x1
    {0}.in_proj bias B T 2 d_out | 2 d_out x1
    {0} activation B T d_m x1
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
