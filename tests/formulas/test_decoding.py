"""Decoding from the ledger against sums written out here."""

import sympy

from formulas import decoding, encoder_decoder, mha, moa
from formulas.ledger import Entry, Ledger, ledger


def mha_form(path, *, B, T, S):
    return mha.layer(path, B=B, T=T, S=S, d_m=13, h=6, d_h=5, g=2)


def moa_form(path, *, B, T, S):
    return moa.layer(path, B=B, T=T, S=S, d_m=13, E=11, K=3, D=5)


def test_a_cache_holds_keys_and_values_of_the_key_value_heads():
    assert decoding.cached_elements(mha_form("a", B=2, T=7, S=17)) == 2 * 2 * 17 * 2 * 5
    assert decoding.cached_elements(moa_form("a", B=2, T=7, S=17)) == 2 * 2 * 17 * 5
    assert decoding.cached_elements(moa_form("a", B=2, T=7, S=17).repeat(3)) == 3 * 2 * 2 * 17 * 5
    assert not decoding.projects_keys_or_values(Entry("a.k_proj", "bias", {"S": 7}))
    assert decoding.projects_keys_or_values(Entry("k_proj", "linear", {"S": 7}))
    assert not decoding.projects_keys_or_values(Entry("q_proj", "linear", {"T": 7}))


def test_a_step_projects_its_own_tokens_and_attends_to_all():
    step = decoding.attention_step(mha_form, "a", B=2, new=1, stored=17)
    assert step.macs == 2 * (2 * 13 * 30 + 2 * 13 * 10 + 2 * 6 * 17 * 5)
    assert decoding.cached_elements(step) == 2 * 2 * 10
    assert {e.size for e in step if e.kind == "bias" and "k_proj" in e.path} == {2 * 10}
    several = decoding.attention_step(moa_form, "a", B=2, new=3, stored=17)
    router, experts, shared, core = 13 * 11, 2 * 3 * 13 * 5, 2 * 13 * 5, 2 * 3 * 17 * 5
    assert several.macs == 2 * 3 * (router + experts + shared + core)


def test_a_closed_cache_projects_nothing():
    step = decoding.attention_step(moa_form, "a", B=2, new=1, stored=17, closed=True)
    assert step.macs == 2 * (13 * 11 + 2 * 3 * 13 * 5 + 2 * 3 * 17 * 5)
    assert decoding.cached_elements(step) == 0


SIZES = {"B": 2, "S": 17, "d_m": 13, "F": 19, "V": 29, "N_enc": 3, "N_dec": 2}


def test_a_translation_step_is_own_and_cross_attention_feed_forward_and_output():
    step = decoding.encoder_decoder_step(moa_form, **SIZES, new=1, stored=7)
    routed = 13 * 11 + 2 * 3 * 13 * 5
    layer = routed + 2 * 13 * 5 + 2 * 3 * 7 * 5 + routed + 2 * 3 * 17 * 5 + 2 * 13 * 19
    assert step.macs == 2 * (2 * layer + 13 * 29)
    assert decoding.cached_elements(step) == 2 * 2 * 2 * 5
    sizes = step.group(lambda e: e.kind, "size")
    assert sizes["embedding"] == 2 * 13
    # gates of both layers, residuals, scaling and positions of the new token
    assert sizes["elementwise"] == 2 * (2 * 2 * 3 * 5 + 2 * 3 * 13 + 2 * 13)


def test_the_prefill_is_the_encoder_and_the_keys_and_values_of_every_decoder_layer():
    form = decoding.encoder_decoder_prefill(moa_form, **SIZES)
    layer = 17 * 13 * 11 + 2 * 3 * 17 * 13 * 5 + 2 * 17 * 13 * 5 + 2 * 3 * 17 * 17 * 5 + 2 * 17 * 13 * 19
    assert form.macs == 2 * (3 * layer + 2 * 2 * 17 * 13 * 5)
    cross = form.select(lambda entry: entry.path.startswith("decoder."))
    assert [entry.path for entry in cross] == [
        "decoder.layers.*.cross_attn.k_proj",
        "decoder.layers.*.cross_attn.v_proj",
    ]


