"""Families of decoder-only transformers: from the keys of a configuration to the shape of a decoder.

Names of modules are those of transformers 5; values that configurations leave out are its defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from stead.readers.hf.config import Config, NotAnalytic
from stead.readers.hf.decoder import Attention, Decoder, FeedForward, Latent, Norms
from stead.readers.hf.moe import Experts

Windows = Sequence[int | None]

NORMED = ("q_norm", "k_norm")


def llama(config: Config) -> Decoder:
    """Llama."""
    bias = config.flag("mlp_bias", default=False)
    return _like_llama(config, _attention(config, bias=_bias(config)), replace(_gated(config), bias=bias))


def mistral(config: Config) -> Decoder:
    """Llama with shared heads and a window; no biases."""
    window = _window(config, default=4096)
    return _like_llama(
        config, _attention(config, bias=False, shared=8), _gated(config), [window] * _layers(config)
    )


def qwen2(config: Config) -> Decoder:
    """Llama with biases of queries, keys and values."""
    return _like_llama(
        config, _attention(config, bias=True, out_bias=False), _gated(config), _qwen_windows(config)
    )


def qwen3(config: Config) -> Decoder:
    """Llama with normalised queries and keys."""
    attention = _attention(config, bias=_bias(config), norms=NORMED, width=128)
    return _like_llama(config, attention, _gated(config), _qwen_windows(config))


def gemma(config: Config) -> Decoder:
    """Llama with wide heads and a tied head."""
    attention = _attention(config, bias=_bias(config), width=256)
    shape = _like_llama(config, attention, _gated(config, _gemma_function(config)))
    return replace(shape, tied=config.flag("tie_word_embeddings", default=True))


def gemma2(config: Config) -> Decoder:
    """Gemma with four normalisations per layer; every other layer has a window."""
    return replace(
        gemma(config),
        attention=_attention(config, bias=_bias(config), shared=4, width=256),
        norms=Norms(
            after_attention="post_attention_layernorm",
            before_mlp="pre_feedforward_layernorm",
            after_mlp="post_feedforward_layernorm",
        ),
        windows=_typed_windows(config, every=2),
    )


def gemma3(config: Config) -> Decoder:
    """Gemma 2 with normalised queries and keys; one layer in six looks back without limit."""
    every = config.size("sliding_window_pattern", "_sliding_window_pattern", default=6)
    return replace(
        gemma2(config),
        attention=_attention(config, bias=_bias(config), shared=4, width=256, norms=NORMED),
        windows=_typed_windows(config, every=every),
    )


def phi(config: Config) -> Decoder:
    """Attention and feed-forward part side by side behind one normalisation."""
    if config.flag("qk_layernorm", default=False):
        raise NotAnalytic("qk_layernorm is true")
    feed_forward = FeedForward(
        inner=config.size("intermediate_size"),
        function=config.text("hidden_act", default="gelu_new"),
        gate="",
        up="fc1",
        down="fc2",
        act="activation_fn",
        bias=True,
    )
    return replace(
        _like_llama(config, _attention(config, bias=True, out="dense"), feed_forward),
        norms=Norms(before_mlp="", bias=True),
        final_norm="final_layernorm",
        parallel=True,
        one_norm=True,
        head_bias=True,
    )


def phi3(config: Config) -> Decoder:
    """Llama with fused projections."""
    feed_forward = replace(_gated(config), fused="gate_up_proj", act="activation_fn")
    attention = _attention(config, bias=False, fused="qkv_proj")
    return _like_llama(config, attention, feed_forward, [_window(config)] * _layers(config))


def gpt2(config: Config) -> Decoder:
    """GPT-2: learned positions, fused projections, a tied head."""
    if config.flag("add_cross_attention", default=False):
        raise NotAnalytic("add_cross_attention is true")
    hidden = config.size("n_embd", "hidden_size")
    heads = config.heads("n_head", "num_attention_heads")
    return Decoder(
        hidden=hidden,
        layers=config.layers("n_layer", "num_hidden_layers"),
        vocabulary=config.size("vocab_size"),
        attention=Attention(
            heads, heads, config.head_width(hidden, heads, named="n_head"), path="attn", fused="c_attn", out="c_proj",
            bias=True, rotates=False,
        ),
        feed_forward=FeedForward(
            inner=config.size("n_inner", default=4 * hidden),
            function=config.text("activation_function", default="gelu_new"),
            gate="", up="c_fc", down="c_proj", act="act", bias=True,
        ),
        norms=Norms("ln_1", "", "ln_2", "", bias=True),
        prefix="transformer.",
        embedding="wte",
        positions=("wpe", config.size("n_positions", "n_ctx", "max_position_embeddings")),
        block="h",
        final_norm="ln_f",
        rotary="",
        tied=config.flag("tie_word_embeddings", default=True),
    )  # fmt: skip


def gpt_neox(config: Config) -> Decoder:
    """GPT-NeoX and Pythia: fused projections, attention and feed-forward part side by side."""
    hidden = config.size("hidden_size")
    heads = config.heads("num_attention_heads")
    return Decoder(
        hidden=hidden,
        layers=_layers(config),
        vocabulary=config.size("vocab_size"),
        attention=Attention(
            heads, heads, config.head_width(hidden, heads), path="attention", fused="query_key_value", out="dense",
            bias=config.flag("attention_bias", default=True),
        ),
        feed_forward=FeedForward(
            inner=config.size("intermediate_size"), function=config.text("hidden_act", default="gelu"),
            gate="", up="dense_h_to_4h", down="dense_4h_to_h", act="act", bias=True,
        ),
        norms=Norms(bias=True),
        prefix="gpt_neox.",
        embedding="embed_in",
        final_norm="final_layer_norm",
        parallel=config.flag("use_parallel_residual", default=True),
        tied=config.flag("tie_word_embeddings", default=False),
    )  # fmt: skip


def opt(config: Config) -> Decoder:
    """OPT: learned positions, a tied head."""
    hidden = config.size("hidden_size")
    if config.size("word_embed_proj_dim", default=hidden) != hidden:
        raise NotAnalytic("word_embed_proj_dim differs from hidden_size")
    _only_plain(
        config, do_layer_norm_before=True, _remove_final_layer_norm=False, layer_norm_elementwise_affine=True
    )
    bias = config.flag("enable_bias", default=True)
    heads = config.heads("num_attention_heads")
    return Decoder(
        hidden=hidden,
        layers=_layers(config),
        vocabulary=config.size("vocab_size"),
        attention=Attention(
            heads, heads, config.head_width(hidden, heads), out="out_proj", bias=bias, rotates=False
        ),
        feed_forward=FeedForward(
            inner=config.size("ffn_dim"), function=config.text("activation_function", default="relu"),
            path="", gate="", up="fc1", down="fc2", act="activation_fn", bias=bias,
        ),
        norms=Norms("self_attn_layer_norm", "", "final_layer_norm", "", bias=True),
        prefix="model.decoder.",
        # Positions are counted from 2 on, a habit that the tables of trained models keep.
        positions=("embed_positions", config.size("max_position_embeddings") + 2),
        final_norm="final_layer_norm",
        rotary="",
        tied=config.flag("tie_word_embeddings", default=True),
    )  # fmt: skip


def mixtral(config: Config) -> Decoder:
    """Mistral with experts in every layer."""
    window = _window(config)
    shape = replace(mistral(config), windows=[window] * _layers(config))
    chosen = _experts(config, config.heads("num_local_experts", "num_experts"), shape.feed_forward.inner)
    return replace(shape, experts=lambda layer: chosen)


def qwen2_moe(config: Config) -> Decoder:
    """Qwen 2 with experts in some layers, and one expert that every token uses."""
    shared = config.size("shared_expert_intermediate_size")
    chosen = _experts(
        config, config.heads("num_experts"), config.size("moe_intermediate_size"), shared=shared
    )
    bias = config.flag("qkv_bias", default=True)
    window = _window(config) if config.flag("use_sliding_window", default=False) else None
    last = config.size("max_window_layers", default=28, least=0)
    windows = [window if layer % 2 == 0 and layer < last else None for layer in range(_layers(config))]
    if config.entries("layer_types"):
        windows = _typed_windows(config)
    shape = _like_llama(config, _attention(config, bias=bias, out_bias=False), _gated(config), windows)
    return replace(shape, experts=_in_sparse_layers(config, chosen))


def qwen3_moe(config: Config) -> Decoder:
    """Qwen 3 with experts in some layers."""
    count = config.heads("num_experts", "num_local_experts")
    chosen = _experts(config, count, config.size("moe_intermediate_size"))
    window = _window(config) if config.flag("use_sliding_window", default=False) else None
    attention = _attention(config, bias=_bias(config), norms=NORMED)
    shape = _like_llama(config, attention, _gated(config), [window] * _layers(config))
    return replace(shape, experts=_in_sparse_layers(config, chosen))


def olmoe(config: Config) -> Decoder:
    """Llama with experts in every layer; queries and keys are normalised over all heads."""
    attention = replace(_attention(config, bias=_bias(config), norms=NORMED), norms_whole=True)
    shape = _like_llama(config, attention, _gated(config))
    chosen = _experts(config, config.heads("num_experts", "num_local_experts"), shape.feed_forward.inner)
    return replace(shape, experts=lambda layer: chosen)


def phimoe(config: Config) -> Decoder:
    """Mixtral with biases."""
    bias = config.flag("attention_bias", default=False)
    shape = _like_llama(
        config, _attention(config, bias=bias), _gated(config), [_window(config)] * _layers(config)
    )
    count = config.heads("num_local_experts", "num_experts")
    chosen = replace(_experts(config, count, shape.feed_forward.inner), router="router")
    head_bias = config.flag("lm_head_bias", default=False)
    return replace(shape, norms=Norms(bias=True), head_bias=head_bias, experts=lambda layer: chosen)


def gpt_oss(config: Config) -> Decoder:
    """Experts with biases in every layer; every other layer has a window, and heads a score to compete with."""
    bias = config.flag("attention_bias", default=True)
    attention = replace(_attention(config, bias=bias, shared=8, width=64), sinks="sinks")
    shape = _like_llama(config, attention, _gated(config), _typed_windows(config, every=2, default=128))
    count = config.heads("num_local_experts", "num_experts")
    chosen = _experts(config, count, shape.feed_forward.inner)
    chosen = replace(chosen, bias=True, router="router", router_bias=True)
    return replace(shape, experts=lambda layer: chosen)


def granitemoe(config: Config) -> Decoder:
    """Llama with experts in every layer."""
    shape = _like_llama(config, _attention(config, bias=_bias(config)), _gated(config))
    count = config.heads("num_local_experts", "num_experts")
    chosen = replace(_experts(config, count, shape.feed_forward.inner), router="router")
    inside = replace(shape.feed_forward, path="block_sparse_moe")
    return replace(shape, feed_forward=inside, experts=lambda layer: chosen)


def deepseek(config: Config) -> Decoder:
    """DeepSeek 2 and 3: narrow caches, experts behind the first layers, and some that every token uses."""
    attention = Latent(
        heads=config.heads("num_attention_heads"),
        plain=config.size("qk_nope_head_dim", default=128, most=2**20),
        rotated=config.size("qk_rope_head_dim", default=64, most=2**20),
        values=config.size("v_head_dim", default=128, most=2**20),
        rank=config.size("kv_lora_rank", default=512),
        query_rank=config.size("q_lora_rank") if config.has("q_lora_rank") else 0,
        bias=_bias(config),
    )
    inner = config.size("moe_intermediate_size")
    shared = config.heads("n_shared_experts") if config.has("n_shared_experts") else 0
    chosen = _experts(
        config, config.heads("n_routed_experts", "num_local_experts"), inner, shared=shared * inner
    )
    chosen = replace(chosen, shared="shared_experts", shared_gate="")
    dense = config.size("first_k_dense_replace", default=0, least=0)
    shape = Decoder(
        hidden=config.size("hidden_size"), layers=_layers(config), vocabulary=config.size("vocab_size"),
        attention=attention, feed_forward=_gated(config), tied=config.flag("tie_word_embeddings", default=False),
    )  # fmt: skip
    return replace(shape, experts=lambda layer: chosen if layer >= dense else None)


def llama4(config: Config) -> Decoder:
    """Llama with experts and a shared one in some layers; most layers look back within a chunk."""
    layers = _layers(config)
    inner = config.size("intermediate_size")
    dense = FeedForward(
        inner=config.size("intermediate_size_mlp", default=inner), path="feed_forward", act="activation_fn",
        function=config.text("hidden_act", default="silu"),
    )  # fmt: skip
    chosen = _experts(config, config.heads("num_local_experts"), inner, shared=inner)
    chosen = replace(chosen, router="router", shared_act="activation_fn", shared_gate="")
    every = config.size("interleave_moe_layer_step", default=1)
    listed = {layer for layer in config.entries("moe_layers") if isinstance(layer, int)}
    sparse = listed or set(range(every - 1, layers, every))
    chunk = config.size("attention_chunk_size") if config.has("attention_chunk_size") else None
    rotated = config.entries("no_rope_layers") or [int((layer + 1) % 4 != 0) for layer in range(layers)]
    if len(rotated) != layers:
        raise config.wrong("no_rope_layers", f"{len(rotated)} entries for {layers} layers; list one for each")
    attention = _attention(config, bias=_bias(config), shared=8)
    shape = _like_llama(config, attention, dense, [chunk if own else None for own in rotated])
    return replace(shape, experts=lambda layer: chosen if layer in sparse else None)


# What they have in common


def _like_llama(
    config: Config, attention: Attention, feed_forward: FeedForward, windows: Windows = ()
) -> Decoder:
    return Decoder(
        hidden=config.size("hidden_size"),
        layers=_layers(config),
        vocabulary=config.size("vocab_size"),
        attention=attention,
        feed_forward=feed_forward,
        windows=windows,
        tied=config.flag("tie_word_embeddings", default=False),
    )


def _layers(config: Config) -> int:
    return config.layers("num_hidden_layers")


def _bias(config: Config) -> bool:
    return config.flag("attention_bias", default=False)


def _attention(
    config: Config,
    *,
    bias: bool,
    out_bias: bool | None = None,
    shared: int | None = None,  # heads of keys if the configuration is silent; None: as many as of queries
    width: int | None = None,  # of a head if the configuration is silent; None: a part of the hidden size
    norms: tuple[str, str] | None = None,
    fused: str = "",
    out: str = "o_proj",
) -> Attention:
    hidden, heads = config.size("hidden_size"), config.heads("num_attention_heads")
    return Attention(
        heads, config.shared_heads(heads, default=shared),
        config.head_width(hidden, heads, key="head_dim", default=width),
        bias=bias, out_bias=out_bias, norms=norms, fused=fused, out=out,
    )  # fmt: skip


def _gated(config: Config, function: str = "") -> FeedForward:
    own = function or config.text("hidden_act", default="silu")
    return FeedForward(inner=config.size("intermediate_size"), function=own)


def _gemma_function(config: Config) -> str:
    return config.text("hidden_activation", default="") or config.text(
        "hidden_act", default="gelu_pytorch_tanh"
    )


def _only_plain(config: Config, **plain: bool) -> None:
    """Refuse variants that the formulas do not cover."""
    for key, expected in plain.items():
        if config.flag(key, default=expected) != expected:
            raise NotAnalytic(f"{key} is {str(not expected).lower()}")


def _experts(config: Config, count: int, inner: int, *, shared: int = 0) -> Experts:
    used = config.heads("num_experts_per_tok")
    if used > count:
        raise config.wrong(
            "num_experts_per_tok", f"a token cannot use {used} of {count} experts; correct one of them"
        )
    return Experts(count, used, inner, config.text("hidden_act", default="silu"), shared_inner=shared)


def _in_sparse_layers(config: Config, chosen: Experts) -> Callable[[int], Experts | None]:
    dense = {layer for layer in config.entries("mlp_only_layers") if isinstance(layer, int)}
    every = config.size("decoder_sparse_step", default=1)
    return lambda layer: chosen if layer not in dense and (layer + 1) % every == 0 else None


def _window(config: Config, default: int | None = None) -> int | None:
    """How far back layers look; None: without limit."""
    if "sliding_window" not in config.values:
        return default
    return config.size("sliding_window") if config.values["sliding_window"] else None


def _qwen_windows(config: Config) -> Windows:
    if config.entries("layer_types"):
        return _typed_windows(config)
    window = _window(config) if config.flag("use_sliding_window", default=False) else None
    first = config.size("max_window_layers", default=28, least=0)
    return [window if layer >= first else None for layer in range(_layers(config))]


def _typed_windows(config: Config, *, every: int = 0, default: int = 4096) -> list[int | None]:
    """Windows of layers that are listed by type; unlisted, every so-many-th layer looks back without limit."""
    window, types, layers = _window(config, default=default), config.entries("layer_types"), _layers(config)
    if not types:
        return [None if every and (layer + 1) % every == 0 else window for layer in range(layers)]
    if len(types) != layers:
        raise config.wrong("layer_types", f"{len(types)} types for {layers} layers; list one for each")
    unknown = next((one for one in types if one not in ("full_attention", "sliding_attention")), None)
    if unknown is not None:
        raise NotAnalytic(f"layer_types has {str(unknown)[:60]!r}")
    return [window if one == "sliding_attention" else None for one in types]
