"""Sizes that an exported program leaves open: from its hints, or as the user sets them.

A size is an expression over symbols, written as sympy does: `Add(Symbol('s7', integer=True), Integer(1))` or
`s7 + 1`. Expressions are walked, never executed.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from stead.printing.wording import one_line, quoted, shown, suggestion
from stead.readers.common.assumed_sizes import Assumed, usual_size
from stead.readers.common.checked_values import Wrong

_MAX_TEXT = 10_000
_MAX_NUMBER = 2**62


class SymbolicSizes:
    """The numbers that open sizes stand for.

    >>> sizes = SymbolicSizes({"x[0]": 8})
    >>> sizes.learn("x", 0, "Symbol('s7', positive=True)", 2)
    >>> sizes.size("Mul(Integer(3), Symbol('s7'))", 6), sizes.size("s7 // 2", 1)
    (24, 4)
    """

    def __init__(self, given: Mapping[str, int | tuple[int, ...]], batch: int | None = None) -> None:
        self._given = {name: size for name, size in given.items() if isinstance(size, int)}
        self._shapes = {name: shape for name, shape in given.items() if isinstance(shape, tuple)}
        self._batch = batch
        self._known: dict[str, int] = {}  # symbol: number
        self._places: dict[str, str] = {}  # "x[0]": symbol
        self._kinds: dict[str, str] = {}  # symbol: kind of dimension
        self.guessed = False  # some size could not be computed from the given ones

    def learn(self, input_name: str, axis: int, text: str, hint: int | None, rank: int = 1) -> None:
        """Take note of an open dimension of an input with so many dimensions."""
        symbol = _bare_symbol(text)
        if symbol is None:
            return
        place = f"{input_name}[{axis}]"
        self._places[place] = symbol
        self._kinds.setdefault(symbol, usual_size(symbol, axis, rank)[0])
        if self._kinds[symbol] == "batch" and self._batch is not None:
            self._given.setdefault(symbol, self._batch)
        set_size = self._set_size(input_name, axis, rank)
        if set_size is not None:
            self._given[place] = set_size
        for name in (symbol, place):
            if name in self._given:
                self._known[symbol] = self._given[name]
                return
        if hint is not None:
            self._known.setdefault(symbol, hint)

    def fixed(self, input_name: str, axis: int, size: object, rank: int) -> None:
        """Wrong if the user gives another size for a dimension that is not open."""
        set_size = self._set_size(input_name, axis, rank)
        if set_size is not None and set_size != size:
            where = f"dimension {axis} of {quoted(input_name)}"
            raise Wrong(f"shapes: {where} is {shown(size)} in the file, not {set_size}")

    def _set_size(self, input_name: str, axis: int, rank: int) -> int | None:
        shape = self._shapes.get(input_name)
        if shape is not None and len(shape) != rank:
            raise Wrong(f"shapes: {quoted(input_name)} has {rank} dimensions, got {'x'.join(map(str, shape))}")
        return None if shape is None else shape[axis]

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
        inputs = {place.rpartition("[")[0] for place in self._places}
        known = {**self._known, **self._places, **dict.fromkeys(also), **dict.fromkeys(inputs)}
        for name in (*self._given, *self._shapes):
            if name not in known or (name in inputs and name not in self._shapes):
                listed = ", ".join(quoted(place) for place in list(self._places)[:8]) or "none"
                raise Wrong(
                    f"shapes: no open dimension {quoted(name)}{suggestion(name, known)}; open: {listed}"
                )
        if self._batch is not None and "batch" not in self._kinds.values():
            raise Wrong("batch: no input has an open first dimension in the file; export the model with one")

    def notes(self) -> Iterator[str]:
        """A sentence about sizes that could not be told."""
        if self.guessed:
            yield "some open sizes could not be computed from `shapes` and have the size of the example"

    @property
    def assumed(self) -> tuple[Assumed, ...]:
        """Open dimensions that have the size of the example, each symbol once."""
        found: dict[str, Assumed] = {}
        for place, symbol in self._places.items():
            set_ = any(self._places.get(name, name) == symbol for name in self._given)
            if not set_ and symbol in self._known:
                found.setdefault(symbol, Assumed(place, self._known[symbol], self._kinds[symbol]))
        return tuple(found.values())


def size_of_expression(text: str, known: Mapping[str, int]) -> int | None:
    """The number for an expression over known sizes; None if there is none.

    >>> size_of_expression("past_sequence_length + 1", {"past_sequence_length": 128})
    129
    """
    try:
        return _whole(_evaluated(text, known))
    except (Wrong, ArithmeticError, ValueError):
        return None


def symbols_of(text: str) -> set[str]:
    """The symbols of an expression; none if it is not one."""
    return _symbols(text)


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
