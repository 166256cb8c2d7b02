"""python -m bench.routing: which experts a model's tokens select, as in the MoA paper's analyses; MoH's heads too.

    python -m bench.routing --checkpoint model.pt --preset moa-8K32E256D --tokens tokens.txt
    python -m bench.routing --checkpoint model.pt --preset moh-llm-s-75 --set num_layers=2 --tokens tokens.txt
    python -m bench.routing --example            train a small MoA model under five coefficient pairs, and look
    python -m bench.routing --example moh        train a small MoH model with and without its balance loss
    python -m bench.routing --example conversion  train a small dense model, make it MoH, and train on

A checkpoint is a saved state dict. A token file holds ids, a sequence on each line; for a translation model
``source | target``, or one sequence that stands for both. Gives shares of tokens per expert and layer (Figures
3-4), the tokens with the highest PMI per expert (Table 4) and the MACs that each expert executed. Heads of a MoH
layer are numbered from 0, the shared ones first. Exit codes: 0 fine; 2 wrong usage, a checkpoint that does not
match, tokens that cannot be used.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from headcount.bench import env, records
from headcount.bench.cli import Parser, Work, add_output, serve
from headcount.bench.errors import UsageError
from headcount.bench.render import fits
from headcount.bench.routing import training_log
from headcount.bench.table import Section
from headcount.models.configs import presets

PROG = "python -m bench.routing"
CONVERSION = "conversion"
"""The example that is no comparison of auxiliary losses: a dense model that becomes MoH."""


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line of bench.routing."""
    out = Parser(prog=prog, description=(__doc__ or "").replace(PROG, prog))
    out.add_argument("--checkpoint", metavar="FILE", help="a state dict, as torch.save(model.state_dict(), FILE)")
    out.add_argument("--preset", metavar="NAME", help="the model that the checkpoint is of")
    out.add_argument("--set", nargs="+", metavar="FIELD=VALUE", default=[], help="change fields of the preset")
    out.add_argument("--tokens", metavar="FILE", help="token ids, a sequence on each line")
    out.add_argument("--log", metavar="FILE", help='balance over training: lines {"step": N, "tokens_per_expert": {…}}')
    out.add_argument(
        "--example",
        nargs="?",
        const="moa",
        choices=("moa", "moh", CONVERSION),
        help="train and analyse a built-in example instead; moa where none is named",
    )
    out.add_argument("--save", metavar="DIR", help="with --example: write its checkpoint, tokens and log there")
    out.add_argument("--record", action="store_true", help="with --example: store what it finds under reports/records")
    out.add_argument("--top", type=int, default=5, metavar="N", help="tokens listed for each expert")
    out.add_argument("--least", type=int, default=5, metavar="N", help="choices that a listed token has at least")
    out.add_argument("--plot", metavar="PATH", help="write the sorted shares as a plot (png, svg, pdf)")
    add_output(out)
    return out


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run the command under the name ``prog``; its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    return serve(prog, parser(prog), lambda args: plan(args, argv), argv, tells=True)


def plan(args: argparse.Namespace, argv: Sequence[str] = ()) -> Work:
    """What ``args`` asks for, recorded, and drawn where a plot is asked for, before it is printed; ``argv`` is stored
    beside a record."""
    for name in ("top", "least"):
        if getattr(args, name) < 1:
            raise UsageError(f"--{name} must be at least 1, not {getattr(args, name)}")
    sections, layers = _example(args) if args.example else _given(args)
    fits(sections, args.format, args.out)
    if args.plot:
        from headcount.bench.routing import plot as routing_plot

        routing_plot.save(layers, args.plot)
    path = _store(args.example, sections, argv) if args.record else None
    return Work(sections, remark=lambda: f", record in {path}" if path else "", result=_result)


def _result(printed: Sequence[Section]) -> str:
    """The shares of all rows that have them."""
    first = printed[0]
    shares = [share for row in first.rows for share in (row.values.get("largest"), row.values.get("smallest")) if share]
    where = f"{len(first.rows)} {'layers' if first.table.name == 'routing' else 'runs'}"
    return f"{where}: shares from {float(min(shares)):.2f} % to {float(max(shares)):.2f} %." if shares else f"{where}."


