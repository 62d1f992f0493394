"""The program of the head that makes backups, tries them, and keeps the newest: `python3 -m toolkit.backup.on_head`.

    on_head SETTINGS.json now      make one, read it back, remove the oldest; prints it as JSON
    on_head SETTINGS.json check    read back all that are kept, for the timer
    on_head SETTINGS.json begin    write the figures of a head that waits for its first backup; prints "written"

All write the figures that Prometheus reads. Nothing that is secret is printed, and nothing is left behind by one that
was stopped. Standard library, age, and the distribution's MariaDB client.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from toolkit.backup import archive

DATABASE = "slurm_acct_db"
_TIME = r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ"
SAVED_S = 6.0
"""Slurm's controller writes a change of its state down within 5 s (SAVE_MAX_WAIT, src/slurmctld/state_save.c): a job
that began just before a backup is in it only then."""
AHEAD_S = 3600.0
"""By how much the clock of a file server may be ahead of the head's. What is further ahead was made by a clock that was
wrong, and would keep BackupOverdue silent until then. Project default."""
CLIENTS = ("mariadb-dump", "mysqldump")
TREES: dict[str, tuple[tuple[str, str], ...]] = {
    "key": (("/etc/elastic-ai/slurm/munge.key", "munge.key"),),
    "pool": (
        ("/etc/elastic-ai/slurm/nodes.json", "nodes.json"),
        ("/etc/elastic-ai/slurm/pool.json", "pool.json"),
        ("/etc/elastic-ai/slurm/leavers.json", "leavers.json"),
    ),
    "slurm": (("/var/lib/slurm/slurmctld", "state"),),
    "registry": (("/etc/elastic-ai/registry", "certificates"), ("/var/lib/docker-registry", "images")),
    "prometheus": (("/var/lib/prometheus/metrics2", "data"),),
    "runs": (("/var/lib/elastic-ai-revalidate", "revalidate"),),
    "ledgers": (("/var/lib/elastic-ai/ledger", "ledger"), ("/etc/elastic-ai/provisioned.json", "provisioned.json")),
}
"""Where each part is on the head, and its name in the backup. The database is asked by its own program."""


HELP = {
    "elastic_ai_backup_unreadable": "Backups of the head that are kept and cannot be read.",
    "elastic_ai_backup_timestamp_seconds": "When the newest readable backup was made, in seconds since 1970; before "
    "the first one when backups were set up, 0 where that failed.",
    "elastic_ai_backup_overdue_seconds": "Age from which the newest backup is overdue.",
}


@dataclass
class Settings:
    """What role backup wrote. `root`: below which the parts are, / on a head."""

    cluster: str
    head: str
    folder: str
    key: str
    recipients: str
    keep: int
    overdue_s: int
    metrics: str = ""
    release: str = ""
    root: str = "/"
    database: list[str] = field(default_factory=list)

    def place(self, path: str) -> Path:
        """A path of the head."""
        return Path(self.root) / path.lstrip("/")


def _stem(settings: Settings) -> str:
    return f"{settings.cluster}-{settings.head}"


def kept(settings: Settings) -> list[Path]:
    """All backups of this head, the oldest first; the folder may be one of several heads. Those from before its key
    were made for the key of a head that was lost: this one cannot read them, and does not judge them. Those of a time
    that is still to come were made by a clock that was wrong, and are no newer than any other."""
    of = re.compile(re.escape(_stem(settings) + "-") + f"({_TIME})" + re.escape(archive.SUFFIX))
    found = [(path, of.fullmatch(path.name)) for path in Path(settings.folder).glob(f"*{archive.SUFFIX}")]
    since, now = _key_since(settings), f"{_now() + timedelta(seconds=AHEAD_S):%Y-%m-%dT%H-%M-%SZ}"
    named = [(name[1] <= now, path) for path, name in found if name is not None and name[1] >= since]
    return [path for _, path in sorted(named)]


def _key_since(settings: Settings) -> str:
    """When this head's key was made, in the form of a backup's name; "" where that is not known."""
    with contextlib.suppress(OSError, ValueError):
        said = re.search(r"^# created: (\S+)$", Path(settings.key).read_text("utf-8"), re.MULTILINE)
        if said is not None:
            made = datetime.fromisoformat(said[1].replace("Z", "+00:00")).astimezone(timezone.utc)
            return f"{made:%Y-%m-%dT%H-%M-%SZ}"
    return ""


def _now() -> datetime:
    return datetime.now(timezone.utc)


@contextlib.contextmanager
def locked(settings: Settings) -> Iterator[None]:
    """The backups of this head for this process alone; what one of its own that was killed left is removed.
    BlockingIOError while another is at work. OSError for a folder whose disk is not there."""
    folder = Path(settings.folder)
    if (mount := _not_mounted(settings)) is not None:
        raise OSError(f"{mount} is not mounted, which {folder} is on")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    own = re.compile(re.escape(f".{_stem(settings)}-") + r"[a-z0-9_]+[.]part")  # of mkstemp
    with (folder / f".{_stem(settings)}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for left in folder.glob(".*.part"):
            if own.fullmatch(left.name):
                left.unlink()
        yield


def _not_mounted(settings: Settings) -> str | None:
    """The place of /etc/fstab above the folder where nothing is mounted: a backup there would be on this disk."""
    with contextlib.suppress(OSError):
        for line in settings.place("/etc/fstab").read_text("utf-8", "replace").splitlines():
            columns = line.split()
            if len(columns) > 2 and not line.lstrip().startswith("#") and columns[1] not in ("/", "none", "swap"):
                there = columns[1].replace("\\040", " ")
                if Path(there) in (Path(settings.folder), *Path(settings.folder).parents) and not os.path.ismount(
                    there
                ):
                    return there
    return None


def _dumped(settings: Settings) -> Any:
    """The database as text in a file without a name; None where there is none. OSError with its client's words."""
    client = next((found for found in map(shutil.which, CLIENTS) if found), None)
    if client is None or not settings.place(f"/var/lib/mysql/{DATABASE}").exists():
        return None
    out = tempfile.TemporaryFile(dir=settings.folder)  # noqa: SIM115 - the caller closes it
    words = [client, *settings.database, "--single-transaction", "--quick", "--routines", "--databases", DATABASE]
    done = subprocess.run(words, stdout=out, stderr=subprocess.PIPE, check=False, env=_english())
    if done.returncode != 0:
        out.close()
        raise OSError(f"{Path(client).name}: {done.stderr.decode('utf-8', 'replace').strip()[-300:]}")
    return out


