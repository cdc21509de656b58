"""Writes small random models of six architectures: python hf_models.py FOLDER NAME..."""

import sys
from pathlib import Path
from typing import Any

NAMES = ("llama", "gpt2", "t5", "mixtral", "llava", "qwen3")
OTHERS = ("phi3", "gemma2", "gemma3", "gpt_oss", "olmoe")
WIDTHS = {
    "vocab_size": 128, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}  # fmt: skip


def made(name: str) -> Any:
    """A model with random weights."""
    import transformers as t

    if name == "llama":
        return t.LlamaForCausalLM(t.LlamaConfig(**WIDTHS, num_hidden_layers=4))
    if name == "bart":
        sizes = {f"{part}_{what}": n for part in ("encoder", "decoder") for what, n in
                 (("layers", 2), ("ffn_dim", 128), ("attention_heads", 4))}  # fmt: skip
        config = t.BartConfig(vocab_size=128, d_model=64, max_position_embeddings=128, **sizes)
        return t.BartForConditionalGeneration(config)
    if name == "half":
        return made("llama").bfloat16()
    if name == "qwen3":
        return t.Qwen3ForCausalLM(t.Qwen3Config(**WIDTHS, num_hidden_layers=4, head_dim=16))
    if name == "gpt2":
        sizes = {"vocab_size": 128, "n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 128}
        return t.GPT2LMHeadModel(t.GPT2Config(**sizes, bos_token_id=1, eos_token_id=2))
    if name == "t5":
        sizes = {"vocab_size": 128, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 3, "num_heads": 4}
        return t.T5ForConditionalGeneration(t.T5Config(**sizes, num_decoder_layers=3, decoder_start_token_id=0))
    if name == "mixtral":
        config = t.MixtralConfig(**WIDTHS, num_hidden_layers=3, num_local_experts=4, num_experts_per_tok=2)
        return t.MixtralForCausalLM(config)
    if name in OTHERS:
        return _of_kind(t, name)
    assert name == "llava"
    eye = t.CLIPVisionConfig(
        hidden_size=48, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, image_size=16, patch_size=8
    )
    text = t.LlamaConfig(**WIDTHS, num_hidden_layers=3)
    return t.LlavaForConditionalGeneration(
        t.LlavaConfig(vision_config=eye, text_config=text, image_token_index=120, image_token_id=120)
    )


def _of_kind(t: Any, name: str) -> Any:
    """A model of another family: one tensor for gate and way up, windows, capped scores, sinks, many experts."""
    kinds = {"phi3": "Phi3", "gemma2": "Gemma2", "gemma3": "Gemma3", "gpt_oss": "GptOss", "olmoe": "Olmoe"}
    few: dict[str, dict[str, Any]] = {
        "phi3": {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
        "gemma2": {"head_dim": 16, "sliding_window": 4, "query_pre_attn_scalar": 16},
        "gemma3": {"head_dim": 16, "sliding_window": 4, "query_pre_attn_scalar": 16, "sliding_window_pattern": 2},
        "gpt_oss": {"head_dim": 16, "sliding_window": 4, "num_local_experts": 4, "num_experts_per_tok": 2,
                    "pad_token_id": 0},
        "olmoe": {"num_experts": 4, "num_experts_per_tok": 2, "pad_token_id": 0},
    }  # fmt: skip
    config = getattr(t, f"{kinds[name]}{'Text' if name == 'gemma3' else ''}Config")
    return getattr(t, f"{kinds[name]}ForCausalLM")(config(**WIDTHS, num_hidden_layers=4, **few[name]))


def main(folder: str, *names: str) -> None:
    import torch

    for name in names:
        torch.manual_seed(0)
        made(name).save_pretrained(Path(folder) / name)


if __name__ == "__main__":
    main(*sys.argv[1:])
