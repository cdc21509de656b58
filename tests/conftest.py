"""Settings of all tests; also puts this folder on the import path, for `strategies`."""

from __future__ import annotations

import os
import signal

import pytest
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
SLOW = os.environ.get("STEAD_SLOW") == "1"

# A run in the background, and a worker of pytest-xdist, ignores Ctrl-C; programs that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave slow tests out unless they are asked for, and write down how many damaged files each fuzz test reads."""
    slow = [] if SLOW else [item for item in items if item.get_closest_marker("slow") is not None]
    if slow:  # not skipped: a skip says that this machine lacks something
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item.get_closest_marker("slow") is None]
    for item in items:
        if (mark := item.get_closest_marker("fuzz")) is not None:
            item.user_properties.append(("inputs", mark.args[0]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """That slow tests were left out; how many damaged files were read in all, and how many tests found a fault."""
    if not SLOW:
        terminalreporter.write_line("slow tests are left out: STEAD_SLOW=1 pytest runs them, too")
    ended = [
        (outcome, report)
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        if report.when == "call"
    ]
    counts = [(outcome, dict(report.user_properties).get("inputs", 0)) for outcome, report in ended]
    if total := sum(count for _, count in counts):
        faults = sum(outcome == "failed" and count > 0 for outcome, count in counts)
        tests = sum(count > 0 for _, count in counts)
        terminalreporter.write_line(f"fuzz: {total} damaged inputs in {tests} tests, {faults} tests found a fault")
