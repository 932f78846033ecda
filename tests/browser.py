"""A real Chromium, driven over the DevTools protocol by a pipe: what tests of pages share.

Tests ask for the fixture `browser` and are skipped where none is installed. The protocol:
https://chromedevtools.github.io/devtools-protocol/.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--disable-extensions", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
PATIENCE = 60
"""Seconds until something that does not happen is an error."""


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """A running `Browser`."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser installed (looked for {', '.join(BROWSERS)})")
    running = Browser(found, tmp_path_factory.mktemp("profile"))
    yield running
    running.quit()


class Browser:
    """One Chromium; `page` opens tabs."""

    def __init__(self, program, profile):
        ours_to, theirs_from = (_high(fd) for fd in reversed(os.pipe()))
        ours_from, theirs_to = (_high(fd) for fd in os.pipe())
        self.to, self.source, self.rest, self.sent, self.pages = ours_to, ours_from, b"", 0, {}
        self.events = deque()
        move = (
            f"import os, sys; os.dup2({theirs_from}, 3); os.dup2({theirs_to}, 4); os.execv(sys.argv[1], sys.argv[1:])"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", move, program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(theirs_from, theirs_to),
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for fd in (theirs_from, theirs_to):
            os.close(fd)

    @contextmanager
    def page(self, url, *, width=1280, height=900, dark=False, touch=False):
        """A tab of this size that shows `url`; at its end the console must have been silent."""
        target = self.send("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = self.pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.send(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": touch}
        page.send("Emulation.setDeviceMetricsOverride", size)
        page.send("Emulation.setTouchEmulationEnabled", {"enabled": touch})
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.send("Emulation.setEmulatedMedia", {"features": [scheme]})
        page.goto(url)
        yield page
        page.js("1")  # what the browser had to say before has arrived
        assert not page.console, page.console
        self.send("Target.closeTarget", {"targetId": target})
        del self.pages[session]

    def send(self, method, parameters=None, session=None):
        """The result of a command of the protocol."""
        self.sent += 1
        message = {"id": self.sent, "method": method, "params": parameters or {}}
        os.write(self.to, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        number = self.sent
        while True:
            answer = self._receive(time.monotonic() + PATIENCE)
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _receive(self, until):
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.source], [], [], max(0, until - time.monotonic()))
            part = os.read(self.source, 1 << 20) if ready else b""
            assert part, f"the browser says nothing; it {'runs' if self.process.poll() is None else 'has ended'}"
            self.rest += part
        first, _, self.rest = self.rest.partition(b"\0")
        message = json.loads(first)
        if page := self.pages.get(message.get("sessionId")):
            page.notice(message.get("method"), message.get("params"))
        return message

    def quit(self):
        """End the browser and everything it started."""
        with suppress(OSError, AssertionError):
            self.send("Browser.close")
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.to)
        os.close(self.source)


class Page:
    """A tab."""

    def __init__(self, browser, session):
        self.browser, self.session = browser, session
        self.console, self.requests = [], []
        """Errors and warnings of the console; addresses of everything that was requested."""

    def send(self, method, parameters=None):
        """The result of a command of the protocol, for this tab."""
        return self.browser.send(method, parameters, self.session)

    def notice(self, method, event):
        """Keep what an event says."""
        if method == "Runtime.exceptionThrown":
            self.console.append(event["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning", "assert"):
            self.console.append(" ".join(str(arg.get("value", arg.get("description"))) for arg in event["args"]))
        elif method == "Log.entryAdded" and event["entry"]["level"] in ("error", "warning"):
            self.console.append(f"{event['entry']['text']} {event['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])

    def goto(self, url):
        """Load a page and wait until it is complete."""
        answer = self.send("Page.navigate", {"url": str(url)})
        assert "errorText" not in answer, answer
        self.wait("location.href != 'about:blank' && document.readyState == 'complete'")

    def js(self, expression):
        """The value of a JavaScript expression; a promise is awaited."""
        parameters = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = self.send("Runtime.evaluate", parameters)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]["exception"].get("description")
        return answer["result"].get("value")

    def wait(self, expression, seconds=PATIENCE):
        """Wait until a JavaScript expression is true."""
        until = time.monotonic() + seconds
        while not self.js(f"Boolean({expression})"):
            assert time.monotonic() < until, f"not within {seconds} s: {expression}"
            time.sleep(0.05)

    def click(self, selector, nth=0):
        """Click the middle of an element, as a mouse does."""
        box = self.js(
            f"(() => {{ const e = document.querySelectorAll({json.dumps(selector)})[{nth}]; if (!e) return null; "
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect(); "
            "return [b.x + b.width / 2, b.y + b.height / 2, b.width * b.height] })()"
        )
        assert box, f"no {selector}"
        assert box[2] > 0, f"{selector} is not visible"
        for kind in ("mousePressed", "mouseReleased"):
            place = {"x": box[0], "y": box[1], "button": "left", "clickCount": 1}
            self.send("Input.dispatchMouseEvent", {"type": kind, **place})

    def press(self, key):
        """Press a key by its name, such as Tab, Enter or ArrowRight."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        code = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        self.send("Input.dispatchKeyEvent", {"type": "keyDown", **code} | ({"text": "\r"} if key == "Enter" else {}))
        self.send("Input.dispatchKeyEvent", {"type": "keyUp", **code})

    def choose(self, selector, value):
        """Set the value of a form field, as a choice or typing does."""
        self.js(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.value = {json.dumps(value)}; "
            "for (const kind of ['input', 'change']) e.dispatchEvent(new Event(kind, {bubbles: true})) })()"
        )

    def fits(self):
        """Whether the page can be read without scrolling sideways."""
        return self.js("document.documentElement.scrollWidth <= document.documentElement.clientWidth")

    def screenshot(self, path, *, whole=True):
        """Write a picture of the page as PNG."""
        answer = self.send("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole})
        Path(path).write_bytes(base64.b64decode(answer["data"]))


def _high(fd):
    """The same end of a pipe, under a number that is not 3 or 4."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(fd)
    return moved
