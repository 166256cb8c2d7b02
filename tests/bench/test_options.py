"""What the options of macs, lock and derive are for, as --help says it."""

from importlib import import_module

import pytest

from headcount.bench.accounts import ACCOUNTS
from headcount.formulas.published import tables

MODULE = "FILE.py:FUNCTION or package.module:FUNCTION of your own"
OPTIONS = {
    "macs": {
        "--table NAME...": ", ".join(tables.names()),
        "--params": "with tables: vocabularies that parameters imply too",
        "--preset NAME...": "a model by name (see --list)",
        "--grid SPEC...": "'K=1,2 E=8 D=64 T=10,128', or a TOML file like it",
        "--compare A B": "two models, each NAME or NAME,FIELD=VALUE,…, or modules, FILE.py:FUNCTION,NAME=INTEGER,…, or "
        "files of counts: locks, or JSON of --module",
        "--convert LETTER=N...": "the presets as MoH: s=16 r=8, router=linear for matrices",
        "--module SPEC": MODULE,
        "--audit": "every spelling of a layer: readings, and why they differ",
        "--published torchvision": "a table of somebody's package, counted again",
        "--check": "exit 1 if a verdict or a count is not as stated",
        "--list": "what there is to choose from",
        "--set FIELD=VALUE...": "change fields of the presets",
        "--src-len N": "tokens that are translated",
        "--tgt-len N": "tokens that they are translated to",
        "--seq-len N": "tokens of the input, or of both sides of a translation",
        "--batch-size N": "inputs at once",
        "--counter NAME...": "closed-form, ptflops-pytorch, ptflops-aten, fvcore, torch, deepspeed, right, all",
        "--device cpu|meta|cuda": "count there instead of where each counter is right",
        "--depth N": "no module paths longer than N names",
        "--allow-uncounted": "list unknown operations, go on",
        "--formula OPERATOR=EXPRESSION...": "MACs of an unknown operation in the sizes of its tensors: a0 is the first "
        "size of the first, b1 the second of the second, o that of the result; a, b, o alone are numbers of elements",
        "--elementwise report|include|refuse": "contractions written elementwise and summed, (a * b).sum(-1), are "
        "named beside the count, a part of it, or an error",
        "--columns NAME...": ", ".join(ACCOUNTS),
        "--context N": "stored tokens after a decode step",
        "--generate N": "tokens generated one by one",
        "--element-bytes N": "bytes of an element, 2 without it",
        "--peak-macs N": "the hardware's MACs per second",
        "--bandwidth N": "its bytes per second",
    },
    "lock": {
        "--check LOCK": "count what this file locks again, and compare",
        "--update LOCK": "count what this file locks again, and write it anew",
        "--workflow": "print a workflow file for GitHub Actions",
        "--module SPEC": MODULE,
        "--set NAME=INTEGER...": "what FUNCTION is called with",
        "--device cpu|meta|cuda": "count there instead of on meta or where the module is",
        "--allow-uncounted": "list unknown operations, go on",
        "--formula OPERATOR=EXPRESSION...": "MACs of an operation nobody knows",
        "--elementwise report|include|refuse": "contractions written elementwise: named, counted, error",
    },
    "derive": {
        "--preset NAME": "a model by name (python -m bench.macs --list)",
        "--part attention|feed-forward|model": "what of the preset",
        "--module SPEC": MODULE,
        "--set NAME=VALUE...": "what else is fixed",
        "--vars NAME,NAME": "the sizes that the closed form is in",
        "--base NAME=START[:STEP]...": "where the points are",
    },
}
GROUPS = {
    "macs": ["what", "sizes", "counters", "a module of yours, with --module", "memory and decoding"],
    "lock": ["what is counted; with --check and --update instead of what the lock remembers"],
    "derive": [],
}


def written(action):
    """An option with its values, as one writes it."""
    values = action.metavar or "|".join(action.choices or ())
    values = " ".join(values) if isinstance(values, tuple) else values
    return f"{action.option_strings[-1]} {values}".strip() + "..." * (action.nargs == "+")


@pytest.mark.parametrize("command", OPTIONS)
def test_every_option_says_what_it_is_for(command):
    parser = import_module(f"headcount.bench.{command}.__main__").parser()
    _, free, *groups, output = parser._action_groups
    found = {written(action): action.help for group in (free, *groups) for action in group._group_actions}
    assert found == {"--help": "show this help message and exit", **OPTIONS[command]}
    assert [group.title for group in (*groups, output)] == [*GROUPS[command], "output"]
