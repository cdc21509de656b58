"""Configurations of Hugging Face models: large ones that are published, small ones to look at."""

from __future__ import annotations

from typing import Any

Values = dict[str, Any]

LLAMA_7B: Values = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 32000, "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}  # fmt: skip
LLAMA3_8B: Values = {
    **LLAMA_7B, "intermediate_size": 14336, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 8192,
}  # fmt: skip
LLAMA_13B: Values = {
    **LLAMA_7B, "hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40, "intermediate_size": 13824,
}  # fmt: skip

QWEN3_30B_A3B: Values = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48,
    "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144,
    "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 151936,
    "max_position_embeddings": 40960, "torch_dtype": "bfloat16",
}  # fmt: skip

_TEXT: Values = {
    "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 128,
}  # fmt: skip
_SHARED: Values = {**_TEXT, "num_key_value_heads": 2}
_DEEPSEEK: Values = {
    **_TEXT, "num_key_value_heads": 4, "moe_intermediate_size": 32, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "n_shared_experts": 2, "kv_lora_rank": 16, "q_lora_rank": 24, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16,
    "v_head_dim": 16, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
}  # fmt: skip
_TOWER: Values = {
    "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 48, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
_PAIR: Values = {"d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4, "vocab_size": 128}
_BERT_TASKS = (
    "Model",
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
)

# Everything that has formulas: what to read, and the classes of transformers to try.
_BART: Values = {
    "d_model": 64, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96, "decoder_ffn_dim": 80, "vocab_size": 128, "max_position_embeddings": 64, "pad_token_id": 1,
}  # fmt: skip
SMALL: dict[str, tuple[Values, tuple[str, ...]]] = {
    "llama": ({**_SHARED}, ("LlamaForCausalLM", "LlamaModel")),
    "llama biases": (
        {**_TEXT, "model_type": "llama", "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True,
         "head_dim": 24},
        ("LlamaForCausalLM",),
    ),
    "mistral": ({**_SHARED, "sliding_window": 8}, ("MistralForCausalLM",)),
    "qwen2": (
        {**_SHARED, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}, ("Qwen2ForCausalLM",),
    ),
    "qwen3": ({**_SHARED, "head_dim": 32, "tie_word_embeddings": True}, ("Qwen3ForCausalLM",)),
    "gemma": ({**_TEXT, "num_key_value_heads": 1, "head_dim": 32}, ("GemmaForCausalLM",)),
    "gemma2": ({**_SHARED, "head_dim": 32, "sliding_window": 8}, ("Gemma2ForCausalLM",)),
    "gemma3_text": ({**_SHARED, "head_dim": 32, "sliding_window": 8}, ("Gemma3ForCausalLM",)),
    "phi": ({**_TEXT}, ("PhiForCausalLM", "PhiModel")),
    "phi3": ({**_SHARED, "pad_token_id": 0}, ("Phi3ForCausalLM",)),
    "gpt2": (
        {"n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 128, "n_positions": 64},
        ("GPT2LMHeadModel", "GPT2Model"),
    ),
    "gpt_neox": ({**_TEXT}, ("GPTNeoXForCausalLM", "GPTNeoXModel")),
    "gpt_neox one by one": (
        {**_TEXT, "model_type": "gpt_neox", "use_parallel_residual": False, "attention_bias": False},
        ("GPTNeoXForCausalLM",),
    ),
    "opt": (
        {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "ffn_dim": 96, "vocab_size": 128,
         "word_embed_proj_dim": 64, "max_position_embeddings": 64},
        ("OPTForCausalLM", "OPTModel"),
    ),
    "mixtral": ({**_SHARED, "num_local_experts": 4, "num_experts_per_tok": 2}, ("MixtralForCausalLM",)),
    "qwen2_moe": (
        {**_SHARED, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 40,
         "shared_expert_intermediate_size": 56, "mlp_only_layers": [1]},
        ("Qwen2MoeForCausalLM",),
    ),
    "qwen3_moe": (
        {**_SHARED, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 40,
         "decoder_sparse_step": 2, "head_dim": 32},
        ("Qwen3MoeForCausalLM",),
    ),
    "olmoe": ({**_SHARED, "num_experts": 4, "num_experts_per_tok": 2}, ("OlmoeForCausalLM",)),
    "phimoe": ({**_SHARED, "num_local_experts": 4, "num_experts_per_tok": 2}, ("PhimoeForCausalLM",)),
    "gpt_oss": (
        {**_SHARED, "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 32, "sliding_window": 8},
        ("GptOssForCausalLM",),
    ),
    "granitemoe": ({**_SHARED, "num_local_experts": 4, "num_experts_per_tok": 2}, ("GraniteMoeForCausalLM",)),
    "deepseek_v2": ({**_DEEPSEEK, "q_lora_rank": None}, ("DeepseekV2ForCausalLM",)),
    "deepseek_v3": ({**_DEEPSEEK}, ("DeepseekV3ForCausalLM", "DeepseekV3Model")),
    "llama4_text": (
        {**_SHARED, "num_local_experts": 4, "num_experts_per_tok": 1, "intermediate_size_mlp": 80, "head_dim": 16,
         "interleave_moe_layer_step": 2, "attention_chunk_size": 8},
        ("Llama4ForCausalLM",),
    ),
    "bert": (
        {**_TEXT, "max_position_embeddings": 64, "type_vocab_size": 2},
        (*(f"Bert{task}" for task in _BERT_TASKS), "BertForPreTraining"),
    ),
    "roberta": (
        {**_TEXT, "max_position_embeddings": 66, "type_vocab_size": 1}, tuple(f"Roberta{task}" for task in _BERT_TASKS),
    ),
    "xlm-roberta": (
        {**_TEXT, "max_position_embeddings": 66, "type_vocab_size": 1}, ("XLMRobertaForMaskedLM",),
    ),
    "t5": ({**_PAIR}, ("T5ForConditionalGeneration", "T5Model", "T5EncoderModel")),
    "t5 gated": (
        {**_PAIR, "model_type": "t5", "feed_forward_proj": "gated-gelu", "num_decoder_layers": 3,
         "tie_word_embeddings": False},
        ("T5ForConditionalGeneration",),
    ),
    "mt5": ({**_PAIR}, ("MT5ForConditionalGeneration",)),
    "whisper": (
        {"d_model": 64, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
         "decoder_attention_heads": 4, "encoder_ffn_dim": 96, "decoder_ffn_dim": 80, "vocab_size": 128,
         "max_source_positions": 50, "max_target_positions": 32, "num_mel_bins": 20, "pad_token_id": 0,
         "bos_token_id": 0, "eos_token_id": 0, "decoder_start_token_id": 0},
        ("WhisperForConditionalGeneration", "WhisperModel"),
    ),
    "bart": ({**_BART}, ("BartForConditionalGeneration", "BartModel")),
    "mbart": ({**_BART}, ("MBartForConditionalGeneration", "MBartModel")),
    "pegasus": ({**_BART}, ("PegasusForConditionalGeneration",)),
    "marian": ({**_BART, "decoder_start_token_id": 1}, ("MarianMTModel", "MarianModel")),
    "vit": ({**_TOWER}, ("ViTForImageClassification", "ViTModel")),
    "clip_vision_model": ({**_TOWER}, ("CLIPVisionModel",)),
    "siglip_vision_model": ({**_TOWER}, ("SiglipVisionModel",)),
    "llava": (
        {"vision_config": {**_TOWER, "model_type": "clip_vision_model"},
         "text_config": {**_SHARED, "model_type": "llama"}},
        ("LlavaForConditionalGeneration", "LlavaModel"),
    ),
}  # fmt: skip
MIXTURES = (
    "mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "phimoe", "gpt_oss", "granitemoe", "deepseek_v2", "deepseek_v3",
    "llama4_text",
)  # fmt: skip
SMALL_CLASSES = [(name, one) for name, (_, classes) in SMALL.items() for one in classes]

_EYE: Values = {**_TOWER, "num_hidden_layers": 2}
_READER: Values = {**_TEXT, "num_hidden_layers": 2, "max_position_embeddings": 32}
_MROPE: Values = {**_SHARED, "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}

# What has no formulas and is captured.
CAPTURED: dict[str, Values] = {
    "falcon": {"architectures": ["FalconForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
               "num_attention_heads": 4, "vocab_size": 128},
    "bloom": {"architectures": ["BloomForCausalLM"], "hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 128},
    "distilbert": {"architectures": ["DistilBertForMaskedLM"], "dim": 64, "hidden_dim": 96, "n_layers": 2, "n_heads": 4,
                   "vocab_size": 128},
    "clip": {"architectures": ["CLIPModel"], "text_config": _READER, "vision_config": _EYE, "projection_dim": 24},
    "blip": {"architectures": ["BlipForConditionalGeneration"], "projection_dim": 24, "vision_config": _EYE,
             "text_config": {**_READER, "encoder_hidden_size": 32, "bos_token_id": 1, "eos_token_id": 2,
                             "pad_token_id": 0, "sep_token_id": 2}},
    "qwen2_vl": {"architectures": ["Qwen2VLForConditionalGeneration"], "text_config": _MROPE,
                 "vision_config": {"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2}},
    "gemma3": {"architectures": ["Gemma3ForConditionalGeneration"], "mm_tokens_per_image": 4, "vision_config": _EYE,
               "text_config": {**_SHARED, "head_dim": 16}},
    "jamba": {"architectures": ["JambaForCausalLM"], **_SHARED, "num_experts": 4, "num_experts_per_tok": 2,
              "use_mamba_kernels": False, "attn_layer_period": 2, "attn_layer_offset": 1, "mamba_dt_rank": 4},
    "mamba": {"architectures": ["MambaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 128,
              "state_size": 8, "expand": 2, "time_step_rank": 4},
}  # fmt: skip

SWIN: Values = {
    "model_type": "swin", "architectures": ["SwinForImageClassification"], "image_size": 32, "patch_size": 4,
    "embed_dim": 24, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4,
}  # fmt: skip
RESNET: Values = {
    "model_type": "resnet", "architectures": ["ResNetForImageClassification"], "embedding_size": 8,
    "hidden_sizes": [16, 32], "depths": [1, 2],
}  # fmt: skip


def small(name: str, architecture: str = "") -> Values:
    """A small configuration for one of the classes it is made for, by default the first."""
    values, classes = SMALL[name]
    return {"model_type": name, **values, "architectures": [architecture or classes[0]]}
