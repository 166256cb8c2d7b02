"""Errors that end a command with an exit code of their own and a message of one line."""

from importlib.util import find_spec


class UsageError(Exception):
    """Wrong usage; the message names the valid choices."""

    exit_code = 2


class EnvironmentMissing(Exception):
    """This machine cannot do what was asked, for instance no CUDA device with ``--device cuda``."""

    exit_code = 3


def needs(package: str) -> None:
    """EnvironmentMissing, with how to install it, where ``package`` is not installed."""
    if find_spec(package) is None:
        raise EnvironmentMissing(missing(package))


def missing(package: str) -> str:
    """What is said of a package that is not installed."""
    wanted = INSTALLED_BY.get(package, "headcount")
    return (
        f"this needs {package}, which is not installed: pip install '{wanted}'; closed forms need nothing "
        "(headcount macs --counter closed-form)"
    )


INSTALLED_BY = {"triton": "headcount[gpu]", "transformers": "headcount[hf]", "torchvision": "headcount[torchvision]"}
"""What brings a package that headcount does not bring by itself."""
