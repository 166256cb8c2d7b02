"""What headcount derive says of what it found: its tables, its notes, and what its JSON has."""

from types import SimpleNamespace

import pytest
import sympy

from headcount.bench.derive import __main__ as command
from headcount.bench.derive.derived import Derivation, starts
from headcount.formulas.symbols import symbol
from tests.bench.output.typed import described, typed

FOUND = {
    "by_kind": {"linear": "7*T*d**2", "scores": "3*T**2*d"},
    "method": "one run with symbols for the sizes",
    "domain": ["T >= 5", "3 divides d"],
    "layout": ["T > 1"],
    "witness": None,
}
TOTAL = "3*T^2*d + 7*T*d^2"


@pytest.fixture
def sections(monkeypatch):
    """What is printed of a module's derivation, and what was asked for."""

    def of(*words, **changed):
        asked = {}

        def answer(task, spec, **request):
            asked.update(request, task=task, spec=spec)
            return FOUND | changed

        monkeypatch.setattr(command, "ask", answer)
        work = command.plan(command.parser().parse_args(["--module", "mine.py:net", "--vars", "T,d", *words]))
        return list(work.sections), work.result, asked

    return of


def test_every_table_has_its_title_and_these_columns(sections):
    found, _, _ = sections()
    start = "mine.py:net: multiply-accumulates in T, d{}\nkind  text  always\npolynomial  {}, broken  always"
    assert {section.table.name: described(section) for section in found} == {
        "derive": typed(start.format("", "text")),
        "derive-latex": typed(start.format(" as LaTeX", "formula")),
        "derive-python": typed(start.format(" as Python", "text")),
    }
    assert [section.detail for section in found] == [False, True, False]


def test_a_polynomial_stands_as_text_as_latex_and_as_python(sections):
    found, result, _ = sections()
    text, latex, python = ([row.values for row in section.rows] for section in found)
    assert [row["kind"] for row in text] == ["linear", "scores", "total"]
    assert [row["text"] for row in text] == ["7*T*d^2", "3*T^2*d", TOTAL]
    assert [row["latex"] for row in latex][0].strip("$").split() == ["7", "T", "d^{2}"]
    assert python[-1]["python"] == f"def total(T, d): return {TOTAL.replace('^', '**')}"
    assert result(found) == f"MACs: {TOTAL}."


def test_a_size_has_the_latex_of_its_letter_and_one_without_a_letter_its_name_in_italics():
    n, width = symbol("n"), symbol("width")
    rows = command._rows(("n", "width"), Derivation({"conv": 7 * n * width}, ""), {"n": "mlp_ratio", "width": "d_m"})
    (latex,) = {row.values["latex"] for row in rows}
    assert set(latex.strip("$").split()) == {"7", r"\mathit{mlp\_ratio}", "d_m"}


def test_json_has_a_row_for_each_kind_and_how_all_of_it_was_found(sections):
    found, _, _ = sections()
    derive, *others = found
    (first, *_) = (record for row in derive.rows for record in row.records)
    assert (first["kind"], first["text"], first["latex"]) == ("linear", "7*T*d^2", "7 T d^{2}")
    assert derive.facts == {
        "method": FOUND["method"], "domain": FOUND["domain"], "layout": FOUND["layout"], "witness": None,
        "equals_closed_form": None,
    }  # fmt: skip
    assert not any(other.facts or [record for row in other.rows for record in row.records] for other in others)


@pytest.mark.parametrize(
    ("domain", "layout", "notes"),
    [
        ([], [], []),
        (["T >= 5", "3 divides d"], [], ["Holds for sizes of at least 1 where T >= 5; 3 divides d."]),
        (
            [],
            ["T > 1"],
            [
                "Holds for sizes of at least 1.",
                "torch's choice of memory layouts adds conditions; --format json has them.",
            ],
        ),
    ],
)
def test_notes_say_how_it_was_found_and_where_it_holds(domain, layout, notes, sections):
    found, _, _ = sections(domain=domain, layout=layout)
    assert found[0].table.notes_above == ["Found by one run with symbols for the sizes.", *notes]
    assert not found[1].table.notes_above and not found[2].table.notes_above


@pytest.mark.parametrize(("equal", "said"), [(True, "; equal to"), (False, "; not")])
def test_the_last_line_says_whether_it_is_the_closed_form(equal, said):
    total = SimpleNamespace(rows=[SimpleNamespace(values={"text": TOTAL})], facts={"equals_closed_form": equal})
    assert command._result([total]) == f"MACs: {TOTAL}{said} the closed form."


def test_what_is_no_polynomial_is_a_table_of_what_breaks_it_and_fails(sections):
    found, result, _ = sections(by_kind={}, witness="linear at T=17 counts 1,536", method="counts on a grid")
    (section,) = found
    assert described(section) == typed("mine.py:net: no polynomial in T, d\nbreaks it  text, broken  always")
    (row,) = section.rows
    assert row.values == {"witness": "linear at T=17 counts 1,536"}
    assert row.failures == ["mine.py:net is no polynomial in T, d: linear at T=17 counts 1,536"]
    assert row.records[0]["witness"] == row.values["witness"] and row.records[0]["method"] == "counts on a grid"
    assert result(found) == "No polynomial: linear at T=17 counts 1,536."


def test_a_kind_that_only_one_of_both_forms_has_is_a_difference():
    T = sympy.Symbol("T")
    found = SimpleNamespace(by_kind={"linear": 2 * T, "scores": T**2})
    assert command._differences("it", found, {"linear": T + T, "values": 3 * T}) == [
        "it: values is the closed form and -3*T",
        "it: scores is the closed form and T**2",
    ]


def test_a_module_is_asked_for_with_its_sizes_where_they_start_and_how_they_step(sections):
    _, _, asked = sections("--set", "n=7", "--base", "d=6:2")
    assert (asked["task"], asked["spec"], asked["settings"]) == ("derive", "mine.py:net", {"n": 7})
    # T starts where sequences do
    assert asked["base"] == {"T": 11, "d": 6} and asked["step"] == {"T": 1, "d": 2}


def test_sizes_that_mean_nothing_to_us_start_at_primes_however_many_there_are():
    found = starts({name: name for name in "abcefijklm"})
    assert all(sympy.isprime(start) for start in found.values())
    # those that no letter of ours starts at, and then one for all that are left
    assert list(found.values()) == [7, 23, 29, 31, 37, 41, 43, 47, 53, 53]
