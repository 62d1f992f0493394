"""What the client reads of a device is what the server's launcher tells of it."""

from __future__ import annotations

import re

from toolkit.engine.torch_build import MODULES, TORCH


def test_the_client_reads_no_property_that_no_server_tells() -> None:
    """`cudnn_version` was read, and `cudnn` told: torch.backends.cudnn.version() was 0 on a real GPU."""
    launcher = (TORCH / "server" / MODULES / "session.py").read_text()
    describe = "".join(launcher[launcher.index("def onednn") :].split("\ndef ", 2)[:2])
    told = set(re.findall(r'"(\w+)"(?=:|\])', describe))
    library = (TORCH / "client/connection/state.cc").read_text()
    read = set(re.findall(r'\bone\["(\w+)"\]', library))
    for path in (TORCH / "python").rglob("*.py"):
        read |= set(re.findall(r'(?:properties\(\w*\)|\btold)(?:\.get\(|\[)"(\w+)"', path.read_text()))
    added = set(re.findall(r'\\"(\w+)\\": ', library))
    assert len(read) > 6
    assert read - told - added == set()
