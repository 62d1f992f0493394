"""Programs that go on alone, for tests: a real supervisor with a command that notes leases as `toolkit run` does. In
place of systemd's unit the supervisor is a process in a session of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolkit.lease.kept import folder, reading, record, starting, unit
from toolkit.lease.kept.record import Kept, Order
from toolkit.lease.machine.host import Host

ROOT = Path(__file__).parents[2]
#: What `toolkit run` does as far as a supervisor sees it: notes its lease, and runs the program.
COMMAND = """#!{python}
import os, subprocess, sys
sys.path.insert(0, "{root}")
from toolkit.lease import kept_note
if sys.argv[1] == "refused":
    sys.exit("error: no such program" * (print("error: x: no such program", file=sys.stderr) or 0) or 2)
assert kept_note.kept()
held = sys.argv[1].startswith("held")
(kept_note.note_held if held else kept_note.note_lease)(int(sys.argv[1].removeprefix("held")))
kept_note.note_running()
sys.exit(subprocess.run(sys.argv[2:]).returncode % 256)
"""
SUPERVISE = """
import sys
from pathlib import Path
from toolkit.lease.kept import afterwards, folder, output, supervisor
folder.state = lambda: Path({state!r})
supervisor.ENDS_S = 2.0
supervisor.RUNTIME = {runtime!r}
afterwards._SENDMAIL_PATH = {mail!r}
afterwards.slurm.cancel = lambda lease: Path({state!r}).with_name("cancelled").write_text(str(lease))
{more}
sys.exit(supervisor.main(sys.argv[1:]))
"""


class Place:
    """A home, and supervisors that are started in it."""

    def __init__(self, tmp: Path) -> None:
        self.state, self.tmp = tmp / "state", tmp
        self.more = ""
        self.supervisors: list[subprocess.Popen[bytes]] = []

    def start(self, name: str) -> None:
        code = SUPERVISE.format(
            state=str(self.state), mail=str(self.tmp / "mail"), runtime=str(self.tmp), more=self.more
        )
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
        self.supervisors.append(
            subprocess.Popen([sys.executable, "-c", code, name], env=environment, start_new_session=True)
        )


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    made = Place(tmp_path)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "toolkit").write_text(COMMAND.format(python=sys.executable, root=ROOT))
    (programs / "toolkit").chmod(0o755)
    (programs / "keep").touch()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(folder, "state", lambda: made.state)
    monkeypatch.setattr(unit, "start", made.start)
    monkeypatch.setattr(unit, "KEEP", programs / "keep")
    monkeypatch.setattr(sys, "argv", ["pytest"])
    yield made
    for one in made.supervisors:
        if one.poll() is None:
            os.killpg(one.pid, signal.SIGKILL)
        one.wait()


def start(*arguments: str, said: list[bytes] | None = None, then: str = "", mail: str = "") -> Kept | int:
    wish = starting.Wish(tuple(arguments[1:]) or ("x",), then, mail)
    return starting.keep(wish, arguments, (said if said is not None else []).append)


def shown(kept: Kept, follow: bool = True) -> tuple[bytes, int | None, str]:
    """What is printed, exit code and last sentence."""
    found: list[bytes] = []
    end = reading.show(Host(), record.read(kept.path), found.append, lambda _: None, follow)
    return b"".join(found), None if end is None else end.code, "" if end is None else end.words


def kept_by(*arguments: str, **more: str) -> Kept:
    found = start(*arguments, **more)  # type: ignore[arg-type]
    assert isinstance(found, Kept)
    return found


@pytest.fixture
def made(place: Place) -> Path:
    """The folder of a program that no supervisor has yet."""
    return record.make(Order(("toolkit",), ("x",), "/", "", "", record.this_machine(), 0o22, 1.0), {})
