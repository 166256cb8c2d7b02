"""Whole models: every counter matches its rules, and ledger and module agree path by path."""

import re
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from itertools import product

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.module_tracker import ModuleTracker

from headcount.bench.case import ledger_of, resolve_lengths
from headcount.bench.counters import base, registry
from headcount.bench.counters.run_context import run_counter
from headcount.formulas import rank
from headcount.formulas.ledger import Ledger
from headcount.models.build import build, example_inputs
from headcount.models.configs.make import make_config
from headcount.models.moe_ffn import MixtureFeedForward
from tests.cases import MODEL_CASES, MODEL_FIELDS, MODEL_LENGTHS


@pytest.fixture(scope="module")
def build_case():
    """Return a function that builds configuration, ledger, module and inputs of a case on a device once."""

    @cache
    def counted(case):
        values = MODEL_LENGTHS | MODEL_CASES[case]
        config = make_config(MODEL_FIELDS[case])
        lengths = resolve_lengths(config, {name: values[name] for name in config.lengths})
        return config, lengths, ledger_of(config, lengths)

    @cache
    def of(case, device="meta"):
        config, lengths, ledger = counted(case)
        return config, ledger, build(config, device=device), example_inputs(config, lengths, device=device)

    return of


@pytest.fixture(scope="module")
def count_case(build_case):
    """Return a function that counts a case with a counter on a device once."""

    @cache
    def of(name, case, device="meta"):
        *_, model, inputs = build_case(case, device)
        return run_counter(registry.counter(name), model, inputs, label=case)

    return of


READINGS = [*product(registry.tools(), ("cpu", "meta"))]


@pytest.mark.parametrize(
    "name, case, device",
    [
        # by default each case is counted by one counter on one device, in turn; nightly by all of them
        pytest.param(name, case, device, marks=() if i % len(READINGS) == j else pytest.mark.nightly)
        for i, case in enumerate(MODEL_CASES)
        for j, (name, device) in enumerate(READINGS)
    ],
)
def test_counter_matches_its_rules(name, case, device, build_case, count_case):
    _, ledger, *_ = build_case(case, device)
    assert count_case(name, case, device).macs == base.predict(registry.counter(name), ledger, device)


def at_layers(ledger):
    """Return one entry per layer: ``*`` becomes 0 … times - 1, ``3-7`` becomes 3 … 7."""
    out = []
    for entry in ledger:
        run = re.search(r"\*|(?:^|(?<=\.))(\d+)-\d+(?=\.|$)", entry.path)
        indices = range(int(run[1] or 0), int(run[1] or 0) + entry.times) if run else ()
        paths = [f"{entry.path[: run.start()]}{i}{entry.path[run.end() :]}" for i in indices]
        out += [replace(entry, path=path, times=1) for path in paths] or [entry]
    return Ledger(tuple(out))


@pytest.mark.parametrize("case", MODEL_CASES)
def test_parameters_by_path(case, build_case):
    _, ledger, model, _ = build_case(case)
    in_ledger = at_layers(ledger).group(lambda entry: entry.path, "params")
    # named_parameters gives a tied weight once, under the first module that holds it
    in_module = Counter()
    for name, parameter in model.named_parameters():
        in_module[name.rpartition(".")[0]] += parameter.numel()
    frozen = sum(parameter.numel() for parameter in model.parameters() if not parameter.requires_grad)
    assert ledger.frozen_params == frozen
    assert {path: size for path, size in in_ledger.items() if size} == dict(in_module)


@pytest.mark.parametrize("case", MODEL_CASES)
def test_active_parameters(case, build_case):
    config, ledger, model, _ = build_case(case)
    unused = 0
    if config.attention.variant in ("moa", "switchhead"):
        # experts of one kind are one parameter; SwitchHead stores its experts head by head
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
    for block in (module for module in model.modules() if isinstance(module, MixtureFeedForward)):
        idle = config.ffn_num_experts - config.ffn_top_k
        experts = [parameter for part in (*block.inward, block.outward) for parameter in part.parameters()]
        unused += sum(idle * parameter[0].numel() for parameter in experts)
    total = sum(parameter.numel() for parameter in model.parameters())
    assert ledger.active_params == total - unused


@pytest.mark.parametrize("case", MODEL_CASES)
def test_macs_by_path(case, build_case):
    _, ledger, model, inputs = build_case(case)
    with torch.no_grad(), FlopCounterMode(display=False) as mode:
        model(**inputs)
    counts = {name: sum(flops.values()) for name, flops in mode.get_flop_counts().items() if name != "Global"}
    cumulative = {name.partition(".")[2]: flops // 2 for name, flops in counts.items()}
    paths = {name for name, _ in model.named_modules()}
    own = dict(cumulative)
    for path, macs in cumulative.items():
        # containers such as ModuleList are never called and have no row: subtract from the nearest that has one
        parent = path
        while parent:
            parent = parent.rpartition(".")[0]
            if parent in cumulative:
                own[parent] -= macs
                break
    ledger = at_layers(ledger)
    assert {entry.path for entry in ledger} <= paths
    by_path = {path: macs for path, macs in ledger.group(lambda entry: entry.path).items() if macs}
    assert {path: macs for path, macs in own.items() if macs} == by_path


@pytest.mark.parametrize("case", MODEL_CASES)
def test_results_of_products(case, build_case):
    """A rank's saved activations are the sum of these sizes."""
    _, ledger, model, inputs = build_case(case, "cpu")
    sizes = Counter()
    for entry in at_layers(ledger):
        # routers are counted without noise
        if entry.kind in ("linear", "conv") and entry.size:
            sizes[entry.path] += rank._results(entry)
    found, expected = Counter(), {}
    with ExitStack() as stack:
        for path, module in model.named_modules():
            if sizes[path] and not [*module.children()]:
                expected[path] = sizes[path]
                hook = module.register_forward_hook(lambda _, __, out, path=path: found.update({path: out.numel()}))
                stack.callback(hook.remove)
        model(**inputs)
    assert expected and found == expected


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


@pytest.mark.parametrize("case", MODEL_CASES)
def test_sizes_of_zero_mac_operations(case, build_case):
    _, ledger, model, inputs = build_case(case, "cpu")
    tally = Tally()
    with torch.no_grad(), tally.modules, tally:
        model(*inputs.values())
    counted = at_layers(ledger).select(lambda entry: entry.kind in ("softmax", "norm", "activation", "embedding"))
    assert tally.sizes == counted.group(lambda entry: (entry.path, entry.kind), "size")
