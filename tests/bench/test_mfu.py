"""hc.MFU: FLOPs of a rule typed by hand, shares of a peak, and the callbacks of training loops."""

from dataclasses import replace
from fractions import Fraction
from functools import partial

import pytest
import torch
from torch import nn

import headcount as hc
from headcount.bench import accounts
from headcount.bench.case import Case
from headcount.bench.errors import UsageError
from headcount.bench.hardware import Peak
from headcount.bench.training_flops import flops_per_token
from headcount.formulas.conventions import CONVENTIONS

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
    assert mfu.flops_per_token == flops
    assert mfu.hardware_flops_per_token == flops + (6 * SQUARE if rule == "megatron_hardware" else 0)


@pytest.mark.parametrize("rule", ["kaplan", "chinchilla", "6n_no_embedding", "torchtitan", "megatron2021"])
def test_rule_that_needs_more_than_a_run_is_refused(count, rule):
    with pytest.raises(UsageError, match=f"^rule {rule} treats .* apart"):
        hc.MFU(count, torch.zeros(B, T, dtype=torch.long), peak=PEAK, rule=rule)


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
    assert "apart" in accounts.values(["mfu"], count, replace(given, rule="kaplan"))[1]["mfu"]


@pytest.mark.parametrize("names", [["lm_head"], ["q_proj", "mlp"], [""]])
def test_frozen_weights_have_no_gradient(names):
    """6 N less the 2 of each frozen weight; 4 N where all are frozen but what is trained below them."""
    model, ids = llama(), torch.zeros(B, T, dtype=torch.long)
    found = [one for name, one in model.named_parameters() if any(part in name for part in names)]
    frozen = sum(one.requires_grad_(False).numel() for one in found)
    assert frozen == {"lm_head": V * d, "q_proj": L * (d * h * d_h + FFN), "": N}[names[0]]
    count = hc.count(model, input_ids=ids)
    assert hc.MFU(count, ids, peak=PEAK, rule="6n").flops_per_token == 6 * N - 2 * frozen
    assert hc.MFU(count, ids, peak=PEAK, rule="palm").flops_per_token == 6 * N - 2 * frozen + 6 * SQUARE
    with pytest.raises(UsageError, match="^rule maxtext counts products, .* choose from 6n, .*palm"):
        hc.MFU(count, ids, peak=PEAK, rule="maxtext")


def test_frozen_weights_of_a_mixture_are_refused():
    model, x = Mixture(3, 5), torch.rand(2, 13, 5)
    model.router.weight.requires_grad_(False)
    with pytest.raises(UsageError, match="^rule palm of frozen weights needs the part of them that a token uses"):
        hc.MFU(model, x, peak=PEAK, active_params=40)


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


class Mixture(nn.Module):
    """A router that gives each token to the expert of its largest score, each expert a module."""

    def __init__(self, experts, width):
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(experts))

    def forward(self, x):
        x = x.flatten(0, 1)
        chosen, y = self.router(x).argmax(-1), torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mask = chosen == number
            y[mask] = expert(x[mask])
        return y


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


@pytest.mark.parametrize("rule, given", [("megatron_lm", None), ("deepseek_whole", 100)])
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
    mfu = hc.MFU(Attention(), torch.ones(B, T, d), peak=PEAK, rule="maxtext", **mask)
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
    mfu.update(0, 0.5)
    assert (mfu.value, mfu.tokens, mfu.seconds) == (0, 1000, 1.0)
    assert mfu.average == float(Fraction(6 * 77 * 1000, 3 * 10**9))
    assert all(part in str(mfu) for part in ("6n", "bf16", "0.001 TFLOP/s"))


def test_step_times_a_block():
    mfu = hc.MFU(nn.Linear(7, 11), torch.ones(2, 3, 7), peak=PEAK, rule="megatron_model")
    with mfu.step(tokens=17):
        pass
    assert mfu.tokens == 17 and mfu.seconds > 0
    assert mfu.value == float(Fraction(6 * 77 * 17) / (Fraction(mfu.seconds) * 312 * 10**12))


@pytest.mark.parametrize("sample, options, message", [
    (torch.ones(3, 7), {}, "sample_tokens"), (torch.ones(2, 3, 7), {"rule": "plam"}, "palm"),
    (torch.ones(2, 3, 7), {"peak": "H100 bf16"}, "H100 SXM"), (torch.ones(2, 3, 7), {"devices": 0}, "devices"),
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


@pytest.mark.parametrize("counts_tokens", [False, True])
def test_trainer_logs_utilisation(tmp_path, counts_tokens, monkeypatch):
    transformers = pytest.importorskip("transformers", reason="the optional extra hf is not installed")
    pytest.importorskip("accelerate", reason="transformers.Trainer needs accelerate")
    model = llama()
    mfu = hc.MFU(model, input_ids=torch.zeros(2, T, dtype=torch.long), peak=PEAK, rule="palm")
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=20, per_device_train_batch_size=B, logging_steps=1, report_to=[],
        save_strategy="no", use_cpu=True, disable_tqdm=True, include_num_input_tokens_seen=counts_tokens,
    )  # fmt: skip
    callback = mfu.hugging_face_callback()
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=Batches(), callbacks=[callback])
    trainer.train()
    assert mfu.tokens == 20 * B * T
    assert mfu.tokens * mfu.flops_per_token == 20 * B * T * (6 * N + 12 * L * h * d_h * T)
    logged = [line for line in trainer.state.log_history if "loss" in line]
    assert len(logged) == 20
    for line in logged:
        assert line["mfu"] == pytest.approx(line["tokens_per_s"] * (6 * N + 12 * L * h * d_h * T) / 312e12)
