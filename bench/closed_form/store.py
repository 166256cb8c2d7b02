"""Find the proved closed form of a configuration: the one that is stored, or a new one. Imports no torch."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from headcount.bench.closed_form.terms import Bytes, ClosedForm
from headcount.bench.errors import UsageError
from headcount.bench.output.files import cache_folder
from headcount.bench.output.progress import stage
from headcount.bench.store import find_stored
from headcount.bench.targets.process import ProcessExited, isolated_process
from headcount.bench.targets.target import Target
from headcount.formulas.published.typed import from_data, to_data

FOLDER = "closed_forms"
"""The folder of the store."""


@dataclass(frozen=True)
class Refusal:
    """Why a configuration has no closed form."""

    refused: str


LETTERS = "letters"
"""A closed form whose sizes are in the letters that plans divide."""
TYPES = "types"
"""Activations whose numbers have the types of a run."""
PREFILL_PEAK = "peak_prefill_bytes"
"""The most bytes alive, the cache left out, while a context is read, with the logits of the last token alone."""


def find_closed_form(target: Target, *words: str) -> ClosedForm:
    """Return the closed form of a configuration: the stored one, or a new one, which is proved and stored.

    ``words``: LETTERS, or none. Raises what run_isolated does.
    """
    return _find(ClosedForm, "derivation", target, *words)


def find_activations(target: Target, name: str, *words: str) -> Bytes:
    """Return the bytes of the column ``name`` of activations, stored as closed forms are; ``words``: TYPES, or none."""
    return _find(Bytes, "activations", target, name, *words)


_FOUND: dict[str, Any] = {}
"""What this process has found, by target and words."""


def _find(kind: Any, file: str, target: Target, *words: str) -> Any:
    """Return what ``derive`` of a file of this package returns for a target: the stored one, or a new one."""
    name = repr((file, words, replace(target, lengths={}), cache_folder(FOLDER)))
    if name not in _FOUND:
        _FOUND[name] = _find_stored(kind, file, target, *words)
    found = _FOUND[name]
    if isinstance(found, Refusal):
        raise UsageError(found.refused)
    return found


class _Processes(ExitStack):
    """Processes that derive closed forms, one for each target."""

    def __init__(self) -> None:
        super().__init__()
        self._by_target: dict[str, Callable[..., Any]] = {}

    def run(self, task: str, target: Target, *words: str) -> Any:
        """Return what a task returns for a target. Raises what run_isolated does."""
        name = repr(target)
        if name not in self._by_target:
            self._by_target[name] = self.enter_context(isolated_process(target.code, target.spec))
        try:
            return self._by_target[name](task, target, *words)
        except ProcessExited:
            # the next task starts another
            del self._by_target[name]
            raise


_OPEN: list[_Processes] = []
"""The processes of the block that runs."""


@contextmanager
def one_process() -> Iterator[_Processes]:
    """Derive all that a block needs of a target in one process, which ends with the outermost block."""
    if _OPEN:
        yield _OPEN[-1]
        return
    with _Processes() as found:
        _OPEN.append(found)
        try:
            yield found
        finally:
            _OPEN.pop()


def _find_stored(kind: Any, file: str, target: Target, *words: str) -> Any:
    plain = replace(target, lengths={"batch_size": 1, "seq_len": 8})
    task = f"headcount.bench.closed_form.{file}:derive"
    what = words[0] if words else "the closed form"

    def derive() -> Any:
        with stage(f"deriving {what} of {target.spec}, once; a large model takes a minute"):
            try:
                with one_process() as processes:
                    return processes.run(task, plain, *words)
            except ProcessExited:
                raise
            except UsageError as error:
                return Refusal(str(error))

    def decode(data: Any) -> Any:
        return from_data(Refusal if data.keys() == {"refused"} else kind, data)

    options = [target.dtype, target.elementwise, target.formula_set, dict(target.formulas)]
    return find_stored(
        FOLDER, target.spec, (file, words, sorted(target.settings.items()), options), derive, to_data, decode
    )
