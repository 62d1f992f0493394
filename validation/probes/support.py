"""What a node reports for `toolkit support`: its parts, or its logs, tools' output and records. Nothing is changed.

It runs by its source alone, which comes over the ssh connection (toolkit/support/node.py), and leaves no file: what
tools write is in a folder that is removed when the controller's end of stdin closes, at the deadline, and at the end.
Each line of its output is a JSON object with `support`, the mark that the controller chose: a part, a piece of a file,
the end of a file, something that could not be read, or the end of all.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from validation.base.temporary import room
from validation.probes.supervise import supervise
from validation.probes.support_files import files
from validation.probes.support_parts import parts
from validation.probes.support_run import Kept
from validation.probes.support_sources import reports, sources
from validation.probes.tool import now, search_sbin

ROOM = "elastic-ai-support"
PLACES = ("/var/tmp", "/tmp")  # noqa: S108  # a folder of this process alone is made there
"""Where reports of tools are written meanwhile: on a disk rather than in memory."""


class Told:
    """Writes to the controller. Every file is in pieces, so that no line is long."""

    def __init__(self, mark: str) -> None:
        """`mark`: what the controller knows our lines by."""
        self._mark = mark

    def line(self, **fields: Any) -> None:
        """One document."""
        print(json.dumps({"support": self._mark, **fields}), flush=True)

    def file(self, name: str, kept: Kept) -> None:
        """A file, or why there is none."""
        if kept.unread:
            self.line(unread=kept.source, file=name, why=kept.unread)
            return
        for piece in kept.pieces():
            self.line(file=name, data=base64.b64encode(piece).decode())
        self.line(end=name, source=kept.source, when=now(), total=kept.total, newest=kept.newest, note=kept.note)


@contextmanager
def _folder() -> Iterator[Path]:
    place = next((Path(one) for one in PLACES if Path(one).is_dir()), None)
    with room(ROOM, place) as path:
        yield path


def collect(told: Told, asked: dict[str, Any], folder: Path) -> None:
    """All that the node has: quick things first, so that an interrupted network costs the slow ones."""
    for one in sources(asked):
        told.line(doing=one.source)
        told.file(one.file, one.read())
    for name, kept in files():
        told.file(name, kept)
    for report in reports(folder):
        told.line(doing=report.source)
        told.file(report.file, report.read())


def main(asked: dict[str, Any]) -> int:
    """Report what was asked, supervised: `mark`, `what` ("parts" or "all"), `deadline_s`, and of `all` the part."""
    search_sbin()
    told = Told(str(asked["mark"]))

    def list_parts() -> int:
        for part in parts():
            told.line(part=part)
        told.line(done=True)
        return 0

    def work(folder: Path) -> Callable[[], int]:
        def run() -> int:
            collect(told, asked, folder)
            told.line(done=True)
            return 0

        return run

    if asked["what"] == "parts":
        return supervise(list_parts, asked["deadline_s"], controlled=True)
    with _folder() as folder:
        return supervise(work(folder), asked["deadline_s"], controlled=True)


def begin(asked: str) -> None:
    """Run, and end the process: what a tool left hanging may not keep it."""
    code = main(json.loads(asked))
    sys.stdout.flush()
    sys.exit(code)
