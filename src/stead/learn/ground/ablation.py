"""Parts of a method that experiments vary and a user does not: they are no options of its solver.

A method `X` has the parts of `Parts()`; its subclass `AblatedX` takes others. Files of policies name options
and parts side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class Parted(Protocol):
    """A method with parts."""

    @property
    def parts(self) -> DataclassInstance:
        """Its parts."""

    @classmethod
    def stored(cls, options: Mapping[str, object]) -> object:
        """The method with options and parts given by name."""


T = TypeVar("T")
M = TypeVar("M", bound=Parted)


def from_options(kind: Callable[..., T], parts: type[DataclassInstance], options: Mapping[str, object]) -> T:
    """A method of a kind that takes parts, from options of which some are parts."""
    inner = {one.name for one in fields(parts)} & options.keys()
    own = {name: value for name, value in options.items() if name not in inner}
    build: Callable[..., object] = parts
    return kind(**own, parts=build(**{name: options[name] for name in inner}))


def varied(method: M, **options: object) -> M:
    """The same method with other options, parts among them, as in `varied(GDP(), attention=False, updates=10)`."""
    names = [one.name for one in fields(cast("DataclassInstance", method)) if one.name != "parts"]
    own = {name: getattr(method, name) for name in names}
    return cast(M, method.stored({**own, **asdict(method.parts), **options}))


def former(parts: type[DataclassInstance]) -> dict[str, str]:
    """What to tell whoever sets a part as an option, which it was once."""
    return {one.name: " any more; experiments vary it in Python, see docs/learned/index.md" for one in fields(parts)}
