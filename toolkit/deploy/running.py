"""Runs a playbook through ansible-runner: events go to the watch, what Ansible says to the log, signals to Ansible."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from types import FrameType
from typing import IO, Any, Literal

from toolkit import loudness
from toolkit.deploy.progress import StageLines
from toolkit.deploy.site_state import Estimate
from toolkit.deploy.watch import DeployWatch
from toolkit.errors import UsageFault
from validation.base import bounded, sockets

_TICK_S = 0.3  # how often ansible-runner asks whether to go on
_GRACE_S = (
    15  # Ansible waits for its workers after an interrupt; each of the steps from INT over TERM to KILL takes this
)
_FORKS_LEAST, _FORKS_MOST = 20, 200
_FORK_BYTES = 50 << 20
"""What a fork of Ansible may take: 38 MiB measured (benchmarks/README.md, forks)."""
_FLAGS = "[bCDhv]"
"""Short options of ansible-playbook that take no value, so that others may stand behind them in one word."""
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Deployment:
    """What is to be run."""

    playbook: Path
    config: Path
    inventory: Path
    limit: str | None
    check: bool
    arguments: tuple[str, ...]
    skip_unfit: bool = False
    left_out: tuple[str, ...] = ()  # nodes that preflight refused in an earlier run of the same command
    command: Literal["deploy", "teardown"] = "deploy"  # of toolkit

    @property
    def nodes(self) -> str | None:
        """The nodes of this run, as ansible-playbook's --limit has them; None: all."""
        without = [f"!{host}" for host in self.left_out]
        return ",".join([self.limit or "all", *without]) if without else self.limit

    def words(self) -> list[str]:
        """The arguments of ansible-playbook, without the playbook."""
        limit = ["--limit", self.nodes] if self.nodes else []
        return ["-i", str(self.inventory), *limit, *(["--check"] if self.check else []), *self.arguments]


