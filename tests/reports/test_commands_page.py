"""How long commands take, as the page of commands and the README tell it."""

from types import SimpleNamespace

from headcount.reports.pages import commands

STORED = {
    "machine_info": {"cpu": "A CPU", "cores": 2},
    "benchmarks": [
        {
            "stats": {"median": 6.34, "rounds": 3},
            "extra_info": {"command": "one", "first_row_s": 1.94, "said": "6 s, peak memory 0.8 GiB"},
        },
        {"stats": {"median": 0.5, "rounds": 5}, "extra_info": {}},
        {"stats": {"median": 239.6, "rounds": 1}, "extra_info": {"command": "two", "processor_s": 405.0}},
    ],
}


def told(stored):
    facts = SimpleNamespace(stored_json={"commands.json": stored}.get)
    return commands.speed(facts), commands.in_a_line(facts)


def test_every_command_has_its_time_with_what_else_was_measured():
    page, line = told(STORED)
    assert page.splitlines() == [
        "Timed by `make benchmark` on A CPU, 2 cores, start-up included:",
        "",
        "- `one`: 6.3 s (median of 3 runs), first row after 1.9 s, peak memory 0.8 GiB",
        "- `two`: 4 min 0 s (one run), 6.8 minutes of processor time",
    ]
    assert line == "On A CPU, 2 cores (`make benchmark`, start-up included): `one` 6.3 s, `two` 4 min 0 s."


def test_what_was_not_timed_says_so_and_fills_no_line():
    assert told(None) == ("Not measured: `make benchmark` has not been run.", "")
