"""Panels of the page in a real browser, over a real Prometheus with a lab's figures: quiet, at 390 px, both schemes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.alerting import ROLE
from tests.support.browser import NEEDS_CHROMIUM, Browser, barriers, complaints, requests, wait
from tests.support.lease_texts import node_text, slurm_job
from tests.support.page_pool import PASSWORD, MadeUp, Served, known_users, served
from tests.support.recorded_prometheus import recorded
from toolkit.lease.jobs.slurm_text import parse_nodes
from toolkit.page.http import BASE

pytestmark = [
    NEEDS_CHROMIUM,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="no Prometheus here: Debian's package prometheus"),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("panels")
    with pytest.MonkeyPatch.context() as patch, recorded(folder, int(time.time()) - 15) as base:
        known_users(patch, "ann")
        made = MadeUp(parse_nodes(node_text()), slurm_job(41))
        with served(folder, made, ("ann",), prometheus=base, boards=str(ROLE / "files")) as page:
            yield page


def go(browser: Browser, page: Served, path: str, width: int = 1280) -> list[dict[str, Any]]:
    """Logged in."""
    browser.call("Security.setIgnoreCertificateErrors", ignore=True)
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    own = f"https://127.0.0.1:{page.settings.port}{BASE}"
    for _ in range(2):
        browser.events.clear()
        browser.call("Page.navigate", url=f"{own}{path}")
        wait(browser, "document.readyState === 'complete' && document.querySelector('#main, #user') !== null")
        if not browser.evaluate("document.querySelector('#user') !== null"):
            break
        browser.call("Input.insertText", text="ann")
        browser.evaluate(f"(document.getElementById('password').value = '{PASSWORD}', document.forms[0].submit(), 1)")
        wait(browser, "document.body.textContent.includes('Logged in as')")
    return list(browser.events)


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("board", ["pool", "gpus", "node"])
def test_panels_open_quietly_and_ask_nobody_else(browser: Browser, page: Served, board: str, width: int) -> None:
    events = go(browser, page, f"/panels/{board}?span=1h", width)
    assert complaints([*events, *browser.events]) == []
    own = f"https://127.0.0.1:{page.settings.port}/"
    assert all(url.startswith((own, "data:,")) for url in requests([*events, *browser.events]))
    assert browser.evaluate("document.documentElement.scrollWidth") <= width, "scrolls sideways"
    assert browser.evaluate("document.querySelectorAll('svg .line').length") > 4
    assert browser.evaluate("getComputedStyle(document.querySelector('svg .line')).stroke") != "none"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_for_axe_to_object_to(browser: Browser, page: Served, scheme: str) -> None:
    browser.call("Page.setBypassCSP", enabled=True)  # axe's own style
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    go(browser, page, "/panels/gpus?span=1h", width=390)
    browser.evaluate("(document.querySelectorAll('details').forEach(one => one.open = true), 1)")
    found = barriers(browser)
    browser.call("Page.setBypassCSP", enabled=False)
    browser.call("Emulation.setEmulatedMedia", features=[])
    assert found["passes"] > 10
    assert found["violations"] == []
