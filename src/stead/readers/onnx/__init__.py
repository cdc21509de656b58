"""ONNX files: `reader` is the way in, `file` what a file holds, `inference` and the rest what its nodes do and cost."""
