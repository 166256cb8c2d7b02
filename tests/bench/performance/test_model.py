"""The least and the expected time of kernels, by hand arithmetic."""

from dataclasses import replace
from itertools import product
from math import prod

import pytest

from headcount.bench.hardware import HARDWARE
from headcount.bench.performance import model
from headcount.bench.performance.kernel import CoreSizes, Kernel

H200 = HARDWARE["h200"]
"""494.75 TMAC/s in bfloat16, 4.8 TB/s, 132 multiprocessors."""
VALUES = {
    "product": 0.5, "elementwise": 0.25, "core_64": 0.5, "core_128": 0.8, "core_256": 0.4, "core_backward_128": 0.5,
    "launch": 2, "round": 1, "round_backward": 4, "sort": 3, "topk": 5, "sort_call": 7,
}  # fmt: skip
FITTED = model.Efficiencies("h200", VALUES, {})


def expected(*kernels):
    return FITTED.expected_us(kernels, H200, "bfloat16")


def test_least_time_is_longer_of_bytes_and_macs_and_launches():
    by_macs = Kernel("mm", "product", 1, 494_750_000)
    by_bytes = Kernel("mul", "elementwise", 48_000_000, times=3)
    assert model.least_us([by_macs], H200, "bfloat16") == pytest.approx(1 + model.LEAST_LAUNCH_US)
    assert model.least_us([by_bytes], H200, "bfloat16") == pytest.approx(3 * (10 + model.LEAST_LAUNCH_US))


def test_expected_time_is_least_over_efficiency_and_launches():
    assert expected(Kernel("mm", "product", 1, 494_750_000, times=2)) == pytest.approx(2 * (1 / 0.5 + 2))
    assert expected(Kernel("mul", "elementwise", 48_000_000)) == pytest.approx(10 / 0.25 + 2)


def test_sort_costs_by_what_it_sorts():
    assert expected(Kernel("sort", "sort", 10**9, sorted=4_000)) == pytest.approx(2 + 7 + 4 * 3)
    assert expected(Kernel("topk", "topk", 10**9, sorted=4_000)) == pytest.approx(2 + 7 + 4 * 5)


@pytest.mark.parametrize(
    "batch, queries, rounds", [(132, 128, 1), (132, 1, 1), (133, 128, 2), (66, 129, 1), (67, 129, 2)]
)
def test_core_runs_full_rounds_of_padded_tiles(batch, queries, rounds):
    macs = 2 * batch * queries * 256 * 128
    core = Kernel("core", "core", 1, macs, CoreSizes(batch, queries, 256, 128))
    full = rounds * 132 * 2 * 128 * 256 * 128
    assert expected(core) == pytest.approx(full / 494.75e6 / 0.8 + rounds * 1 + 2)


@pytest.mark.parametrize("kind, products", [("core", 2), ("core_backward", 5)])
def test_core_with_fewer_sequences_queries_or_keys_is_never_slower(kind, products):
    def us(*sizes):
        core = CoreSizes(*sizes, 64)
        return model.load().expected_us([Kernel(kind, kind, 1, products * prod(core), core)], H200, "bfloat16")

    for sizes in product((1, 8, 132, 133), (1, 128, 1000), (129, 1024)):
        for place in range(3):
            more = [size + 64 * (place == at) for at, size in enumerate(sizes)]
            assert us(*sizes) <= us(*more), (sizes, more)


@pytest.mark.parametrize("number, rounds", [(None, 2), (66, 3), (133, 1)])
def test_rounds_are_of_the_multiprocessors_of_the_card(number, rounds):
    card = replace(H200, multiprocessors=number)
    core = Kernel("core", "core", 1, 2 * 133 * 128 * 256 * 128, CoreSizes(133, 128, 256, 128))
    full = rounds * (number or model.MULTIPROCESSORS) * 2 * 128 * 256 * 128
    assert FITTED.expected_us([core], card, "bfloat16") == pytest.approx(full / 494.75e6 / 0.8 + rounds * 1 + 2)


def test_statement_says_what_is_not_known_of_another_card():
    stored, fitted = model.load(), HARDWARE[model.load().card]
    assert stored.statement(fitted).endswith("within 25 %.")
    other = stored.statement(HARDWARE["l40s"])
    assert other.endswith("L40S: the same efficiencies and prices, which no measurement there tests.")
    unknown = stored.statement(HARDWARE["tpu-v4"])
    assert unknown.endswith(f"Its multiprocessors are not known; {model.MULTIPROCESSORS}, as of the H200 SXM.")


def test_causal_core_skips_hidden_tiles():
    sizes = CoreSizes(132, 128, 128, 128)
    whole, half = (Kernel("core", "core", 1, 2 * share * 132 * 128 * 128 * 64, sizes) for share in (2, 1))
    assert expected(whole) - 3 == pytest.approx(2 * (expected(half) - 3))


def test_backward_core_runs_a_program_for_each_tile_of_keys():
    sizes = CoreSizes(132, 256, 128, 128)
    core = Kernel("core_backward", "core_backward", 1, 5 * 132 * 256 * 128 * 128, sizes)
    assert expected(core) == pytest.approx(132 * 5 * 256 * 128 * 128 / 494.75e6 / 0.5 + 4 + 2)


@pytest.mark.parametrize(
    "width, efficiency, share",
    [(8, 0.5, 0.5), (64, 0.5, 0.5), (65, 0.8, 1), (128, 0.8, 1), (192, 0.4, 2), (512, 0.4, 4)],
)
def test_core_has_the_efficiency_and_the_rounds_of_its_width(width, efficiency, share):
    core = Kernel("core", "core", 1, 2 * 132 * 128 * 128 * width, CoreSizes(132, 128, 128, width))
    assert expected(core) == pytest.approx(core.macs / 494.75e6 / efficiency + share + 2)


def test_missing_width_takes_the_nearest():
    assert model.nearest("core_backward_256", VALUES) == "core_backward_128"
    assert model.nearest("core_256", VALUES) == "core_256"


def test_stored_constants_are_few_and_bounded():
    stored = model.load()
    assert len(stored.values) <= 20
    for name, value in stored.values.items():
        low, high, *_ = model.PRICES.get(name, (0.1, 1.0))
        assert low <= value <= high, name
