"""The report in a real browser: no console message, no request but for the file itself, fits the window, prints whole.

Headless Chromium is driven through its DevTools protocol over a pipe, so that no driver and no port is needed.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from report_fixture import make_run

from validation.report import write_html

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium here; bin/test installs it (apt install chromium)"
)
TIMEOUT_S = 60
# what counts as noise of a page: anything logged, thrown or refused
COMPLAINTS = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Audits.issueAdded"}


class Browser:
    """One headless browser with one tab."""

    def __init__(self, profile: Path) -> None:
        down_read, down_write = os.pipe()
        up_read, up_write = os.pipe()
        # bash puts the pipe's ends where the browser looks for them (3 and 4); far numbers can't collide with these
        theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (down_read, up_write)]
        command = [
            "bash", "-c", f'exec "$@" 3<&{theirs[0]} 4>&{theirs[1]}', "bash", str(CHROMIUM),
            "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", f"--user-data-dir={profile}",
            "--remote-debugging-pipe", "about:blank",
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

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.next_id += 1
        message = {"id": self.next_id, "method": method, "params": params}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + TIMEOUT_S
        while (answer := self._message(deadline)).get("id") != self.next_id:
            self.events.append(answer)
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


RUNS: dict[str, dict[str, Any]] = {
    "clean": {},
    "slow": {"slow": "gpu2"},
    "dead": {"dead": "gpu2", "error": "<script>alert(1)</script><img src=http://192.0.2.1/x.png>"},
    "real": {"virtual": False, "waive": True},
    "unjudged": {"judged": False, "cut_after": 20},
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("runs")
    return {name: write_html(make_run(base / name, **how)) for name, how in RUNS.items()}


def requests(events: list[dict[str, Any]]) -> list[str]:
    return [e["params"]["request"]["url"] for e in events if e.get("method") == "Network.requestWillBeSent"]


def complaints(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [e["params"] for e in events if e.get("method") in COMPLAINTS]


@pytest.mark.parametrize("width", [1000, 1440])
@pytest.mark.parametrize("name", RUNS)
def test_opens_quietly_and_alone(browser: Browser, reports: dict[str, Path], name: str, width: int) -> None:
    events = browser.open(reports[name], width)
    assert complaints(events) == []
    assert [url for url in requests(events) if url != "data:,"] == [reports[name].as_uri()]
    assert browser.evaluate("document.documentElement.scrollWidth") <= width, "scrolls sideways"
    assert browser.evaluate("document.compatMode") == "CSS1Compat"
    assert browser.evaluate("document.querySelectorAll('svg').length") >= 3


def test_the_checks_above_can_fail(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text("<!doctype html><title>x</title><img src='absent.png'><script>console.error('x'); nope()</script>")
    events = browser.open(page, 1000)
    assert len(complaints(events)) >= 2
    assert any(url.endswith("absent.png") for url in requests(events))


def test_rehearsal_mark_stays_in_sight(browser: Browser, reports: dict[str, Path]) -> None:
    browser.open(reports["clean"], 1280)
    browser.evaluate("window.scrollTo(0, 3000)")
    assert browser.evaluate("document.querySelector('.mark').getBoundingClientRect().top") == 0
    assert browser.evaluate("document.querySelector('.mark').innerText").startswith("REHEARSAL")


def test_figures_are_drawn_inside_their_frames(browser: Browser, reports: dict[str, Path]) -> None:
    browser.open(reports["slow"], 1280)
    outside = browser.evaluate(
        """[...document.querySelectorAll('svg')].flatMap(svg => {
             const frame = svg.getBoundingClientRect();
             return [...svg.querySelectorAll('text')].filter(t => {
               const box = t.getBoundingClientRect();
               return box.left < frame.left - 1 || box.right > frame.right + 1
                   || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
             }).map(t => t.textContent);
           })"""
    )
    assert outside == []


def test_every_printed_page_of_a_rehearsal_says_so(browser: Browser, reports: dict[str, Path], tmp_path: Path) -> None:
    if shutil.which("pdftotext") is None:
        pytest.skip("no pdftotext here; bin/test installs it (apt install poppler-utils)")
    browser.open(reports["clean"], 1280)
    file = tmp_path / "report.pdf"
    file.write_bytes(browser.pdf())
    text = subprocess.run(["pdftotext", "-layout", str(file), "-"], check=True, capture_output=True, text=True).stdout
    pages = text.split("\f")[:-1]
    assert len(pages) > 5
    # the strip along the edge, drawn vertically, in every browser; the line in the margin in this one
    assert all("REHEARSAL, not an acceptance" in page for page in pages)
    assert all(re.search(r"Page +\d+ +of", page) for page in pages)
    raw = subprocess.run(["pdftotext", "-raw", str(file), "-"], check=True, capture_output=True, text=True).stdout
    assert all("not an acceptance of any hardware" in " ".join(page.split()) for page in raw.split("\f")[:-1])
