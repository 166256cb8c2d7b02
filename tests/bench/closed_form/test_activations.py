"""Bytes of activations against the storages that autograd keeps in real runs on the CPU."""

import json
import weakref

import pytest
import torch

from headcount.bench.accounts import Assumptions, value_of
from headcount.bench.case import Case
from headcount.bench.closed_form import activations
from headcount.bench.closed_form.derivation import _Derivation
from headcount.bench.closed_form.observe import Decoder
from headcount.bench.closed_form.solve import Lengths
from headcount.bench.closed_form.store import TYPES
from headcount.bench.closed_form.terms import ClosedForm
from headcount.bench.targets.target import Target
from headcount.models.build import build, example_inputs
from headcount.models.configs.targets import read
from tests.bench.closed_form.families import FAMILIES, config

transformers = pytest.importorskip("transformers", reason="the optional extra hf is not installed")

DAILY = ("gemma2", "gpt2", "mamba")
"""Eager attention with softcapped scores and a window, dropout, and a loop whose copies depend on the batch."""
CHANGED = [
    ("llama", {"attn_implementation": "eager"}), ("llama", {"attention_dropout": 0.3, "tie_word_embeddings": True}),
    ("qwen3_moe", {"attn_implementation": "eager", "attention_dropout": 0.3}),
    ("deepseek_v3", {"tie_word_embeddings": True}),
]  # fmt: skip
CASES = [*((kind, {}) for kind in FAMILIES), *CHANGED]
UNKNOWN = ("mamba2", "bamba", "falcon_h1")
"""Families that keep what is no sum of products of B and T: chunks that are filled up, and of one chunk others."""
B, T = 2, 29


class Kept:
    """A tensor that a node of the graph keeps as long as it lives."""

    def __init__(self, tensor):
        self.tensor = tensor


def kept_bytes(model, inputs):
    """Return the bytes of the storages that the graph of a forward pass keeps, without those of weights and inputs."""
    others = {one.untyped_storage()._cdata for one in (*model.parameters(), *model.buffers(), *inputs.values())}
    every = weakref.WeakSet()

    def keep(tensor):
        one = Kept(tensor)
        every.add(one)
        return one

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda one: one.tensor):
        out = model(**inputs)
    storages = {one.tensor.untyped_storage()._cdata: one.tensor.untyped_storage() for one in every}
    del out
    return sum(one.nbytes() for address, one in storages.items() if address not in others)


@pytest.mark.parametrize(("kind", "more"), [
    (kind, more) if kind in DAILY else pytest.param(kind, more, marks=pytest.mark.nightly) for kind, more in CASES
], ids=str)  # fmt: skip
def test_activations_are_not_below_those_of_a_run(kind, more, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config(kind) | more))
    target = Target(str(path), lengths={"batch_size": B, "seq_len": T})
    decoder = Decoder(target)
    cls, fields = FAMILIES[kind]
    runs_as = decoder.module.config._attn_implementation
    assert more.get("attn_implementation") in (None, runs_as)
    made = transformers.AutoConfig.for_model(kind, **{**fields, **more})
    model = getattr(transformers, cls)._from_config(made, attn_implementation=runs_as, dtype=torch.bfloat16).train()
    measured = activations.derive(target, "saved_bytes", TYPES)
    results = _Derivation(decoder)._results([Lengths(1, 13), Lengths(3, 31)])
    for batch in (1, B):
        real = kept_bytes(model, {"input_ids": torch.full((batch, T), 7)})
        bound = sum(entry.size for entry in ClosedForm("", (), **results).of_training(batch, T))
        if kind in UNKNOWN:
            assert bound == 0 and measured.value(batch, T) is None
        else:
            # the output, and masks of which a run keeps a part
            assert real <= measured.value(batch, T) == bound < 1.25 * real


@pytest.mark.parametrize("layer", [
    "moa:K=2,E=8,D=8,d_m=16", "moh:h=8,s=2,r=3,d_m=16", "mha:h=4,d_h=4,d_m=16",
    "mha:h=4,d_h=4,d_m=16,attention_dropout=0.2",
])  # fmt: skip
def test_activations_of_layers_are_not_below_those_of_a_run(layer):
    spec, sets, lengths = read(f"{layer},T={T},B={B}")
    case = Case.of(spec, sets, lengths)
    model = build(case.config, device="cpu", impl="auto").train()
    real = kept_bytes(model, example_inputs(case.config, case.lengths, device="cpu"))
    assert real <= value_of("saved_bytes", case, Assumptions(element_bytes=4))