def test_a_sum_of_steps_is_exact():
    def macs(stored):
        return decoding.attention_step(mha_form, "a", B=2, new=1, stored=stored).macs

    for steps in (1, 2, 7):
        assert decoding.total(macs, steps) == sum(macs(stored) for stored in range(1, steps + 1))
    n = sympy.Symbol("n")
    assert sympy.expand(decoding.total(lambda stored: stored, n) - n * (n + 1) / 2) == 0


def test_weights_that_are_read():
    routed = Entry(
        "a", "expert_linear", {"B": 2, "T": 1, "K": 3, "d_m": 13, "D": 5}, weight={"E": 11, "d_m": 13, "D": 5}
    )
    assert decoding.weights_read(routed) == decoding.reachable_params(routed) == 6 * 13 * 5
    assert decoding.weights_read(routed.with_dims(B=7)) == 11 * 13 * 5
    router = Entry("r", "linear", {"B": 2, "T": 1, "d_m": 13, "E": 11}, weight={"d_m": 13, "E": 11})
    assert decoding.weights_read(router) == decoding.reachable_params(router) == 13 * 11
    tied = Entry("o", "linear", {"B": 2, "T": 7, "S": 3, "d_m": 13, "V": 29}, times=5)
    assert decoding.weights_read(tied) == 5 * 13 * 29
    embedding = Entry("e", "embedding", {"B": 2, "T": 7, "d_m": 13}, weight={"V": 29, "d_m": 13})
    assert decoding.weights_read(embedding) == 2 * 7 * 13
    unused = Entry("a.k_proj", "linear", {"B": 2, "S": 0, "d_m": 13, "D": 5}, weight={"d_m": 13, "D": 5})
    assert decoding.weights_read(unused) == 0
    assert decoding.weights_read(Entry("n", "norm", {"T": 7}, weight={"2": 2, "d_m": 13})) == 2 * 13
    assert decoding.weights_read(Entry("s", "softmax", {"T": 7})) == 0


def test_a_step_moves_weights_stored_tokens_and_new_ones():
    step = decoding.attention_step(mha_form, "", B=3, new=1, stored=7)
    weights = 2 * 13 * 30 + 2 * 13 * 10 + 30 + 10 + 10 + 13
    assert decoding.step_elements(step, mha_form("", B=3, T=7, S=7)) == weights + 3 * 2 * 10 * 7 + 3 * 2 * 10


def test_training_multiplies_each_contraction_by_three():
    form = ledger(mha_form("", B=2, T=7, S=7), Entry("", "norm", {"T": 7}))
    assert decoding.training_macs(form) == form.macs + 2 * form.macs
    assert decoding.training_macs(Ledger(())) == 0


def test_a_step_names_the_modules_of_the_model():
    whole = {(e.path, e.kind) for e in encoder_decoder.model(moa_form, T=7, **SIZES)}
    step = decoding.encoder_decoder_step(moa_form, **SIZES, new=1, stored=7)
    assert {(e.path, e.kind) for e in step} == {(path, kind) for path, kind in whole if not path.startswith("encoder.")}


def test_a_models_context_keeps_its_decoders_keys_and_values_alone():
    layer = mha_form("layers.*.self_attn", B=2, T=7, S=7).repeat(3)
    assert decoding.kept_elements(layer) == decoding.cached_elements(layer) == 3 * 2 * 2 * 7 * 10
    translation = encoder_decoder.model(moa_form, T=7, **SIZES)
    # own keys and values of 7 tokens, those of 17 source tokens, in 2 layers; none of the encoder's 3
    assert decoding.kept_elements(translation) == 2 * 2 * 2 * (7 + 17) * 5
