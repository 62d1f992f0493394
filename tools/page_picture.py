#!/usr/bin/env python3
"""Renew docs/pictures/pool-page.png: the page of the pool of a made-up site, in a real browser. Needs chromium.

    tools/page_picture.py                 write it; some seconds
    tools/page_picture.py --out FILE      write it there

The page is the real one, by its server over TLS; Slurm's answers are made up, and the page's title says so.
"""

from __future__ import annotations

import argparse
import base64
import io
import pwd
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from PIL import Image  # noqa: E402 - after the path

from tests.support.browser import Browser  # noqa: E402
from tests.support.lease_texts import slurm_job  # noqa: E402
from tests.support.page_pool import PASSWORD, MadeUp, many, served  # noqa: E402
from toolkit.page.http import BASE  # noqa: E402

PICTURE = ROOT / "docs/pictures/pool-page.png"
WIDTH, HEIGHT, COLOURS = 1100, 700, 64
USER = pwd.struct_passwd(("alice", "x", 1001, 1001, "", "/", "/bin/sh"))
LOG_IN = f"""f = document.querySelector('input[name=password]').form;
f.elements.user.value = 'alice'; f.elements.password.value = {PASSWORD!r}; f.requestSubmit()"""
LIVE = "document.querySelector('#mine') !== null && document.getElementById('live').textContent === 'Live'"
LIMIT_S = 60


def shown(browser: Browser, condition: str) -> None:
    """Wait until an expression holds in the page. SystemExit where it does not within LIMIT_S."""
    until = time.monotonic() + LIMIT_S
    while not browser.call("Runtime.evaluate", expression=f"Boolean({condition})")["result"].get("value"):
        if time.monotonic() > until:
            raise SystemExit(f"the page does not come: {condition}")
        time.sleep(0.1)


def write(out: Path) -> None:
    """The picture into `out`."""
    servers, jobs = many(4, 5)
    with tempfile.TemporaryDirectory() as name, mock.patch("toolkit.login.helper.pwd.getpwnam", {"alice": USER}.get):
        folder = Path(name)
        pool = MadeUp(servers, jobs + slurm_job(41, gres="shard:v100:70(IDX:3)"))
        with served(folder, pool, ("alice",), site="Pool of GPUs (a made-up example)") as page:
            browser = Browser(folder / "profile")
            browser.call("Security.setIgnoreCertificateErrors", ignore=True)
            size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
            browser.call("Emulation.setScrollbarsHidden", hidden=True)
            browser.call("Emulation.setDeviceMetricsOverride", **size)
            browser.call("Page.navigate", url=f"https://127.0.0.1:{page.settings.port}{BASE}/login")
            shown(browser, "document.querySelector('input[name=password]')")
            browser.evaluate(LOG_IN)
            shown(browser, LIVE)
            picture = base64.b64decode(browser.call("Page.captureScreenshot", format="png")["data"])
            browser.close()
    out.parent.mkdir(parents=True, exist_ok=True)
    image = Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    image.save(out, optimize=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=PICTURE)
    write(parser.parse_args().out)
