"""Notebooks by a click on the lab: what tests do there as users of the hub, with programs and with a browser."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tests.support.browser import Browser
from tests.support.lease_lab import Lab, shell

PASSWORDS = {"alice": "Wf7-alice", "bob": "Wf7-bob"}
UNIT = "elastic-ai-jupyterhub"
THIRD = {"gpus": "1", "part": "1/3", "gpu_class": "", "hours": "1", "environment": "JupyterLab"}
#: Counts GPUs by the driver's own interface, which any engine of the site brings.
COUNT = """import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
found = ctypes.c_int()
print(cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(found)), found.value)
"""


def clients(lab: Lab, lines: str) -> Any:
    """Run lines with hub_client on the head; the JSON that they print."""
    text = Path(__file__).with_name("hub_client.py").read_text()
    names = f"ALICE, BOB, THIRD = {PASSWORDS['alice']!r}, {PASSWORDS['bob']!r}, {json.dumps(THIRD)}\n"
    program = f"{text}\n{names}COUNT = {COUNT!r}\n{lines}"
    said = shell(lab, "head", f"/opt/elastic-ai/jupyterhub/*/bin/python - <<'END'\n{program}\nEND\n")
    return json.loads(said.splitlines()[-1])


STARTED = """
alice = Client("alice")
assert alice.login(ALICE)
began = time.monotonic()
if not alice.ask("/hub/spawn")[2].startswith("/user/alice/"):
    assert alice.spawn(**THIRD)[0] == 200
    alice.ready()
"""


def shows(browser: Browser, condition: str, limit_s: float = 120) -> None:
    """Wait until an expression holds in the page, whichever page that is by then."""
    end = time.monotonic() + limit_s
    while True:
        answer = browser.call("Runtime.evaluate", expression=f"Boolean({condition})", returnByValue=True)
        if answer["result"].get("value"):
            return
        assert time.monotonic() < end, (condition, browser.evaluate("document.body.innerText.slice(0, 800)"))
        time.sleep(0.3)


def press(browser: Browser, key: str, modifiers: int = 0) -> None:
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, modifiers=modifiers,
                     windowsVirtualKeyCode=13, text="\r" if kind == "keyDown" else "")  # fmt: skip
