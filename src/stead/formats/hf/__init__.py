"""Models of Hugging Face: graphs from a configuration, without weights."""

from stead.formats.hf.joined import joined
from stead.formats.hf.reader import HuggingFace, load_config

__all__ = ["HuggingFace", "joined", "load_config"]
