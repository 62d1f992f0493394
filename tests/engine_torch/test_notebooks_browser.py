"""A notebook in JupyterLab in a real browser, on a real agent's lease by the engine torch: a cell that trains, an
interrupt and a restart by the toolbar, and the lease ended under it."""
# ruff: noqa: F811 - fixtures have their names

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.engine_torch.test_notebooks import LOOPS, TRAINS, Toolkit, running, start  # noqa: F401 - two are fixtures
from tests.support.browser import NEEDS_CHROMIUM, Browser, browser, requests  # noqa: F401 - one is a fixture
from tests.support.jupyterlab_page import Page, notebook

pytestmark = [pytest.mark.engines, NEEDS_CHROMIUM]
AGAIN = "print('again', torch.ones(3, device='cuda').sum().item())"
FIRST, LOOP, AFTER, OTHER, ANEW, WAITS, NEXT = range(7)
CELLS = (
    TRAINS,
    LOOPS,
    AGAIN,
    "torch",
    TRAINS,
    "import time\nprint('waits')\nwhile True: time.sleep(0.1)",
    "print('next')",
)


@pytest.mark.parametrize("running", [600.0], indirect=True)
def test_a_notebook_in_a_browser_trains_is_interrupted_restarted_and_shows_why_its_lease_ended(
    running: tuple[Toolkit, Any], browser: Browser, counted: list[str]
) -> None:
    one, lease = running
    notebook(one.place / "work" / "train.ipynb", CELLS)
    began = time.monotonic()
    page = Page(browser, one.url, "train.ipynb")
    drawn_s = time.monotonic() - began
    page.run(FIRST)
    assert "True" in page.shows(FIRST, "trained on")
    trained_s = time.monotonic() - began
    counted.append(f"notebook: URL after {one.listened_s:.1f} s, page {drawn_s:.1f} s more, trained {trained_s:.1f} s")
    page.run(LOOP)
    page.shows(LOOP, "loops")
    page.interrupt()
    page.shows(LOOP, "KeyboardInterrupt")
    page.run(AFTER)
    page.shows(AFTER, "again 3.0")
    page.restart()
    page.run(OTHER)
    page.shows(OTHER, "NameError")  # it is another kernel
    page.run(ANEW)
    assert "True" in page.shows(ANEW, "trained on"), "the GPU is there again"
    page.run(WAITS)
    page.shows(WAITS, "waits")
    lease.due(0.0)
    words = "lease 41 has ended: its time is over. The GPUs are gone. Save this notebook"
    page.shows(WAITS, words)
    page.interrupt()
    page.shows(WAITS, "KeyboardInterrupt")
    page.run(NEXT)
    page.shows(NEXT, words)
    assert one.process.poll() is None, "it stays, so that its user can save"
    elsewhere = [
        url for url in requests(browser.events) if not url.startswith((one.url.partition("/lab")[0], "data:", "blob:"))
    ]
    assert elsewhere == [], "the page asks nobody else"
