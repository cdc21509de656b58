"""Settings of all tests; also puts this folder on the import path, for `strategies`."""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

# STEAD_FUZZ=20000 tries that many random examples per test; without it every run tries the same hundred.
FUZZ = int(os.environ.get("STEAD_FUZZ", "0"))
settings.register_profile(
    "stead",
    deadline=None,
    derandomize=FUZZ == 0,
    max_examples=FUZZ or 100,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
settings.load_profile("stead")

# A run in the background, and a worker of pytest-xdist, ignores Ctrl-C; programs that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
