"""Markup in the names of the explorer's data is shown as text and makes no element."""

import json

from headcount.reports.explorer import page
from tests.reports import chromium, explorer_facts

MARKUP = "\"'&<img src=x onerror=\"problems.push('a name ran')\"><!--<script></script>"
NAMES = (
    "name",
    "preset",
    "label",
    "title",
    "paper",
    "command",
    "rule",
    "about",
    "source",
    "word",
    "meaning",
    "no_step",
    "suffix",
)
"""Keys of texts in the page's data."""
PROGRAM = """
const show = (id) => document.getElementById(id);
const pick = (id, value) => {
  show(id).value = value;
  show(id).dispatchEvent(new Event("change", { bubbles: true }));
};
const texts = [];
const look = () => texts.push(document.querySelector("main").textContent);
document.querySelector("#presets button").click();
for (const account of headcount.DATA.accounts) pick("account", account.name);
look();
show("chart").style.width = "300px";
dispatchEvent(new Event("resize"));
look();
show("tab-models").click();
for (const model of headcount.MODELS.presets.slice(0, 12)) pick("model", model.name);
show("config").value = JSON.stringify({ model_type: markup });
show("read-config").click();
look();
show("tab-judge").click();
for (const { name, columns } of headcount.PUBLISHED.tables) {
  pick("table", name);
  columns.forEach((_, i) => pick("column-of", i));
  document.querySelector("#printed-rows tr:last-child").click();
}
look();
show("tab-heat").click();
for (const cell of document.querySelectorAll(".cell")) cell.click();
look();
answer({ images: document.querySelectorAll("img").length, shown: texts.map((text) => text.split(markup).length - 1) });
"""


def add_markup(value, key=""):
    """Return data with markup after each text that has a key in NAMES."""
    if isinstance(value, dict):
        return {own: add_markup(one, own) for own, one in value.items()}
    if isinstance(value, list):
        return [add_markup(one, key) for one in value]
    return value + MARKUP if isinstance(value, str) and key in NAMES else value


def hostile():
    """Return the page's data whose names of models, tables, rows and counters hold markup."""
    found = add_markup(json.loads(json.dumps(explorer_facts.data())))
    heat, published, models = found["heat"], found["published"], found["models"]
    # names in the page's own scripts
    for one in (*found["forms"], *found["accounts"], *models["rules"]):
        one["name"] = one["name"].removesuffix(MARKUP)
    for form in models["forms"]:
        for group in form["groups"]:
            group[0] += MARKUP
    for form in found["forms"]:
        for _, _, entries in form["groups"]:
            for entry in entries:
                entry[0] += MARKUP
    found["papers"] = {paper + MARKUP: label + MARKUP for paper, label in found["papers"].items()}
    found["families"] = {name: label + MARKUP for name, label in found["families"].items()}
    published["parts"] = {part + MARKUP: is_one for part, is_one in published["parts"].items()}
    published["models"] = {name + MARKUP: own for name, own in published["models"].items()}
    for column in (column for table in published["tables"] for column in table["columns"]):
        column["multiplicity"] = {part + MARKUP: many for part, many in column["multiplicity"].items()}
        for row in column["rows"]:
            row[:5] = [row[0] + MARKUP, row[1] + MARKUP, row[2], row[3] + MARKUP, row[4] + MARKUP]
            if len(row) > 5:
                row[5] = [[text + MARKUP, size] for text, size in row[5]]
    heat["counters"], heat["devices"] = ([one + MARKUP for one in heat[key]] for key in ("counters", "devices"))
    heat["formulations"] = [[name + MARKUP, text + MARKUP, size] for name, text, size in heat["formulations"]]
    return found


@chromium.needed
def test_markup_in_names_makes_no_element(tmp_path):
    found = chromium.run_in_page(
        tmp_path,
        page.render(hostile()),
        f"const markup = {json.dumps(MARKUP).replace('<', chr(92) + 'u003c')};{PROGRAM}",
    )
    assert found["images"] == 0
    assert min(found["shown"]) > 10
