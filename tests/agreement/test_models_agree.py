"""Whole models: every counter matches its rules, and ledger and module agree path by path."""

from collections import Counter
from functools import cache

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.module_tracker import ModuleTracker

from headcount.bench.case import ledger_of, resolve_lengths
from headcount.bench.counters import base, registry
from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config

TRANSLATION = dict(
    model="encoder_decoder", d_model=22, d_ff=29, num_encoder_layers=3, num_decoder_layers=2, vocab_size=41
)
MASKED = dict(model="masked_lm", d_model=22, d_ff=29, num_layers=3, vocab_size=41, max_positions=19)
MHA = dict(attention="mha", num_heads=2)
GQA = dict(attention="mha", num_heads=6, num_kv_heads=2, head_dim=5)
MOA = dict(attention="moa", num_experts=7, top_k=3, head_dim=5)
MOH = dict(attention="moh", num_heads=6, num_shared_heads=2, top_k=3, num_kv_heads=2, head_dim=10)
NORM = MOH | dict(router="query_norm")
MLA = dict(attention="mla", num_heads=3, head_dim=5, rotary_dim=2, value_dim=7, kv_rank=11)
SWITCHHEAD = dict(attention="switchhead", num_heads=3, head_dim=10, num_experts=7, top_k=2)
MAE = dict(attention="mae", num_heads=3, head_dim=5, gate_width=7)
CONVOLUTION = dict(
    model="convolution", d_model=22, d_ff=29, vocab_size=41, num_weight_heads=11,
    encoder_kernel_sizes=(3, 19), decoder_kernel_sizes=(5, 1, 19),
)  # fmt: skip
EXPERTS = dict(ffn_num_experts=5, ffn_top_k=2)
IDEAL = dict(form="ideal")
LLAMA = dict(model="llama", d_model=22, d_ff=29, num_layers=3, vocab_size=41)
JETMOE = LLAMA | MOA | EXPERTS | dict(
    model="jetmoe", head_dim=12, num_kv_heads=3, gates="selected", output_bias=True
)  # fmt: skip
DIT = dict(model="dit", d_model=28, num_layers=4, patch_size=3, latent_size=15, num_classes=7, frequency_width=22)
LAYERS = dict(num_heads=(3, 3, 3, 5), num_shared_heads=(3, 1, 1, 2), top_k=(0, 2, 2, 2), num_kv_heads=None)
IMAGES = dict(
    model="transnext", d_model=(10, 21, 33), num_heads=(2, 3, 11), depths=(2, 1, 2), mlp_ratio=(7, 5, 3),
    pool_ratio=(5, 2, 1), image_size=80, num_classes=13, position_width=17,
)  # fmt: skip
HEADS = dict(attention="moh_aggregated", num_shared_heads=(2, 1, 3), top_k=(0, 1, 5))
LENGTHS = dict(batch_size=3, src_len=17, tgt_len=13, seq_len=17)
"""Lengths of a case that gives none."""
CASES = {
    "translation-mha": TRANSLATION | MHA,
    "translation-gqa": TRANSLATION | GQA,
    "translation-moa": TRANSLATION | MOA,
    "translation-moa-biased": TRANSLATION | MOA | dict(bias=True, batch_size=1, src_len=1, tgt_len=2),
    "translation-moa-noisy": TRANSLATION | MOA | dict(noisy=True, batch_size=1, src_len=17, tgt_len=13),
    "translation-mixture": TRANSLATION | MHA | EXPERTS,
    "masked-mixture-moa": MASKED | MOA | EXPERTS,
    "llama-mixture": LLAMA | MOH | EXPERTS,
    "dit-mixture": DIT | MHA | EXPERTS | dict(head_dim=11),
    "llama-moa": LLAMA | MOA | dict(head_dim=10),
    "jetmoe": JETMOE,
    "masked-mha": MASKED | MHA,
    "masked-moa": MASKED | MOA | dict(bias=True),
    "masked-moa-all-experts": MASKED | MOA | dict(top_k=7, batch_size=1, seq_len=13),
    "translation-moh": TRANSLATION | MOH | dict(bias=True),
    "masked-moh-ideal": MASKED | MOH | IDEAL | dict(bias=True),
    "llama-gqa": LLAMA | GQA | dict(bias=False, head_dim=10),
    "llama-moh": LLAMA | MOH,
    "llama-moh-ideal": LLAMA | MOH | IDEAL,
    "llama-moh-norm": LLAMA | NORM,
    "llama-moh-norm-ideal": LLAMA | NORM | IDEAL,
    "llama-moh-norm-biased": LLAMA | NORM | dict(bias=True),
    "llama-moh-norm-ideal-biased": LLAMA | NORM | IDEAL | dict(bias=True),
    "masked-mla-wide": MASKED
    | MLA
    | IDEAL
    | dict(head_dim=7, value_dim=3, kv_rank=5, bias=True)
    | dict(batch_size=1, seq_len=13),
    "llama-mha-biased": LLAMA | MHA | dict(head_dim=10, bias=True),
    "dit": DIT | MHA | dict(head_dim=11),
    "dit-moa": DIT | MOA,
    "dit-moh": DIT | MOH | LAYERS | dict(bias=True),
    "dit-moh-ideal": DIT | MOH | LAYERS | IDEAL | dict(bias=True),
    "images": IMAGES | dict(attention="aggregated"),
    "images-moh": IMAGES | HEADS,
    "images-moh-ideal": IMAGES | HEADS | IDEAL,
    "translation-mla-ideal": TRANSLATION | MLA | IDEAL,
    "llama-mla": LLAMA | MLA | dict(query_rank=17, bias=True),
    "llama-mla-ideal": LLAMA | MLA | IDEAL | dict(query_rank=17, bias=True),
    "translation-switchhead": TRANSLATION | SWITCHHEAD,
    "llama-switchhead": LLAMA | SWITCHHEAD,
    "translation-mae-memory": TRANSLATION | MAE,
    "translation-mae-running": TRANSLATION | MAE | dict(causal_gate="running", bias=False),
    "light": CONVOLUTION | MHA | dict(convolution="light"),
    "dynamic-mae": CONVOLUTION | MAE | dict(convolution="dynamic"),
    "dynamic-band": CONVOLUTION
    | MOA
    | dict(convolution="dynamic", spelling="band")
    | dict(batch_size=1, src_len=7, tgt_len=23),
    "masked-mae": MASKED | MAE,
    "images-mixture": IMAGES | EXPERTS | dict(attention="aggregated"),
    "images-moh-mixture": IMAGES | HEADS | IDEAL | EXPERTS,
    "light-mixture": CONVOLUTION | MHA | EXPERTS | dict(convolution="light"),
    "dynamic-mixture": CONVOLUTION | MOA | EXPERTS | dict(convolution="dynamic"),
    "masked-moa-one-expert": MASKED | MOA | dict(top_k=1, num_experts=1, batch_size=3, seq_len=13),
}
FIELDS = {case: {name: value for name, value in CASES[case].items() if name not in LENGTHS} for case in CASES}
"""Fields of the configuration of each case, without its lengths."""


