"""hc.MFU: FLOPs of a rule typed by hand, shares of a peak, and the callbacks of training loops."""

import re
from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy
import pytest
import torch
from torch import nn

import headcount as hc
from headcount.bench import accounts
from headcount.bench.case import Case
from headcount.bench.errors import UsageError
from headcount.bench.hardware import Peak
from headcount.bench.macs.columns import Accounts
from headcount.bench.targets.user_code import UserCodeError
from headcount.bench.training_flops import flops_per_token
from headcount.formulas.conventions import CONVENTIONS, TRAINING
from tests.bench.mixture import Mixture

V, d, h, g, d_h, F, L, T, B = 101, 28, 2, 1, 10, 44, 2, 13, 5
"""Sizes of a small Llama with two layers; grouped products need widths that are multiples of 4."""
ATTENTION, FFN = 2 * d * h * d_h + 2 * d * g * d_h, 3 * d * F
N = 2 * V * d + L * (ATTENTION + FFN + 2 * d) + d
"""Parameters: two vocabulary matrices, two norms a layer and the last one."""
PRODUCTS = V * d + L * (ATTENTION + FFN)
SQUARE = 2 * L * h * d_h * T
"""MACs a token of both T x T products, the whole square."""
PEAK = "A100 40GB SXM bf16"


SIZES = dict(
    vocab_size=V, hidden_size=d, intermediate_size=F, num_hidden_layers=L, num_attention_heads=h,
    num_key_value_heads=g, head_dim=d_h, max_position_embeddings=T,
)  # fmt: skip


def llama():
    transformers = pytest.importorskip("transformers", reason="the optional extra hf is not installed")
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))


@pytest.fixture(scope="module")
def count():
    return hc.count(llama(), input_ids=torch.zeros(B, T, dtype=torch.long))


@pytest.mark.parametrize(
    "rule, flops",
    [
        ("6n", 6 * N),
        ("palm", 6 * N + 6 * SQUARE),
        ("megatron_model", 6 * (PRODUCTS + SQUARE)),
        ("megatron_hardware", 6 * (PRODUCTS + SQUARE)),
        ("deepseek_whole", 6 * (PRODUCTS + SQUARE)),
        ("deepseek_causal", 6 * (PRODUCTS + L * h * d_h * (T + 1))),
        ("maxtext", 6 * PRODUCTS + 3 * SQUARE),
        ("maxtext_before_644", 6 * N + 3 * SQUARE),
    ],
)
def test_flops_of_a_module_by_rule(count, rule, flops):
    mfu = hc.MFU(count, torch.zeros(B, T, dtype=torch.long), peak=PEAK, rule=rule)
    assert mfu.flops_per_token == hc.MFU(count, peak=PEAK, rule=rule).flops_per_token == flops
    # a forward pass does not show what a training step runs again, which this rule states itself
    assert mfu.hardware_flops_per_token == (flops + 6 * SQUARE if rule == "megatron_hardware" else None)


@pytest.mark.parametrize("rule", ["6n", "palm", "megatron_model", "deepseek_causal", "maxtext"])
def test_rule_counts_no_product_written_elementwise(count, rule):
    included = hc.count(llama(), input_ids=torch.zeros(B, T, dtype=torch.long), elementwise="include")
    assert included.macs > count.macs
    assert hc.MFU(included, peak=PEAK, rule=rule).flops_per_token == hc.MFU(count, peak=PEAK, rule=rule).flops_per_token


LAYERS = L * (ATTENTION + FFN)
CAUSAL = L * h * d_h * (T + 1)


# transformers 5 has another name beside the one of all versions
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing_enable")
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("rule, flops, again", [
    ("palm", 6 * N + 6 * SQUARE, LAYERS + SQUARE), ("6n", 6 * N, LAYERS),
    ("deepseek_causal", 6 * (PRODUCTS + CAUSAL), LAYERS + CAUSAL),
    ("megatron_lm", 6 * PRODUCTS + 3 * SQUARE, LAYERS + Fraction(SQUARE, 2)),
    ("megatron_hardware", 6 * (PRODUCTS + SQUARE), 3 * SQUARE),
])  # fmt: skip
def test_hardware_flops_have_what_checkpoints_run_again(rule, flops, again, reentrant):
    model = llama()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    if rule != "megatron_hardware" and not reentrant:
        # it stops at the last tensor that the gradients need: the inputs of the last matrix
        again -= L * d * F
    for mode in (True, False):
        # Trainer sets the mode later
        found = hc.MFU(model.train(mode), torch.zeros(B, T, dtype=torch.long), peak=PEAK, rule=rule)
        assert (found.flops_per_token, found.hardware_flops_per_token) == (flops, flops + 2 * again)
        assert model.training == mode and all(one.grad is None for one in model.parameters())
    found.update(10, 1.0)
    assert found.metrics["hfu"] == pytest.approx(found.metrics["mfu"] * float(flops + 2 * again) / flops)


