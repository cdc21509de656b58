"""Chromium without a screen, for tests and benchmarks of pages: Debian's `chromium`, its driver, and selenium."""

from __future__ import annotations

import base64
import importlib.util
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DRIVER = "chromedriver"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--force-device-scale-factor=1",
)  # fmt: skip
WIDE, NARROW = (1440, 900), (390, 844)


def missing() -> str:
    """Why pages cannot be driven here; empty where they can."""
    if importlib.util.find_spec("selenium") is None:
        return "needs selenium: pip install selenium"
    lacking = [] if any(map(shutil.which, BROWSERS)) else ["chromium"]
    lacking += [] if shutil.which(DRIVER) else ["chromium-driver"]
    return f"needs {' and '.join(lacking)}: apt-get install {' '.join(lacking)}" if lacking else ""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser with a profile of its own that is gone afterwards; it cannot reach any network."""
    webdriver = import_module("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = next(filter(None, map(shutil.which, BROWSERS)))
    for flag in FLAGS:
        options.add_argument(flag)
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = import_module("selenium.webdriver.chrome.service").Service(shutil.which(DRIVER))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        driver.set_script_timeout(60)
        yield Browser(driver)
    finally:
        driver.quit()


class Browser:
    """What tests ask of a page."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def look(self, size: tuple[int, int] = WIDE, *, dark: bool = False) -> None:
        """Set the size of the window and the scheme of colours."""
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
        self.command("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", {"media": "", "features": [scheme]})

    def command(self, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """A command of the DevTools protocol."""
        return self.driver.execute_cdp_cmd(name, dict(arguments or {}))

    def open(self, path: Path, fragment: str = "") -> None:
        """Open a file that draws itself, and wait until it has."""
        self.driver.get("about:blank")
        self.log()
        self.driver.get(f"{path.resolve().as_uri()}{fragment}")
        wait = import_module("selenium.webdriver.support.wait").WebDriverWait
        drawn = "return !!window.stead || !!document.querySelector('[role=alert]')"
        wait(self.driver, 120).until(lambda _: self.run(drawn))
        self.settle()

    def settle(self) -> None:
        """Wait for two frames."""
        frame = "requestAnimationFrame"
        self.driver.execute_async_script(f"const [done] = arguments; {frame}(() => {frame}(() => done()))")

    def run(self, script: str, *arguments: Any) -> Any:
        """What a piece of script returns."""
        return self.driver.execute_script(script, *arguments)

    def find(self, selector: str) -> Any:
        """One element."""
        return self.driver.find_element("css selector", selector)

    def probe(self) -> dict[str, Any]:
        """What the page says it shows."""
        found: dict[str, Any] = self.run("return window.stead.probe()")
        return found

    def keys(self, selector: str, *keys: str) -> None:
        """Press keys in an element, one after another."""
        self.run("arguments[0].focus()", self.find(selector))
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)
        self.settle()

    def click(self, selector: str, x: float, y: float) -> None:
        """Click so many pixels right of and below the upper left corner of an element that is in the window."""
        corner = "const r = arguments[0].getBoundingClientRect(); return [r.left, r.top]"
        left, top = self.run(corner, self.find(selector))
        where = {"x": left + x, "y": top + y, "button": "left", "clickCount": 1}
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.command("Input.dispatchMouseEvent", {"type": kind, **where})
        self.settle()

    def log(self) -> list[str]:
        """Warnings and errors since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def picture(self, path: Path, height: int = 0) -> None:
        """Write what is seen as a PNG; so many pixels of the page from its top, or the window."""
        asked: dict[str, Any] = {"format": "png"}
        if height:
            clip = {"x": 0, "y": 0, "width": self.run("return innerWidth"), "height": height, "scale": 1}
            asked |= {"captureBeyondViewport": True, "clip": clip}
        shot = self.command("Page.captureScreenshot", asked)
        path.write_bytes(base64.b64decode(shot["data"]))

    def thread_seconds(self) -> float:
        """CPU seconds of the page's main thread so far."""
        metrics = self.command("Performance.getMetrics")["metrics"]
        return next(float(one["value"]) for one in metrics if one["name"] == "TaskDuration")
