"""A layer has the same parameters and MACs by its run, its closed form, a survey, a comparison and a grid."""

from dataclasses import fields

import pytest

from headcount.bench.accounts import Assumptions, values
from headcount.bench.case import Case
from headcount.bench.counting.count import count
from headcount.bench.counting.module import count as count_run
from headcount.bench.macs.grid import case_at, count_grid, parse
from headcount.bench.targets.target import Target
from headcount.bench.variants.variant import variants_with
from tests.cases import configurations

NAMES = ("params", "active_params", "macs")
SIZES = {"h": 5, "s": 2, "r": 1, "g": 5, "K": 2, "E": 3, "bias": 0}
LENGTHS = {"batch_size": 2, "tgt_len": 7, "src_len": 7}


@pytest.mark.parametrize("config", [pytest.param(one, id=name) for name, one in configurations("form", "router")])
def test_a_run_has_the_numbers_of_the_closed_form(config):
    settings = {one.name: getattr(config, one.name) for one in fields(config) if one.init}
    lengths = {name: size for name, size in LENGTHS.items() if name in config.lengths}
    case = Case.of(config.variant, settings, lengths)
    run = count_run(Target(config.variant, settings, lengths=lengths), given=Assumptions(), roots={})
    expected = [getattr(case.ledger, name) for name in NAMES]
    assert [getattr(run, name) for name in NAMES] == expected
    for one in (case, count(case), run):
        assert list(values(NAMES, one, Assumptions())[0].values()) == expected


@pytest.mark.parametrize("name", variants_with("grid"))
def test_a_grid_has_the_numbers_of_its_layers(name):
    variant = variants_with("grid")[name]
    sizes = {
        letter: {"h": 5, "s": 2, "r": 1, "g": 5, "K": 2, "E": 3, "bias": 0}.get(letter, 6)
        for letter in variant.grid.letters
    }
    text = ",".join(f"{letter}={size}" for letter, size in sizes.items())
    (row,) = count_grid(parse(f"{name}:{text},d_m=30,T=7")).rows
    case = case_at(variant, {**sizes, "d_m": 30, "T": 7})
    assert [row.count.ledger.params, row.active_params, row.count.ledger.macs] == [
        getattr(case.ledger, name) for name in NAMES
    ]
    if case.ideal:
        assert row.ideal_active_params == case.ideal.ledger.active_params