class Checkpointed(nn.Module):
    """Two products behind an embedding, of which a checkpoint runs the first again, as a module or as a function."""

    def __init__(self, reentrant, is_function):
        super().__init__()
        self.table, self.first, self.last = nn.Embedding(V, d), nn.Linear(d, F), nn.Linear(F, V)
        self.reentrant, self.is_function = reentrant, is_function

    def forward(self, ids):
        run = (lambda x: (x @ self.first.weight.T).sin()) if self.is_function else nn.Sequential(self.first, nn.Tanh())
        return self.last(torch.utils.checkpoint.checkpoint(run, self.table(ids), use_reentrant=self.reentrant))


# of the forward pass that is counted without gradients
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
@pytest.mark.parametrize("is_function", [True, False])
@pytest.mark.parametrize("reentrant", [True, False])
def test_hardware_flops_of_checkpoints_in_own_modules(reentrant, is_function):
    model, ids = Checkpointed(reentrant, is_function), torch.zeros(B, T, dtype=torch.long)
    for one in (model, nn.DataParallel(model), model.forward, lambda ids: model(ids)):
        found = hc.MFU(one, ids, peak=PEAK, rule="megatron_model")
        assert found.flops_per_token == 6 * (d * F + F * V)
        assert found.hardware_flops_per_token == found.flops_per_token + 2 * d * F


def test_model_without_checkpoints_runs_nothing_again():
    found = hc.MFU(llama(), input_ids=torch.zeros(B, T, dtype=torch.long), peak=PEAK)
    assert found.hardware_flops_per_token == found.flops_per_token == 6 * N + 6 * SQUARE


class NoBackward(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d, F))

    def forward(self, x):
        if torch.is_grad_enabled():
            raise RuntimeError("inference only")
        return x @ self.weight


def test_unknown_recomputation_is_none():
    x = torch.ones(B, T, d)
    for model, sample in ((NoBackward(), (x,)), (hc.count(nn.Linear(d, F), x), ()), ("llama3-8b,T=13", ())):
        found = hc.MFU(model, *sample, peak=PEAK)
        found.update(1000, 100)
        assert found.hardware_flops_per_token is None and "hfu" not in found.metrics
        assert "FLOPs per token" in str(found)


def test_text_before_and_after_an_update():
    found = hc.MFU(nn.Linear(7, 11), torch.ones(2, 3, 7), peak="1T bf16", rule="megatron_model")
    text = "MFU: no update yet; 462 FLOPs per token of 3-token sequences by rule megatron_model, peak bf16 1 TFLOP/s"
    assert str(found) == text
    assert found.value is None and found.average is None and found.metrics == {}
    found.update(1, 1000.0)
    assert str(found).startswith("MFU 4.62e-11 %; 462 FLOPs")
    found.update(10**9, 1.0)
    assert str(found).startswith("MFU 46.2 % in the last update, ") and found.average == pytest.approx(0.462 / 1001)


def test_length_is_the_one_of_the_sample():
    x = torch.ones(2, 13, d)
    palm, parameters = (hc.MFU(Attention(), x, peak=PEAK, rule=rule) for rule in ("palm", "6n"))
    palm.update(26, 1.0, seq_len=13)
    with pytest.raises(UsageError, match="^seq_len=7: rule palm .* 13 tokens; make an MFU for each length"):
        palm.update(14, 1.0, seq_len=7)
    with pytest.raises(UsageError, match="^seq_len=7: "), palm.step(14, seq_len=7):
        pass
    assert palm.tokens == 26
    # 6 FLOPs of a parameter have no length
    assert parameters.update(14, 1.0, seq_len=7) == parameters.update(14, 1.0)


NUMBERS = [
    1000, 1000.0, Fraction(1000), numpy.int64(1000), numpy.float32(1000), numpy.array(1000), numpy.array([1000]),
    torch.tensor(1000), torch.tensor([1000.0]), Decimal(1000),
]  # fmt: skip


@pytest.mark.parametrize("number", NUMBERS, ids=range(len(NUMBERS)))
def test_numbers_of_every_type(number):
    one = number / number if not isinstance(number, int) else 1
    sample = nn.Linear(7, 11), torch.ones(2, 3, 7)
    found = hc.MFU(*sample, peak="1T", rule="megatron_model", devices=one, sample_tokens=6 * one)
    assert found.flops_per_token == 462
    assert found.update(number, one) == found.update(1000, 1.0) == 462e3 / 1e12
    assert (found.tokens, found.seconds) == (2000, 2.0) and type(found.tokens) is int
    with found.step(tokens=number):
        pass
    assert found.tokens == 3000


WRONG_NUMBERS = ["1000", None, torch.ones(2), torch.ones((), device="meta"), [1], float("nan"), float("inf"), 1j]


@pytest.mark.parametrize("wrong", WRONG_NUMBERS, ids=range(len(WRONG_NUMBERS)))
def test_what_is_no_number_is_named(wrong):
    sample = nn.Linear(7, 11), torch.ones(2, 3, 7)
    found = hc.MFU(*sample, peak="1T")
    calls = {
        "tokens": lambda: found.update(wrong, 1.0), "seconds": lambda: found.update(1, wrong),
        "devices": lambda: hc.MFU(*sample, peak="1T", devices=wrong),
    }  # fmt: skip
    for name, call in calls.items():
        with pytest.raises(UsageError, match=f"^{name} takes a number, not [^\n]*$"):
            call()
    assert found.tokens == 0


