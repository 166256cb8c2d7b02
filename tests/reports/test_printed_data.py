"""Cost against quality, sizes, training, routing and departures: each page follows its data."""

import copy
from dataclasses import fields, replace

import pytest

from headcount.bench import records
from headcount.bench.case import Case
from headcount.formulas.published import data
from headcount.formulas.published.departures import Departure, load
from headcount.models.configs.presets import preset
from headcount.reports import departures, quality, routing
from headcount.reports.facts import Facts

FACTS = Facts()
PLACES = {
    "moa-table4": "Table 4", "moa-table5": "Table 5", "moa-table6": "Table 6, Appendix C",
    "moa-table7": "Table 7, Appendix D", "moa-figures34": "Figures 3 and 4",
}  # fmt: skip


def test_what_is_no_cost_is_typed_with_its_place():
    typed = data.typed()
    assert {name: table.place for name, table in typed.items()} == PLACES
    assert all(table.source.endswith("arXiv 2210.05144v1") and table.entries for table in typed.values())
    # a data table is no table of costs
    assert not typed.keys() & FACTS.tables.keys()


def test_an_entry_with_a_cell_of_no_column_is_refused():
    texts = dict(name="x", title="x", paper="moa", order=1, source="x", place="x", column=[{"key": "a", "head": "A"}])
    assert data._table(**texts, entry=[{"a": 1}]).column("a") == [1]
    for entry in ({"a": 1, "b": 2}, {}):
        with pytest.raises(ValueError, match="^x: the entry .* has not the cells a$"):
            data._table(**texts, entry=[entry])


def changed(name, index, **cells):
    """Facts in which one entry of a data table has other cells."""
    facts = Facts()
    table = facts.data[name]
    entries = list(table.entries)
    entries[index] = {**entries[index], **cells}
    facts.data = {**facts.data, name: replace(table, entries=tuple(entries))}
    return facts


def test_the_presets_have_the_printed_sizes():
    assert "Every preset has them" in quality.sizes(FACTS)
    with pytest.raises(ValueError, match="^Table 5: moa-8K8E128D has d_ff 2048, not 1024$"):
        quality.sizes(changed("moa-table5", 0, d_ff=1024))


def test_an_update_costs_forward_and_backward_of_its_tokens():
    # three times the forward pass, of ten tokens
    per_token = 3 * Case.of("moa-8K8E128D").ledger.macs // 10
    assert of_run("En-De base", FACTS)["tokens an update"] == f"{8092 * 32:,}"
    training = of_run("En-De base", FACTS)["training MACs an update, TMACs"]
    assert training == f"{per_token * 8092 * 32 / 10**12:.1f}"
    again = changed("moa-table6", 0, accumulation=64)
    assert of_run("En-De base", again)["tokens an update"] == f"{8092 * 64:,}"


def of_run(name, facts):
    """The settings of a run, by the names of the rows."""
    lines = [line for line in quality.training(facts).splitlines() if line.startswith("| ")]
    head, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
    return {row[0]: row[head.index(name)] for row in rows}


def test_every_rated_row_stands_and_has_its_exact_costs():
    text, found = quality.page(FACTS), quality.rated(FACTS)
    assert len(found) == sum(len(FACTS.tables[name].rows) for name in FACTS.of_paper("moa"))
    for one in found:
        (line,) = (line for line in text.splitlines() if line.startswith(f"| {one.table} ") and f" {one.row} " in line)
        assert set(one.quality.values()) <= {cell.strip() for cell in line.split("|")}
        form = FACTS.ledger(FACTS.tables[one.table].row(one.row).preset)
        assert (one.macs, one.params) == (form.macs, form.params)
    assert {one.row for one in found if one.routed} == {
        one.row for one in found if preset(FACTS.tables[one.table].row(one.row).preset).attention.variant == "moa"
    }


@pytest.fixture
def store(tmp_path):
    def stored(*found):
        for one in found:
            records.append(tmp_path / "device" / "r.jsonl", one)
        return Facts(stored=tmp_path)

    return stored


def test_without_an_example_run_the_page_says_how_to_make_one(store):
    assert routing.page(store()) == routing.NOT_RUN


