"""Every operation of aggregated attention, of its heads mixed, and of TransNeXt, line by line.

Queries and keys are divided by their lengths, queries get a learned vector and a learned factor; a window has learned
biases and learned tokens, whose products with the query are added to its weights: H = sum_w (a_w + q^ U_w + c_w) v_w +
sum_j a_j v_j takes two additions to the weights of the window, and one of what it gives to what the pooled tokens give.
"""

import pytest

from headcount.formulas import aggregated, decoding, moh_aggregated, transnext
from tests.formulas.operations import check

SIZES = dict(B=2, d_m=33, h=11, d_h=3, T=49, N_pos=121, d_pos=17)

QUERIES = """
    a.q_proj {product} B T d_m {q} d_h | d_m h d_h x1
    a.q_proj {bias} B T {q} d_h | h d_h x1
"""
KEYS = """
    a.k_proj linear B N_kv d_m h d_h | d_m h d_h x1
    a.k_proj bias B N_kv h d_h | h d_h x1
    a.v_proj linear B N_kv d_m h d_h | d_m h d_h x1
    a.v_proj bias B N_kv h d_h | h d_h x1
    a elementwise B T {q} d_h x1
    a elementwise B T {q} d_h | h d_h x1
    a elementwise B T {q} d_h | h x1
    a elementwise B N_kv h d_h x1
    a.position.fc1 linear N_pos 2 d_pos | 2 d_pos x1
    a.position.fc1 bias N_pos d_pos | d_pos x1
    a.position activation N_pos d_pos x1
    a.position.fc2 linear N_pos d_pos h | d_pos h x1
    a.position.fc2 bias N_pos h | h x1
"""
SEEN = """
    a scores B {q} T {keys} d_h x1
    a elementwise B {q} T {keys} x1
    a softmax B {q} T {keys} x1
    a values B {q} T {keys} d_h x1
"""
POOLED = """
    a.pool_proj linear B T d_m d_out | d_m d_out x1
    a.pool_proj bias B T d_out | d_out x1
    a activation B T d_m x1
    a pooling B T d_m x1
    a.pool_norm norm B M d_m | 2 d_m x1
    a scores B {q} T w d_h x1
    a elementwise B {q} T w | h w x1
    a softmax B {q} T w x1
    a {product} B {q} T d_h w | h d_h w x1
    a elementwise B {q} T w x1
    a elementwise B {q} T w | h w x1
    a values B {q} T w d_h x1
"""
BOTH = """
    a elementwise B T {q} d_h x1
"""
OUTPUT = """
    a.out_proj {product} B T {q} d_h d_m | h d_h d_m x1
    a.out_proj {bias} B T d_m | d_m x1
"""
EVERY = dict(product="linear", bias="bias", q="h")
SOME = dict(product="expert_linear", bias="expert_bias", q="k")

ROUTER = """
    a.router.routed_proj linear B T d_m E | d_m E x1
    a.router softmax B T E x1
    a.router.shared_proj linear B T d_m s | d_m s x1
    a.router softmax B T s x1
    a.router.group_proj linear B T d_m 2 | d_m 2 x1
    a.router softmax B T 2 x1
"""


def attention(pooled, heads):
    seen = POOLED + SEEN.replace("{keys}", "M") + BOTH if pooled else SEEN.replace("{keys}", "S")
    return (QUERIES + KEYS + seen + OUTPUT).format(**heads)


@pytest.mark.parametrize("pooled", [0, 1, 5])
def test_aggregated_attention(pooled):
    check(aggregated.layer("a", **SIZES, M=pooled), attention(pooled, EVERY))
    check(aggregated.layer("a", **SIZES, M=pooled, k=6, s=4), attention(pooled, SOME))


@pytest.mark.parametrize("pooled", [0, 5])
@pytest.mark.parametrize("form, heads", [("released", EVERY), ("ideal", SOME)])
def test_heads_of_aggregated_attention(form, heads, pooled):
    expected = ROUTER + attention(pooled, heads) + "a elementwise B T {q} d_h x1".format(**heads)
    check(moh_aggregated.layer("a", **SIZES, M=pooled, s=4, r=2, form=form), expected)