@pytest.mark.parametrize("way", [
    lambda m, ids: hc.MFU(hc.count(m, ids), peak=PEAK), lambda m, ids: hc.MFU(hc.lock(m, ids), peak=PEAK),
    lambda m, ids: hc.MFU(m, (B, T), peak=PEAK), lambda m, ids: hc.MFU(m, (B, T), dtypes=[torch.long], peak=PEAK),
    lambda m, ids: hc.MFU(m, input_size=(B, T), dtypes=torch.long, peak=PEAK),
    lambda m, ids: hc.MFU(m, kwargs={"input": ids}, peak=PEAK), lambda m, ids: hc.MFU(model=m, input=ids, peak=PEAK),
    lambda m, ids: hc.MFU(lambda: (m, ids), peak=PEAK),
    lambda m, ids: hc.MFU(torch.export.export(m, (ids,)), peak=PEAK),
], ids=range(9))  # fmt: skip
def test_tokens_are_those_of_the_count(way):
    model = nn.Sequential(nn.Embedding(V, d), nn.Linear(d, F, bias=False))
    found = way(model, torch.zeros(B, T, dtype=torch.long))
    assert found.flops_per_token == 6 * (V * d + d * F) and found._batch_tokens(3) == 3 * T


@pytest.mark.parametrize("rule", TRAINING)
def test_names_have_the_flops_of_their_closed_form(rule):
    case = Case.of("llama3-8b", {}, {"seq_len": 16, "batch_size": 2})
    flops = flops_per_token(case, CONVENTIONS[rule])
    sizes = {"T": 16, "B": 2}
    for name, keywords in (("llama3-8b,T=16,B=2", {}), ("llama3-8b", sizes), (hc.preset("llama3-8b"), sizes)):
        found = hc.MFU(name, peak=PEAK, rule=rule, **keywords)
        assert flops in (found.flops_per_token, found.hardware_flops_per_token) and found._batch_tokens(3) == 48
    with pytest.raises(UsageError, match="^active_params: of a module; llama3-8b,T=16 has its own$"):
        hc.MFU("llama3-8b,T=16", peak=PEAK, rule=rule, active_params=7)


def test_configurations_have_tokens(tmp_path, monkeypatch):
    model = llama()
    model.config.architectures = ["LlamaForCausalLM"]
    model.config.save_pretrained(tmp_path)
    monkeypatch.chdir(tmp_path)
    for args, sizes in (("config.json", {"T": T}), (tmp_path / "config.json", {"T": T}), (f"config.json,T={T}", {})):
        assert hc.MFU(args, peak=PEAK, **sizes).flops_per_token == 6 * N + 6 * SQUARE


def test_count_of_other_inputs_is_refused(count):
    with pytest.raises(
        UsageError, match="^the count ran on 5x13 int64, the sample is 5x14 int64; give the count alone$"
    ):
        hc.MFU(count, torch.zeros(B, T + 1, dtype=torch.long), peak=PEAK)
    with pytest.raises(TypeError, match="^MFU takes no rul; did you mean rule"):
        hc.MFU(count, peak=PEAK, rul="6n")


def adapted():
    model = llama()
    for name, one in model.named_parameters():
        one.requires_grad_("mlp" in name)
    return model


