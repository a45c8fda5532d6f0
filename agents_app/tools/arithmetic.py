"""The builtin tool ``calculator``: arithmetic by walking a syntax tree, bounded in size and time."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable

from agents_app.errors import ToolFailed

Number = int | float

MAX_CHARACTERS = 1_000
MAX_BITS = 10_000
_SPELLINGS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "^": "**", "\n": " "})
_CONSTANTS: dict[str, float] = {"pi": math.pi, "e": math.e, "tau": math.tau}
_BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "abs": abs,
    "round": round,
    "min": min,
    "max": max,
    "sqrt": math.sqrt,
    "floor": math.floor,
    "ceil": math.ceil,
    "exp": math.exp,
    "log": math.log,
    "log10": math.log10,
    "log2": math.log2,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
}


def calculator(expression: str) -> str:
    """Calculates an arithmetic expression exactly.

    Knows + - * / // % **, parentheses, pi, e, sqrt, abs, round, min, max, floor, ceil, exp, log, sin, cos, tan.

    Args:
        expression: The expression, for example (17 + 4) * 2.
    """
    if len(expression) > MAX_CHARACTERS:
        raise ToolFailed(f"the expression is longer than {MAX_CHARACTERS} characters")
    try:
        tree = ast.parse(expression.translate(_SPELLINGS).strip(), mode="eval")
        return _shown(_value(tree.body))
    except ZeroDivisionError:
        raise ToolFailed("division by zero") from None
    except OverflowError:
        raise ToolFailed("the result is too large") from None
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise ToolFailed("this is not an arithmetic expression that can be calculated") from None


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return _bounded(value)
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _bounded(_power(_value(left), _value(right)))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _bounded(_BINARY[type(op)](_value(left), _value(right)))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _bounded(_FUNCTIONS[name](*[_value(argument) for argument in arguments]))
    raise ValueError("not arithmetic")


def _power(base: Number, exponent: Number) -> Number:
    # Checked before it is computed: 9**9**9 would never end.
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * abs(exponent) > MAX_BITS and abs(base) > 1:
        raise OverflowError
    result: Number | complex = base**exponent
    if isinstance(result, complex):
        raise ValueError("not a real number")
    return result


def _bounded(value: Number) -> Number:
    if isinstance(value, int):
        if value.bit_length() > MAX_BITS:
            raise OverflowError
    elif not math.isfinite(value):
        raise OverflowError
    return value


def _shown(value: Number) -> str:
    """The value with fifteen digits, which a float represents exactly: 0.1 + 0.2 is 0.3."""
    if isinstance(value, int):
        return str(value)
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return format(value, ".15g")
