"""A real Chromium for tests, and the app as a process of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--disable-dev-shm-usage",
)  # fmt: skip
PATIENCE_SECONDS = 180.0  # a busy machine takes long to what takes a second
ELSEWHERE = "elsewhere.test"  # a name that leads to this machine, as a hostile page would have it
SMALL_UPLOADS = """import stead.serve.models as m; m.MOST_UPLOAD_BYTES = {}
from stead.cli.main import run; run()"""


def missing() -> str:
    """Why no browser can be driven here; empty if one can."""
    if find_spec("selenium") is None:
        return "selenium is not installed"
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        return "no chromium and chromedriver (apt-get install chromium chromium-driver)"
    return ""


def browser() -> Any:
    """A new browser with a fresh profile; `quit()` ends it."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (*FLAGS, f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


def fresh_tab(driver: Any, width: int = 1440, height: int = 900, *, dark: bool = False) -> None:
    """A tab of a browser that has no cookie and no complaint of those before; they are closed."""
    before = driver.window_handles
    driver.switch_to.new_window("tab")
    fresh = driver.current_window_handle
    for handle in before:
        driver.switch_to.window(handle)
        driver.close()
    driver.switch_to.window(fresh)
    driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
    driver.get_log("browser")
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    if dark:
        scheme = {"name": "prefers-color-scheme", "value": "dark"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def until(driver: Any, look: Callable[[], Any], what: str) -> Any:
    """What a look finds, as soon as it finds something; a page that never gets there is told with its text."""
    from selenium.common.exceptions import WebDriverException

    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        try:
            found = look()
        except WebDriverException:  # the page is just being replaced
            found = None
        if found:
            return found
        time.sleep(0.1)
    alerts = driver.execute_script("return [...document.querySelectorAll('[role=alert]')].map((e) => e.innerText)")
    text = driver.execute_script("return document.body.innerText")[:1500]
    told = driver.get_log("browser")
    raise AssertionError(f"{what} never came at {driver.current_url}: {alerts}\n{text}\n{told}")


class Server:
    """`stead ui` as a user starts it."""

    def __init__(self, folder: Path, upload_bytes: int = 0) -> None:
        self.folder, self.port, self.address, self.upload_bytes = folder, 0, "", upload_bytes
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, at the same port as before."""
        program = ["-c", SMALL_UPLOADS.format(self.upload_bytes)] if self.upload_bytes else ["-m", "stead"]
        command = [sys.executable, *program, "ui", "--no-browser", "--home", "home", "--port", str(self.port)]
        self.process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        self.port = int(self.address.split("/")[2].partition(":")[2])

    def end(self, number: int = signal.SIGINT) -> None:
        """End it as a signal does."""
        assert self.process is not None
        os.kill(self.process.pid, number)
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