MODELS = {
    "llama": lambda: hc.count(llama(), input_ids=torch.zeros(B, T, dtype=torch.long)),
    "adapted": lambda: hc.count(adapted(), input_ids=torch.zeros(B, T, dtype=torch.long)),
    "not causal": lambda: hc.count(Attention(), torch.ones(B, T, d)),
    "mixture": lambda: hc.count(Mixture(4, 32), torch.rand(2, 13, 32)),
    "translation": lambda: Case.of("moa-8K8E128D", {}, {"seq_len": 13}),
    "preset": lambda: Case.of("llama3-8b", {}, {"seq_len": 13}), "images": lambda: Case.of("moh-vit-s-75", {}, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_refused_rules_list_those_that_work(name):
    counted, works, listed = MODELS[name](), set(), {}
    for rule in TRAINING:
        try:
            flops_per_token(counted, CONVENTIONS[rule])
            works.add(rule)
        except UsageError as error:
            listed[rule] = str(error)
    for message in listed.values():
        _, _, names = message.partition("; choose from ")
        assert set(names.split(", ")) - {""} == works
        assert "hc." not in message
    if name == "llama":
        assert works == {
            "6n", "palm", "megatron_model", "megatron_hardware", "megatron_lm", "deepseek_causal", "deepseek_whole",
            "maxtext_before_644", "maxtext_644", "maxtext",
        }  # fmt: skip
    assert listed or name == "preset"


@pytest.mark.parametrize("rule", ["kaplan", "chinchilla", "6n_no_embedding", "torchtitan", "megatron2021"])
def test_rule_that_needs_more_than_a_run_is_refused(count, rule):
    with pytest.raises(UsageError, match=f"^rule {rule} treats .* apart") as caught:
        hc.MFU(count, torch.zeros(B, T, dtype=torch.long), peak=PEAK, rule=rule)
    # the parts of this rule and no others
    assert ("softmax" in str(caught.value)) == (rule == "chinchilla") and "routers" not in str(caught.value)


def test_columns_of_a_module(count):
    names = ["training_flops_per_token", "training_flops_per_step", "mfu", "hfu"]
    given = accounts.Assumptions(rule="megatron_hardware", seconds=0.5, devices=3, peak=Peak(1e12))
    found, missing = accounts.values(names, count, given)
    model, hardware = 6 * (PRODUCTS + SQUARE), 6 * (PRODUCTS + 2 * SQUARE)
    assert found == {
        "training_flops_per_token": hardware,
        "training_flops_per_step": hardware * B * T,
        "mfu": Fraction(100 * model * B * T * 2, 3 * 10**12),
        "hfu": Fraction(100 * hardware * B * T * 2, 3 * 10**12),
    }
    assert not missing
    shares = Accounts({"mfu": Fraction(100), "hfu": Fraction(1001, 10)})
    assert [note.partition(":")[0] for note in shares.notes] == ["HFU above 100 %"]
    assert "apart" in accounts.values(["mfu"], count, replace(given, rule="kaplan"))[1]["mfu"]


@pytest.mark.parametrize("names", [["lm_head"], ["q_proj", "mlp"]])
def test_frozen_weights_have_no_gradient(names):
    """6 N less the 2 of each frozen weight."""
    model, ids = llama(), torch.zeros(B, T, dtype=torch.long)
    found = [one for name, one in model.named_parameters() if any(part in name for part in names)]
    frozen = sum(one.requires_grad_(False).numel() for one in found)
    assert frozen == {"lm_head": V * d, "q_proj": L * (d * h * d_h + FFN)}[names[0]]
    count = hc.count(model, input_ids=ids)
    assert hc.MFU(count, ids, peak=PEAK, rule="6n").flops_per_token == 6 * N - 2 * frozen
    assert hc.MFU(count, ids, peak=PEAK, rule="palm").flops_per_token == 6 * N - 2 * frozen + 6 * SQUARE
    with pytest.raises(UsageError, match="^rule maxtext counts products, .* choose from 6n, .*palm"):
        hc.MFU(count, ids, peak=PEAK, rule="maxtext")


class Adapted(nn.Module):
    """Linear adapters of two ranks around a mixture; ``frozen`` names the weights without gradients."""

    def __init__(self, frozen, experts=3, width=5, rank=2):
        super().__init__()
        self.mixture = Mixture(experts, width)
        self.down, self.up = nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False)
        for name, one in self.named_parameters():
            one.requires_grad_(not any(part in name for part in frozen))

    def forward(self, x):
        return self.mixture(x) + self.up(self.down(x)).flatten(0, 1)


ROUTER, EXPERT, ADAPTER = 3 * 5, 5 * 5, 2 * 2 * 5


@pytest.mark.parametrize("frozen, trainable", [
    (["mixture"], ADAPTER), (["router"], EXPERT + ADAPTER), (["expert"], ROUTER + ADAPTER), (["experts.1"], 40),
    (["down"], ROUTER + EXPERT + ADAPTER // 2),
])  # fmt: skip
def test_frozen_weights_of_a_mixture(frozen, trainable):
    """4 FLOPs of each frozen weight that a token uses, 6 of each trainable one; the run shows them of equal experts."""
    x, active = torch.rand(2, 13, 5), ROUTER + EXPERT + ADAPTER
    model = Adapted(frozen)
    for rule in ("6n", "palm"):
        given = {"active_params": active, "active_trainable_params": trainable}
        found = hc.MFU(model, x, peak=PEAK, rule=rule, **given)
        assert found.flops_per_token == 4 * (active - trainable) + 6 * trainable
        assert hc.MFU(hc.count(model, x), peak=PEAK, rule=rule, **given).flops_per_token == found.flops_per_token
        # the message of one that lacks names all that are needed
        with pytest.raises(UsageError, match=f"^rule {rule} needs the parameters that a token uses") as caught:
            hc.MFU(model, x, peak=PEAK, rule=rule)
        assert f"; pass active_params={active}" in str(caught.value) and "\n" not in str(caught.value)
        if frozen != ["experts.1"]:
            assert "active_trainable_params" not in str(caught.value)
            assert hc.MFU(model, x, peak=PEAK, rule=rule, active_params=active).flops_per_token == found.flops_per_token
            continue
        assert " and active_trainable_params=N, the trainable part of them, 35 to 60" in str(caught.value)
        with pytest.raises(UsageError, match="; pass active_trainable_params=N, .*, 35 to 60$") as caught:
            hc.MFU(model, x, peak=PEAK, rule=rule, active_params=active)
        assert "pass active_params" not in str(caught.value)


@pytest.mark.parametrize("frozen", ["experts", "attn", "mlp.gate", "embed"])
def test_run_that_shows_active_weights_has_the_frozen_ones(frozen):
    transformers = pytest.importorskip("transformers", reason="the optional extra hf is not installed")
    E, K = 7, 2
    model = transformers.MixtralForCausalLM(
        transformers.MixtralConfig(**SIZES, num_local_experts=E, num_experts_per_tok=K)
    )
    active, still, frozen_params = N + L * (d * E + (K - 1) * FFN), 0, 0
    for name, one in model.named_parameters():
        one.requires_grad_(frozen not in name)
        share = Fraction(K, E) if "experts" in name else 1
        still += int(share * one.numel()) if frozen in name else 0
        frozen_params += one.numel() if frozen in name else 0
    ids = torch.zeros(B, T, dtype=torch.long)
    found = hc.MFU(model, ids, peak=PEAK)
    assert found.flops_per_token == 6 * active - 2 * still + 6 * SQUARE
    given = hc.MFU(hc.count(model, ids), peak=PEAK, active_params=active, active_trainable_params=active - still)
    assert given.flops_per_token == found.flops_per_token
    # a rule of all parameters, which needs no part of them
    every = active + L * (E - K) * FFN
    found = hc.MFU(hc.count(model, ids), peak=PEAK, rule="maxtext_before_644")
    assert found.flops_per_token == 6 * every - 2 * frozen_params + 3 * SQUARE
    # some weights of the same experts
    partly = [one for name, one in model.named_parameters() if name.endswith("experts.down_proj")]
    if frozen != "embed" or not partly:
        return
    for one in partly:
        one.requires_grad_(False)
    with pytest.raises(UsageError, match="^rule palm of frozen weights .*; pass active_trainable_params=N"):
        hc.MFU(hc.count(model, ids), peak=PEAK)


@pytest.mark.parametrize("given, named", [
    ({"active_trainable_params": 20}, "active_params, which this run does not show; give both"),
    ({"active_params": 60, "active_trainable_params": 21}, "of the 60 .* at least 0 and at most 20 are trainable"),
    ({"active_params": 105, "active_trainable_params": 14}, "active_params=105: a token uses 60 .*, 1 of 3 experts"),
    ({"active_params": 60, "active_trainable_params": -1}, "active_trainable_params must be at least 0"),
    ({"active_params": 60, "active_trainable_params": 1.5}, "active_trainable_params must be at least 0 and whole"),
])  # fmt: skip
def test_impossible_trainable_parts_are_refused(given, named):
    with pytest.raises(UsageError, match=named) as caught:
        hc.MFU(Adapted(["mixture"]), torch.rand(2, 13, 5), peak=PEAK, **given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["exact", "plam", None])
@pytest.mark.parametrize("model", ["llama", "adapted", "mixture", "preset"])
def test_unknown_rule_lists_those_that_work(name, model):
    counted = MODELS[model]()
    with pytest.raises(UsageError, match=f"^unknown rule {name!r}; ") as caught:
        hc.MFU("llama3-8b,T=13" if model == "preset" else counted, peak=PEAK, rule=name)
    listed = str(caught.value).partition("choose from ")[2].split(", ")
    works = []
    for rule in TRAINING:
        try:
            flops_per_token(counted, CONVENTIONS[rule])
            works.append(rule)
        except UsageError:
            pass
    assert listed == works


@pytest.mark.parametrize("tokens, seconds", [(0, 1.0), (-1, 1.0), (torch.tensor(0), 1.0), (1, 0), (1, -1.0)])
def test_update_of_nothing_is_refused(tokens, seconds):
    found = hc.MFU(nn.Linear(7, 11), torch.ones(2, 3, 7), peak="1T")
    with pytest.raises(UsageError, match="^(tokens|seconds) of an update are above 0, not"):
        found.update(tokens, seconds)
    ran = []
    if tokens != 1:
        with pytest.raises(UsageError, match="^tokens of an update are above 0, not"), found.step(tokens):
            ran.append(1)
    assert not ran and found.tokens == 0 and found.value is None


def test_backward_pass_is_not_counted_twice():
    x = torch.ones(B, T, d)
    count = hc.count(nn.Linear(d, d), x, backward=True)
    with pytest.raises(UsageError, match="forward pass only"):
        hc.MFU(count, x, peak=PEAK)


def test_mixture_counts_active_parameters():
    transformers = pytest.importorskip("transformers", reason="the optional extra hf is not installed")
    experts, top_k = 7, 2
    config = transformers.MixtralConfig(**SIZES, num_local_experts=experts, num_experts_per_tok=top_k)
    ids = torch.zeros(B, T, dtype=torch.long)
    count = hc.count(transformers.MixtralForCausalLM(config), input_ids=ids)
    active = N + L * (d * experts + (top_k - 1) * FFN)
    assert hc.MFU(count, ids, peak=PEAK, rule="6n").flops_per_token == 6 * active
    every = active + L * (experts - top_k) * FFN
    assert hc.MFU(count, ids, peak=PEAK, rule="maxtext_before_644").flops_per_token == 6 * every + 3 * SQUARE
    with pytest.raises(UsageError, match="^rule deepseek_whole treats routers"):
        hc.MFU(count, ids, peak=PEAK, rule="deepseek_whole")


@pytest.mark.parametrize("experts, width", [(4, 32), (2, 5)])
def test_given_active_parameters_replace_unknown_ones(experts, width):
    x, model = torch.rand(2, 13, width), Mixture(experts, width)
    active = width * experts + width * width
    for rule in ("6n", "palm"):
        with pytest.raises(UsageError, match=f"^rule {rule} needs the parameters that a token uses") as caught:
            hc.MFU(model, x, peak=PEAK, rule=rule)
        assert "\n" not in str(caught.value)
        assert hc.MFU(model, x, peak=PEAK, rule=rule, active_params=active).flops_per_token == 6 * active
    with pytest.raises(UsageError, match="active_params must be at least 1"):
        hc.MFU(model, x, peak=PEAK, active_params=0)


@pytest.mark.parametrize("rule, given", [("megatron_lm", None), ("deepseek_whole", 40)])
def test_router_of_a_mixture_of_modules_is_refused(rule, given):
    with pytest.raises(UsageError, match=f"^rule {rule} treats routers") as caught:
        hc.MFU(Mixture(3, 5), torch.rand(2, 13, 5), peak=PEAK, rule=rule, active_params=given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("rule", ["6n", "palm", "megatron_model"])
@pytest.mark.parametrize("way", [lambda m: lambda x: m(x), partial, lambda m: m.forward], ids=range(3))
def test_function_has_the_flops_of_its_module(way, rule):
    x, model = torch.ones(B, T, d), nn.Sequential(nn.Linear(d, F, bias=False), nn.Linear(F, 2 * F, bias=False))
    of_module = hc.MFU(model, x, peak=PEAK, rule=rule).flops_per_token
    assert of_module == 6 * (d * F + 2 * F * F)
    assert hc.MFU(way(model), x, peak=PEAK, rule=rule).flops_per_token == of_module


class LinearAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d, F))

    def forward(self, x):
        return x @ (x.transpose(1, 2) @ x) @ self.weight


def test_products_of_two_computed_tensors_are_attention():
    mfu = hc.MFU(LinearAttention(), torch.ones(B, T, d), peak="1P", rule="palm")
    assert mfu.flops_per_token == 6 * d * F + 6 * 2 * d * d


@pytest.mark.parametrize("rule", ["6n", "palm", "megatron_model", "maxtext"])
def test_module_equals_closed_form(rule):
    case = Case.of("llm-s", {"num_layers": 2}, {"seq_len": T, "batch_size": B})
    ids = torch.zeros(B, T, dtype=torch.long, device="meta")
    # the mask of the reference implementation has no values on meta
    mfu = hc.MFU(hc.build(case.config, impl="fused", device="meta"), ids, peak=PEAK, rule=rule)
    assert mfu.flops_per_token == flops_per_token(case, CONVENTIONS[rule])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(d, d)

    def forward(self, x, **mask):
        x = self.proj(x)[:, None]
        return nn.functional.scaled_dot_product_attention(x, x, x, **mask)


MASK = torch.ones(T, T, dtype=torch.bool).tril()


@pytest.mark.parametrize("mask", [{"is_causal": True}, {"attn_mask": MASK}], ids=["flag", "tensor"])
def test_causal_rule_takes_a_causal_mask(mask):
    mfu = hc.MFU(Attention(), torch.ones(B, T, d), peak=PEAK, rule="maxtext", kwargs=mask)
    assert mfu.flops_per_token == 6 * (d * d + d * T)


@pytest.mark.parametrize("mask, reason", [
    ({}, "no mask of this module hides any"), ({"attn_mask": MASK.to("meta")}, "a mask of this module is not known"),
    ({"attn_mask": MASK.triu(-2)}, "its masks hide other pairs than those"),
], ids=["none", "unknown", "band"])  # fmt: skip
def test_causal_rule_refuses_other_masks(mask, reason):
    x = torch.ones(B, T, d, device=mask.get("attn_mask", MASK).device)
    with pytest.raises(UsageError, match=f"^rule maxtext counts causal pairs, and {reason}"):
        hc.MFU(Attention().to(x.device), x, peak=PEAK, rule="maxtext", **mask)


def test_update_is_share_of_peak():
    mfu = hc.MFU(nn.Linear(7, 11, bias=False), torch.ones(2, 3, 7), peak="1G bf16", rule="6n", devices=3)
    assert mfu.update(1000, 0.5) == float(Fraction(6 * 77 * 1000 * 2, 3 * 10**9))
    assert mfu.metrics == {
        "mfu": mfu.value,
        "tokens_per_s": 2000.0,
        "model_tflops_per_s": pytest.approx(6 * 77 * 2000 / 3 / 1e12),
    }
    mfu.update(200, 1.5)
    assert (mfu.value, mfu.tokens, mfu.seconds) == (float(Fraction(6 * 77 * 400, 9 * 10**9)), 1200, 2.0)
    assert mfu.average == float(Fraction(6 * 77 * 600, 3 * 10**9))
    assert f"MFU {100 * mfu.value:.4g} % in the last update, MFU {100 * mfu.average:.4g} % on average" in str(mfu)
    assert all(part in str(mfu) for part in ("6n", "bf16", "0.001 TFLOP/s"))
    # 6 x 77 FLOPs a token, 3e9 FLOP/s
    for tokens, is_wrong in ((6493506, False), (6493507, True)):
        with pytest.warns(UserWarning, match="MFU above 100 %") if is_wrong else nullcontext():
            mfu.update(tokens, 1)
        assert ("MFU above 100 %: no step exceeds the peak; check tokens, seconds, devices" in str(mfu)) is is_wrong


def test_step_times_a_block():
    mfu = hc.MFU(nn.Linear(7, 11), torch.ones(2, 3, 7), peak=PEAK, rule="megatron_model")
    with mfu.step(tokens=17):
        pass
    assert mfu.tokens == 17 and mfu.seconds > 0
    assert mfu.value == float(Fraction(6 * 77 * 17) / (Fraction(mfu.seconds) * 312 * 10**12))


@pytest.mark.parametrize("sample, options, message", [
    (torch.ones(3, 7), {}, "sample_tokens"), (torch.ones(2, 3, 7), {"peak": "H100 bf16"}, "H100 SXM"),
    (torch.ones(2, 3, 7), {"devices": 0}, "devices"),
])  # fmt: skip
def test_wrong_arguments_name_valid_ones(sample, options, message):
    with pytest.raises(UsageError, match=message) as caught:
        hc.MFU(nn.Linear(7, 11), sample, **{"peak": PEAK, **options})
    assert "\n" not in str(caught.value)


class Batches(torch.utils.data.Dataset):
    def __len__(self):
        return 20 * B

    def __getitem__(self, index):
        ids = torch.arange(T) % V
        return {"input_ids": ids, "labels": ids}


@pytest.fixture
def train(tmp_path):
    """Return a function that trains a model under a callback of its utilisation, which it returns with what it logs."""
    transformers = pytest.importorskip("transformers", reason="the optional extra hf is not installed")
    pytest.importorskip("accelerate", reason="transformers.Trainer needs accelerate")

    def run(data=None, sample=T, **options):
        model = llama()
        mfu = hc.MFU(model, input_ids=torch.zeros(2, sample, dtype=torch.long), peak=PEAK, rule="palm")
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path), per_device_train_batch_size=B, report_to=[], save_strategy="no", use_cpu=True,
            disable_tqdm=True, **options,
        )  # fmt: skip
        callbacks = [mfu.hugging_face_callback()]
        trainer = transformers.Trainer(
            model=model, args=arguments, train_dataset=data or Batches(), callbacks=callbacks
        )
        trainer.train()
        return mfu, [line for line in trainer.state.log_history if "loss" in line]

    return run


