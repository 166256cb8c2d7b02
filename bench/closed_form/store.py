"""Store proved closed forms by the file's content and the versions of what counts it. Imports no torch."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import headcount
from headcount.bench.closed_form.terms import Bytes, ClosedForm
from headcount.bench.env import versions
from headcount.bench.errors import UsageError, read_file
from headcount.bench.output.files import cache_folder, ensure_dir, write
from headcount.bench.output.progress import stage
from headcount.bench.result_cache import digest
from headcount.bench.targets.process import ProcessExited, isolated_process
from headcount.bench.targets.target import Target, is_configuration
from headcount.formulas.published.typed import from_data, to_data
from headcount.models.configs.numbers import TYPE_BITS, parse_element_bytes

LIBRARIES = ("torch", "transformers")
SOURCES = (
    "bench/closed_form",
    "bench/contractions",
    "bench/counting",
    "bench/targets",
    "bench/trace",
    "formulas/ledger.py",
)
"""What a closed form depends on, besides the libraries."""


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
DEFAULT_TYPE = "bfloat16"
"""The type of weights that nobody names."""


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
    name = repr((file, words, replace(target, lengths={}), folder()))
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
    key = _key(target, file, *words)
    if key and (found := _read(Refusal, key) or _read(kind, key)):
        return found
    plain = replace(target, lengths={"batch_size": 1, "seq_len": 8})
    task = f"headcount.bench.closed_form.{file}:derive"
    what = words[0] if words else "the closed form"
    with stage(f"deriving {what} of {target.spec}, once; a large model takes a minute"):
        try:
            with one_process() as processes:
                found = processes.run(task, plain, *words)
        except ProcessExited:
            raise
        except UsageError as error:
            found = Refusal(str(error))
    if key := key or _key(target, file, *words):
        # a folder that cannot be written to costs time, and no answer
        with suppress(UsageError):
            write(ensure_dir(folder()) / f"{key}.json", json.dumps(to_data(found)))
    return found


def type_bytes(spec: str, dtype: str | None) -> int | Fraction:
    """Return the bytes of a number of the type that is given or that the configuration names, else of bfloat16."""
    named = dtype
    if named is None and is_configuration(spec):
        with suppress(UsageError, ValueError):
            named = _named_type(json.loads(_content(spec) or "{}"))
    return parse_element_bytes(named if named in TYPE_BITS else DEFAULT_TYPE)


def _named_type(config: Any) -> str | None:
    """Return the type that a configuration, or a part of it, names."""
    if not isinstance(config, dict):
        return None
    own = config.get("dtype") or config.get("torch_dtype")
    return own if isinstance(own, str) else next(filter(None, map(_named_type, config.values())), None)


def folder() -> Path:
    """Return the folder of stored closed forms."""
    return cache_folder("closed_forms")


def _read(kind: Any, key: str) -> Any:
    """Return what is stored under a key; None where it is nothing that can be read."""
    path = folder() / f"{key}.json"
    try:
        return from_data(kind, json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        # derived again
        return None


def _key(target: Target, *words: str) -> str | None:
    """Return the digest of all that a closed form depends on; None for a name that is not in the hub's cache."""
    content = _content(target.spec)
    if content is None:
        return None
    found = {
        "words": words,
        "content": hashlib.sha256(content).hexdigest(),
        "settings": {name: target.settings[name] for name in sorted(target.settings)},
        "options": [target.dtype, target.elementwise, target.formula_set, dict(target.formulas)],
        "versions": {"headcount": headcount.__version__, **versions(LIBRARIES)},
        "sources": digest(SOURCES),
    }
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def _content(spec: str) -> bytes | None:
    """Return the content of the configuration's file."""
    if not spec.startswith("hf:"):
        return read_file(spec)
    try:
        from huggingface_hub import try_to_load_from_cache
    except ModuleNotFoundError:
        return None
    name, _, revision = spec.removeprefix("hf:").partition("@")
    with suppress(ValueError):
        path = try_to_load_from_cache(name, "config.json", revision=revision or "main")
        return Path(path).read_bytes() if isinstance(path, str) else None
    return None
