"""The explorer's data and page without a browser: exact integers, printed cells, no external resource."""

import json
import re

from headcount.bench.case import Case
from headcount.formulas.published import tables
from headcount.formulas.published.figures import evaluate
from headcount.formulas.published.verdicts import judge, of_row, with_digits
from headcount.reports.explorer import page
from tests.reports import explorer_facts
from tests.reports.explorer_layers import exact


def case_of(row, changed):
    return Case.of(row.target, {**row.set, **changed})


def test_printed_cells_match_verdicts():
    published = explorer_facts.data()["published"]
    labels = list(published["parts"])
    assert {"moa-table1", "moa-table2", "moa-table3", "moh-dit"} <= {table["name"] for table in published["tables"]}
    for table in (table for table in published["tables"] if table["name"] in tables.names()):
        typed = tables.load(table["name"])
        cells = judge(typed, case_of)
        typed = with_digits(typed, cells)
        for column in table["columns"]:
            rule = next(one for one in typed.columns if one.name in (column["quantity"], column["suffix"]))
            for name, preset, cell, status, because, *adjust in column["rows"]:
                sizes = published["models"][preset][column["quantity"]]
                sum_ = sum(column["multiplicity"][labels[place]] * int(size) for place, size in sizes)
                row = typed.row(name)
                assert sum_ == evaluate(row, rule, case_of).low
                prints = rule.text(sum_, cell) == cell
                if rule.judged:
                    verdict, _, reason = of_row([one for one in cells if one.row is row])
                    assert (status, because) == (verdict, reason)
                    assert prints == (status == "reproduced") or rule.quantity != "macs"
                for terms_ in adjust[:1]:
                    closed = sum_ + sum(amount for _, amount in terms_)
                    assert not terms_ or rule.text(closed, cell) == cell or "rounded_from" in row.explain["macs"]


def test_presets_have_models_of_training_tables():
    offered = {one["name"]: one for one in explorer_facts.data()["presets"]}
    assert offered["mistral-7b"]["sizes"] == {"d_m": 4096, "h": 32, "g": 8, "d_h": 128}
    assert offered["qwen2_5-72b"]["sizes"] == {"d_m": 8192, "h": 64, "g": 8, "d_h": 128}
    latent = {"d_m": 7168, "h": 128, "g": 128, "d_h": 128, "d_r": 64, "d_v": 128, "d_c": 512, "d_q": 1536}
    assert offered["deepseek-v3"]["sizes"] == latent
    z = {"T": 4096, "B": 1, "w": 1, **latent}
    # arXiv 2412.19437: 1536 (7168 + 128 * 192) + 576 * 7168 + 512 * 128 * 256 + 128 * 128 * 7168, and two norms
    weights = 1536 * (7168 + 128 * 192) + 576 * 7168 + 512 * 128 * 256 + 128 * 128 * 7168 + 1536 + 512
    assert exact("params", offered["deepseek-v3"]["form"], z) == weights


def test_page_loads_nothing():
    text = explorer_facts.text()
    # layers, the papers' data, what a TARGET may name, and 180 KB of whole models: forms of presets, ranks and searches
    assert len(text.encode()) <= 435_000
    assert "default-src 'none'" in text
    assert not re.search(r"https?:|//[a-z]|url\(|\bsrc=|@import|<link|\beval\(|Function\(|setAttributeNS", text)
    assert text == page.render(json.loads(json.dumps(explorer_facts.data())))
