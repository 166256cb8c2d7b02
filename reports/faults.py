"""What was done to commands and what held: faults, and command lines with something wrong in them."""

from headcount.bench.table import Column
from headcount.reports import markdown
from headcount.reports.facts import Facts

RECORD, COMMAND = "faults.json", "make faults"
FUZZED, FUZZING = "fuzz.json", "make fuzz"


def tried(facts: Facts) -> str:
    """Each fault with what must be true afterwards, how often that was tried, and how often it was."""
    found = facts.stored_json(RECORD)
    if not found:
        return f"Not tried yet: `{COMMAND}`."
    columns = [
        Column("fault", "fault"),
        Column("then", "what must hold"),
        Column("commands", "commands", kind="int"),
        Column("tries", "tries", kind="int"),
        Column("held", "held", kind="int"),
    ]
    rows = [{**one, "commands": len(one["commands"])} for one in found["faults"]]
    left = {(one["why"], one["command"]): None for fault in found["faults"] for one in fault["not_tried"]}
    said = [f"Not tried: {command}, {why}." for why, command in left]
    tries, held = (sum(row[name] for row in rows) for name in ("tries", "held"))
    total = f"{held:,} of {tries:,} tries held, on {_where(found)}, in {found['seconds']:,} s."
    return "\n\n".join([markdown.table(columns, rows), total, *said])


def fuzzed(facts: Facts) -> str:
    """The figures of each family of fuzzed command lines."""
    found = facts.stored_json(FUZZED)
    if not found:
        return f"Command lines with something wrong in them were not tried yet: `{FUZZING}`."
    numbers = ("lines", "seed", "tracebacks", "hangs", "failures", "seconds")
    columns = [Column("family", "command"), *(Column(name, name, kind="int") for name in numbers)]
    rows = [{"family": family, **{name: one[name] for name in numbers}} for family, one in found.items()]
    about = (
        "Command lines of each command's own options, with something wrong in each: a line holds where it ends in time "
        "with a documented exit code, at most two lines on stderr and none on stdout, and leaves no file."
    )
    return f"{about}\n\n{markdown.table(columns, rows)}"


def _where(found) -> str:
    return f"{found['machine']['cpu']}, {found['machine']['cores']} cores"
