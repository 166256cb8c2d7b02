"""``headcount COMMAND …``: the commands, each the same as ``python -m bench.COMMAND`` from a checkout."""

import sys
from importlib import import_module

COMMANDS = {
    "macs": "headcount.bench.macs.__main__",
    "latency": "headcount.bench.latency.__main__",
    "derive": "headcount.bench.derive.__main__",
    "budget": "headcount.bench.budget.__main__",
    "routing": "headcount.bench.routing.__main__",
    "report": "headcount.reports.__main__",
}


def main() -> int:
    """Run the command that the first argument names; its exit code."""
    words = sys.argv[1:]
    if not words or words[0] not in COMMANDS:
        asked = words[0] if words else ""
        if asked in ("", "-h", "--help"):
            print(f"{__doc__}\n\ncommands: {', '.join(COMMANDS)}; headcount COMMAND --help tells more")
            return 0 if asked else 2
        print(f"headcount: error: unknown command {asked!r}; choose from {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    return import_module(COMMANDS[words[0]]).main(words[1:])


if __name__ == "__main__":
    sys.exit(main())
