"""python -m bench.macs: the papers' MAC and parameter columns again, any preset in detail, or a grid.

    python -m bench.macs                                         Tables 1-3 of arXiv 2210.05144, with verdicts
    python -m bench.macs --table moh-llm moh-llama3 moh-dit      the models of arXiv 2410.11842
    python -m bench.macs --preset moa-8K8E128D --seq-len 512     one model's ledger and counters
    python -m bench.macs --grid 'K=1,2,4 E=8 D=64 T=10,128'      one layer at every combination
    python -m bench.macs --compare moa-16K32E256D transformer-big  where their difference comes from
    python -m bench.macs --preset llama3-8b --convert s=16 r=8   a dense model as mixture-of-head attention
    python -m bench.macs --counter closed-form                   the formulas alone, without torch
    python -m bench.macs --audit                                 every spelling of a layer under every counter
    python -m bench.macs --module FILE.py:FUNCTION --set n=7     a module of yours; FUNCTION returns (module, inputs)
    python -m bench.macs --preset llama3-8b --rules palm 6n      training FLOPs by two rules, entry by entry
    python -m bench.macs --preset moa-8K8E128D --columns kv_bytes decode_macs --context 512

Tables go to stdout row by row, notes to stderr. Exit codes: 0 fine; 1 a count or a verdict disagrees (--check), a
cell of --audit is unexplained, or a counter fails; 2 wrong usage; 3 the device is not there.
"""

import argparse
from collections.abc import Sequence

from headcount.bench.cli import exit_process, serve
from headcount.bench.macs import options
from headcount.bench.macs.jobs import plan

PROG = "python -m bench.macs"


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """Return the command line parser of bench.macs."""
    return options.parser(prog, (__doc__ or "").replace(PROG, prog))


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command under the name ``prog``; return its exit code."""
    return serve(prog, parser(prog), plan, argv)


if __name__ == "__main__":
    exit_process(main())
