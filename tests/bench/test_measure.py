"""The rules of each counter predict its count from the ledger and from the recorded calls."""

import json
from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest

from headcount.bench.accounts import Assumptions
from headcount.bench.case import Case, ideal_form, ledger_of, resolve_lengths
from headcount.bench.counters import registry
from headcount.bench.counting import count as counting
from headcount.bench.counting import devices, module
from headcount.bench.counting.result import Count
from headcount.bench.targets.target import Target
from headcount.models.configs.make import make_config
from headcount.models.configs.presets import PRESETS, preset
from tests.cases import MODEL_FIELDS

B, T, S = 3, 17, 13
CASES = ("translation-moa-biased", "masked-moh-ideal")


@pytest.fixture(autouse=True)
def empty_cache():
    counting._COUNTS.clear()
    yield
    counting._COUNTS.clear()


def build_case(case):
    config = make_config(MODEL_FIELDS[case])
    wanted = dict(batch_size=B, tgt_len=T, src_len=S, seq_len=T)
    lengths = resolve_lengths(config, {name: wanted[name] for name in config.lengths})
    return Case(case, config, lengths)


def measure_case(case, device, counters):
    return counting.count(build_case(case), counters, device=device)


def test_preset_without_a_module_has_its_closed_form_alone():
    case = Case.of("chinchilla-70b", {}, {})
    found = counting.count(case, ("torch", "fvcore"))
    assert found.macs == case.ledger.macs
    assert [(tool.counter, tool.macs, bool(tool.reason)) for tool in found.tools] == [
        ("torch", None, True), ("fvcore", None, True),
    ]  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("case", CASES)
def test_ledger_and_trace_predict_every_count(case, device):
    built, counters = build_case(case), (*registry.tools(), "headcount")
    found = devices.count_model(devices.model_of(built), counters, device)
    closed = measure_case(case, device, counters)
    assert counting.disagreements(closed, case) == []
    assert [replace(one, explanation=None) for one in found.tools] == [
        replace(one, additions={}) for one in closed.tools
    ]
    for count in found.tools:
        assert count.macs == count.predicted_macs == count.explanation.predicted_macs
        assert sum(cause.macs for cause in count.explanation.causes) == count.difference
        assert all(cause.place for cause in count.explanation.causes)


def test_count_runs_once(monkeypatch):
    torch = registry.counter("torch")
    calls = []
    original = torch.read
    monkeypatch.setattr(torch, "read", lambda *args, **named: calls.append(args) or original(*args, **named))
    first, again = (measure_case("llama-moh", "meta", ["torch"]) for _ in range(2))
    assert len(calls) == 1 and first == again
    assert measure_case("llama-moh", "cpu", ["torch"]).tools[0].device == "cpu" and len(calls) == 2
    measure_case("masked-moh-ideal", "meta", ["torch"])
    assert len(calls) == 3
    counting._COUNTS.clear()
    measure_case("llama-moh", "meta", ["torch"])
    assert len(calls) == 4


@pytest.mark.parametrize(
    "macs, params, why",
    [(2 * 10**11, 3, None), (1, 25, None), (2 * 10**11 + 1, 3, "200 GMACs"), (1, 26, "half of the free memory")],
)
def test_large_model_is_counted_on_meta(macs, params, why, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=100))
    tool = SimpleNamespace(NAME="a tool", DEVICE="cpu")
    model = devices.Model("a model", None, lambda: 2 * params)
    assert devices.tool_device(tool, model, "cuda", macs) == ("cuda", None)
    where, reason = devices.tool_device(tool, model, None, macs)
    assert (where == "cpu", reason is None) == (why is None, why is None) and (why or "") in (reason or "")


def test_counters_run_on_the_same_device_by_both_ways():
    """A preset, as a ledger and as a module, is counted on one device, with one integer."""
    fields = {"depths": (1, 1, 1, 1)}
    (count,) = counting.count(Case.of("moh-vit-s-75", fields), ["ptflops-pytorch"]).tools
    (tool,) = counting.count(Target("moh-vit-s-75", fields), ["ptflops-pytorch"]).tools
    assert (count.device, count.macs) == (tool.device, tool.macs) and count.device == "cpu"


def test_count_of_a_layer_is_checked_against_its_closed_form(monkeypatch):
    def count():
        target = Target("mha", {"num_heads": 3, "head_dim": 5, "d_model": 7}, lengths={"seq_len": 11})
        return module.count(target, given=Assumptions(), roots={}).disagreement

    assert count() is None
    of_four_heads = SimpleNamespace(of=lambda *of: replace(Case.of(*of), sizes={"h": 4, "g": 4}))
    monkeypatch.setattr(module, "Case", of_four_heads)
    assert count() == f"q_proj: {11 * 7 * 15:,} MACs counted, {11 * 7 * 20:,} in closed form"


@pytest.mark.parametrize("name", PRESETS)
def test_ledger_json_round_trip(name):
    for config in filter(None, (preset(name), ideal_form(preset(name)))):
        form = ledger_of(config, resolve_lengths(config, {}))
        written = json.dumps(Count(name, form).to_json())
        assert Count.from_json(json.loads(written)).ledger == form


@pytest.mark.parametrize("letter, size", [("K", 3), ("E", 11), ("T", 13)])
def test_case_at_size_equals_ledger_in_letter(letter, size):
    case = Case.of("moa-8K8E128D", {"num_experts": 16}, {"src_len": 7, "tgt_len": 5})
    assert case.at(letter, size).ledger == case.ledger_in(letter, size) != case.ledger
