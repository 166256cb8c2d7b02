"""Readings kept between runs: used where sources, versions and the model are the same, and judged as any other."""

import copy
import json
from dataclasses import replace

import pytest

from headcount.bench import measure, taken
from headcount.bench.case import Case
from headcount.bench.counters import registry

SMALL = "moa-8K8E128D"
TOOLS = ("torch", "ptflops-aten")


@pytest.fixture(autouse=True)
def anew():
    measure.forget()
    yield
    measure.forget()


@pytest.fixture
def entry():
    """What two counters read of a layer, as a store keeps it."""
    return json.loads(json.dumps(taken.to_keep(measure.measure(case(), TOOLS))))


def case(**fields):
    return Case.of(SMALL, {"num_encoder_layers": 1, "num_decoder_layers": 1, "vocab_size": 7, **fields})


def broken(monkeypatch):
    """Counters that must not be asked, and no module for them."""
    monkeypatch.setattr("headcount.models.build.build", lambda *args, **named: pytest.fail("a module was built"))
    for name in TOOLS:
        monkeypatch.setattr(registry.counter(name), "read", lambda *args, **named: pytest.fail("it was read again"))
    measure.forget()


def test_a_kept_reading_is_not_taken_again(entry, monkeypatch):
    first = measure.measure(case(), TOOLS)
    broken(monkeypatch)
    again = measure.measure(case(), TOOLS, taken=taken.restored(entry, case()))
    assert again.counted_params == first.counted_params
    assert [count.macs for count in again.counts] == [count.macs for count in first.counts]
    assert taken.to_keep(again) == entry


def test_a_reading_of_another_model_or_device_is_not_used(entry):
    longer = replace(case(), lengths={**case().lengths, "src_len": 11})
    assert taken.restored(entry, case(d_model=514)) == taken.restored(entry, longer) == {}
    on_cpu = measure.measure(case(), ["torch"], device="cpu", taken=taken.restored(entry, case()))
    assert on_cpu.counts[0].reading.device == "cpu"


def test_a_stored_number_that_no_counter_read_disagrees_with_the_rules(entry):
    wrong = copy.deepcopy(entry)
    wrong["counts"]["torch"]["macs"] += 1
    wrong["params"] -= 1
    measure.forget()
    lines = measure.measure(case(), TOOLS, taken=taken.restored(wrong, case())).disagreements("it")
    assert [line.split(" ")[1] for line in lines] == ["torch", "the"]


@pytest.mark.parametrize("name", taken.SOURCES)
def test_a_changed_line_changes_the_digest(name, monkeypatch):
    before, text_of = taken.digest(), taken._modules
    monkeypatch.setattr(
        taken, "_modules", lambda place, path: [(p, t + "#" * (path == name)) for p, t in text_of(place, path)]
    )
    assert taken.digest() != before


def test_every_folder_that_a_reading_passes_through_is_a_source():
    held = {path for name in taken.SOURCES for path, _ in taken._modules(*_place(name))}
    assert {"models/moa.py", "models/configs/moa.py", "bench/counters/fvcore_jit.py", "bench/trace/names.py"} <= held


def _place(name):
    first, *rest = name.split("/")
    return taken.files(f"headcount.{first}").joinpath(*rest), name