@pytest.mark.parametrize("pooled", [0, 5])
def test_two_tokens_reach_the_shared_heads_and_those_that_each_selects(pooled):
    """Of 11 heads 4 are both tokens' and 2 each one's own: 3 are left, with all of their parameters but keys'."""
    form = moh_aggregated.layer("a", **SIZES | dict(B=2, T=1), M=pooled, s=4, r=2, form="ideal")
    # rows of the query and the output projection, the query's bias, vector and factor; the window's biases and tokens
    of_head = 3 * (33 + 33 + 1 + 1) + 1 + (9 * (3 + 2) if pooled else 0)
    assert sum(decoding.reachable_params(entry) for entry in form) == form.params - (11 - 4 - 2 * 2) * of_head
    assert form.active_params == form.params - (11 - 4 - 2) * of_head


def test_heads_are_shared_only_where_some_are_selected():
    assert aggregated.layer("a", **SIZES, M=5, s=4) == aggregated.layer("a", **SIZES, M=5)
    assert aggregated.layer("a", **SIZES, M=5, k=6) == aggregated.layer("a", **SIZES, M=5, k=6, s=0)


PATCHES = """
    {0}.patch_embedding.proj linear B T C_in p_h p_w d_m | C_in p_h p_w d_m x1
    {0}.patch_embedding.proj bias B T d_m | d_m x1
    {0}.patch_embedding.norm norm B T d_m | 2 d_m x1
"""
BLOCK = """
    {0}.self_attn_norm norm B T d_m | 2 d_m x{1}
    {0}.self_attn.position.fc1 linear N_pos 2 d_pos | 2 d_pos x{1}
    {0}.self_attn.position.fc1 bias N_pos d_pos | d_pos x{1}
    {0}.self_attn.position activation N_pos d_pos x{1}
    {0}.self_attn.position.fc2 linear N_pos d_pos h | d_pos h x{1}
    {0}.self_attn.position.fc2 bias N_pos h | h x{1}
    {0} elementwise B T d_m x{1}
    {0}.feed_forward_norm norm B T d_m | 2 d_m x{1}
    {0}.feed_forward.fc1 linear B T d_m 2 F | d_m 2 F x{1}
    {0}.feed_forward.fc1 bias B T 2 F | 2 F x{1}
    {0}.feed_forward.conv linear B T F w | F w x{1}
    {0}.feed_forward.conv elementwise B T F | F x{1}
    {0}.feed_forward activation B T F x{1}
    {0}.feed_forward elementwise B T F x{1}
    {0}.feed_forward.fc2 linear B T F d_m | F d_m x{1}
    {0}.feed_forward.fc2 bias B T d_m | d_m x{1}
    {0} elementwise B T d_m x{1}
"""
MODEL = dict(B=2, C_in=3, C=11, depths=(2, 1, 3), tokens=(25, 9, 4), widths=(10, 21, 33), inner_widths=(16, 29, 37))


def short(path, *, B):
    """A mixer of few lines."""
    return aggregated.position(f"{path}.position", N_pos=13, d_pos=5, h=7)


def test_a_classifier_of_images():
    stages = (("stages.0", "blocks.*", 2), ("stages.1", "blocks.*", 1), ("stages.2", "blocks.*", 3))
    expected = ""
    for stage, blocks, times in stages:
        expected += PATCHES.format(stage) + BLOCK.format(f"{stage}.{blocks}", times)
        expected += f"{stage}.norm norm B T d_m | 2 d_m x1"
    expected += """
        . elementwise B d_m x1
        head linear B d_m C | d_m C x1
        head bias B C | C x1
    """
    form = transnext.model([short] * 6, **MODEL)
    check(form, expected)
    # the mean is of the last stage's tokens
    assert [entry.size for entry in form if entry.path in ("", "head")] == [2 * 33, 2 * 33 * 11, 2 * 11]


@pytest.mark.parametrize("letter", ["depths", "tokens", "widths", "inner_widths"])
def test_each_stage_has_a_size_of_every_sort(letter):
    for sizes in (MODEL[letter][:2], (*MODEL[letter], 7)):
        with pytest.raises(ValueError, match=r"^zip\(\) argument"):
            transnext.model([short] * 13, **MODEL | {letter: sizes})
