"""`toolkit backup`: the head makes one now and reads it back; a copy comes to this machine."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.backup import archive
from toolkit.errors import UsageFault
from toolkit.exits import Exit
from toolkit.node.head import Head, last_words, ssh_words
from validation.base import noise
from validation.base.errors import ToolkitError
from validation.model import Topology

SETTINGS = "/etc/elastic-ai/backup/backup.json"
LIBRARY = "/usr/lib/elastic-ai/backup"
MAKING_S = 3600.0
"""Of a head with years of figures and some images. Project default."""
Say = Callable[[str], None]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ" + re.escape(archive.SUFFIX))
_BOOT = """
import os, runpy, signal, sys, threading
def attend():
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=attend, daemon=True).start()
sys.path.insert(0, {library!r})
runpy.run_module("toolkit.backup.on_head", run_name="__main__", alter_sys=True)
"""
"""The head's program, which is stopped as by systemd, and leaves nothing, when the connection to us has ended."""


class BackupFault(ToolkitError):
    """A backup that was not made, or cannot be read."""


@dataclass(frozen=True)
class Made:
    """`file`: of the copy here; `there`: of the one on the head. `bad`: older ones that cannot be read, and why."""

    header: archive.Header
    file: Path
    there: str
    size: int
    seconds: float
    kept: int
    bad: dict[str, str]


def make(topology: Topology, folder: Path, say: Say) -> Made:
    """Have one made, and fetch it. UsageFault where the head makes none; BackupFault where it failed."""
    if not folder.is_dir():
        raise UsageFault(f"{folder}: no such folder; make it, or name another with --to")
    head = Head(topology)
    if head.run(["test", "-f", SETTINGS]).returncode != 0:
        raise UsageFault(
            f"{head.node.name} makes no backups: set backup_recipients in the inventory (age-keygen -o backup.key "
            "prints a public key for it) and run toolkit deploy -- --tags backup"
        )
    say(f"{head.node.name}: making a backup and reading it back")
    done = _attended(head, ["python3", "-I", "-B", "-c", _BOOT.format(library=LIBRARY), SETTINGS, "now"])
    answer = next(iter(noise.documents(done.stdout)), {})
    if done.returncode == Exit.RETRY:
        raise BackupFault(f"{head.node.name}: {last_words(done.stderr)}", Exit.RETRY)
    if "file" not in answer:
        raise BackupFault(f"{head.node.name}: {last_words(done.stderr)}", Exit.FAILED)
    made = _made(head, answer, folder)
    say(f"copying {made.file.name} to {folder}")
    _fetched(head, made.there, made.file)
    return made


def _made(head: Head, answer: dict[str, Any], folder: Path) -> Made:
    """What the head reports, believed only in its form: a name of its choice is a place on this machine."""
    there = str(answer["file"])
    if not there.startswith("/") or not _NAME.fullmatch(there.rpartition("/")[2]):
        raise BackupFault(f"{head.node.name}: {there[:200]!r} is no name of a backup; nothing was copied", Exit.FAILED)
    try:
        return Made(
            archive.Header(**answer["header"]), folder / there.rpartition("/")[2], there, int(answer["bytes"]),
            float(answer["seconds"]), int(answer["kept"]), dict(answer["bad"]),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError):
        raise BackupFault(
            f"{head.node.name}: its answer is not one of this toolkit's; deploy it again (--tags backup)", Exit.FAILED
        ) from None


def _attended(head: Head, words: list[str]) -> subprocess.CompletedProcess[bytes]:
    """A program of the head that ends with this one, whatever ends this: its stdin stays open as long as we live."""
    sudo = [] if head.node.ssh.user == "root" else ["sudo", "-n"]
    marked = noise.Marked([*sudo, "env", "LC_ALL=C", *words])
    theirs, ours = os.pipe()
    try:
        process = subprocess.Popen(
            [*ssh_words(head.node.ssh), marked.line], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        os.close(theirs)
        try:
            out, err = process.communicate(timeout=MAKING_S)
        except subprocess.TimeoutExpired:
            raise BackupFault(
                f"{head.node.name} has made no backup within {MAKING_S / 60:.0f} min; try again", Exit.RETRY
            ) from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    finally:
        os.close(ours)
    if process.returncode == 255:
        raise UsageFault(f"{head.node.name} ({head.node.ssh.host}) does not answer by ssh: {last_words(err)}")
    return subprocess.CompletedProcess(words, process.returncode, marked.answer(out), err)


def _fetched(head: Head, there: str, target: Path) -> None:
    """The whole file or none."""
    sudo = [] if head.node.ssh.user == "root" else ["sudo", "-n"]
    digest = head.run(["sha256sum", there]).stdout.decode("ascii", "replace").split()
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as out:
            words = [*ssh_words(head.node.ssh), shlex.join([*sudo, "cat", there])]
            done = subprocess.run(words, stdout=out, stderr=subprocess.PIPE, check=False)
        if done.returncode != 0:
            raise BackupFault(f"{there} was not copied: {last_words(done.stderr)}", Exit.FAILED)
        if not digest or _sha256(Path(name)) != digest[0]:
            raise BackupFault(f"{there} came here as other bytes than it has there; try again", Exit.FAILED)
        Path(name).replace(target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while data := stream.read(1 << 20):
            digest.update(data)
    return digest.hexdigest()


def document(made: Made) -> dict[str, Any]:
    """As --json prints it."""
    return {
        "file": str(made.file), "on_head": made.there, "bytes": made.size, "seconds": made.seconds, "kept": made.kept,
        "header": made.header.document(), "unreadable": made.bad,
    }  # fmt: skip
