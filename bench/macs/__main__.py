"""python -m bench.macs: the papers' MAC and parameter columns again, any preset in detail, or a grid.

    python -m bench.macs                                         Tables 1-3 of arXiv 2210.05144, with verdicts
    python -m bench.macs --table moh-llm moh-llama3 moh-dit      the models of arXiv 2410.11842
    python -m bench.macs --preset moa-8K8E128D --seq-len 512     one model's ledger and counters
    python -m bench.macs --grid 'K=1,2,4 E=8 D=64 T=10,128'      one layer at every combination
    python -m bench.macs --compare moa-16K32E256D transformer-big  where their difference comes from
    python -m bench.macs --preset llama3-8b --convert s=16 r=8   a dense model as mixture-of-head attention
    python -m bench.macs --counter closed-form                   the formulas alone, without torch
    python -m bench.macs --audit                                 every formulation of a layer under every counter
    python -m bench.macs --module FILE.py:FUNCTION --set n=7     your module; FUNCTION returns (module, inputs)
    python -m bench.macs --preset llama3-8b --rules palm 6n      training FLOPs by two rules, entry by entry
    python -m bench.macs --preset moa-8K8E128D --columns kv_bytes decode_macs --context 512

Tables go to stdout row by row, notes to stderr. Exit codes: 0 fine; 1 a count or a verdict disagrees (--check), a
cell of --audit is unexplained, or a counter fails; 2 wrong usage; 3 the device is not there.
"""

import argparse
from collections.abc import Sequence

from headcount.bench.cli import Parser, add_output, exit_process, serve
from headcount.bench.macs.jobs import plan, select
from headcount.bench.macs.options import add_options
from headcount.bench.macs.verbs import FURTHER, VERBS, Verb
from headcount.bench.output.arguments import BriefHelp

PROG = "python -m bench.macs"


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """Return the command line of the verb that ends ``prog``, or of bench.macs, which has every option.

    Parsed arguments name their job by ``select``, and have the names that options are written with as ``flags``.
    """
    verb = VERBS.get(prog.split()[-1])
    if verb is None:
        out = Parser(prog=prog, description=(__doc__ or "").replace(PROG, prog))
        out.instead = "did you mean headcount count"
        add_options(out)
    else:
        usage = f"{prog} {verb.usage} [OPTION …]"
        out = Parser(prog=prog, usage=usage, description=verb.description, help=BriefHelp, add_help=False)
        add_options(out)
        _reduce(out, verb)
        out.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    add_output(out)
    if verb:
        further = [action for action in out._actions if action.dest in FURTHER and action.help != argparse.SUPPRESS]
        out.epilog = f"Further options (headcount macs --help): {', '.join(one.option_strings[-1] for one in further)}"
        for action in further:
            action.help = argparse.SUPPRESS
    flags = {action.dest: (action.option_strings or [action.metavar])[-1] for action in reversed(out._actions)}
    out.set_defaults(select=verb.select if verb else select, flags=flags)
    return out


def _reduce(out: Parser, verb: Verb) -> None:
    """Remove the options that the verb does not offer; their defaults stay, and one is an argument without a flag."""
    for action in [action for action in out._actions if action.dest not in verb.offers]:
        out.set_defaults(**{action.dest: action.default})
        action.container._remove_action(action)
        for flag in action.option_strings:
            del out._option_string_actions[flag]
        if action.dest == verb.positional:
            given = {"choices": action.choices, "default": action.default, "nargs": verb.nargs}
            given |= {"metavar": verb.metavar or action.metavar, "help": verb.help or action.help}
            action.container.add_argument(action.dest, **given)


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run bench.macs, or the verb that ends ``prog``, and return its exit code."""
    return serve(prog, parser(prog), plan, argv)


if __name__ == "__main__":
    exit_process(main())
