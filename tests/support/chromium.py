"""A real Chromium, driven over the pipe of its DevTools protocol.

The pipe needs no port and no library: messages of JSON that end in a zero byte, read from
descriptor 3 of the browser and written to 4. That is why no driver is among the dependencies.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

CHROMIUM = os.environ.get("HEADWATER_CHROMIUM") or shutil.which("chromium")
WAIT_S_MAX = 300.0
"""Only a failure takes as long."""
ATTACKERS_NAME = "attacker.example"
"""A name that leads to this machine, as its owner can let any name lead anywhere."""
_PAUSE_S = 0.05
_CHUNK_BYTES = 1 << 20

# Puts the two ends of the pipes where the browser looks for them, and becomes the browser.
_LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(one), fcntl.F_DUPFD, 10) for one in sys.argv[1:3]]
for number, end in enumerate(ends, start=3):
    os.dup2(end, number)
os.execvp(sys.argv[3], sys.argv[3:])
"""
_KEYS = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowDown": 40, "ArrowUp": 38, "ArrowLeft": 37}


class Browser:
    """One browser with one profile, as one person has it."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to = to_browser
        self._from = from_browser
        self._unread = b""
        self._count = 0

    def open(self, url: str, *, width: int = 1280, height: int = 900) -> Page:
        """Open a page in a tab of its own."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        page = Page(self, attached["sessionId"])
        page.call("Page.enable")
        page.call("Runtime.enable")
        page.resize(width, height)
        page.go(url)
        return page

    def call(self, method: str, parameters: Any = None, session: str | None = None) -> Any:
        """Send a command, and return its answer."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters or {}}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        while True:
            answer = self._read()
            if answer.get("id") == self._count:
                assert "error" not in answer, (method, answer)
                return answer["result"]

    def _read(self) -> Any:
        deadline_s = time.monotonic() + WAIT_S_MAX
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._from], [], [], deadline_s - time.monotonic())
            assert ready, "the browser does not answer"
            chunk = os.read(self._from, _CHUNK_BYTES)
            assert chunk, "the browser has ended"
            self._unread += chunk
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)


class Page:
    """One tab."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    def call(self, method: str, parameters: Any = None) -> Any:
        return self._browser.call(method, parameters, self._session)

    def go(self, url: str) -> None:
        """Go to an address, and return once its page is there."""
        self.call("Page.navigate", {"url": "about:blank"})
        self.wait_for("location.href === 'about:blank'")
        self.call("Page.navigate", {"url": url})
        self.wait_for("location.href !== 'about:blank' && document.readyState === 'complete'")

    def resize(self, width: int, height: int, *, is_phone: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone},
        )

    def prefer(self, scheme: str) -> None:
        """Let the system be light or dark."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", {"features": [feature]})

    def run(self, script: str) -> Any:
        """Return the value of a script, or of the promise that it makes."""
        given = {"expression": script, "awaitPromise": True, "returnByValue": True}
        answer = self.call("Runtime.evaluate", given)
        assert "exceptionDetails" not in answer, (script, answer)
        return answer["result"].get("value")

    def wait_for(self, script: str) -> Any:
        """Return the value of a script once it is true, whatever page is there meanwhile."""
        deadline_s = time.monotonic() + WAIT_S_MAX
        while time.monotonic() < deadline_s:
            with suppress(AssertionError):
                value = self.run(script)
                if value:
                    return value
            time.sleep(_PAUSE_S)
        raise AssertionError(f"{script} did not become true: {self.run('document.body.innerText')}")

    def text(self, selector: str) -> str:
        return str(self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    def click(self, selector: str) -> None:
        """Press the mouse where an element is, once it is there."""
        found = json.dumps(selector)
        place = self.wait_for(
            f"""(() => {{
              const element = document.querySelector({found});
              if (!element) return null;
              element.scrollIntoView({{block: "center", behavior: "instant"}});
              const box = element.getBoundingClientRect();
              return box.width ? [box.x + box.width / 2, box.y + box.height / 2] : null;
            }})()"""
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                {"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1},
            )

    def press(self, key: str) -> None:
        """Press a key, for whatever has focus."""
        given = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS.get(key, 0)}
        if key == "Enter":
            given["text"] = "\r"
        self.call("Input.dispatchKeyEvent", {"type": "keyDown", **given})
        self.call("Input.dispatchKeyEvent", {"type": "keyUp", **given})

    def screenshot(self) -> bytes:
        """Return what is on the screen, as WebP."""
        shot = self.call("Page.captureScreenshot", {"format": "webp", "quality": 80})
        return base64.b64decode(shot["data"])


@contextmanager
def running_chromium(profile: Path) -> Iterator[Browser]:
    """Run a browser without a screen until the block ends."""
    assert CHROMIUM is not None
    to_read, to_browser = os.pipe()
    from_browser, to_write = os.pipe()
    arguments = [
        "--headless=new",
        "--no-sandbox",  # Tests run as root in containers, where there is none.
        "--remote-debugging-pipe",
        f"--user-data-dir={profile}",
        "--no-first-run",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-proxy-server",
        f"--host-resolver-rules=MAP {ATTACKERS_NAME} 127.0.0.1",
        "about:blank",
    ]
    command = [sys.executable, "-c", _LAUNCH, str(to_read), str(to_write), CHROMIUM, *arguments]
    with (profile.parent / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            command, pass_fds=(to_read, to_write), stdout=log, stderr=subprocess.STDOUT
        )
    os.close(to_read)
    os.close(to_write)
    try:
        yield Browser(to_browser, from_browser)
    finally:
        os.close(to_browser)  # It ends when nobody can tell it anything any more.
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(from_browser)
