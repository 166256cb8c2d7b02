"""Configurations by TARGET text: presets and layers by letters, with fields, letters and lengths behind them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headcount.models.configs.base import ConfigError
from headcount.models.configs.moa import MixtureOfAttentionHeadsConfig
from headcount.models.configs.presets import preset
from headcount.models.configs.targets import length_words, make, read, split


@pytest.mark.parametrize("text, spec, words", [
    ("llama3-8b", "llama3-8b", []),
    ("llama3-8b,num_layers=2,T=128", "llama3-8b", ["num_layers=2", "T=128"]),
    ("moh-llm-s-75,num_shared_heads=3,2,top_k=6,8", "moh-llm-s-75", ["num_shared_heads=3,2", "top_k=6,8"]),
    ("moa:K=2,E=5,D=7,d_m=11", "moa", ["K=2", "E=5", "D=7", "d_m=11"]),
    ("model.py:make,n=3,text.dim=5", "model.py:make", ["n=3", "text.dim=5"]),
    ("a,b/config.json,x=1", "a,b/config.json", ["x=1"]),
])  # fmt: skip
def test_split_at_commas_before_names(text, spec, words):
    assert split(text) == (spec, words)


def test_letters_are_fields():
    by_letter, by_field = (
        "moa:K=2,E=5,D=7,d_m=11,bias=0",
        "moa:top_k=2,num_experts=5,head_dim=7,d_model=11,bias=false",
    )
    expected = MixtureOfAttentionHeadsConfig(d_model=11, num_experts=5, top_k=2, head_dim=7, bias=False)
    for text in (by_letter, by_field):
        spec, fields, lengths = read(text)
        assert (make(spec, fields), lengths) == (expected, {})
    spec, fields, _ = read("moa-8K8E128D,K=3", ["D=5"])
    assert make(spec, fields) == preset("moa-8K8E128D", {"top_k": 3, "head_dim": 5})


@pytest.mark.parametrize("words, lengths", [
    ("T=7,S=11,B=2", {"seq_len": 7, "src_len": 11, "batch_size": 2}),
    ("seq_len=7", {"seq_len": 7}),
    ("T=1Ki", {"seq_len": 1024}),
])  # fmt: skip
def test_t_s_and_b_are_lengths(words, lengths):
    assert read(f"transformer-base,{words}") == ("transformer-base", {}, lengths)


@given(T=st.integers(1, 99), S=st.integers(1, 99), B=st.integers(1, 9))
def test_length_words_round_trip(T, S, B):
    from headcount.bench.case import resolve_lengths

    config = preset("transformer-base")
    lengths = {"batch_size": B, "src_len": S, "tgt_len": T}
    _, _, again = read("transformer-base", length_words(lengths))
    assert resolve_lengths(config, again) == lengths


@pytest.mark.parametrize("text, words", [
    ("moa:E,K=2", ["'moa:E,K=2' is no layer"]),
    ("moa:make", ["'moa:make' is no layer"]),
    ("gqa:h=8,g=2", ["mha:h=8,g=2"]), ("mqa:h=8", ["mha with g"]),
    ("moa:K=x", ["K takes a whole number, not 'x'"]),
    ("moa:K=2,T=x", ["T takes a whole number, not 'x'"]),
    ("llama3-8b,N=2", ["unknown field 'N' of llama3-8b", "num_layers"]),
    # the letter that lacks is meant, and not one of another variant
    ("mha:h=8,d=512", ["unknown field 'd' of a layer of mha", "did you mean d_m (d_model)?", "h (num_heads), d_h"]),
    ("moh:h=8,k=6,d_m=512", ["unknown field 'k'", "it needs s (num_shared_heads), r (top_k);"]),
    ("moa:Q=3,num_expert=2", ["unknown fields 'Q', 'num_expert'", "did you mean E (num_experts)?"]),
    ("lama3-8b,T=2", ["unknown preset 'lama3-8b'", "llama3-8b"]),
])  # fmt: skip
def test_wrong_words_name_the_valid_ones(text, words):
    """tests/golden/test_errors.py has those of command lines."""
    with pytest.raises(ConfigError) as error:
        read(text)
    assert [word for word in words if word not in str(error.value)] == []


def test_missing_letters_are_named_with_their_fields():
    with pytest.raises(ConfigError) as error:
        make("moa", {"top_k": 2})
    assert str(error.value) == "a layer of moa needs d_m (d_model), E (num_experts), D (head_dim)"