@pytest.mark.parametrize("counts_tokens", [False, True])
def test_trainer_logs_utilisation(train, counts_tokens):
    mfu, logged = train(max_steps=20, logging_steps=1, include_num_input_tokens_seen=counts_tokens)
    assert mfu.tokens == 20 * B * T
    assert mfu.tokens * mfu.flops_per_token == 20 * B * T * (6 * N + 12 * L * h * d_h * T)
    assert len(logged) == 20
    for line in logged:
        assert line["mfu"] == pytest.approx(line["tokens_per_s"] * (6 * N + 12 * L * h * d_h * T) / 312e12)


def test_trainer_logs_the_steps_since_the_last_log(train, monkeypatch):
    times = iter([0, 7, 10, 21, 30, 32, 40, 41])
    monkeypatch.setattr("headcount.bench.mfu._now", lambda: float(next(times)))
    _, logged = train(max_steps=4, logging_steps=2)
    assert [line["tokens_per_s"] for line in logged] == [2 * B * T / (7 + 11), 2 * B * T / (2 + 1)]


def test_smaller_last_batch_has_its_own_tokens(train):
    class Odd(Batches):
        def __len__(self):
            return 2 * B + 1

    mfu, _ = train(Odd(), num_train_epochs=2)
    assert mfu.tokens == 2 * (2 * B + 1) * T


