"""Reader of Hugging Face models: a folder, or a config.json alone; weights are not needed.

Two routes. Common architectures are written down from formulas, in milliseconds and without other packages. All
others, and graphs of single operators, are captured: transformers builds the model without weights, torch records it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from stead.errors import BadGraph, BadInput
from stead.files import collector_paused
from stead.printing.wording import one_line, shown_path, suggestion
from stead.readers.base import Model
from stead.readers.common.checked_values import Wrong, object_of
from stead.readers.common.strict_json import read_json, stem
from stead.readers.hf.architectures import FAMILIES, family_of, prompt_length, step_of
from stead.readers.hf.config import MAX_PARTS, Config, NotAnalytic
from stead.readers.hf.merge import by_block
from stead.readers.hf.module_costs import Sketch
from stead.readers.hf.recorded import Asked, captured
from stead.readers.hf.safetensors import Stored, stored_weights
from stead.readers.hf.step import (
    DEFAULT_DTYPE,
    GRANULARITIES,
    MAX_BATCH,
    MAX_CONTEXT,
    NOT_SAID,
    PHASES,
    TRAFFICS,
    Granularity,
    Phase,
    Traffic,
    Types,
    dtype_named,
)
from stead.readers.hf.training import training_graph
from stead.readers.known_formats import OfTable

CONFIG = "config.json"



@dataclass(frozen=True, slots=True)
class HuggingFace(OfTable):
    """Reader of Hugging Face models.

    `phase` "infer" is a step of decoding for models that write text, a run for all others. `context` counts tokens in
    the cache for decoding, tokens of each sequence otherwise; by default 4096 and 2048, or what the model takes if that
    is less. 0 is an empty cache.
    `dtype` of weights is by default what the configuration or the files say. With `traffic` "weights" operators move
    weights and caches only, as if activations never left the chip. The experts of a layer become `expert_groups`
    operators of equally many experts.
    """

    batch: int = 1
    context: int = NOT_SAID
    phase: Phase = "infer"
    dtype: str = ""
    granularity: Granularity = "layers"
    traffic: Traffic = "all"
    expert_groups: int = 1
    name: ClassVar[str] = "huggingface"

    def __post_init__(self) -> None:
        limits = (("batch", 1, MAX_BATCH), ("context", 0, MAX_CONTEXT), ("expert_groups", 1, MAX_PARTS))
        for option, least, most in limits:
            number = getattr(self, option)
            if option == "context" and number == NOT_SAID:
                continue
            if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
                raise BadInput(f"{option} must be a whole number from {least} to {most}, got {number!r}")
        for option, known in (("phase", PHASES), ("granularity", GRANULARITIES), ("traffic", TRAFFICS)):
            if getattr(self, option) not in known:
                raise BadInput(f"{option} is one of {', '.join(known)}, got {getattr(self, option)!r}")
        if self.dtype:
            dtype_named(self.dtype)

    def read(self, path: str | os.PathLike[str]) -> Model:
        """The graph of a folder with a config.json, or of such a file."""
        given = Path(path)
        file = given / CONFIG if given.is_dir() else given
        where = shown_path(file)
        if given.is_dir() and not file.is_file():
            raise BadInput(f"{shown_path(path)}: the folder has no {CONFIG}; name the folder of one model")
        try:
            config = Config(object_of(read_json(file)), where)
            stored = stored_weights(file.parent) if file.name == CONFIG else Stored()
            return self._model(config, stored, _title(file))
        except Wrong as wrong:
            raise BadInput(f"{where}: {wrong}; is it the configuration of a model?") from None
        except BadGraph as error:
            raise BadGraph(f"{where}: {one_line(str(error))}") from None

    def from_config(self, values: dict[str, Any], *, name: str = "") -> Model:
        """The graph of a configuration that is at hand as a mapping."""
        config = Config(values, name or "configuration")
        return self._model(config, Stored(), name or config.model_type)

    def _model(self, config: Config, stored: Stored, title: str) -> Model:
        dtype = self._dtype(config, stored)
        reason = "single operators are wanted"
        if self.granularity != "operators":
            try:
                with collector_paused():
                    return self._analytic(config, stored, title, dtype)
            except NotAnalytic as why:
                near = suggestion(config.model_type, FAMILIES) if config.model_type not in FAMILIES else ""
                reason = f"{why}{near}"
        asked = Asked(
            title, self.phase, self.batch, self.context, dtype, self.granularity,
            prompt=prompt_length(config, self.context),
        )  # fmt: skip
        return captured(config, asked, reason=reason)

    def _analytic(self, config: Config, stored: Stored, title: str, dtype: str) -> Model:
        family = family_of(config)
        head = family.head_of(config)
        step = step_of(
            family, config, phase=self.phase, batch=self.batch, context=self.context, types=Types(dtype),
            traffic=self.traffic, expert_groups=self.expert_groups,
        )  # fmt: skip
        sketch = Sketch(title, step, stored.bytes_of if stored.tensors else None, where=config.where)
        family.write(sketch, config, head)
        graph = training_graph(sketch) if step.phase == "train" else sketch.graph()
        if self.granularity == "blocks":
            graph = by_block(graph)
        return Model(graph, notes=(*_about(sketch, config, stored), *stored.notes))

    def _dtype(self, config: Config, stored: Stored) -> str:
        """The type of weights: asked for, that of the configuration, that of the files, or the usual one."""
        if self.dtype:
            return dtype_named(self.dtype)
        for place in (config, *(config.part(key) for key in ("text_config",) if config.has(key))):
            for key in ("dtype", "torch_dtype"):
                if place.has(key) and place.text(key) != "auto":
                    try:
                        return dtype_named(place.text(key))
                    except BadInput as error:
                        raise place.wrong(key, str(error)) from None
        return stored.dtype or DEFAULT_DTYPE


def _title(file: Path) -> str:
    """What a model is called: its folder, or its file where that has a name of its own."""
    if file.name != CONFIG:
        return stem(file).removesuffix("-config").removesuffix("_config") or "model"
    return file.resolve().parent.name or "model"


def _about(sketch: Sketch, config: Config, stored: Stored) -> list[str]:
    """What was assumed."""
    step = sketch.step
    notes = [f"{config.model_type}, {step.describe()}, {step.types.weight}; computed from the configuration"]
    if sketch.matched:
        total = len(sketch.parameters)
        notes.append(f"{sketch.matched} of {total} parameters are sized after the safetensors files")
    elif stored.tensors:
        notes.append("the safetensors files use other names; bytes follow from the configuration")
    elif config.has("quantization_config"):
        notes.append(
            f"the weights are quantised; without safetensors files they count as {step.types.weight}"
        )
    if any(part.kind in ("Expert", "Experts") for part in sketch.parts):
        notes.append("experts are counted as if all were equally likely to be used")
    caches = sum(size for size, _ in sketch.caches.values())
    if caches:
        notes.append(f"{sketch.parameter_bytes} bytes of parameters, {caches} bytes of caches (kv_cache)")
    return notes
