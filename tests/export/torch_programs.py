"""Writes exported programs of small models: python torch_programs.py FOLDER NAME..."""

import sys
from pathlib import Path
from typing import Any

import torch

NAMES = ("llama", "qwen3", "gpt2", "bert", "vit", "t5", "cnn")
TOKENS, BATCH = 6, 2
WIDTHS = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
    "max_position_embeddings": 64,
}  # fmt: skip
TURNING = {**WIDTHS, "num_key_value_heads": 2, "use_cache": False, "tie_word_embeddings": False}
STILL = {**WIDTHS, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


class First(torch.nn.Module):
    """What a model of transformers gives first."""

    def __init__(self, model: Any, *names: str) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Any) -> Any:
        return self.model(**dict(zip(self.names, inputs, strict=True)), return_dict=False)[0]


class Picture(torch.nn.Module):
    """Convolutions with a connection that skips some of them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.parts = torch.nn.ModuleList(torch.nn.Conv2d(8, 8, 3, padding=1) for _ in range(4))
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        begin = y = torch.relu(self.first(x))
        for part in self.parts:
            y = y + torch.relu_(part(y))
        return self.head((y + begin).mean((2, 3)))


class Several(torch.nn.Module):
    """Two results by name, an input by name, and a buffer; or a number as a result, which no pipeline can give."""

    def __init__(self, number: bool) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
        self.register_buffer("scale", torch.tensor([2.0]))
        self.number = number

    def forward(self, x: Any, *, gain: Any) -> Any:
        y = torch.relu(self.first(x))
        z = self.second(y) * self.scale * gain
        return {"sum": z + x, "mean": y.mean() if self.number else y.mean(1)}


class Pair(torch.nn.Module):
    """Two texts of which the second is looked up late, in a table that is also the head."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(64, 16)
        self.first, self.second = (torch.nn.Sequential(*map(_wide, range(2))) for _ in range(2))

    def forward(self, a: Any, b: Any) -> Any:
        known = self.first(self.table(a))
        asked = self.second(self.table(b) + known.mean(1, keepdim=True))
        return torch.nn.functional.linear(asked, self.table.weight)


def _wide(_: int) -> Any:
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16))


def made(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A model with random weights and inputs for it."""
    words = torch.randint(0, 64, (BATCH, TOKENS))
    if name == "cnn":
        return Picture(), (torch.randn(BATCH, 3, 8, 8),)
    if name in ("several", "number"):
        return Several(number=name == "number"), (torch.randn(BATCH, 8),)
    if name == "pair":
        return Pair(), (words, words.clone())
    import transformers as t

    if name == "llama":
        return First(t.LlamaForCausalLM(t.LlamaConfig(**TURNING)), "input_ids"), (words,)
    if name == "qwen3":
        return First(t.Qwen3ForCausalLM(t.Qwen3Config(**TURNING, head_dim=8)), "input_ids"), (words,)
    if name == "gpt2":  # its head is its embedding
        sizes = {"vocab_size": 64, "n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 64, "use_cache": False}
        still = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        return First(t.GPT2LMHeadModel(t.GPT2Config(**sizes, **still)), "input_ids"), (words,)
    if name == "bert":
        return First(t.BertModel(t.BertConfig(**STILL), add_pooling_layer=False), "input_ids"), (words,)
    if name == "vit":
        still = {key: value for key, value in STILL.items() if key not in ("vocab_size", "max_position_embeddings")}
        config = t.ViTConfig(**still, image_size=16, patch_size=4)
        return First(t.ViTModel(config, add_pooling_layer=False), "pixel_values"), (torch.randn(BATCH, 3, 16, 16),)
    assert name == "t5"
    config = t.T5Config(
        vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=3, num_heads=4, dropout_rate=0.0, use_cache=False
    )  # fmt: skip
    return First(t.T5ForConditionalGeneration(config), "input_ids", "decoder_input_ids"), (words, words.clone())


def main(folder: str, *names: str) -> None:
    for name in names:
        torch.manual_seed(0)
        module, inputs = made(name)
        named = {"gain": torch.rand(BATCH, 1)} if isinstance(module, Several) else {}
        torch.export.save(torch.export.export(module.eval(), inputs, named, strict=False), Path(folder) / f"{name}.pt2")


if __name__ == "__main__":
    main(*sys.argv[1:])
