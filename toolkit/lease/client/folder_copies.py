"""A folder of this machine for a program on the GPU server, where no file system is shared: there before the program
starts, and back when it has ended. As tar, through the input and output of steps of the lease's own job.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tarfile import TarError
from typing import Any

from toolkit.lease import Exit, LeaseError
from toolkit.lease.client import ask
from toolkit.lease.client.unpacking import HostileArchive, Outcome, Parts, Some, unpack
from validation.base.counting import number_of

#: Where copies lie on the server: not in memory, and not gone when it starts anew.
BASE = "/var/tmp"  # noqa: S108 - the folder in it is new, and its user's alone
_MAKE = 'umask 077; mkdir -- "$1" && exec tar -x -f - -C "$1"'
#: tar: some files changed while they were read.
_CHANGED = 1
#: With times to the nanosecond: which of several servers' files is the newest.
_PACK = ("--format=posix", "-c", "-f", "-", ".")


def readable(folder: Path) -> Path:
    """The folder, absolute; LeaseError where it is none, before anything is asked for."""
    if not folder.is_dir() or not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise LeaseError(f"--sync {folder}: not a folder that you may read and write")
    against = _against(folder)
    if against:
        raise LeaseError(f"--sync {folder}: {against}")
    return folder.resolve()


def _against(folder: Path) -> str:
    """Why not all in the folder can go there and come back, '' where it can. What comes back replaces files: that takes
    the right to write to their folder, and not to them."""
    faults: list[OSError] = []
    for inside, folders, files in os.walk(folder, onerror=faults.append):
        for path in (Path(inside, name) for name in [*folders, *files]):
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:
                continue  # gone meanwhile
            if stat.S_ISDIR(mode) and not os.access(path, os.R_OK | os.W_OK | os.X_OK):
                return f"{path} is a folder that you may not read and write"
            if stat.S_ISREG(mode) and not os.access(path, os.R_OK):
                return f"you may not read {path}"
            if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                return f"{path} is a device"
    return f"{faults[0].filename}: {faults[0].strerror}" if faults else ""


def new_path() -> str:
    """Where a copy is to lie."""
    return f"{BASE}/elastic-ai-{secrets.token_hex(6)}"


def without(folder: Path, left_out: Sequence[str] | None) -> list[str]:
    """tar's options for what neither goes there nor comes back: these paths in the folder, and hidden files of a home,
    also those that a program makes there. Nothing for None."""
    if left_out is None:
        return []
    found = ["--anchored", "--no-wildcards", *(f"--exclude=./{path}" for path in left_out)]
    with suppress(ValueError):  # no home is in the folder
        home = Path.home().resolve().relative_to(folder.resolve())
        name = re.sub(r"([][*?\\])", r"\\\1", "".join(f"{part}/" for part in home.parts))
        found += ["--wildcards", "--no-wildcards-match-slash", f"--exclude=./{name}.*"]
    return found


def staying(folder: Path, left_out: Sequence[str] | None) -> Callable[[Parts], bool]:
    """The same, of a path in the folder: a server must not decide what of this folder it replaces."""
    if left_out is None:
        return lambda _: False
    kept = {tuple(Path(path).parts) for path in left_out}
    home: Parts | None = None
    with suppress(ValueError):
        home = Path.home().resolve().relative_to(folder.resolve()).parts

    def stays(parts: Parts) -> bool:
        hidden = home is not None and parts[: len(home)] == home and "".join(parts[len(home) :])[:1] == "."
        return hidden or any(parts[: depth + 1] in kept for depth in range(len(parts)))

    return stays


class Copy:
    """A folder here and its copy on the server. `step` makes srun's command line of a program there."""

    def __init__(
        self,
        folder: Path,
        node: str,
        step: Callable[[Sequence[str]], list[str]],
        environment: Mapping[str, str],
        there: str = "",
        left_out: Sequence[str] | None = None,
    ) -> None:
        """Nothing is copied yet. environment: srun's. there: its path on the server, a new one if left out. left_out:
        paths in the folder that stay here as they are, None where all of it is copied (--sync)."""
        self.folder, self.node, self.step, self.environment = folder, node, step, environment
        self.without, self.stays = without(folder, left_out), staying(folder, left_out)
        self.there = there or new_path()

    def _pipe(self, source: Sequence[str], sink: Sequence[str], what: str) -> None:
        """From one program into the other; LeaseError where either fails. Neither hears of the terminal's Ctrl-C."""
        with tempfile.TemporaryFile() as said:
            apart: dict[str, Any] = {"stderr": said, "env": self.environment, "start_new_session": True}
            with (
                subprocess.Popen(source, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, **apart) as first,
                subprocess.Popen(sink, stdin=first.stdout, stdout=subprocess.DEVNULL, **apart) as second,
            ):
                try:
                    assert first.stdout is not None
                    first.stdout.close()  # the first hears of the second's end
                    codes = (first.wait(), second.wait())
                except BaseException:
                    first.terminate()
                    second.terminate()
                    raise
            said.seek(0)
            words = said.read().decode(errors="replace").strip().splitlines() or ["no reason given"]
        if codes[1] or codes[0] not in (0, _CHANGED):
            raise LeaseError(f"{what}: {words[-1]}", Exit.RETRY)

    def send(self) -> None:
        """Here to there. What was begun is removed again where that fails."""
        try:
            here = ["tar", "-C", str(self.folder), *self.without, *_PACK]
            there = self.step(["sh", "-c", _MAKE, "sh", self.there])
            self._pipe(here, there, f"{self.folder} was not copied to {self.node}")
        except BaseException:
            self.remove()
            raise

    def fetch(self, newer: bool = False) -> str:
        """There to here, over what is here (`newer`: of what is older here); nothing that is here alone is removed. Not
        to be interrupted. In words what of it is not taken, "" where all is. LeaseError where it fails: the copy then
        stays on the server."""
        there = self.step(["tar", "-C", self.there, *self.without, *_PACK])
        with ask.uninterrupted():
            refused, fault = self._unpack(there, newer)
            if fault:
                kept = f"not all came back; the files are on {self.node} in {self.there}"
                raise LeaseError(f"{self.folder}: {kept}: {fault}", Exit.RETRY)
            self.remove()
        if not refused.count:
            return ""
        return f"{number_of(refused.count, 'entry')} of the folder did not come back from {self.node}: {refused}"

    def _unpack(self, source: Sequence[str], newer: bool) -> tuple[Some, str]:
        """From that program into the folder: what was refused, and why not all came, "" where it did."""
        with tempfile.TemporaryFile() as said:
            with subprocess.Popen(
                source, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, env=self.environment,
                start_new_session=True,
            ) as first:  # fmt: skip
                assert first.stdout is not None
                outcome, broken = Outcome(), ""
                try:
                    outcome = unpack(first.stdout, self.folder, self.stays, newer)
                except HostileArchive as fault:
                    return Some(), f"{self.node} sent no folder: {fault}"
                except (OSError, TarError) as fault:
                    broken = str(fault)
                finally:
                    first.stdout.close()  # it ends, if it has not
                code = first.wait()
            said.seek(0)
            words = said.read().decode(errors="replace").strip().splitlines()
        if code not in (0, _CHANGED):
            broken = words[-1] if words else broken or f"tar ended with exit code {code}"
        return outcome.refused, broken or str(outcome.faults)

    def remove(self) -> None:
        """The copy on the server; nothing where the job is gone."""
        command = self.step(["rm", "-rf", "--", self.there])
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(command, env=self.environment, capture_output=True, check=False, timeout=600)