def test_sequences_of_another_length_are_a_warning(train):
    with pytest.warns(
        UserWarning, match=f"has {B * T:,} tokens, where full batches .* {2 * B * T:,}: .* {2 * T}-token"
    ):
        mfu, _ = train(sample=2 * T, max_steps=2)
    assert mfu.tokens == 2 * B * T


def test_checkpointing_of_the_trainer_is_in_hfu(train):
    model = llama()
    # transformers 6 has the new names alone
    new = hasattr(model, "activation_checkpointing_enable")
    mfu, logged = train(max_steps=1, logging_steps=1, **{f"{'activation' if new else 'gradient'}_checkpointing": True})
    getattr(model, f"{'activation' if new else 'gradient'}_checkpointing_enable")()
    before = hc.MFU(model.train(), input_ids=torch.zeros(2, T, dtype=torch.long), peak=PEAK, rule="palm")
    assert mfu.hardware_flops_per_token == before.hardware_flops_per_token > mfu.flops_per_token
    assert logged[0]["hfu"] > logged[0]["mfu"]


@pytest.mark.parametrize("given", [N - 1, N + 1, 1000, 10**10])
def test_active_params_that_a_run_shows_are_no_choice(count, given):
    with pytest.raises(UsageError, match=f"^active_params={given}: .* {N} parameters"):
        hc.MFU(count, peak=PEAK, active_params=given)
    assert hc.MFU(count, peak=PEAK, active_params=N, rule="6n").flops_per_token == 6 * N


