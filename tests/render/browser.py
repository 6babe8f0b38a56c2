"""A headless Chromium, driven over a pipe (DevTools protocol): loads pages and says what it complained of."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless",
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--disable-extensions",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
)
_WITH_PIPES = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""The browser reads commands from its third file and answers on its fourth."""


def chromium() -> str | None:
    """Path of a Chromium on this machine; None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser with one page.

    Attributes:
        complaints: console messages, exceptions and violations of the page's policy, since the last `load`.
        requests: addresses asked for since the last `load`, the page's own left out.
    """

    def __init__(self, program: str) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._home = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        commands, answers = os.pipe(), os.pipe()
        arguments = [*FLAGS, f"--user-data-dir={self._home.name}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WITH_PIPES, str(commands[0]), str(answers[1]), program, *arguments, "about:blank"],
            pass_fds=(commands[0], answers[1]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands[0])
        os.close(answers[1])
        self._commands, self._answers = os.fdopen(commands[1], "wb"), os.fdopen(answers[0], "rb")
        self._count = 0
        self._session: str | None = None
        self._url = ""
        self._loaded = False
        try:
            self._attach()
        except BaseException:
            self.close()
            raise

    def _attach(self) -> None:
        target = next(t for t in self._send("Target.getTargets")["targetInfos"] if t["type"] == "page")["targetId"]
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._send(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the browser."""
        self._process.kill()
        self._process.wait()
        self._commands.close()
        self._answers.close()
        time.sleep(0.2)  # its helpers end a moment later and still write to its folder
        self._home.cleanup()

    def load(self, file: Path) -> None:
        """Load a page and wait until it stands."""
        self.complaints.clear()
        self.requests.clear()
        self._loaded = False
        self._url = file.resolve().as_uri()
        self._send("Page.navigate", url=self._url)
        while not self._loaded:
            self._take(self._read())
        self.run("0")  # what the page's script did has been said by now

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self._send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press and release a key, as a person would."""
        codes = {"Tab": 9, "Enter": 13, " ": 32, "ArrowDown": 40}
        text = {"Enter": "\r", " ": " "}.get(key)
        given = {"key": key, "windowsVirtualKeyCode": codes[key], "modifiers": 8 if shift else 0}
        self._send("Input.dispatchKeyEvent", type="keyDown", **given, **({"text": text} if text else {}))
        self._send("Input.dispatchKeyEvent", type="keyUp", **given)

    def type(self, text: str) -> None:
        """Put text where the cursor is."""
        self._send("Input.insertText", text=text)

    def window(self, width: int, height: int = 900) -> None:
        """Make the window this large, in pixels."""
        self._send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def colours(self, scheme: str) -> None:
        """What the system prefers: light or dark."""
        self._send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    @contextmanager
    def without_script(self) -> Iterator[None]:
        """Pages loaded in here run no script of their own."""
        self._send("Emulation.setScriptExecutionDisabled", value=True)
        yield
        self._send("Emulation.setScriptExecutionDisabled", value=False)

    def picture(self, *, whole: bool = False) -> bytes:
        """What is seen, as PNG; of the whole page where `whole`."""
        return base64.b64decode(self._send("Page.captureScreenshot", captureBeyondViewport=whole)["data"])

    def pdf(self) -> bytes:
        """The page as it is printed on A4."""
        answer = self._send("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, preferCSSPageSize=True)
        return base64.b64decode(answer["data"])

    def _send(self, method: str, **parameters: Any) -> Any:
        self._count += 1
        number = self._count
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        self._commands.flush()
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self._take(answer)

    def _read(self) -> Any:
        letters = bytearray()
        while (letter := self._answers.read(1)) != b"\0":
            assert letter, "the browser is gone"
            letters += letter
        return json.loads(letters)

    def _take(self, event: Any) -> None:
        method, given = event.get("method"), event.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            address = given["request"]["url"]
            if address != self._url and not address.startswith("data:"):
                self.requests.append(address)
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(f"console: {[argument.get('value') for argument in given['args']]}")
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(f"exception: {given['exceptionDetails']}")
        elif method == "Log.entryAdded":
            self.complaints.append(f"log: {given['entry']['text']}")
