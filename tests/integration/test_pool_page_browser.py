"""The page of the pool in a real browser: quiet, live, by keyboard, at 390 px, in both schemes, without script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import NEEDS_CHROMIUM, Browser, barriers, complaints, requests, wait
from tests.support.lease_texts import slurm_job
from tests.support.page_pool import PASSWORD, MadeUp, Served, many, served
from toolkit.page.http import BASE

pytestmark = NEEDS_CHROMIUM


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    import pwd

    patch = pytest.MonkeyPatch()
    alice = pwd.struct_passwd(("alice", "x", 1001, 1001, "", "/", "/bin/sh"))
    patch.setattr("toolkit.login.helper.pwd.getpwnam", {"alice": alice}.__getitem__)
    servers, jobs = many()
    with served(tmp_path_factory.mktemp("page"), MadeUp(servers, jobs + slurm_job(41)), ("alice",)) as found:
        yield found
    patch.undo()


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Something in every section, and little of it: axe looks at each element."""
    with served(tmp_path_factory.mktemp("few"), MadeUp(*many(2, 5))) as found:
        yield found


def go(browser: Browser, page: Served, path: str = "/", width: int = 1280) -> list[dict[str, Any]]:
    browser.call("Security.setIgnoreCertificateErrors", ignore=True)
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    browser.events.clear()
    browser.call("Page.navigate", url=f"https://127.0.0.1:{page.settings.port}{BASE}{path}")
    wait(browser, "document.readyState === 'complete' && document.querySelector('#main') !== null")
    return list(browser.events)


def press(browser: Browser, key: str, code: int, text: str = "") -> None:
    for kind in ("keyDown", "keyUp"):
        more = {"text": text} if text and kind == "keyDown" else {}
        browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more)


def tab_to(browser: Browser, id_: str) -> None:
    for _ in range(60):
        press(browser, "Tab", 9)
        if browser.evaluate("document.activeElement.id") == id_:
            return
    raise AssertionError(f"{id_} is not reached by the Tab key")


@pytest.mark.parametrize("width", [390, 1280])
def test_opens_quietly_and_asks_nobody_else(browser: Browser, page: Served, width: int) -> None:
    events = go(browser, page, width=width)
    wait(browser, "document.getElementById('live').textContent === 'Live'")
    assert complaints([*events, *browser.events]) == []
    own = f"https://127.0.0.1:{page.settings.port}/"
    assert all(url.startswith((own, "data:,")) for url in requests([*events, *browser.events]))
    assert browser.evaluate("document.documentElement.scrollWidth") <= width, "scrolls sideways"
    assert browser.evaluate("document.querySelectorAll('.gpu').length") == 200


@pytest.mark.parametrize("path", ["/", "/login"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_for_axe_to_object_to(browser: Browser, few: Served, scheme: str, path: str) -> None:
    browser.call("Page.setBypassCSP", enabled=True)  # axe's own style
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    go(browser, few, path, width=390)
    found = barriers(browser)
    browser.call("Page.setBypassCSP", enabled=False)
    browser.call("Emulation.setEmulatedMedia", features=[])
    assert found["passes"] > 10
    assert found["violations"] == []


def test_an_end_shows_by_itself(browser: Browser, page: Served) -> None:
    go(browser, page)
    wait(browser, "document.getElementById('live').textContent === 'Live'")
    page.announce("end 1001")
    wait(browser, "document.getElementById('live-leases').textContent.includes('ending')")


def test_a_connection_that_broke_without_notice_is_opened_again(browser: Browser, page: Served) -> None:
    go(browser, page)
    wait(browser, "document.getElementById('live').textContent === 'Live'")
    browser.evaluate("(source.close(), heard = 0, true)")
    wait(browser, "source.readyState === EventSource.OPEN")
    wait(browser, "document.getElementById('live').textContent === 'Live'")


def test_a_name_of_an_attacker_runs_nothing(browser: Browser, page: Served) -> None:
    page.source.known += slurm_job(6000, user="<img src=x onerror=window.hit=1>", gres="gpu:v100:1(IDX:7)")
    page.announce("end 999")
    go(browser, page)
    wait(browser, "document.body.textContent.includes('onerror=window.hit')")
    assert browser.evaluate("window.hit === undefined && document.querySelector('main img') === null")


def test_a_user_logs_in_and_releases_by_keyboard_alone(browser: Browser, page: Served) -> None:
    go(browser, page, "/login")
    assert browser.evaluate("document.activeElement.id") == "user"
    browser.call("Input.insertText", text="alice")
    tab_to(browser, "password")
    browser.call("Input.insertText", text=PASSWORD)
    press(browser, "Enter", 13, "\r")
    wait(browser, "document.getElementById('release-41') !== null")
    tab_to(browser, "ask-41")
    press(browser, "Enter", 13, "\r")
    tab_to(browser, "release-41")
    press(browser, "Enter", 13, "\r")
    wait(browser, "document.querySelector('.note')?.textContent.includes('released')")
    assert page.helper.ran == [(["/usr/bin/toolkit", "lease", "release", "41"], "alice")]


def test_the_numbers_are_there_without_script(browser: Browser, page: Served) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        go(browser, page)
        tree = browser.call("DOM.getDocument", depth=-1)["root"]["nodeId"]
        words = browser.call("DOM.getOuterHTML", nodeId=tree)["outerHTML"]
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
    assert words.count('class="gpu ') == 200
    assert "Live" not in words.split('id="live"')[1][:60]


def test_picture_for_a_person(browser: Browser, page: Served, tmp_path: Path) -> None:
    """What the picture in the documentation is made of."""
    import base64

    go(browser, page)
    shot = base64.b64decode(browser.call("Page.captureScreenshot", format="png")["data"])
    (tmp_path / "page.png").write_bytes(shot)
    assert len(shot) > 20_000
