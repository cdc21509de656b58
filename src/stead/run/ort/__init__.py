"""ONNX Runtime: `executor` is the way in, `cut_onnx` sub-models, `assignment` what was assigned, `child` the runs."""