def test_active_params_are_at_most_all():
    every = 3 * 5 + 3 * 25
    with pytest.raises(UsageError, match=f"^active_params={every + 1}: the model has {every} parameters"):
        hc.MFU(Mixture(3, 5), torch.rand(2, 13, 5), peak=PEAK, active_params=every + 1)


class LoopOfExperts(nn.Module):
    """Each token goes to K experts of two layers, in a loop over the experts that may be a block of several."""

    def __init__(self, experts, top_k, width, blocks=1):
        super().__init__()
        self.top_k = top_k
        self.routers = nn.ModuleList(nn.Linear(width, experts, bias=False) for _ in range(blocks))
        self.blocks = nn.ModuleList(
            nn.ModuleList(
                nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
                for _ in range(experts)
            )
            for _ in range(blocks)
        )

    def forward(self, x):
        x = x.flatten(0, 1)
        for router, experts in zip(self.routers, self.blocks, strict=True):
            chosen, y = router(x).topk(self.top_k).indices, torch.zeros_like(x)
            for number, expert in enumerate(experts):
                token, _ = (chosen == number).nonzero(as_tuple=True)
                y[token] += expert(x[token])
            x = x + y
        return x


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("experts, top_k", [(8, 2), (4, 1), (4, 3)])
def test_number_of_a_loop_over_experts_is_proposed(experts, top_k, blocks):
    width = 6
    torch.manual_seed(0)
    x = torch.rand(4, 64, width) - 0.5
    model = LoopOfExperts(experts, top_k, width, blocks)
    expert = 4 * width * width + 3 * width
    active = blocks * (experts * width + top_k * expert)
    said = (
        f"(set model.active_params = {active} if it is by design that a token uses {top_k} of {experts} experts, as in"
    )
    with pytest.raises(UsageError, match=re.escape(said)):
        hc.MFU(model, x, peak=PEAK, rule="6n")
    # any other number is wrong in this run
    for wrong in (active - 1, active + 1, sum(one.numel() for one in model.parameters())):
        with pytest.raises(UsageError, match=f"^active_params={wrong}: .* {active} .*, {top_k} of {experts} experts$"):
            hc.MFU(model, x, peak=PEAK, rule="6n", active_params=wrong)
    assert hc.MFU(model, x, peak=PEAK, rule="6n", active_params=active).flops_per_token == 6 * active


