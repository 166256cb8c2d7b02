"""The pages, each with its sections and the files beside it."""

from functools import partial

from headcount.__main__ import COMMANDS
from headcount.reports import (
    audit,
    begun,
    break_even,
    choosing,
    claims,
    commands,
    consistency,
    counting,
    estimate,
    examples,
    faults,
    index,
    kernels,
    latency,
    memory,
    method,
    notation,
    older_ptflops,
    papers,
    tables,
    torchvision,
    versions,
)
from headcount.reports.document import Maker, Page, Section
from headcount.reports.explorer import page as explorer
from headcount.reports.facts import Facts
from headcount.reports.plots import clock, cost, front, heat, roofline
from headcount.reports.plots.plot import files


def pages(facts: Facts) -> dict[str, Page]:
    """Every page by its name, in the order in which they are linked."""
    made = (
        _index(facts),
        papers.moa(facts),
        papers.moh(facts),
        papers.sentences(facts),
        _choose(),
        _time(facts),
        _counters(),
        _notation(),
        _method(),
        _commands(),
        *_examples(),
    )
    return {page.name: page for page in made}


def begin_blocks(facts: Facts) -> None:
    """Begin what the blocks of hand-written files count."""
    facts.begin(counting.audit)


def others() -> dict[str, Maker]:
    """Files that belong to no page, by their names."""
    return {explorer.FILE: explorer.text}


def begin(facts: Facts) -> None:
    """Begin all that pages count, the longest first, before they wait for it one by one."""
    begun.rows(facts, slice(6))
    facts.begin(counting.audit)
    facts.begin(counting.terms)
    begun.derivations(facts)
    begun.rows(facts, slice(6, None))
    begun.grids(facts)
    claims.begin_counts(facts)
    examples.begin(examples.EVERY.values(), facts)


def _index(facts: Facts) -> Page:
    every = f"python -m bench.macs --counter closed-form --table {' '.join(facts.tables)}"
    return Page(
        "index",
        "What the closed forms, the counters and the clock say",
        index.about,
        [
            Section("Printed numbers", [tables.verdicts, index.numbers], [every]),
            Section("Printed sentences", [index.sentences], []),
            Section("Counters", [heat.PLOT.shown, index.counters], [audit.COMMAND]),
            Section("The clock", [index.clock], ["python -m bench.latency --quick"]),
        ],
        begin=lambda facts: facts.begin(counting.audit),
    )


def _choose() -> Page:
    budgets = [f"python -m bench.budget {argv}" for argv, _ in choosing.BUDGETS]
    return Page(
        "choose",
        "Choosing an attention and its sizes",
        lambda facts: "What layers and models cost beside one another: MACs, cache, decoding, training.",
        [
            Section("Cost by length", [cost.OVER_MHA.shown], [cost.COMMAND]),
            Section("Decode and prefill under a roof", [roofline.PLOT.shown], [roofline.COMMAND]),
            Section("Memory and decoding of a layer", [memory.layers], [memory.COMMAND]),
            Section("Memory and decoding of a model", [memory.models], [memory.COMMAND_OF_MODELS]),
            Section("Sizes under a budget", [front.PLOT.shown, choosing.budget], budgets),
        ],
        files(cost.OVER_MHA, roofline.PLOT, front.PLOT),
    )


def _time(facts: Facts) -> Page:
    every, models = latency.commands(facts, "layer"), latency.commands(facts, "model")
    taxed, skipping = (latency.commands(facts, "layer", ratio) for ratio in ("tax", "to_dense"))
    return Page(
        "time",
        "The clock",
        lambda facts: "Stored measurements; what was not measured says so, and no estimate stands for a time.",
        [
            Section(
                "Time per layer",
                [clock.TAX.shown, latency.about, partial(latency.tables, subject="layer")],
                every,
            ),
            Section("Time per model", [partial(latency.tables, subject="model")], models),
            Section("CUDA: measured beside estimated", [estimate.beside_measured], [latency.ON_CUDA]),
            Section("The authors' wall-clock sentence", [latency.sentence], taxed),
            Section("MoH: where skipping heads pays", [clock.SKIPPING.shown, break_even.tables], skipping),
            Section("Triton's kernels as compiled", [kernels.page], [kernels.COMMAND]),
            Section("Where and how it was measured", [latency.environments], []),
        ],
        files(clock.TAX, clock.SKIPPING) | {latency.DATA: latency.data},
    )


def _counters() -> Page:
    grids = [f"python -m bench.macs --grid '{spec}'" for spec in consistency.GRIDS]

    def start(facts: Facts) -> None:
        facts.begin(counting.audit)
        begun.grids(facts)

    return Page(
        "counters",
        "What each counter misses and adds",
        lambda facts: "ptflops (two backends), fvcore and PyTorch's own counter, beside the contractions that run.",
        [
            Section("Spelling by spelling", [heat.PLOT.shown, audit.summary], [audit.COMMAND]),
            Section("What makes the differences", [audit.causes, audit.without_reading], [audit.COMMAND]),
            Section("On grids of prime sizes", [consistency.page], grids),
            Section("ptflops of the papers' time", [older_ptflops.page], [older_ptflops.COMMAND]),
            Section("torchvision's own operation counts", [torchvision.page], [torchvision.COMMAND]),
        ],
        files(heat.PLOT)
        | {audit.READINGS: audit.readings, audit.CALLS: audit.calls, older_ptflops.DATA: older_ptflops.data},
        start,
    )


def _notation() -> Page:
    return Page(
        "notation",
        "Letters and words",
        lambda facts: "The field's letters, with the code's words for them.",
        [
            Section("Words", [notation.terms], []),
            Section("Letters", [notation.legend], []),
        ],
    )


def _method() -> Page:
    return Page(
        "method",
        "How the numbers come about",
        lambda facts: "Conventions, modules of your own, the clock, formats and exit codes.",
        [
            Section("Conventions", [method.conventions], ["python -m bench.macs --check"]),
            Section("Any module", [method.modules], ["python -m bench.macs --module model.py:make"]),
            Section("How times are taken", [method.clock], ["python -m bench.latency --quick"]),
            Section("Formats", [method.formats], ["python -m bench.macs --counter closed-form --format json"]),
            Section(
                "A lock for the cost",
                [method.lock],
                ["headcount lock --module model.py:make -o macs.lock", "headcount lock --check macs.lock"],
            ),
            Section("Exit codes", [method.exit_codes], []),
            Section("Faults tried", [faults.tried, faults.fuzzed], [faults.COMMAND, faults.FUZZING]),
            Section("Versions tried", [versions.tried], [versions.COMMAND]),
        ],
    )


def _commands() -> Page:
    return Page(
        "commands",
        "Every command",
        lambda facts: "Installed, `headcount NAME`; from a checkout, `python -m` and the package's name do the same.",
        [
            *(
                Section(f"headcount {name}", [commands.page(name)], [f"python -m {package} --help"])
                for name, (package, _) in COMMANDS.items()
            ),
            Section("How long they take", [commands.speed], ["make benchmark"]),
        ],
    )


def _examples() -> tuple[Page, Page]:
    return (
        Page(
            "examples",
            "What commands print of the papers' models",
            lambda facts: "Each command prints what stands above it; without --wide, on a terminal of 80 columns.",
            examples.sections(examples.PAPERS),
            begin=partial(examples.begin, examples.PAPERS),
        ),
        Page(
            "examples-own",
            "What commands print of modules and sizes of your own",
            examples.module,
            examples.sections(examples.OWN),
            begin=partial(examples.begin, examples.OWN),
        ),
    )
