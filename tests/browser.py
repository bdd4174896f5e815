"""A headless Chromium, driven through chromedriver's HTTP interface (W3C WebDriver)."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless=new",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def missing() -> str:
    """What is not there to run a browser with, or an empty text."""
    programs = ("chromium", "chromedriver")
    return ", ".join(name for name in programs if shutil.which(name) is None)


class Browser:
    """One window.

    Args:
        folder: an empty folder for the profile and for downloads.
    """

    def __init__(self, folder: Path) -> None:
        self.downloads = folder / "downloads"
        self.downloads.mkdir(parents=True)
        self._driver = subprocess.Popen(
            ["chromedriver", "--port=0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._root = f"http://127.0.0.1:{self._port()}"
        flags = [*FLAGS, f"--user-data-dir={folder / 'profile'}"]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")
        preferences = {"download.default_directory": str(self.downloads)}
        options = {"binary": shutil.which("chromium"), "args": flags, "prefs": preferences}
        capabilities = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
            "unhandledPromptBehavior": "accept",
        }
        started = self._call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        self._root += f"/session/{started['sessionId']}"
        self.resize(1280, 900)

    def _port(self) -> str:
        for line in self._driver.stdout:
            if match := re.search(r"started successfully on port (\d+)", line):
                return match[1]
        raise RuntimeError("chromedriver ended before it listened")

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._root + path, data=data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"].split("\n")[0]) from error

    def open(self, url: str) -> None:
        """Load a page and forget the messages of the last one."""
        self._call("POST", "/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """The value that a script's ``return`` gives."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, expression: str, seconds: float = 60) -> Any:
        """The value of a JavaScript expression, once it is true."""
        end = time.monotonic() + seconds
        while not (value := self.run(f"return {expression}")):
            if time.monotonic() > end:
                raise TimeoutError(f"{expression} is still {value!r}: {self.messages()}")
            time.sleep(0.05)
        return value

    def _find(self, selector: str) -> str:
        element = self._call("POST", "/element", {"using": "css selector", "value": selector})
        return element[ELEMENT]

    def click(self, selector: str) -> None:
        """Click as a person would: what lies underneath something else cannot be clicked."""
        # at once: a page that scrolls smoothly would still be moving under the click
        script = "scrollIntoView({block: 'center', behavior: 'instant'})"
        self.run(f"document.querySelector(arguments[0]).{script}", selector)
        self._at_rest(selector)
        self._call("POST", f"/element/{self._find(selector)}/click", {})

    def _at_rest(self, selector: str, seconds: float = 30) -> None:
        """Wait until an element has stood still for a tenth of a second: pictures load above it."""
        script = "const b = document.querySelector(arguments[0]).getBoundingClientRect();"
        script += "return [b.x, b.y, b.width, b.height]"
        end = time.monotonic() + seconds
        last = None
        while (place := self.run(script, selector)) != last:
            if time.monotonic() > end:
                raise TimeoutError(f"{selector} does not stand still: {last}, then {place}")
            last = place
            time.sleep(0.1)

    def type(self, selector: str, text: str) -> None:
        """Type into a field after what it holds; a file's path into a file field chooses it."""
        self._call("POST", f"/element/{self._find(selector)}/value", {"text": text})

    def press(self, keys: str) -> None:
        """Press keys one after the other, wherever the focus is."""
        acts = [{"type": act, "value": key} for key in keys for act in ("keyDown", "keyUp")]
        keyboard = {"type": "key", "id": "keyboard", "actions": acts}
        self._call("POST", "/actions", {"actions": [keyboard]})

    def text(self, selector: str = "body") -> str:
        """The text of an element, as written."""
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def messages(self) -> list[str]:
        """Errors and warnings of the console since the last call."""
        entries = self._call("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]

    def resize(self, width: int, height: int) -> None:
        """Set the window's size in pixels, in light colours."""
        self._command("Emulation.clearDeviceMetricsOverride")
        self._command("Emulation.setEmulatedMedia", features=[])
        self._call("POST", "/window/rect", {"width": width, "height": height})

    def view(self, width: int, height: int, *, dark: bool = False) -> None:
        """Show the page as on a screen of these pixels, which may be narrower than a window can be.

        `resize` goes back to the window.
        """
        sizes = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._command("Emulation.setDeviceMetricsOverride", **sizes)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._command("Emulation.setEmulatedMedia", features=[scheme])

    def _command(self, name: str, **parameters: Any) -> Any:
        """A command of Chromium's DevTools."""
        return self._call("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def screenshot(self, path: Path) -> None:
        """Write what the window shows as PNG."""
        path.write_bytes(base64.b64decode(self._call("GET", "/screenshot")))

    def downloaded(self, name: str, seconds: float = 20) -> Path:
        """A downloaded file, once it is whole."""
        end = time.monotonic() + seconds
        while not (self.downloads / name).is_file() or list(self.downloads.glob("*.crdownload")):
            if time.monotonic() > end:
                raise TimeoutError(f"{name} was not downloaded: {list(self.downloads.iterdir())}")
            time.sleep(0.05)
        return self.downloads / name

    def close(self) -> None:
        """End the window and the driver."""
        try:
            self._call("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait(timeout=20)
            self._driver.stdout.close()