@pytest.fixture(scope="module")
def build_case():
    """Return a function that builds configuration, ledger, module and inputs of a case on a device once."""

    @cache
    def counted(case):
        values = LENGTHS | CASES[case]
        config = make_config(FIELDS[case])
        lengths = resolve_lengths(config, {name: values[name] for name in config.lengths})
        return config, lengths, ledger_of(config, lengths)

    @cache
    def of(case, device="meta"):
        config, lengths, ledger = counted(case)
        return config, ledger, build(config, device=device), example_inputs(config, lengths, device=device)

    return of


@pytest.fixture(scope="module")
def reading(build_case):
    """Return a function that counts a case with a counter on a device once."""

    @cache
    def of(name, case, device="meta"):
        *_, model, inputs = build_case(case, device)
        return registry.counter(name).read(model, inputs, label=case)

    return of


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", registry.NAMES)
def test_counter_matches_its_rules(name, case, device, build_case, reading):
    _, ledger, *_ = build_case(case, device)
    assert reading(name, case, device).macs == base.predict(registry.counter(name), ledger, device)


@pytest.mark.parametrize("case", CASES)
def test_parameters_by_path(case, build_case):
    _, ledger, model, _ = build_case(case)
    in_ledger = ledger.at_layers().group(lambda entry: entry.path, "params")
    # named_parameters gives a tied weight once, under the first module that holds it
    in_module = Counter()
    for name, parameter in model.named_parameters():
        in_module[name.rpartition(".")[0]] += parameter.numel()
    frozen = sum(parameter.numel() for parameter in model.parameters() if not parameter.requires_grad)
    assert ledger.frozen_params == frozen
    assert {path: size for path, size in in_ledger.items() if size} == dict(in_module)