def _english() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C", "LANGUAGE": ""}


def _slurm_version() -> str:
    with contextlib.suppress(OSError, IndexError):
        done = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, check=False, env=_english())
        return done.stdout.split()[-1]
    return ""


def _controls() -> bool:
    """Whether a controller of Slurm runs here."""
    with contextlib.suppress(OSError):
        return subprocess.run(["systemctl", "is-active", "--quiet", "slurmctld"], check=False).returncode == 0
    return False


def make(settings: Settings) -> Path:
    """A backup of now, as a whole or not at all; OSError where one of the parts that are there cannot be read."""
    folder, now = Path(settings.folder), _now()
    name = f"{_stem(settings)}-{now:%Y-%m-%dT%H-%M-%SZ}{archive.SUFFIX}"
    missing = {
        part: "it is not on this head"
        for part, places in TREES.items()
        if not any(settings.place(path).exists() for path, _ in places)
    }
    began = time.monotonic()
    dump = _dumped(settings)
    if _controls():
        time.sleep(max(0.0, began + SAVED_S - time.monotonic()))
    if dump is None:
        missing["accounting"] = "it is not on this head"
    header = archive.Header(
        archive.FORMAT, f"{now:%Y-%m-%dT%H:%M:%SZ}", settings.cluster, settings.head, settings.release,
        _slurm_version(), {}, missing,
    )  # fmt: skip
    handle, part_name = tempfile.mkstemp(dir=folder, prefix=f".{_stem(settings)}-", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as out:
            _written(settings, header, out, dump)
            os.fsync(out.fileno())
        target = folder / name
        Path(part_name).replace(target)
    except BaseException:
        Path(part_name).unlink(missing_ok=True)
        raise
    finally:
        if dump is not None:
            dump.close()
    return target


def _written(settings: Settings, header: archive.Header, out: Any, dump: Any) -> None:
    writer = archive.Writer(out, Path(settings.recipients))
    try:
        writer.text(archive.HEADER, header.document())
        for part, places in TREES.items():
            for path, inside in places:
                if settings.place(path).exists():
                    writer.tree(part, settings.place(path), inside)
        if dump is not None:
            dump.flush()
            info = writer.tar.gettarinfo(arcname="accounting/dump.sql", fileobj=dump)
            info.mode, info.size = 0o600, os.fstat(dump.fileno()).st_size
            dump.seek(0)
            writer.file("accounting/dump.sql", dump, info)
        writer.finish()
    except BrokenPipeError:
        raise OSError(f"age ended: {writer.stop(False).strip()[:300]}") from None
    except BaseException:
        writer.stop()
        raise


def tried(settings: Settings, paths: list[Path]) -> dict[str, str]:
    """Backup -> why it cannot be read; those that can are not listed."""
    bad = {}
    for path in paths:
        try:
            archive.verified(path, Path(settings.key))
        except archive.Unreadable as fault:
            bad[path.name] = str(fault)
    return bad


def figures(settings: Settings, bad: dict[str, str], none: float = 0.0) -> bool:
    """The file that node-exporter reads, replaced as a whole; whether it was written. `none`: the time that stands for
    the newest backup where there is none."""
    if not settings.metrics or not Path(settings.metrics).parent.is_dir():  # no node-exporter here
        return False
    good = [path for path in kept(settings) if path.name not in bad]
    now = _now().timestamp()
    times = [path.stat().st_mtime for path in good]
    last = max((min(at, now) for at in times if at <= now + AHEAD_S), default=none)
    said = {
        "elastic_ai_backup_unreadable": len(bad),
        "elastic_ai_backup_timestamp_seconds": last,
        "elastic_ai_backup_overdue_seconds": settings.overdue_s,
    }
    target = Path(settings.metrics)
    lines = [
        f"# HELP {name} {HELP[name]}\n# TYPE {name} gauge\n{name} {float(value)!r}\n" for name, value in said.items()
    ]
    new = target.with_suffix(".new")
    new.write_text("".join(lines), encoding="utf-8")
    new.chmod(0o644)
    new.replace(target)
    return True


def thinned(settings: Settings, bad: dict[str, str]) -> list[str]:
    """Remove the oldest beyond those that are to be kept; one that cannot be read takes no place of a good one."""
    good = [path for path in kept(settings) if path.name not in bad]
    gone = good[: -max(1, settings.keep)]
    for path in gone:
        path.unlink()
    return [path.name for path in gone]


def run(settings: Settings, verb: str) -> int:
    """Exit status: 1 where none was made or one cannot be read, 75 while another is at work."""
    began, said = time.monotonic(), dict[str, Any]()
    if verb == "begin":
        if figures(settings, {}, time.time()):
            print("written")
        return 0
    try:
        with locked(settings):
            made = make(settings) if verb == "now" else None
            bad = tried(settings, kept(settings))
            removed = thinned(settings, bad) if made is not None else []
            figures(settings, bad)
            if made is not None and made.name not in bad:
                header = archive.verified(made, Path(settings.key)).document()
                said = {"file": str(made), "bytes": made.stat().st_size, "header": header}
    except BlockingIOError:
        print("another backup is being made; try again when it has ended", file=sys.stderr)
        return 75
    except OSError as fault:
        print(f"no backup was made: {fault}", file=sys.stderr)
        with contextlib.suppress(OSError):  # so that a first one that fails is an alert too
            figures(settings, tried(settings, kept(settings)))
        return 1
    said |= {"bad": bad, "removed": removed, "kept": len(kept(settings))}
    said["seconds"] = round(time.monotonic() - began, 1)
    print(json.dumps(said))
    for name, why in bad.items():
        print(f"{name} cannot be read: {why}", file=sys.stderr)
    return 1 if bad else 0


def main(words: list[str]) -> int:
    """The command line."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if len(words) != 2 or words[1] not in ("now", "check", "begin"):
        print(__doc__, file=sys.stderr)
        return 2
    settings = Settings(**json.loads(Path(words[0]).read_text("utf-8")))
    try:
        return run(settings, words[1])
    except KeyboardInterrupt:
        print("stopped; nothing of it is left", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