def _store(example: str, sections: Sequence[Section], argv: Sequence[str]) -> Path:
    """Append one record of an example to the machine's records; its path."""
    environ = env.environment("cpu", ["bench.routing", *argv])
    path = records.place(records.writable(), environ["device"], environ["time"][:10], environ["commit"])
    found = {
        section.table.name: [
            # a token's name is the example's own, and no one else can spell it
            {**record, **({"tokens": row.values["tokens"]} if "top_tokens" in record else {})}
            for row in section.rows
            for record in row.records
        ]
        for section in sections
    }
    records.append(path, {"kind": "routing", "example": example, **found, "environment": environ})
    return path


def _given(args) -> tuple[list[Section], dict]:
    missing = [f"--{name}" for name in ("checkpoint", "preset", "tokens") if getattr(args, name) is None]
    if missing:
        raise UsageError(f"{', '.join(missing)} missing: give --checkpoint, --preset and --tokens, or --example")
    for name in ("save", "record"):
        if getattr(args, name):
            raise UsageError(f"--{name} goes with --example")
    config = presets.preset(args.preset, presets.parse_overrides(args.preset, args.set))

    from headcount.bench.routing import run as routing_run
    from headcount.bench.routing import tables as routing_tables

    examples = routing_run.read_tokens(args.tokens, config)
    log = training_log.read(args.log) if args.log else []
    model = routing_run.load_checkpoint(args.checkpoint, config)
    layers = routing_run.record(model, examples)
    sections = []
    for same in routing_tables.by_unit(layers):
        name = "routing" if not sections else f"routing-{same[0].unit}s"
        sections.append(routing_tables.layer_section(same, name))
        sections.append(routing_tables.expert_section(same, args.top, args.least))
    sections += [routing_tables.log_section(log)] if log else []
    return sections, {layer.path: layer for layer in layers}


def _example(args) -> tuple[list[Section], dict]:
    given = [f"--{name}" for name in ("checkpoint", "preset", "set", "tokens", "log") if getattr(args, name)]
    if given:
        raise UsageError(f"{', '.join(given)} cannot go with --example, which brings its own")

    if args.example == CONVERSION:
        return _conversion(args)

    from headcount.bench.routing import example as routing_example
    from headcount.bench.routing import tables as routing_tables
    from headcount.bench.routing import task as routing_task

    name = args.example
    outcomes = routing_example.run(name, say=lambda line: print(line, file=sys.stderr))
    chosen = routing_example.chosen(name, outcomes)
    if args.save:
        command = routing_example.save(name, chosen, args.save)
        print(f"look at it again: {PROG} {command}", file=sys.stderr)
    sections = [
        routing_tables.runs_section(name, outcomes),
        routing_tables.expert_section(
            [chosen.layer], args.top, args.least, routing_task.token_name, routing_task.class_of
        ),
        routing_tables.class_section(chosen.layer, routing_task.class_of),
        routing_tables.log_section(chosen.log),
    ]
    return sections, {routing_example.label(one.coefficients): one.layer for one in outcomes}


def _conversion(args) -> tuple[list[Section], dict]:
    for name in ("save", "record"):
        if getattr(args, name):
            raise UsageError(f"--{name} goes with --example moa or moh, not with {CONVERSION}")

    from headcount.bench.routing import conversion
    from headcount.bench.routing import tables as routing_tables
    from headcount.bench.routing import task as routing_task

    outcome = conversion.run(say=lambda line: print(line, file=sys.stderr))
    sections = [
        conversion.section(outcome),
        routing_tables.layer_section(outcome.layers),
        routing_tables.expert_section(
            outcome.layers, args.top, args.least, routing_task.token_name, routing_task.class_of
        ),
    ]
    return sections, {layer.path: layer for layer in outcome.layers}


if __name__ == "__main__":
    sys.exit(main())
