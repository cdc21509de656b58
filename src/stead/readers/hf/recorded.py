"""Graphs of any model that transformers can build: without weights, recorded by torch.

The model is made on the `meta` device, where tensors have shapes and no memory. A run becomes a graph by
`torch.export`, a training step by recording it. Code that comes with a model is never run.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from typing import Any

from stead.errors import BadInput, MissingExtra
from stead.graph import BUFFER, KV_CACHE, NOT_PARAMETERS, Graph
from stead.printing.wording import one_line, quoted, suggestion
from stead.readers.base import Model
from stead.readers.hf.complete import Mixture, is_of_experts, with_idle_weights, with_sleeping_experts
from stead.readers.hf.config import Config
from stead.readers.hf.merge import by_block, by_module
from stead.readers.hf.step import DEFAULT_CACHE, DEFAULT_CONTEXT, NOT_SAID, Granularity, Phase

EXTRA = "hf"
MAX_LAYERS = 1000  # to capture; torch takes about a second for every four

_TORCH_DTYPES = {"fp64": "float64", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
_USED_KEYS = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "moe_top_k",
    "moe_topk",
    "moe_k",
    "top_k_experts",
)
_LAYER_KEYS = (
    "num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers", "num_decoder_layers",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """What is wanted of a model."""

    name: str
    phase: Phase
    batch: int
    context: int
    dtype: str
    granularity: Granularity
    prompt: int = 0  # tokens where no context is given; 0: as many as the model takes


def is_installed() -> bool:
    """Whether models can be captured."""
    return find_spec("transformers") is not None and find_spec("torch") is not None


def captured(config: Config, asked: Asked, *, reason: str) -> Model:
    """The graph of a configured model; `reason` says why formulas will not do."""
    if not is_installed():
        raise MissingExtra("transformers", EXTRA, f"{config.where}: capturing the model ({reason})")
    _check_layers(config)
    if asked.dtype not in _TORCH_DTYPES:
        raise BadInput(
            f"{config.where}: models are captured in {', '.join(_TORCH_DTYPES)}, not in {asked.dtype}"
        )
    with _quiet():
        return _Capture(config, asked).model()


def _check_layers(config: Config, depth: int = 0) -> None:
    for key, value in config.values.items():
        if key in _LAYER_KEYS and config.has(key):
            config.size(key, least=0, most=MAX_LAYERS)
        elif isinstance(value, dict) and depth < 3:
            _check_layers(Config(value, config.where, f"{config.place}{key}."), depth + 1)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without remarks of transformers about a model that nobody runs, and of torch about what is told anyway."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


class _Capture:
    """One model on its way to a graph."""

    def __init__(self, config: Config, asked: Asked) -> None:
        self.config = config
        self.asked = asked
        self.torch = import_module("torch")
        self.transformers = import_module("transformers")
        self.module = self._module()
        self.phase = self._phase()
        self.context = self._context()
        self.stateless = ""  # why there is no cache, where nobody asked for one

    def model(self) -> Model:
        inputs = self._inputs()
        if self.phase == "decode" and self.context:
            self._add_cache()
        try:
            found = self._training(inputs) if self.phase == "train" else self._inference(inputs)
        except BadInput as error:
            raise BadInput(f"{self.config.where}: {error}") from error.__cause__
        idle = self._idle(found.graph)
        graph = with_idle_weights(found.graph, idle, self._buffers(found.graph))
        graph = with_sleeping_experts(graph, self._mixture())
        graph = _coarsened(graph, self.asked.granularity)
        return Model(graph, notes=(*self._about(idle), *found.notes))

    # Building

    def _module(self) -> Any:
        """The model without weights."""
        own = self._own_config()
        found = (
            getattr(self.transformers, self.config.architecture, None) if self.config.architecture else None
        )
        dtype = getattr(self.torch, _TORCH_DTYPES[self.asked.dtype])
        try:
            with self.torch.device("meta"):
                if found is not None and hasattr(found, "_from_config"):
                    module = found._from_config(own, dtype=dtype)
                else:
                    module = self._auto_class(own).from_config(own, dtype=dtype)
        except Exception as error:  # classes of models raise whatever they like
            raise self._refused("transformers cannot build it", error) from error
        return module.eval() if self.asked.phase != "train" else module.train()

    def _own_config(self) -> Any:
        kind = self.config.model_type
        known = self.transformers.CONFIG_MAPPING
        if kind not in known:
            code = "; it needs code of its own, which is never run" if self.config.has("auto_map") else ""
            near = suggestion(kind, known.keys())
            raise BadInput(
                f"{self.config.where}: transformers {self.transformers.__version__} knows no model_type "
                f"{quoted(kind)}{near}{code}; write the graph as stead-json, or export the model to ONNX"
            )
        values = _plain(
            {key: value for key, value in self.config.values.items() if key != "quantization_config"}
        )
        try:
            return known[kind].from_dict(values)
        except Exception as error:  # checks of configurations raise whatever they like
            raise self._refused("transformers refuses the configuration", error) from error

    def _auto_class(self, own: Any) -> Any:
        """The class that writes text if there is one, else the plain model."""
        writers = self.transformers.AutoModelForCausalLM
        return writers if type(own) in writers._model_mapping else self.transformers.AutoModel

    def _refused(self, what: str, error: Exception) -> BadInput:
        reason = one_line(" ".join(str(error).split()), 300) or type(error).__name__
        return BadInput(f"{self.config.where}: {what}: {type(error).__name__}: {reason}")

    # Running

    def _phase(self) -> Phase:
        pairs = bool(getattr(self.module.config, "is_encoder_decoder", False))
        writes = self.module.can_generate() and self.module.main_input_name == "input_ids"
        if self.asked.phase == "infer":
            return "decode" if writes and not pairs else "prefill"
        if self.asked.phase == "decode" and (pairs or not writes):
            raise BadInput(
                f"{self.config.where}: no step of decoding of a {self.config.model_type} model can be captured; "
                "take phase prefill"
            )
        return self.asked.phase

    def _context(self) -> int:
        """Tokens in the cache, or of each sequence: as asked, or what the model takes up to the usual number."""
        text = self.module.config.get_text_config()
        if self.phase == "decode":
            return _longest(text, DEFAULT_CACHE) if self.asked.context == NOT_SAID else self.asked.context
        return max(self.asked.context, 0) or self.asked.prompt or _longest(text, DEFAULT_CONTEXT)

    def _inputs(self) -> dict[str, Any]:
        """Arguments of the model: tensors without contents of the shapes that the model expects."""
        own, batch = self.module.config, self.asked.batch
        main = self.module.main_input_name
        takes = signature(self.module.forward).parameters
        tokens = 1 if self.phase == "decode" else self.context
        pairs_up = "pixel_values" in takes and not self.module.can_generate()  # texts with images, as in CLIP
        if main == "input_ids" and not pairs_up:
            inputs: dict[str, Any] = {main: self._ids(batch, tokens)}
        elif main in ("input_ids", "pixel_values"):
            inputs = {"pixel_values": self._image(own)}
            if "input_ids" in takes:
                inputs["input_ids"] = self._ids(batch, tokens)
        elif main == "input_features" and hasattr(own, "num_mel_bins"):
            frames = 2 * getattr(own, "max_source_positions", 1500)
            inputs = {main: self._numbers(batch, own.num_mel_bins, frames)}
        elif main == "input_values":
            inputs = {main: self._numbers(batch, max(self.asked.context, 0) or 16_000)}
        else:
            raise BadInput(
                f"{self.config.where}: what goes into a {self.config.model_type} model ({main}) is unknown"
            )
        if "decoder_input_ids" in takes:
            target = min(tokens, getattr(own, "max_target_positions", None) or tokens)
            inputs["decoder_input_ids"] = self._ids(batch, target)
        if self.phase != "decode" and "use_cache" in takes:
            inputs["use_cache"] = False
        return inputs

    def _image(self, own: Any) -> Any:
        eye = getattr(own, "vision_config", None) or own
        size = getattr(eye, "image_size", None) or 224
        height, width = size if isinstance(size, list | tuple) else (size, size)
        return self._numbers(self.asked.batch, getattr(eye, "num_channels", 3), height, width)

    def _ids(self, *shape: int) -> Any:
        return self.torch.zeros(*shape, dtype=self.torch.long, device="meta")

    def _numbers(self, *shape: int) -> Any:
        dtype = getattr(self.torch, _TORCH_DTYPES[self.asked.dtype])
        return self.torch.zeros(*shape, dtype=dtype, device="meta")

    def _inference(self, inputs: Mapping[str, Any]) -> Model:
        from stead.readers.torch.exported import from_torch

        self._return_tensors()
        return from_torch(self.module, inputs, name=self.asked.name)

    def _training(self, inputs: Mapping[str, Any]) -> Model:
        from stead.readers.torch.capture import from_capture

        self._return_tensors()
        return from_capture(self.module, inputs, _loss(self.torch), name=self.asked.name)

    def _return_tensors(self) -> None:
        """Make the model return its tensors alone, without caches."""
        tensor = self.torch.Tensor

        def tensors_only(module: Any, arguments: Any, output: Any) -> Any:
            found = output.values() if isinstance(output, Mapping) else output
            return tuple(value for value in found if isinstance(value, tensor))

        self.module.register_forward_hook(tensors_only)

    def _add_cache(self) -> None:
        """Give every layer buffers of keys and values, and the model a cache made of them."""
        context = self.context
        try:
            layers = self._cache_shapes()
        except BadInput:
            if self.asked.context != NOT_SAID:
                raise
            self.context, self.stateless = 0, "it keeps no keys and values"
            return
        found = [module for module in self.module.modules() if hasattr(module, "layer_idx")]
        places = {module.layer_idx: module for module in found}
        held: list[tuple[Any, list[str]]] = []  # module and its buffers
        for number, (keys, values) in enumerate(layers):
            owner = places.get(number, self.module)
            label = "" if number in places else f"_{number}"
            names = [f"{kind}{label}_kv_cache" for kind in ("key", "value")]
            for name, shape in zip(names, (keys, values), strict=True):
                owner.register_buffer(name, self._numbers(*shape[:2], context, *shape[3:]))
            held.append((owner, names))

        def with_cache(module: Any, arguments: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
            cache = self.transformers.DynamicCache(config=module.config)
            for number, (owner, names) in enumerate(held):
                cache.update(*(getattr(owner, name) for name in names), number)
            return arguments, {**named, "past_key_values": cache}

        self.module.register_forward_pre_hook(with_cache, with_kwargs=True)

    def _cache_shapes(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Shapes of keys and values of every layer for one token."""
        try:
            with self.torch.no_grad():
                cache = self.module(input_ids=self._ids(self.asked.batch, 1), use_cache=True).past_key_values
            return [(tuple(layer.keys.shape), tuple(layer.values.shape)) for layer in cache.layers]
        except Exception as error:  # not every model keeps keys and values in layers
            raise self._refused("its cache is not one of keys and values; take context 0", error) from error

    # What a capture does not see

    def _idle(self, graph: Graph) -> dict[str, int]:
        """Bytes of parameters that take no part in the step."""
        used = set(graph.weight_names)
        seen = {id(p) for name, p in self.module.named_parameters(remove_duplicate=False) if name in used}
        return {
            name: p.numel() * p.itemsize for name, p in self.module.named_parameters() if id(p) not in seen
        }

    def _buffers(self, graph: Graph) -> dict[str, str]:
        """New names of weights that are no parameters, such as tables of positions that are computed."""
        parameters = {name for name, _ in self.module.named_parameters(remove_duplicate=False)}
        return {
            name: f"{name}{BUFFER}"
            for name in graph.weight_names
            if name not in parameters and not name.endswith((KV_CACHE, *NOT_PARAMETERS))
        }

    def _mixture(self) -> Mixture:
        text = self.module.config.get_text_config()
        inside = getattr(text, "ffn_config", None) or text
        used = next((n for key in _USED_KEYS if isinstance(n := getattr(inside, key, None), int)), 0)
        counts = {
            name: p.shape[0]
            for name, p in self.module.named_parameters()
            if is_of_experts(name) and p.dim() > 2
        }
        tokens = self.asked.batch * (1 if self.phase == "decode" else self.context)
        return Mixture(used, tokens, counts)

    def _about(self, idle: Mapping[str, int]) -> list[str]:
        """What was captured, and what takes no part."""
        versions = f"transformers {self.transformers.__version__}, torch {self.torch.__version__}"
        kind = type(self.module).__name__
        is_default = self.asked.context == NOT_SAID or (self.asked.context == 0 and self.phase != "decode")
        said = " (default; --context N)" if is_default else ""
        context = f"no context: {self.stateless}" if self.stateless else f"context {self.context}{said}"
        if self.module.main_input_name != "input_ids":
            context = f"input {self.module.main_input_name}"
        notes = [
            f"{kind}, {self.phase}, batch {self.asked.batch}, {context}, {self.asked.dtype}: "
            f"captured with {versions}"
        ]
        if idle:
            first, size = next(iter(idle)), sum(idle.values())
            notes.append(
                f"{len(idle)} parameters of {size} bytes take no part, such as {first}; they are held"
            )
        return notes


def _plain(value: Any) -> Any:
    """Values of a configuration; numbers that JSON does not have are written as {"__float__": "Infinity"}."""
    if isinstance(value, dict):
        special = value.get("__float__") if len(value) == 1 else None
        if special in ("Infinity", "-Infinity", "NaN"):
            return float(special)
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _longest(own: Any, usual: int) -> int:
    given = getattr(own, "max_position_embeddings", None) or getattr(own, "n_positions", None)
    return min(usual, given) if isinstance(given, int) and given > 0 else usual


def _coarsened(graph: Graph, granularity: Granularity) -> Graph:
    if granularity == "operators":
        return graph
    return by_block(graph) if granularity == "blocks" else by_module(graph)


def _loss(torch: Any) -> Callable[[Any], Any]:
    """Cross-entropy against some class for scores; targets have no contents, so any shape of one will do."""

    def loss(output: Any) -> Any:
        scores = output[0].float()
        rows = scores.reshape(-1, scores.shape[-1])
        targets = torch.zeros(rows.shape[0], dtype=torch.long, device=rows.device)
        return torch.nn.functional.cross_entropy(rows, targets)

    return loss
