"""OpenVINO: `executor` is the way in, `ir` what is cut, `hetero` one request on several plugins, `child` the runs."""