@pytest.mark.parametrize("case", CASES)
def test_active_parameters(case, build_case):
    config, ledger, model, _ = build_case(case)
    unused = 0
    if config.attention.variant in ("moa", "switchhead"):
        # experts of one kind are one parameter; those of SwitchHead stand there head after head
        heads, routed = (1, "q_proj") if config.attention.variant == "moa" else (config.attention.num_heads, "v_proj")
        idle = heads * (config.attention.num_experts - config.attention.top_k)
        unused = sum(
            idle * parameter[0].numel()
            for name, parameter in model.named_parameters()
            if name.rpartition("_attn.")[2].split(".")[0] in (routed, "out_proj")
        )
    for layer in getattr(config, "layers", (config.attention,) * sum("k_proj.weight" in n for n in model.state_dict())):
        if layer.variant == "moh" and layer.form == "ideal":
            # rows of the output projection, and of the queries unless their norms decide
            idle = (layer.num_heads - layer.num_active_heads) * layer.head_dim
            unused += idle * (layer.d_model if layer.router == "query_norm" else 2 * layer.d_model + layer.bias)
        if layer.variant == "moh_aggregated" and layer.form == "ideal":
            # rows of both projections, a bias, an embedding and a temperature; U, b and c of a window of 9 tokens
            of_head = (
                layer.head_dim * (2 * layer.d_model + 1 + 1) + 1 + bool(layer.num_pooled) * 9 * (layer.head_dim + 2)
            )
            unused += (layer.num_heads - layer.num_active_heads) * of_head
    if getattr(config, "mixture", None):
        idle = config.ffn_num_experts - config.ffn_top_k
        unused += sum(
            idle * parameter[0].numel()
            for name, parameter in model.named_parameters()
            if ".feed_forward." in name and "router" not in name and "output_bias" not in name
        )
    total = sum(parameter.numel() for parameter in model.parameters())
    assert ledger.active_params == total - unused


@pytest.mark.parametrize("case", CASES)
def test_macs_by_path(case, build_case, reading):
    _, ledger, model, _ = build_case(case)
    cumulative = reading("torch", case)
    paths = {name for name, _ in model.named_modules()}
    own = dict(cumulative.by_module)
    for path, macs in cumulative.by_module.items():
        # containers such as ModuleList are never called and have no row: subtract from the nearest that has one
        parent = path
        while parent:
            parent = parent.rpartition(".")[0]
            if parent in cumulative.by_module:
                own[parent] -= macs
                break
    ledger = ledger.at_layers()
    assert {entry.path for entry in ledger} <= paths
    by_path = {path: macs for path, macs in ledger.group(lambda entry: entry.path).items() if macs}
    assert {path: macs for path, macs in own.items() if macs} == by_path


class Tally(TorchDispatchMode):
    """Output elements of operations without multiply-accumulates, by kind and module path."""

    KINDS = dict(_softmax="softmax", native_layer_norm="norm", relu="activation", gelu="activation", silu="activation")

    def __init__(self):
        super().__init__()
        self.modules, self.sizes = ModuleTracker(), Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        kind = self.KINDS.get(func.overloadpacket.__name__, func.overloadpacket.__name__)
        if kind in (*self.KINDS.values(), "embedding"):
            path = max(self.modules.parents - {"Global"}, key=len)
            self.sizes[path.partition(".")[2], kind] += (out[0] if isinstance(out, tuple) else out).numel()
        return out


@pytest.mark.parametrize("case", CASES)
def test_sizes_of_zero_mac_operations(case, build_case):
    _, ledger, model, inputs = build_case(case, "cpu")
    tally = Tally()
    with torch.no_grad(), tally.modules, tally:
        model(*inputs.values())
    counted = ledger.at_layers().select(lambda entry: entry.kind in ("softmax", "norm", "activation", "embedding"))
    assert tally.sizes == counted.group(lambda entry: (entry.path, entry.kind), "size")
