"""``python -m bench``: names the commands."""

import sys

from headcount.bench.cli import run
from headcount.bench.errors import UsageError

COMMANDS = ("macs", "latency", "derive", "budget", "routing", "lock")


def main() -> int:
    """Print the commands to choose from and return the exit code of wrong usage."""
    return run("python -m bench", _refuse)


def _refuse() -> int:
    raise UsageError(f"choose a command: {', '.join(f'python -m bench.{name}' for name in COMMANDS)}")


if __name__ == "__main__":
    sys.exit(main())
