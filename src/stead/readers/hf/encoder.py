"""Encoders of text: BERT and RoBERTa, with their usual heads."""

from __future__ import annotations

from stead.readers.hf.config import Config, NotAnalytic
from stead.readers.hf.module_costs import Act, Sketch


def bert(sketch: Sketch, config: Config, head: str) -> None:
    """BERT; `head` is what follows `Bert` in the name of its class."""
    prefix = "" if head == "Model" else "bert."
    pooled = head in ("Model", "ForPreTraining", "ForSequenceClassification")
    stream, first = _encoder(sketch, config, prefix, pooled=pooled)
    words = f"{prefix}embeddings.word_embeddings.weight"
    if head in ("ForMaskedLM", "ForPreTraining"):
        transformed = sketch.linear("cls.predictions.transform.dense", stream, stream.width)
        act = config.text("hidden_act", default="gelu")
        transformed = sketch.activation("cls.predictions.transform.transform_act_fn", act, transformed)
        transformed = sketch.norm("cls.predictions.transform.LayerNorm", transformed, bias=True)
        sketch.keep(_predictions(sketch, config, "cls.predictions", transformed, words))
        if head == "ForPreTraining" and first is not None:
            sketch.keep(sketch.linear("cls.seq_relationship", first, 2))
    elif head == "ForSequenceClassification" and first is not None:
        sketch.keep(sketch.linear("classifier", first, config.labels()))
    else:
        _on_tokens(sketch, config, head, stream, first)


def roberta(sketch: Sketch, config: Config, head: str) -> None:
    """RoBERTa and XLM-R; `head` is what follows `Roberta` in the name of its class."""
    prefix = "" if head == "Model" else "roberta."
    stream, first = _encoder(sketch, config, prefix, pooled=head == "Model")
    if head == "ForMaskedLM":
        transformed = sketch.linear("lm_head.dense", stream, stream.width)
        transformed = sketch.activation("lm_head.gelu", "gelu", transformed, module="lm_head")
        transformed = sketch.norm("lm_head.layer_norm", transformed, bias=True)
        sketch.keep(
            _predictions(sketch, config, "lm_head", transformed, f"{prefix}embeddings.word_embeddings.weight")
        )
    elif head == "ForSequenceClassification":
        dense = sketch.linear("classifier.dense", stream, stream.width, rows=(sketch.step.batch,))
        sketch.keep(sketch.linear("classifier.out_proj", _tanh(sketch, "classifier", dense), config.labels()))
    else:
        _on_tokens(sketch, config, head, stream, first)


def _on_tokens(sketch: Sketch, config: Config, head: str, stream: Act, first: Act | None) -> None:
    """Heads that all have: a look at every token, or nothing on top."""
    if head == "ForTokenClassification":
        sketch.keep(sketch.linear("classifier", stream, config.labels()))
    elif head == "ForQuestionAnswering":
        sketch.keep(sketch.linear("qa_outputs", stream, 2))
    else:
        for result in (stream, first):
            if result is not None:
                sketch.keep(result)


def _encoder(sketch: Sketch, config: Config, prefix: str, *, pooled: bool) -> tuple[Act, Act | None]:
    """The result for every token and, if wanted, one for the whole sequence."""
    if config.flag("is_decoder", default=False) or config.flag("add_cross_attention", default=False):
        raise NotAnalytic("it is used as a decoder")
    config.only("position_embedding_type", "absolute", default="absolute")
    hidden, inner = config.size("hidden_size"), config.size("intermediate_size")
    heads = config.heads("num_attention_heads")
    width = config.head_width(hidden, heads)
    function = config.text("hidden_act", default="gelu")
    stream = _embeddings(sketch, config, f"{prefix}embeddings", hidden)
    for layer in range(config.layers("num_hidden_layers")):
        path = f"{prefix}encoder.layer.{layer}"
        stream = _attention(sketch, f"{path}.attention", stream, heads, width)
        wide = sketch.linear(f"{path}.intermediate.dense", stream, inner)
        wide = sketch.activation(f"{path}.intermediate.intermediate_act_fn", function, wide)
        stream = _output(sketch, f"{path}.output", wide, stream)
    if not pooled:
        return stream, None
    dense = sketch.linear(f"{prefix}pooler.dense", stream, hidden, rows=(sketch.step.batch,))
    return stream, _tanh(sketch, f"{prefix}pooler", dense)


def _embeddings(sketch: Sketch, config: Config, path: str, hidden: int) -> Act:
    count = sketch.step.queries
    stream = sketch.embedding(f"{path}.word_embeddings", config.size("vocab_size"), hidden, count)
    for name, key in (("token_type", "type_vocab_size"), ("position", "max_position_embeddings")):
        stream = sketch.embedding(
            f"{path}.{name}_embeddings", config.size(key), hidden, count, added_to=stream
        )
    return sketch.norm(f"{path}.LayerNorm", stream, bias=True)


def _attention(sketch: Sketch, path: str, x: Act, heads: int, width: int) -> Act:
    tokens = sketch.step.queries
    projected = [sketch.linear(f"{path}.self.{name}", x, x.width) for name in ("query", "key", "value")]
    mixed = sketch.attention(
        f"{path}.self", projected, heads=heads, shared=heads, width=width, queries=tokens, keys=tokens
    )
    return _output(sketch, f"{path}.output", mixed, x)


def _output(sketch: Sketch, path: str, x: Act, residual: Act) -> Act:
    dense = sketch.linear(f"{path}.dense", x, residual.width)
    return sketch.norm(
        f"{path}.LayerNorm", sketch.add(f"{path}.add", residual, dense, module=path), bias=True
    )


def _predictions(sketch: Sketch, config: Config, path: str, x: Act, words: str) -> Act:
    """Scores of all words: a product with the table of the embedding, and a bias of its own."""
    if not config.flag("tie_word_embeddings", default=True):
        raise NotAnalytic("tie_word_embeddings is false")
    return sketch.linear(f"{path}.decoder", x, config.size("vocab_size"), bias=f"{path}.bias", tied=words)


def _tanh(sketch: Sketch, path: str, x: Act) -> Act:
    return sketch.activation(f"{path}.activation", "tanh", x, module=path)
