"""The formulas of the pages as MathML: letters, numbers, signs, fractions, indices and powers, as sympy prints them."""

import re
from html import escape

TOKEN = re.compile(r"\s*(\\left|\\right|\\[A-Za-z]+|\d+|[A-Za-z]|[{}^_]|.)")
SIGNS = {r"\ge": "≥", r"\le": "≤", "-": "\N{MINUS SIGN}", "'": "′"}


def mathml(formula: str) -> str:
    """A formula of TeX as MathML. ValueError for a command that is none of these."""
    tokens = TOKEN.findall(formula)
    made = _row(tokens)
    if tokens:
        raise ValueError(f"{formula!r} closes more than it opens")
    return f"<math>{made}</math>"


def _row(tokens: list[str]) -> str:
    """What stands until a closing brace, or the end; ``tokens`` are used up."""
    out: list[str] = []
    while tokens and tokens[0] != "}":
        token = tokens.pop(0)
        if token in ("^", "_"):
            out.append(_index(token, out.pop(), tokens))
        elif token not in (r"\left", r"\right"):
            out.append(_atom(token, tokens))
    return "".join(out)


def _index(token: str, base: str, tokens: list[str]) -> str:
    first, tag = _group(tokens), {"^": "msup", "_": "msub"}[token]
    if tokens and tokens[0] in "^_" and tokens[0] != token:
        tokens.pop(0)
        other = _group(tokens)
        low, high = (first, other) if token == "_" else (other, first)
        return f"<msubsup>{base}{low}{high}</msubsup>"
    return f"<{tag}>{base}{first}</{tag}>"


def _group(tokens: list[str]) -> str:
    if tokens[0] != "{":
        return _atom(tokens.pop(0), tokens)
    tokens.pop(0)
    made = _row(tokens)
    tokens.pop(0)
    return f"<mrow>{made}</mrow>"


def _atom(token: str, tokens: list[str]) -> str:
    if token == r"\frac":
        return f"<mfrac>{_group(tokens)}{_group(tokens)}</mfrac>"
    if token == "{":
        return _group(["{", *_taken(tokens)])
    if token.isdigit():
        return f"<mn>{token}</mn>"
    if token.isalpha():
        return f"<mi>{token}</mi>"
    if token.startswith("\\") and token not in SIGNS:
        raise ValueError(f"no sign for {token}")
    return f"<mo>{escape(SIGNS.get(token, token))}</mo>"


def _taken(tokens: list[str]) -> list[str]:
    """The tokens up to the brace that closes, taken from ``tokens``."""
    depth, own = 1, []
    while depth:
        own.append(tokens.pop(0))
        depth += {"{": 1, "}": -1}.get(own[-1], 0)
    return own
