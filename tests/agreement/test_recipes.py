"""``recipe=paper`` gives a preset the dropouts that Table 6 prints, and nothing else."""

from dataclasses import replace

import pytest

from headcount.formulas.published.tables import load_data
from headcount.models.configs.presets import RECIPES, parse_overrides, preset

ROWS = {row["run"]: row for row in load_data()["moa-table6"].entries}
DROPOUTS = ("dropout", "attention_dropout", "ffn_dropout")
CASES = [(name, recipe) for name, recipes in RECIPES.items() for recipe in recipes]


@pytest.mark.parametrize("name, recipe", CASES)
def test_recipe_matches_paper_row(name, recipe):
    plain, config = preset(name), preset(name, {"recipe": recipe})
    row = ROWS[RECIPES[name][recipe]["run"]]
    printed = {field: float(row[field]) for field in DROPOUTS}
    assert config.attention.attention_dropout == printed.pop("attention_dropout")
    assert {field: getattr(config, field) for field in printed} == printed
    attention = replace(config.attention, attention_dropout=0.0)
    assert replace(config, attention=attention, dropout=0.0, ffn_dropout=0.0) == plain
    assert preset(name, parse_overrides(name, [f"recipe={recipe}"])) == config