def test_the_analyses_stand_beside_the_papers_figures(store):
    shipped = routing.record(FACTS, "moa")
    text = routing.page(FACTS)
    assert shipped["environment"]["commit"][:10] in text and "`python -m bench.routing --example --record`" in text
    assert "about 5-6 %" in text and "Costasur" in text and "28.95" in text
    made = copy.deepcopy(shipped)
    made.pop("schema_version")
    chosen = next(run for run in made["runs"] if run["coefficients"] == {"L_a": 0.01, "L_z": 0.001})
    chosen["tokens_per_expert"] = [10, 20, 30, 40]
    made["experts"][0]["tokens"] = "Z9 (7.0)"
    text = routing.page(store(made))
    # 40 of 100 and 10 of 100
    assert "| the most used expert | about 5-6 %" in text and "40.0 %" in text and "10.0 %" in text
    assert "Z9 (7.0)" in text


def test_each_run_stands_in_the_row_of_its_coefficients():
    text = routing.page(FACTS)
    for run in routing.record(FACTS, "moa")["runs"]:
        key = routing.COEFFICIENTS[run["coefficients"]["L_a"], run["coefficients"]["L_z"]]
        head = next(column.head for column in FACTS.data["moa-table7"].columns if column.key == key)
        printed, own = (line.split(" | ")[1:] for line in text.splitlines() if line.startswith(f"| {head} | "))
        assert [cell.strip(" |") for cell in printed] == FACTS.data["moa-table7"].column(key)
        assert own[0] == f"{run['loss']:.3f}"


def test_every_departure_names_a_field_that_is_there_or_says_why_not():
    configs = {
        "moa": [preset("moa-8K8E128D"), preset("moa-8K8E128D").attention],
        "moh": [preset("moh-llm-s-75"), preset("moh-llm-s-75").layers[0]],
    }
    for one in load():
        names = {field.name for config in configs[one.paper] for field in fields(config)}
        assert one.field in names if one.field else one.no_field, one.what
        assert one.theirs and one.ours and one.why
        assert not one.consequence or one.consequence in departures.CONSEQUENCES
    assert {one.consequence for one in load()} - {""} == departures.CONSEQUENCES.keys()


def test_a_departure_without_field_and_reason_is_refused(monkeypatch, tmp_path):
    (tmp_path / "departures.toml").write_text(
        '[[departure]]\npaper = "moa"\nwhat = "x"\ntheirs = "x"\nours = "x"\nwhy = "x"\n'
    )
    monkeypatch.setattr("headcount.formulas.published.departures.files", lambda package: tmp_path)
    with pytest.raises(ValueError, match="^x: name a field, or say why there is none$"):
        load()
    assert Departure(paper="moa", what="x", theirs="x", ours="x", why="x").consequence == ""


# 2 D of keys and values, E (D + d_m) of the experts, in each of 8 layers
BIASES = 8 * (2 * 128 + 8 * (128 + 512))


@pytest.mark.parametrize(
    "name, text",
    [
        ("even_weights", "K / E = 0.50"),
        ("padded_position", "(ln E)^2 = 12.01 at E = 32, with its coefficient 0.012"),
        ("alpha_per_token", "0.01 / 8,092 = 1.2e-06"),
        ("noise_offset", "1.4 % wider"),
        ("zero_router", "1 / E = 0.031 at E = 32"),
        (
            "masked_lm_biases",
            f"52,444,249 parameters with them, {52_444_249 - 8 * (2 * 128 + 8 * (128 + 512)):,} without",
        ),
        ("batch_tokens", "1.2 % more"),
        ("admin_vectors", f"{512 * 18 * 5:,} parameters beside"),
        ("even_gates", "1 / (2 E) = 0.056 as printed"),
        ("head_balance", "E / layers = 9 / 12 = 0.75"),
    ],
)
def test_a_consequence_is_computed(name, text):
    assert text in departures.CONSEQUENCES[name](FACTS)


def test_skipping_heads_changes_the_macs_and_sharing_them_the_parameters():
    released, ideal = (Case.of("moh-llm-s-75", {"form": form}).ledger.macs for form in ("released", "ideal"))
    assert f"{released:,} MACs as released, {ideal:,} ideal" in departures.skipped_heads(FACTS)
    # with one shared head its own matrix is gone: d_m parameters a layer
    text = departures.shared_heads(FACTS)
    most = Case.of("moh-llm-s-75").ledger.params
    assert f"{most - 12 * 768:,} to {most:,} parameters for 1 to 8 shared of 9" in text and text.endswith("print 186M")