class Interrupt:
    """Ctrl-C, TERM and a lost terminal: first what Ctrl-C does to ansible-playbook, then harder, and never a mess."""

    def __init__(self, watch: DeployWatch, progress: StageLines) -> None:
        """`watch` knows Ansible's process."""
        self._watch = watch
        self._progress = progress
        self._at = 0.0
        self._sent: list[signal.Signals] = []
        self._told = False
        self.by: signal.Signals | None = None

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Catch the signals; what the caller has ignored (nohup) stays ignored."""
        before = {number: signal.getsignal(number) for number in _STOPS}
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, self._arrived)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _arrived(self, number: int, _frame: FrameType | None) -> None:
        # Nothing is shown here: the display's own thread may hold its lock, and a handler that waited would never end.
        self.stop(signal.Signals(number))

    def stop(self, by: signal.Signals) -> None:
        """Have Ansible end. A second call makes it harder."""
        if self.by is None:
            self.by, self._at = by, time.monotonic()
        self._send(signal.SIGTERM if signal.SIGINT in self._sent else signal.SIGINT)

    def _tell(self) -> None:
        """Say once that Ansible is being stopped; nobody looks at a terminal that is gone."""
        if self.by is not None and not self._told:
            self._told = True
            if self.by == signal.SIGHUP:
                self._progress.mute()
            self._progress.said("stopping Ansible ...")

    def _send(self, number: signal.Signals) -> None:
        if self._watch.pid and number not in self._sent:
            self._sent.append(number)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(os.getpgid(self._watch.pid), number)

    def overdue(self) -> bool:
        """Whether ansible-runner is to kill what is left; asked by it several times a second."""
        self._tell()
        self._progress.pulse()
        if self.by is None:
            return False
        if not self._watch.pid:  # nothing runs on any node yet
            return True
        waited = time.monotonic() - self._at
        if waited > _GRACE_S:
            self._send(signal.SIGTERM)
        return waited > 2 * _GRACE_S


def run(
    job: Deployment, watch: DeployWatch, estimate: Estimate, progress: StageLines, log: IO[str], room: Path
) -> tuple[int, signal.Signals | None]:
    """Run the job to its end. Ansible's exit status, and the signal by which it was stopped.

    `room`: a folder of this run alone, made and removed here. UsageFault when ansible-playbook is not there.
    """
    import ansible_runner  # type: ignore[import-untyped]  # here, for `--help` need not wait for it

    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    if not shutil.which("ansible-playbook", path=path):
        raise UsageFault(f"ansible-playbook is not installed: {sys.executable} -m pip install ansible-core")
    interrupt, bounded_log = Interrupt(watch, progress), BoundedLog(log)

    def on_event(event: Mapping[str, Any]) -> bool:
        said = str(event.get("stdout") or "").replace("\r", "")
        if said:
            bounded_log(f"{said}\n")
        before = watch.step
        watch.take(event)
        if event.get("event") == "playbook_on_start" and watch.unmatched_limit:
            interrupt.stop(signal.SIGINT)  # Ansible would go on without the node that was meant
        if event.get("event", "").endswith("task_start") or watch.step != before:
            estimate.begin(watch.step, progress.elapsed_s)
        progress.event()
        return False  # ansible-runner need not keep it in a file of its own

    loudness.ran(["ansible-playbook", str(job.playbook), *job.words()])
    with _room(room), interrupt.caught(), sockets.for_ansible() as chosen:
        ran = ansible_runner.run(
            private_data_dir=str(room),
            project_dir=str(Path.cwd()),
            playbook=str(job.playbook),
            cmdline=shlex.join(job.words()),
            envvars={**environment(path, job.config), **chosen},
            settings={"pexpect_timeout": _TICK_S},
            suppress_env_files=True,
            status_handler=_keep_in_memory,
            event_handler=on_event,
            cancel_callback=interrupt.overdue,
            quiet=True,
        )
    return int(ran.rc if ran.rc is not None else 1), interrupt.by


class BoundedLog:
    """The log of a run, which what a node prints without an end does not make as large as the disk."""

    def __init__(self, log: IO[str], most: int = bounded.DEPLOY_LOG_BYTES) -> None:
        """`most` characters."""
        self._log, self._left = log, most
        self._most = most

    def __call__(self, text: str) -> None:
        """Write it; the first text that has no room is cut, and said so."""
        if self._left > 0:
            self._log.write(text[: self._left])
            self._left -= len(text)
            if self._left <= 0:
                self._log.write(f"\n... more than {bounded.size(self._most)}: the rest of this run is not in the log\n")
            self._log.flush()


@contextlib.contextmanager
def _room(folder: Path) -> Iterator[None]:
    """A new folder, whatever an earlier run that was killed left in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _keep_in_memory(status: Mapping[str, Any], runner_config: Any) -> None:
    """ansible-runner notes the whole environment, which may hold secrets, in its file `command` before it starts
    Ansible: that file is given to it in memory, so that it is on no disk and gone with this process."""
    if status.get("status") == "starting":
        folder = Path(runner_config.artifact_dir)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "command").symlink_to(f"/proc/self/fd/{os.memfd_create('command')}")


def environment(path: str, config: Path) -> dict[str, str]:
    """What Ansible needs beside the caller's environment; a configuration that the caller chose is kept.

    Without one, as many nodes work at the same time as half of the free memory has room for, so that a stage of
    packages does not go in waves; Ansible starts no more forks than a play has nodes.
    """
    if os.environ.get("ANSIBLE_CONFIG"):
        chosen = {}
    else:
        chosen = {"ANSIBLE_CONFIG": str(config), "ANSIBLE_FORKS": os.environ.get("ANSIBLE_FORKS") or str(forks())}
    return {"PATH": path, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0", **chosen}


def forks(meminfo: Path = Path("/proc/meminfo")) -> int:
    """How many nodes Ansible works on at the same time, by the memory that is free (MemAvailable of proc(5), kB)."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", meminfo.read_text(), re.MULTILINE) if meminfo.is_file() else None
    free_bytes = int(found[1]) * 1024 if found else 0
    return max(_FORKS_LEAST, min(_FORKS_MOST, free_bytes // 2 // _FORK_BYTES))


def asks(arguments: Sequence[str]) -> str | None:
    """The option among `arguments` with which Ansible would ask for a password, which nobody could answer here."""
    for word, after in zip_longest(arguments, arguments[1:], fillvalue=""):
        if word.startswith("--ask") or re.match(rf"-{_FLAGS}*[kKJ]", word):
            return word
        prompt = (word.partition("=")[2] or after).rpartition("@")[2]
        if word.startswith("--vault-i") and prompt == "prompt":
            return f"{word} {after}".strip() if "=" not in word else word
    return None


def second_inventory(arguments: Sequence[str]) -> str | None:
    """The option among `arguments` that names an inventory beside the command's own."""
    return next((word for word in arguments if re.match(rf"--inv|-{_FLAGS}*i", word)), None)
