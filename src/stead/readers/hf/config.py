"""config.json of a Hugging Face model: values looked up by name and checked, one sentence for whatever is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stead.errors import BadInput
from stead.printing.wording import quoted, shown, suggestion
from stead.readers.common.checked_values import Wrong, object_of

MAX_SIZE = 2**28  # of any dimension; the largest vocabularies have 2^19 entries
MAX_LAYERS = 2**14
MAX_PARTS = 2**16  # heads or experts


class NotAnalytic(Exception):
    """Why a graph cannot be computed from the configuration alone: whoever has transformers captures it instead."""


class Config:
    """The keys of a configuration, or of a part of one such as `text_config`."""

    def __init__(self, values: Mapping[str, Any], where: str, place: str = "") -> None:
        self.values = values
        self.where = where  # the file, as messages show it
        self.place = place  # "text_config." inside that part

    @property
    def model_type(self) -> str:
        """The name of the architecture, such as `llama`."""
        return self.text("model_type")

    @property
    def architecture(self) -> str:
        """The class that transformers would make, such as `LlamaForCausalLM`; empty where it is left open."""
        given = self.values.get("architectures")
        if given is None or given == []:
            return ""
        if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
            raise self.wrong("architectures", f"must be a list of names, got {shown(given)}")
        return str(given[0])

    def has(self, key: str) -> bool:
        """Whether a key is there and not null."""
        return self.values.get(key) is not None

    def size(self, *keys: str, default: int | None = None, least: int = 1, most: int = MAX_SIZE) -> int:
        """A whole number under the first of some names that is there."""
        key = next((key for key in keys if self.has(key)), None)
        if key is None:
            if default is None:
                raise self.missing(keys[0])
            return default
        value = self.values[key]
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(key, f"must be a whole number from {least} to {most}, got {shown(value)}")
        return value

    def layers(self, *keys: str, default: int | None = None) -> int:
        """How many layers there are."""
        return self.size(*keys, default=default, most=MAX_LAYERS)

    def heads(self, *keys: str, default: int | None = None) -> int:
        """How many heads, or experts, there are."""
        return self.size(*keys, default=default, most=MAX_PARTS)

    def sizes(self, key: str, *, default: int | None = None) -> tuple[int, int]:
        """Height and width: a list of two numbers, or one number for both."""
        value = self.values.get(key)
        if not isinstance(value, list):
            side = self.size(key, default=default)
            return side, side
        if len(value) != 2:
            raise self.wrong(key, f"must be one number or two, got {len(value)}")
        pair = Config({"0": value[0], "1": value[1]}, self.where, f"{self.place}{key}.")
        return pair.size("0"), pair.size("1")

    def flag(self, key: str, *, default: bool) -> bool:
        """true or false."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(key, f"must be true or false, got {shown(value)}")
        return value

    def text(self, key: str, *, default: str | None = None) -> str:
        """A word."""
        value = self.values.get(key)
        if value is None:
            if default is None:
                raise self.missing(key)
            return default
        if not isinstance(value, str):
            raise self.wrong(key, f"must be text, got {shown(value)}")
        return value

    def entries(self, key: str) -> list[Any]:
        """A list; empty where there is none."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, list):
            raise self.wrong(key, f"must be a list, got {shown(value)}")
        return list(value or ())

    def labels(self) -> int:
        """Number of classes of a classifier."""
        named = self.values.get("id2label")
        if isinstance(named, dict) and named:
            return len(named)
        return self.size("num_labels", "_num_labels", default=2)

    def part(self, key: str) -> Config:
        """The configuration of a part."""
        if not self.has(key):
            raise self.missing(key)
        try:
            return Config(object_of(self.values[key]), self.where, f"{self.place}{key}.")
        except Wrong as wrong:
            raise self.wrong(key, str(wrong)) from None

    def only(self, key: str, *known: str, default: str) -> str:
        """One of some words; with another one, formulas do not hold."""
        given = self.text(key, default=default)
        if given not in known:
            raise NotAnalytic(f"{self.place}{key} is {quoted(given)}")
        return given

    def head_width(
        self,
        hidden: int,
        heads: int,
        *,
        key: str = "",
        default: int | None = None,
        named: str = "num_attention_heads",  # the key of the heads
    ) -> int:
        """Elements of one head: given under a key, or the width of the model divided among heads."""
        if key and self.has(key):
            return self.size(key, most=2**20)
        if default is not None:
            return default
        if hidden % heads:
            more = f", or add {key}" if key else ""
            raise self.wrong(
                named, f"{heads} heads do not divide a width of {hidden}; correct one of them{more}"
            )
        return hidden // heads

    def shared_heads(self, heads: int, *, default: int | None = None) -> int:
        """How many heads of keys and values the heads of queries share."""
        shared = self.heads("num_key_value_heads", default=default or heads)
        if heads % shared:
            raise self.wrong(
                "num_key_value_heads",
                f"{shared} heads of keys do not divide {heads} heads of queries; correct one",
            )
        return shared

    def wrong(self, key: str, problem: str) -> BadInput:
        """An error about the value of a key."""
        remedy = "" if ";" in problem else "; correct the configuration"
        return BadInput(f"{self.where}: {self.place}{key}: {problem}{remedy}")

    def missing(self, key: str) -> BadInput:
        """An error about a key that is not there."""
        near = (
            suggestion(key, _names(self.values)) or "; add it, or take the configuration of the model again"
        )
        whose = self.values.get("model_type")
        needs = f", which {quoted(whose)} needs" if isinstance(whose, str) and key != "model_type" else ""
        return BadInput(f"{self.where}: the key {quoted(self.place + key)} is missing{needs}{near}")


def _names(values: Iterable[str]) -> list[str]:
    return [key for key in values if len(key) < 100]
