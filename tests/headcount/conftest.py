"""Fixtures of the golden files, for commands that run in this process."""

from tests.golden.conftest import _files as _files
from tests.golden.conftest import folder as folder
