"""One module of the user's, counted in a process of its own: what commands ask of it. Imports no torch."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from headcount.bench.counters.base import CounterError, failed_record
from headcount.bench.errors import UsageError
from headcount.bench.isolated.ask import Ended, ask
from headcount.formulas.published.expressions import evaluate


def count(
    spec: str,
    given: dict[str, int],
    counters: Sequence[str],
    *,
    device: str | None = None,
    allow_uncounted: bool = False,
    elementwise: str = "report",
    formulas: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """What a process of its own found for the module that ``spec`` builds (bench.isolated.module_answer).

    Raises what bench.isolated.ask does, and CounterError for operations that nobody knows.
    """
    details = {
        "settings": given,
        "counters": list(counters),
        "device": device,
        "allow_uncounted": allow_uncounted,
        "elementwise": elementwise,
        "formulas": dict(formulas or {}),
    }
    answer = _answer(spec, details)
    if "uncounted" in answer:
        lines = "; ".join(answer["uncounted"])
        reason = f"operations that may hold products: {lines}"
        reason += " (--formula OPERATOR=EXPRESSION counts one, --allow-uncounted leaves them out)"
        raise CounterError("right", spec, reason)
    if "refused" in answer:
        reason = f"contractions written elementwise: {'; '.join(answer['refused'])} (--elementwise report names them)"
        raise CounterError("right", spec, reason)
    return answer


def _answer(spec: str, details: dict[str, Any]) -> dict[str, Any]:
    """The answer of one process; where a counter ended it, of one for each counter, whose cell then says so."""
    try:
        return ask("count", spec, **details)
    except Ended:
        if not details["counters"]:
            raise
    answer = ask("count", spec, **{**details, "counters": []})
    for name in details["counters"] if "counters" in answer else ():
        try:
            answer["counters"] += ask("count", spec, **{**details, "counters": [name]})["counters"]
        except Ended as error:
            answer["counters"].append(failed_record(name, f"it ended its process, with exit code {error.code}"))
    return answer


def formulas(words: Sequence[str]) -> dict[str, str]:
    """Expressions by operation from OPERATOR=EXPRESSION words; UsageError for anything else."""
    out = {}
    for word in words:
        name, equals, text = word.partition("=")
        try:
            if not (equals and name):
                raise ValueError("is no OPERATOR=EXPRESSION")
            evaluate(text, dict.fromkeys(re.findall(r"[a-z]\d*", text), 1))
        except (ValueError, ZeroDivisionError) as error:
            raise UsageError(f"--formula {word}: {error}") from error
        out[name] = text
    return out