class Copies:
    """A folder here and a copy on each server of a lease, under the same path. `steps` by server, as in Copy."""

    def __init__(
        self,
        folder: Path,
        steps: Mapping[str, Callable[[Sequence[str]], list[str]]],
        environment: Mapping[str, str],
        left_out: Sequence[str] | None = None,
    ) -> None:
        """Nothing is copied yet. left_out: as in Copy."""
        self.there = new_path()
        self._all = [Copy(folder, node, step, environment, self.there, left_out) for node, step in steps.items()]

    def send(self) -> None:
        """Here to each of them; nothing stays there where that fails."""
        sent: list[Copy] = []
        try:
            for copy in self._all:
                copy.send()
                sent.append(copy)
        except BaseException:
            for copy in sent:
                copy.remove()
            raise

    def remove(self) -> None:
        """All of them."""
        for copy in self._all:
            copy.remove()

    def fetch(self, say: Callable[[str], None]) -> None:
        """Each of them to here: of a file that several servers changed the newest. What cannot come back stays there,
        whatever becomes of the others; LeaseError names all of it. say: what is not taken."""
        faults = []
        for number, copy in enumerate(self._all):
            try:
                refused = copy.fetch(newer=number > 0)
                if refused:
                    say(refused)
            except LeaseError as fault:
                faults.append(str(fault))
        if faults:
            raise LeaseError("; ".join(faults), Exit.RETRY)
