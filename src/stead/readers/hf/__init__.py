"""Models of Hugging Face: graphs from a configuration, without weights."""

from stead.readers.hf.joined import joined
from stead.readers.hf.reader import HuggingFace

__all__ = ["HuggingFace", "joined"]
