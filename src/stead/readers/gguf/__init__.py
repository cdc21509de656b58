"""GGUF files of llama.cpp: `reader` is the way in, `file` what a header holds."""
