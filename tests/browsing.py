"""A real browser for tests: headless Chromium, told what to do through a pipe.

Owns its process and the DevTools protocol. Used by tests of pages. `tests/browser`
installs it where it is missing.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = f"no browser ({', '.join(NAMES)}); `tests/browser` installs one on Debian"
_BOUND_SECONDS = 60.0


def find_browser() -> str:
    """Return the path of a browser; without one the test is skipped, fails in CI."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None and os.environ.get("CI") == "true":
        pytest.fail(f"needed in CI: {MISSING}")
    if path is None:
        pytest.skip(MISSING)
    return path


class Page:
    """One tab, with what its console said."""

    def __init__(self, pipe: _Pipe, *, target: str, session: str) -> None:
        self._pipe = pipe
        self._target = target
        self._session = session
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._pipe.call(method, params, self._session)

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """Return the value of an expression; promises are waited for."""
        answer = self.call(
            "Runtime.evaluate",
            expression=script, awaitPromise=True, returnByValue=True,
        )  # fmt: skip
        if "exceptionDetails" in answer:
            raise AssertionError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until a condition of the page holds."""
        end = time.monotonic() + _BOUND_SECONDS
        # While a page begins to load there is not even a root element.
        asked = f"(() => {{ try {{ return Boolean({condition}) }} catch {{}} }})()"
        while not self.run(asked):
            assert time.monotonic() < end, f"never came true: {condition}; {self.said}"
            time.sleep(0.05)

    @property
    def said(self) -> list[str]:
        """Errors and warnings of the console, uncaught errors, failed requests."""
        self.run("0")  # what was said before is here then
        return [
            words
            for event in self._pipe.events
            if event.get("sessionId") == self._session
            if (words := _complaint(event))
        ]

    def close(self) -> None:
        self._pipe.call("Target.closeTarget", {"targetId": self._target})

    def picture(self, file: Path, *, whole: bool = True) -> None:
        """Save the page as PNG, down to its end."""
        more: dict[str, Any] = {}
        if whole:
            box = self.call("Page.getLayoutMetrics")["cssContentSize"]
            more = {"captureBeyondViewport": True, "clip": {**box, "scale": 1}}
        data = self.call("Page.captureScreenshot", format="png", **more)["data"]
        file.write_bytes(base64.b64decode(data))


def _complaint(event: dict[str, Any]) -> str:
    params = event.get("params", {})
    match event["method"]:
        case "Runtime.exceptionThrown":
            return str(params["exceptionDetails"])
        case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning"):
            return str(params["args"])
        case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
            return f"{params['entry']['text']} {params['entry'].get('url', '')}"
    return ""


class _Pipe:
    """DevTools messages, each ended by a zero byte."""

    def __init__(self, *, writing: int, reading: int) -> None:
        self._writing = writing
        self._reading = reading
        self._rest = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def call(
        self, method: str, params: dict[str, Any], session: str = ""
    ) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        rest = json.dumps(message).encode() + b"\0"
        while rest:
            rest = rest[os.write(self._writing, rest) :]
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])
            if "method" in answer:
                self.events.append(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._reading, 1 << 20)
            assert more, "the browser is gone"
            self._rest += more
        message, self._rest = self._rest.split(b"\0", 1)
        return dict(json.loads(message))


@contextmanager
def browser() -> Iterator[Browser]:
    """Run a browser for the length of a block."""
    path = find_browser()
    command_out, command_in = _pipe()
    answer_out, answer_in = _pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [
                # Chromium reads commands from 3 and writes answers to 4.
                "bash", "-c", f'exec "$0" "$@" 3<&{command_out} 4>&{answer_in}',
                path, "--headless=new", "--no-sandbox", "--disable-gpu",
                "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
                "--disable-background-networking", "--disable-component-update",
                f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank",
            ],
            pass_fds=(command_out, answer_in),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(command_out)
        os.close(answer_in)
        try:
            yield Browser(_Pipe(writing=command_in, reading=answer_out))
        finally:
            process.terminate()
            process.wait()
            os.close(command_in)
            os.close(answer_out)


def _pipe() -> tuple[int, int]:
    """Return the ends of a pipe, with numbers that are not 3 or 4."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return high[0], high[1]


class Browser:
    """A running browser."""

    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe

    def page(self) -> Page:
        """Open a new tab."""
        target = self._pipe.call("Target.createTarget", {"url": "about:blank"})
        attached = self._pipe.call(
            "Target.attachToTarget", {"targetId": target["targetId"], "flatten": True}
        )
        return Page(
            self._pipe, target=target["targetId"], session=attached["sessionId"]
        )
