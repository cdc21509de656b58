"""Vision transformers: ViT, and the towers of CLIP and SigLIP."""

from __future__ import annotations

from dataclasses import dataclass

from stead.readers.hf.config import Config
from stead.readers.hf.module_costs import Act, Sketch


@dataclass(frozen=True, slots=True)
class Patches:
    """What a tower makes of an image."""

    count: int
    width: int
    has_class: bool  # one more token, which stands for the whole image

    @property
    def tokens(self) -> int:
        """Rows that the layers see."""
        return self.count + self.has_class


@dataclass(frozen=True, slots=True)
class _Layer:
    """A layer of a tower: its modules and what they are made of."""

    heads: int
    width: int  # of one head
    inner: int
    function: str
    attention: str = "self_attn"
    out: str = "out_proj"
    first_norm: str = "layer_norm1"
    second_norm: str = "layer_norm2"
    qkv_bias: bool = True


def patches(config: Config, *, has_class: bool) -> Patches:
    """How an image is cut."""
    height, width = config.sizes("image_size", default=224)
    high, wide = config.sizes("patch_size", default=16)
    if high > height or wide > width:
        raise config.wrong(
            "patch_size", f"patches of {high} x {wide} are larger than images of {height} x {width}"
        )
    return Patches((height // high) * (width // wide), config.size("hidden_size"), has_class)


def vit(sketch: Sketch, config: Config, head: str) -> None:
    """ViT; `head` is what follows `ViT` in the name of its class."""
    prefix = "" if head == "Model" else "vit."
    own = patches(config, has_class=True)
    path = f"{prefix}embeddings"
    cut = _cut(sketch, config, f"{path}.patch_embeddings.projection", own, bias=True)
    tables = {f"{path}.cls_token": 1, f"{path}.position_embeddings": own.tokens}
    stream = _with_positions(sketch, path, cut, own, tables)
    bias = config.flag("qkv_bias", default=True)
    layer = _layer_of(
        config, "gelu", attention="attention", out="o_proj", first_norm="layernorm_before",
        second_norm="layernorm_after", qkv_bias=bias,
    )  # fmt: skip
    for number in range(config.layers("num_hidden_layers")):
        stream = _add_layer(sketch, layer, f"{prefix}layers.{number}", stream, own.tokens)
    stream = sketch.norm(f"{prefix}layernorm", stream, bias=True)
    first = (sketch.step.batch,)  # the class token alone
    if head == "ForImageClassification":
        sketch.keep(sketch.linear("classifier", stream, config.labels(), rows=first))
        return
    sketch.keep(stream)
    pooled = sketch.linear(
        f"{prefix}pooler.dense", stream, config.size("pooler_output_size", default=own.width), rows=first
    )
    function = config.text("pooler_act", default="tanh")
    sketch.keep(sketch.activation(f"{prefix}pooler.activation", function, pooled, module=f"{prefix}pooler"))


def clip_vision(sketch: Sketch, config: Config, prefix: str = "") -> list[Act]:
    """The vision tower of CLIP; what goes into its first layer and what comes out of each, the end last."""
    own = patches(config, has_class=True)
    path = f"{prefix}embeddings"
    cut = _cut(sketch, config, f"{path}.patch_embedding", own, bias=False)
    tables = {f"{path}.class_embedding": 1, f"{path}.position_embedding.weight": own.tokens}
    stream = sketch.norm(f"{prefix}pre_layrnorm", _with_positions(sketch, path, cut, own, tables), bias=True)
    states = _layers(sketch, config, prefix, stream, own, "quick_gelu")
    end = sketch.norm(f"{prefix}post_layernorm", states[-1], bias=True, rows=(sketch.step.batch,))
    return [*states, end]


def siglip_vision(sketch: Sketch, config: Config, prefix: str = "") -> list[Act]:
    """The vision tower of SigLIP; what goes into its first layer and what comes out of each, the end last."""
    own = patches(config, has_class=False)
    path = f"{prefix}embeddings"
    cut = _cut(sketch, config, f"{path}.patch_embedding", own, bias=True)
    tables = {f"{path}.position_embedding.weight": own.tokens}
    stream = _with_positions(sketch, path, cut, own, tables)
    states = _layers(sketch, config, prefix, stream, own, "gelu_pytorch_tanh")
    end = sketch.norm(f"{prefix}post_layernorm", states[-1], bias=True)
    if config.flag("vision_use_head", default=True):
        end = _pooling_head(sketch, config, f"{prefix}head", end)
    return [*states, end]


def _layers(
    sketch: Sketch, config: Config, prefix: str, stream: Act, own: Patches, function: str
) -> list[Act]:
    layer = _layer_of(config, function)
    states = [stream]
    for number in range(config.layers("num_hidden_layers")):
        states.append(_add_layer(sketch, layer, f"{prefix}encoder.layers.{number}", states[-1], own.tokens))
    return states


def _layer_of(config: Config, function: str, **names: str | bool) -> _Layer:
    heads = config.heads("num_attention_heads")
    return _Layer(
        heads, config.head_width(config.size("hidden_size"), heads), config.size("intermediate_size"),
        config.text("hidden_act", default=function), **names,  # type: ignore[arg-type]
    )  # fmt: skip


def _cut(sketch: Sketch, config: Config, path: str, own: Patches, *, bias: bool) -> Act:
    """A convolution whose window is a patch."""
    kernel = (own.width, config.size("num_channels", default=3), *config.sizes("patch_size", default=16))
    return sketch.convolution(path, (), sketch.tokens(own.count, own.width), kernel, bias=bias)


def _with_positions(sketch: Sketch, path: str, cut: Act, own: Patches, tables: dict[str, int]) -> Act:
    """Patches with their positions added, after the class token where there is one."""
    parameters = [sketch.parameter(name, rows, own.width) for name, rows in tables.items()]
    shape = sketch.tokens(own.tokens, own.width)
    flops = float(sketch.step.batch * own.tokens * own.width)
    return sketch.operator(
        f"{path}.add", "Add", (cut,), shape, module=path, flops=flops, parameters=parameters, forgets=True
    )


def _add_layer(sketch: Sketch, layer: _Layer, path: str, stream: Act, tokens: int) -> Act:
    normed = sketch.norm(f"{path}.{layer.first_norm}", stream, bias=True)
    inside = f"{path}.{layer.attention}"
    projected = [
        sketch.linear(f"{inside}.{name}", normed, stream.width, bias=layer.qkv_bias)
        for name in ("q_proj", "k_proj", "v_proj")
    ]
    mixed = sketch.attention(
        inside,
        projected,
        heads=layer.heads,
        shared=layer.heads,
        width=layer.width,
        queries=tokens,
        keys=tokens,
    )
    attended = sketch.linear(f"{inside}.{layer.out}", mixed, stream.width)
    stream = sketch.add(f"{path}.attention_add", stream, attended, module=path)
    normed = sketch.norm(f"{path}.{layer.second_norm}", stream, bias=True)
    worked = _mlp(sketch, layer, f"{path}.mlp", normed)
    return sketch.add(f"{path}.mlp_add", stream, worked, module=path)


def _mlp(sketch: Sketch, layer: _Layer, path: str, x: Act) -> Act:
    wide = sketch.linear(f"{path}.fc1", x, layer.inner)
    return sketch.linear(
        f"{path}.fc2", sketch.activation(f"{path}.activation_fn", layer.function, wide), x.width
    )


def _pooling_head(sketch: Sketch, config: Config, path: str, x: Act) -> Act:
    """One query of its own looks at all patches."""
    layer = _layer_of(config, "gelu_pytorch_tanh")
    width, batch, tokens = x.width, sketch.step.batch, x.shape[-2]
    inside = f"{path}.attention"
    names = [
        sketch.parameter(f"{path}.probe", width),
        sketch.parameter(f"{inside}.in_proj_weight", 3 * width, width),
        sketch.parameter(f"{inside}.in_proj_bias", 3 * width),
    ]
    flops = 2.0 * batch * (2 * tokens + 1) * width * width
    projected = sketch.operator(
        f"{inside}.in_proj", "Linear", (x,), (batch, 2 * tokens + 1, width), module=inside, flops=flops,
        parameters=names,
    )  # fmt: skip
    mixed = sketch.attention(
        inside, (projected,), heads=layer.heads, shared=layer.heads, width=layer.width, queries=1, keys=tokens
    )
    pooled = sketch.linear(f"{inside}.out_proj", mixed, width)
    worked = _mlp(sketch, layer, f"{path}.mlp", sketch.norm(f"{path}.layernorm", pooled, bias=True))
    return sketch.add(f"{path}.add", pooled, worked, module=path)