def test_expert_that_no_token_chose_leaves_the_number_open():
    class Skipping(LoopOfExperts):
        def forward(self, x):
            x = x.flatten(0, 1)
            # the last expert is never chosen, and an expert without tokens does not run
            scores = self.routers[0](x) - torch.tensor([0.0] * 3 + [1e9])
            chosen, y = scores.topk(self.top_k).indices, torch.zeros_like(x)
            for number, expert in enumerate(self.blocks[0]):
                token, _ = (chosen == number).nonzero(as_tuple=True)
                if len(token):
                    y[token] += expert(x[token])
            return x + y

    model, x = Skipping(4, 2, 6), torch.rand(1, 64, 6)
    with pytest.raises(UsageError, match="; pass active_params=N, or choose from"):
        hc.MFU(model, x, peak=PEAK, rule="6n")
    active = 4 * 6 + 2 * (4 * 6 * 6 + 3 * 6)
    assert hc.MFU(model, x, peak=PEAK, rule="6n", active_params=active).flops_per_token == 6 * active
    model.active_params = active
    assert hc.MFU(model, x, peak=PEAK, rule="6n").flops_per_token == 6 * active


class Mixed(LoopOfExperts):
    """Before the experts stand two numbered products without parameters."""

    def __init__(self):
        super().__init__(4, 2, 6)
        self.products = nn.ModuleList([Product(), Product()])

    def forward(self, x):
        for product in self.products:
            x = product(x)
        return super().forward(x)


class Product(nn.Module):
    def forward(self, x):
        return x @ (x.transpose(1, 2) @ x)


def test_numbered_products_without_parameters_are_no_experts():
    with pytest.raises(UsageError, match="; pass active_params=348"):
        hc.MFU(Mixed(), torch.rand(4, 64, 6) - 0.5, peak=PEAK, rule="6n")


@pytest.mark.parametrize("stated", [1, 347])
def test_attribute_that_the_run_contradicts_is_refused(stated):
    model = LoopOfExperts(4, 2, 6)
    model.active_params = stated
    with pytest.raises(UserCodeError, match=f"is {stated}, and in this run a token uses 348 .*, 2 of 4 experts"):
        hc.MFU(model, torch.rand(4, 64, 6) - 0.5, peak=PEAK, rule="6n")


def test_loop_that_leaves_tokens_out_has_no_number():
    class Part(LoopOfExperts):
        def forward(self, x):
            # one token has no expert
            return super().forward(x[:, 1:])

    with pytest.raises(UsageError, match="; pass active_params=N, or choose from"):
        hc.MFU(Part(4, 2, 6), torch.rand(1, 64, 6), peak=PEAK, rule="6n")


@pytest.mark.parametrize("rule", ["6n", "palm", "megatron_model"])
def test_model_that_does_not_train_is_refused(rule):
    with pytest.raises(UsageError, match="^nothing trains: all 42 parameters are frozen"):
        hc.MFU(nn.Linear(6, 6).requires_grad_(False), torch.rand(1, 5, 6), peak=PEAK, rule=rule)


@pytest.mark.parametrize("rule", TRAINING)
def test_rules_have_any_case(rule):
    written = {rule.upper(), rule.title(), rule}
    assert {hc.MFU("llama3-8b,T=64", peak=PEAK, rule=one).rule.name for one in written} == {rule}
