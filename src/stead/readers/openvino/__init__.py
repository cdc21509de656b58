"""OpenVINO IR: `reader` is the way in, `file` what a file holds, `work` what operations cost."""
