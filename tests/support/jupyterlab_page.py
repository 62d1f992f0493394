"""JupyterLab in a real browser, used as its user does: by mouse and keyboard, through the browser's own events."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.browser import TIMEOUT_S, Browser

#: Keys that are not letters: code, and the number that a browser gives them.
KEYS = {"Enter": ("Enter", 13), "Escape": ("Escape", 27)}
PANEL = ".jp-NotebookPanel:not(.lm-mod-hidden)"
SHIFT = 8


def notebook(path: Path, cells: Sequence[str]) -> None:
    """A file of Jupyter's with these cells, none of which has run."""
    made = [
        {"cell_type": "code", "id": f"cell-{n}", "source": text, "metadata": {}, "outputs": [], "execution_count": None}
        for n, text in enumerate(cells)
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    path.write_text(json.dumps({"cells": made, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))


class Page:
    """An open notebook."""

    def __init__(self, browser: Browser, url: str, name: str) -> None:
        """url: as `toolkit jupyter` prints it. name: of a notebook in its folder."""
        self.browser = browser
        head, _, query = url.partition("?")
        browser.call("Emulation.setDeviceMetricsOverride", width=1400, height=1800, deviceScaleFactor=1, mobile=False)
        browser.call("Emulation.setFocusEmulationEnabled", enabled=True)  # else nothing on the page has the keyboard
        browser.call("Page.navigate", url=f"{head}/tree/{name}?{query}")
        self.until(f"document.querySelector('{PANEL} .jp-Cell .cm-content') !== null", "the notebook is drawn")
        self.until_idle()

    def until(self, expression: str, what: str) -> None:
        """Wait for something that is true on the page."""
        until = time.monotonic() + TIMEOUT_S
        while not self.browser.evaluate(f"Boolean({expression})"):
            assert time.monotonic() < until, f"{what}: {self.browser.evaluate('document.body.innerText')[-3000:]}"
            time.sleep(0.1)

    def until_idle(self) -> None:
        """The kernel is there, and waits for a cell."""
        idle = ".jp-Notebook-ExecutionIndicator[data-status=idle]"
        self.until(f"document.querySelector('{PANEL} {idle}')", "the kernel waits for a cell")

    def click(self, selector: str) -> None:
        """A press of the mouse in the middle of what is there."""
        self.until(f"document.querySelector({json.dumps(selector)})", f"{selector} is there")
        x, y = self.browser.evaluate(
            f"""(() => {{ const it = document.querySelector({json.dumps(selector)});
                it.scrollIntoView({{block: 'nearest'}}); const at = it.getBoundingClientRect();
                return [at.x + at.width / 2, at.y + at.height / 2]; }})()"""
        )
        where = {"x": x, "y": y, "button": "left", "clickCount": 1}
        self.browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased"):
            self.browser.call("Input.dispatchMouseEvent", type=kind, **where)

    def press(self, key: str, modifiers: int = 0) -> None:
        """A key, down and up."""
        code, number = KEYS.get(key, (f"Key{key.upper()}" if key.isalpha() else f"Digit{key}", ord(key.upper()[0])))
        words = {"key": key, "code": code, "windowsVirtualKeyCode": number, "modifiers": modifiers}
        text = {"text": key} if len(key) == 1 else {}
        self.browser.call("Input.dispatchKeyEvent", type="keyDown", **words, **text)
        self.browser.call("Input.dispatchKeyEvent", type="keyUp", **words)

    def cell(self, number: int) -> str:
        """Its selector."""
        return f'{PANEL} .jp-Cell[data-windowed-list-index="{number}"]'

    def run(self, number: int) -> None:
        """A cell that has not run yet: a click into it, Shift and Enter; again where the page was not ready for it."""
        prompt = json.dumps(f"{self.cell(number)} .jp-InputPrompt")
        until = time.monotonic() + TIMEOUT_S
        while self.browser.evaluate(f"/[*0-9]/.test(document.querySelector({prompt}).innerText)") is False:
            assert time.monotonic() < until, f"cell {number} does not run"
            self.click(f"{self.cell(number)} .cm-content")
            self.press("Enter", SHIFT)
            time.sleep(1)

    def interrupt(self) -> None:
        """The toolbar's button."""
        self.click(f"{PANEL} [data-jp-item-name=interrupt] jp-button")

    def restart(self) -> None:
        """The toolbar's button, and the answer to its question."""
        self.click(f"{PANEL} [data-jp-item-name=restart] jp-button")
        self.click(".jp-Dialog .jp-mod-accept")
        self.until("document.querySelector('.jp-Dialog') === null", "the question is gone")

    def output(self, number: int) -> str:
        """What a cell has printed."""
        where = json.dumps(f"{self.cell(number)} .jp-Cell-outputArea")
        return str(self.browser.evaluate(f"(document.querySelector({where}) || {{innerText: ''}}).innerText"))

    def shows(self, number: int, word: str) -> str:
        """Its output, as soon as that has the word."""
        until = time.monotonic() + TIMEOUT_S
        while word not in (found := self.output(number)):
            assert time.monotonic() < until, f"cell {number} does not show {word!r}: {found}"
            time.sleep(0.1)
        return found
