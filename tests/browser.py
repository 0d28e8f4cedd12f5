"""A page in headless Chromium without a network, steered over a pipe: nothing to install for it."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of a browser; `problems` are what its console and its network said was wrong."""

    def __init__(self, program: str, profile: Path) -> None:
        theirs, ours = os.pipe()
        back, answers = os.pipe()

        def pipes() -> None:
            # Chromium reads commands from descriptor 3 and writes to 4.
            held = os.dup(theirs), os.dup(answers)
            os.dup2(held[0], 3)
            os.dup2(held[1], 4)

        command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        command += ["--remote-debugging-pipe", f"--user-data-dir={profile}", "--disable-sync"]
        command += ["--disable-background-networking", "--disable-component-update"]
        command += ["--disable-dev-shm-usage", "--hide-scrollbars"]
        self.process = subprocess.Popen(
            command,
            preexec_fn=pipes,
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs)
        os.close(answers)
        self._in, self._out = os.fdopen(ours, "wb"), os.fdopen(back, "rb")
        self._number, self._rest, self._events = 0, b"", []
        self.problems: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Log", "Runtime", "Network"):
            self.call(f"{domain}.enable")
        self.call(
            "Network.emulateNetworkConditions",
            offline=True,
            latency=0,
            downloadThroughput=0,
            uploadThroughput=0,
        )

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._in.close()
        self._out.close()
        self.process.kill()
        self.process.wait()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._call(method, session=self.session, **parameters)

    def open(self, page: Path, *, width: int, height: int = 900, dark: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.problems = []
        self._events = []
        self.call("Page.navigate", url=page.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._take(self._read())

    def value(self, script: str) -> Any:
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in done:
            raise AssertionError(done["exceptionDetails"])
        return done["result"].get("value")

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def _call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        self._in.write(json.dumps(message).encode() + b"\0")
        self._in.flush()
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise AssertionError(answer["error"])
                return answer["result"]  # type: ignore[no-any-return]
            self._take(answer)

    def _take(self, event: dict[str, Any]) -> None:
        self._events.append(event)
        parameters = event.get("params", {})
        match event.get("method"):
            case "Log.entryAdded":
                self.problems.append(parameters["entry"]["text"])
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown":
                self.problems.append(str(parameters))
            case "Network.requestWillBeSent":
                url = parameters["request"]["url"]
                if parameters.get("type") != "Document":
                    self.problems.append(f"asks for {url}")

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._out.fileno(), 1 << 16)
            if not more:
                raise AssertionError("the browser ended")
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)  # type: ignore[no-any-return]
