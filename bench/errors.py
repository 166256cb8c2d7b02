"""Errors that end a command with an exit code of their own and a message of one line."""


class UsageError(Exception):
    """Wrong usage; the message names the valid choices."""

    exit_code = 2


class EnvironmentMissing(Exception):
    """This machine cannot do what was asked, for instance no CUDA device with ``--device cuda``."""

    exit_code = 3
