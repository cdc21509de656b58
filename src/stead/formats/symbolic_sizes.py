"""Sizes that an exported program leaves open: from its hints, or as the user sets them.

A size is an expression over symbols, written as sympy does: `Add(Symbol('s7', integer=True), Integer(1))` or
`s7 + 1`. Expressions are walked, never executed.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from stead.errors import BadInput
from stead.formats.strict_json import Wrong, one_line, quoted, suggestion

MAX_SIZE = 2**40  # of one dimension that the user sets
_MAX_TEXT = 10_000
_MAX_NUMBER = 2**62


class SymbolicSizes:
    """The numbers that open sizes stand for.

    >>> sizes = SymbolicSizes({"x[0]": 8})
    >>> sizes.learn("x", 0, "Symbol('s7', positive=True)", 2)
    >>> sizes.size("Mul(Integer(3), Symbol('s7'))", 6), sizes.size("s7 // 2", 1)
    (24, 4)
    """

    def __init__(self, given: Mapping[str, int]) -> None:
        for name, size in given.items():
            if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MAX_SIZE:
                raise BadInput(
                    f"shapes: {quoted(str(name))} must be a whole number from 1 to 2^40, got {size!r}"
                )
        self._given = dict(given)
        self._known: dict[str, int] = {}  # symbol: number
        self._places: dict[str, str] = {}  # "x[0]": symbol
        self.guessed = False  # some size could not be computed from the given ones

    def learn(self, input_name: str, axis: int, text: str, hint: int | None) -> None:
        """Take note of an open dimension of an input."""
        symbol = _bare_symbol(text)
        if symbol is None:
            return
        place = f"{input_name}[{axis}]"
        self._places[place] = symbol
        for name in (symbol, place):
            if name in self._given:
                self._known[symbol] = self._given[name]
                return
        if hint is not None:
            self._known.setdefault(symbol, hint)

    def size(self, text: str, hint: int | None) -> int:
        """The number for an expression; Wrong if there is none."""
        if hint is not None and not self._given:
            return hint
        try:
            return _whole(_evaluated(text, {**self._known, **self._given}))
        except (Wrong, ArithmeticError, ValueError):
            if hint is None:
                symbols = ", ".join(sorted(_symbols(text))) or one_line(text, 60)
                raise Wrong(
                    f"the size {symbols} depends on data; set it with the option shapes, as in "
                    f'shapes={{"{symbols.split(",")[0]}": 100}}'
                ) from None
            self.guessed = True
            return hint

    def check(self, also: Iterable[str] = ()) -> None:
        """Wrong if a number was given for a dimension that is not open."""
        known = {**self._known, **self._places, **dict.fromkeys(also)}
        for name in self._given:
            if name not in known:
                listed = ", ".join(quoted(place) for place in list(self._places)[:8]) or "none"
                raise Wrong(
                    f"shapes: no open dimension {quoted(name)}{suggestion(name, known)}; open: {listed}"
                )

    def notes(self) -> Iterator[str]:
        """Sentences about sizes that nobody set."""
        silent = [place for place, symbol in self._places.items() if not {place, symbol} & set(self._given)]
        if silent:
            shown = ", ".join(
                f"{one_line(place, 60)} {self._known[self._places[place]]}" for place in silent[:8]
            )
            more = ", ..." if len(silent) > 8 else ""
            yield f"open dimensions have the size of the example: {shown}{more}; set them with the option `shapes`"
        if self.guessed:
            yield "some open sizes could not be computed from `shapes` and have the size of the example"


def _whole(number: float) -> int:
    if isinstance(number, float) and not number.is_integer():
        raise Wrong("not a whole number")
    if not 0 <= number <= _MAX_NUMBER:
        raise Wrong("out of range")
    return int(number)


def _parsed(text: str) -> ast.expr:
    if len(text) > _MAX_TEXT:
        raise Wrong("too long")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Wrong("not an expression") from None


def _bare_symbol(text: str) -> str | None:
    """The symbol that an expression consists of."""
    try:
        return _symbol(_parsed(text))
    except Wrong:
        return None


def _symbol(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Call) and _name(node.func) == "Symbol" and node.args:
        first = node.args[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            return first.value
    return None


def _symbols(text: str) -> set[str]:
    try:
        nodes = [node for node in ast.walk(_parsed(text)) if isinstance(node, ast.expr)]
    except (Wrong, RecursionError):
        return set()
    functions = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    found = (_symbol(node) for node in nodes if id(node) not in functions)
    return {symbol for symbol in found if symbol}


def _evaluated(text: str, known: Mapping[str, int]) -> float:
    try:
        return _number(_parsed(text), known)
    except RecursionError:
        raise Wrong("nested too deeply") from None


def _number(node: ast.expr, known: Mapping[str, int]) -> float:
    symbol = _symbol(node)
    if symbol is not None:
        if symbol not in known:
            raise Wrong(f"no size for {quoted(symbol)}")
        return known[symbol]
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return _small(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand, known)
    if isinstance(node, ast.BinOp):
        name = type(node.op).__name__
        return _applied(name, [_number(node.left, known), _number(node.right, known)])
    if isinstance(node, ast.Call) and not node.keywords:
        return _applied(_name(node.func), [_number(item, known) for item in node.args])
    raise Wrong("an expression of an unknown kind")


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _applied(name: str, numbers: list[float]) -> float:
    function = _FUNCTIONS.get(name)
    if function is None or not numbers:
        raise Wrong(f"an unknown function {quoted(name)}")
    try:
        return _small(function(*numbers))
    except TypeError:
        raise Wrong(f"{quoted(name)} with {len(numbers)} operands") from None


def _small(number: float) -> float:
    if not -_MAX_NUMBER <= number <= _MAX_NUMBER:
        raise Wrong("out of range")
    return number


def _power(base: float, exponent: float) -> float:
    if not -64 <= exponent <= 64:
        raise Wrong("out of range")
    return float(base**exponent) if exponent < 0 else base**exponent


def _added(*numbers: float) -> float:
    return sum(numbers)


def _multiplied(*numbers: float) -> float:
    return math.prod(numbers)


_FUNCTIONS: dict[str, Callable[..., float]] = {
    "Integer": lambda a: a,
    "Float": lambda a: a,
    "Add": _added,
    "Mul": _multiplied,
    "Mult": _multiplied,
    "Sub": lambda a, b: a - b,
    "Pow": _power,
    "PowByNatural": _power,
    "Max": max,
    "Min": min,
    "Abs": abs,
    **dict.fromkeys(("FloorDiv", "CleanDiv"), lambda a, b: a // b),
    "CeilDiv": lambda a, b: -(-a // b),
    **dict.fromkeys(("Mod", "PythonMod"), lambda a, b: a % b),
    **dict.fromkeys(("Div", "Rational", "IntTrueDiv", "FloatTrueDiv", "TrueDiv"), lambda a, b: a / b),
    **dict.fromkeys(("floor", "FloorToInt"), math.floor),
    **dict.fromkeys(("ceiling", "CeilToInt"), math.ceil),
    **dict.fromkeys(("TruncToInt", "trunc"), math.trunc),
    **dict.fromkeys(("ToFloat", "Identity"), lambda a: a),
}
