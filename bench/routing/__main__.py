"""python -m bench.routing: which experts or heads a model's tokens select, as in the MoA paper's analyses.

    python -m bench.routing --checkpoint model.pt --preset moa-8K32E256D --tokens tokens.txt
    python -m bench.routing --checkpoint model.pt --preset moh-llm-s-75 --set num_layers=2 --tokens tokens.txt
    python -m bench.routing --example     train and analyse a small MoA model under five pairs of coefficients

A checkpoint is a saved state dict. A token file holds ids, a sequence on each line; for a translation model
``source | target``, or one sequence that is both. Prints shares of tokens per expert and layer (Figures 3-4), the
tokens with the highest PMI per expert (Table 4) and the MACs that each expert executed. Heads of a MoH layer are
numbered from 0, the shared ones first. Exit codes: 0 success; 2 wrong usage, a checkpoint that does not match, tokens
that cannot be used.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headcount.bench import env, records
from headcount.bench.cli import COUNT, SET, Parser, add_output, exit_process, serve
from headcount.bench.column import plural
from headcount.bench.errors import UsageError
from headcount.bench.output.figure import figure
from headcount.bench.render import fits
from headcount.bench.result import Result, Table, to_json
from headcount.bench.routing.stats import LayerRouting
from headcount.models.configs import presets

PROG = "python -m bench.routing"
EXAMPLE = "moa"


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """Return the command line parser of bench.routing."""
    out = Parser(prog=prog, description=(__doc__ or "").replace(PROG, prog))
    out.add_argument("--checkpoint", metavar="FILE", help="a state dict, as torch.save(model.state_dict(), FILE)")
    out.add_argument("--preset", metavar="NAME", help="the checkpoint's model")
    out.add_argument("--set", **SET, help="change fields of the preset")
    out.add_argument("--tokens", metavar="FILE", help="token ids, a sequence on each line")
    out.add_argument("--example", action="store_true", help="train and analyse the built-in example instead")
    out.add_argument("--record", action="store_true", help="with --example: store its results under reports/records")
    out.add_argument("--top", type=COUNT, default=5, metavar="N", help="tokens listed for each expert (default: 5)")
    out.add_argument("--min-count", type=COUNT, default=5, metavar="N", help="choices that a token needs (default: 5)")
    out.add_argument("--plot", metavar="PATH", help="write the sorted shares as a plot (png, svg, pdf)")
    add_output(out)
    return out


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command under the name ``prog``; return its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    return serve(prog, parser(prog), lambda args: command(args, argv), argv)


def command(args: argparse.Namespace, argv: Sequence[str] = ()) -> Result:
    """Return the tables that ``args`` asks for, recorded and plotted before they are printed.

    ``argv`` is stored with a record.
    """
    tables, layers = _example(args) if args.example else _checkpoint(args)
    fits(tables, args.format, args.out)
    if args.plot:
        plot(layers, args.plot)
    remark = f", record in {_store(tables, argv)}" if args.record else ""
    rows = list(tables[0].rows)
    return Result(tables, lambda: _sentence(rows, "run" if args.example else "layer"), remark=lambda: remark)


def _sentence(rows: Sequence[Any], what: str) -> str:
    """Return the range of the shares; a row is a ``what``."""
    shares = [float(share) for row in rows for share in (row.largest, row.smallest)]
    return f"{plural(len(rows), what)}: shares from {min(shares):.2f} % to {max(shares):.2f} %."


def _store(tables: Sequence[Table], argv: Sequence[str]) -> Path:
    """Append a record of the example to the machine's records; return its path."""
    environ = env.environment("cpu", ["bench.routing", *argv])
    path = records.place(records.writable(), environ["device"], environ["time"][:10], environ["commit"])
    rows = {table.name: to_json(table.rows) for table in tables}
    records.append(path, {"kind": "routing", "example": EXAMPLE, **rows, "environment": environ})
    return path


def _checkpoint(args: argparse.Namespace) -> tuple[list[Table], Mapping[str, LayerRouting]]:
    if missing := [name for name in ("checkpoint", "preset", "tokens") if getattr(args, name) is None]:
        raise UsageError(f"--{missing[0]} missing: give --checkpoint, --preset and --tokens, or --example")
    if args.record:
        raise UsageError("--record goes with --example")
    config = presets.preset(args.preset, presets.parse_overrides(args.preset, args.set))

    from headcount.bench.routing import inputs, recorder, tables

    examples = inputs.read_tokens(args.tokens, config)
    layers = recorder.record(inputs.load_checkpoint(args.checkpoint, config), examples)
    found: list[Table] = []
    for same in tables.by_unit(layers):
        found.append(tables.layer_table(same, f"routing-{same[0].routed.unit}s" if found else "routing"))
        found.append(tables.expert_table(same, args.top, args.min_count))
    return found, {layer.path: layer for layer in layers}


def _example(args: argparse.Namespace) -> tuple[list[Table], Mapping[str, LayerRouting]]:
    if given := [name for name in ("checkpoint", "preset", "set", "tokens") if getattr(args, name)]:
        raise UsageError(f"--{given[0]} cannot go with --example, which brings its own")

    from headcount.bench.routing import example, tables

    outcomes = example.run()
    paper = next(outcome for outcome in outcomes if outcome.coefficients == example.PAPER)
    found: list[Table] = [
        tables.runs_table(outcomes),
        tables.expert_table([paper.layer], args.top, args.min_count, example.token_name, example.class_of),
        tables.balance_table(paper.log),
    ]
    return found, {example.label(outcome.coefficients): outcome.layer for outcome in outcomes}


def plot(layers: Mapping[str, LayerRouting], path: str) -> None:
    """Write the sorted shares of each layer in percent (Figures 3-4), in the format of the path's ending.

    Raises UsageError and EnvironmentMissing as :func:`figure`.
    """
    with figure(path, 7, 4) as (_, axes):
        for name, layer in layers.items():
            axes.plot(range(1, layer.num_experts + 1), layer.sorted_percent, marker=".", label=name)
        units = next(iter(layers.values())).routed.units
        axes.set_xlabel(f"{units}, the most used first")
        axes.set_ylabel("share of all choices in %")
        axes.set_ylim(bottom=0)
        axes.legend(fontsize="small")


if __name__ == "__main__":
    exit_process(main())
