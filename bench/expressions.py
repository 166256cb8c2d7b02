"""Closed forms as text: ``T*d*E + 2*K*T*d*D`` with sizes by name. No torch."""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from headcount.formulas.ledger import divide

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: divide,
    ast.Pow: operator.pow,
}


def evaluate(expression: str, sizes: Mapping[str, int]) -> int:
    """The value of sums, differences, products, exact quotients and powers (``**`` or ``^``) of named sizes.

    Raises ValueError for a name without a size, for anything else than these, and for a value that is not whole.
    """
    try:
        tree = ast.parse(expression.replace("^", "**"), mode="eval")
    except SyntaxError as error:
        raise ValueError(f"{expression!r} is no expression: {error.msg}") from error
    value = _value(tree.body, expression, sizes)
    if not isinstance(value, int):
        raise ValueError(f"{expression!r} is {value}, not a whole number")
    return value


def _value(node: ast.expr, expression: str, sizes: Mapping[str, int]) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in sizes:
            raise ValueError(f"{expression!r} needs a size for {node.id}; it has {', '.join(sizes) or 'none'}")
        return sizes[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = (_value(part, expression, sizes) for part in (node.left, node.right))
        return _BINARY[type(node.op)](left, right)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, expression, sizes)
    raise ValueError(f"{expression!r} holds {ast.unparse(node)!r}: only + - * / ** of sizes and whole numbers")
