"""`toolkit run`: a program between the start of a lease and its end."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from toolkit.lease import Exit, LeaseError, kept_note
from toolkit.lease.client import ask, endings, manage, shown_gpus
from toolkit.lease.client.images import Here
from toolkit.lease.endpoint import LeaseEndpoint, check_devices, check_engine, endpoints_of, gpus_text, probe
from toolkit.lease.engines import installed, load
from toolkit.lease.heartbeat import Keeper, keep
from toolkit.lease.jobs.submission import Submission
from toolkit.lease.machine.host import Host
from toolkit.lease.pool import where_text
from toolkit.lease.use import VARIABLE, UseFile
from toolkit.lease.wire import EndCode, Ending
from validation.base.counting import number_of

Say = Callable[[str], None]
#: What runs a program on the endpoints of its lease: module step for those on the server.
ProgramStart = Callable[[Host, Sequence[str], Sequence[LeaseEndpoint], Say, "signal.Signals | None"], int]
#: After its lease ended a program may end by itself for this long; then it is told to, and as long after that killed.
LOST_S = 10.0
#: How long after a program failed the end of its lease may be heard of: the server says it before it ends.
SETTLES_S = 0.3
_PR_SET_PDEATHSIG = 1
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def die_with(parent: int) -> None:
    """In the child: end when `toolkit run` is killed, because nobody then keeps its lease."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # killed before it was asked for
        os._exit(128 + signal.SIGTERM)


def parse_signal(name: str) -> signal.Signals:
    """The signal that --signal names: USR1, SIGUSR1 or 10. LeaseError where there is none, or it ends nothing."""
    word = name.upper().removeprefix("SIG")
    try:
        found = signal.Signals(int(word)) if word.isdigit() else signal.Signals[f"SIG{word}"]
    except (KeyError, ValueError):
        raise LeaseError(f"--signal {name}: no such signal; give one such as TERM, INT or USR1") from None
    if found in (signal.SIGSTOP, signal.SIGTSTP):
        raise LeaseError(f"--signal {name}: a program that is stopped cannot end")
    return found


def find_program(argv: Sequence[str], engine_dir: Path | None = None) -> str:
    """The program's path, or that of an engine's nvidia-smi, where one brings it; LeaseError when there is none,
    before any GPU is asked for."""
    ours = shown_gpus.any_program(engine_dir) if engine_dir and argv[0] == shown_gpus.PROGRAM else None
    path = str(ours) if ours else shutil.which(argv[0])
    if path is None:
        raise LeaseError(f"{argv[0]}: no such program")
    return path


def check_servers(host: Host, endpoints: int, engine: str = "") -> None:
    """That the engine (the site's first, if none is named) can join so many servers in one program."""
    name = installed(host.engine_dir, engine).engine
    most = load(name).MAX_SERVERS
    if most is not None and endpoints > most:
        raise LeaseError(
            f"the engine {name} joins at most {number_of(most, 'server')} in one program, this lease has {endpoints}"
        )


@contextmanager
def private_folder() -> Iterator[Path]:
    """A folder that this user alone may read, gone afterwards."""
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    usable = Path(base).is_absolute() and os.access(base, os.W_OK)
    folder = tempfile.mkdtemp(prefix="elastic-ai-lease-", dir=base if usable else None)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _signals_to(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ctrl-C reaches the program by the terminal itself; what is sent to us alone is passed on."""

    def forward(number: int, _frame: object) -> None:
        if process.poll() is None:
            process.send_signal(number)

    before = {number: signal.signal(number, forward) for number in FORWARDED}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass
class Watch:
    """A program and its lease: what befalls the one is said, and the other is told."""

    host: Host
    lease: int
    keepers: Sequence[Keeper]
    lost: threading.Event
    say: Say
    chosen: signal.Signals | None
    patience_s: float
    use: UseFile | None = None
    told_lost: Say | None = None
    told: bool = False
    told_idle: bool = False

    def wait(self, process: subprocess.Popen[bytes]) -> int:
        """The program's exit code, 128 + number for a signal. When the lease is lost: say so, and see that it ends."""
        since: float | None = None
        while True:
            try:
                code = process.wait(0.2)
            except subprocess.TimeoutExpired:
                pass
            else:
                if since is None and code != 0 and self.lost.wait(SETTLES_S):
                    self._say_lost()  # its last call failed because the lease had ended
                return code if code >= 0 else 128 - code
            if self.use is not None:
                self.use.update()
            if self.lost.is_set():
                if since is None:
                    since = time.monotonic()
                    self._say_lost()
                    if self.chosen is not None and not self.told:
                        process.send_signal(self.chosen)
                elif time.monotonic() - since > 2 * self.patience_s:
                    process.kill()
                elif time.monotonic() - since > self.patience_s:
                    process.terminate()
            elif not self.told:
                self._warn(process)
                self._note_idle()

    def _warn(self, process: subprocess.Popen[bytes]) -> None:
        """At the start of a grace: one line, and the signal."""
        notice = next((keeper.notice for keeper in self.keepers if keeper.notice), None)
        if notice is None:
            return
        self.told, sent = True, self.chosen or signal.SIGTERM
        words = f"lease {self.lease} ends in {notice.left_s:.0f} s: {notice.ending.words}"
        self.say(f"{words}; the program is sent {sent.name}")
        process.send_signal(sent)

    def _note_idle(self) -> None:
        """GPUs that nobody uses: a line, and no signal, for it is the program's to use them again."""
        idle = next((keeper.idle for keeper in self.keepers if keeper.idle), None)
        if idle is not None and not self.told_idle:
            left = f"it ends in {idle.left_s} s unless they are"
            self.say(f"lease {self.lease}: its GPUs were not used for {number_of(idle.minutes, 'minute')}; {left}")
        self.told_idle = idle is not None

    def _say_lost(self) -> None:
        words = f"lease {self.lease} has ended: {lost_words(self.host, self.lease, self.keepers)}"
        (self.told_lost or self.say)(words)


def lost_words(host: Host, lease: int, keepers: Sequence[Keeper]) -> str:
    """Why the lease ended: the server's word where it knows, else Slurm's, else what the connection told."""
    heard = next((keeper.ending for keeper in keepers if keeper.ending), Ending(EndCode.LOST, "unknown"))
    if heard.code in (EndCode.TIME, EndCode.CLIENT, EndCode.PREEMPTED, EndCode.ADMINISTRATOR, EndCode.IDLE):
        return heard.words
    try:
        jobs = host.slurm.job_parts(lease)
    except LeaseError:
        return heard.words
    over = endings.over_of(jobs)
    return endings.ended_words(over) if over else heard.words


def start_and_wait(
    host: Host,
    argv: Sequence[str],
    endpoints: Sequence[LeaseEndpoint],
    say: Say,
    chosen: signal.Signals | None = None,
    patience_s: float = LOST_S,
    container: Here | None = None,
    told_lost: Say | None = None,
) -> int:
    """Run the program on the endpoints of one lease, which it neither asks for nor gives back. chosen: the signal that
    it is sent when the lease is about to end, or has ended without notice. container: where it runs, if in one.
    told_lost: what reports the lease's end, in place of `say`."""
    lease = endpoints[0].lease
    engine_dir = check_engine(endpoints, host.engine_dir).folder
    for endpoint in endpoints:
        probe(endpoint)
    adapter = load(endpoints[0].engine)
    with private_folder() as folder:
        environment = adapter.client(engine_dir, [e.server for e in endpoints], folder)
        keepers, lost = keep(endpoints)
        try:
            environment |= {"ELASTIC_AI_LEASE": str(lease), "ELASTIC_AI_GPUS": gpus_text(endpoints)}
            use = UseFile(folder, keepers)
            environment = shown_gpus.environment(engine_dir, environment | {VARIABLE: str(use.path)}, os.environ)
            if container is not None:
                environment.pop("PATH", None)  # the image has its own
                shown = shown_gpus.program_of(engine_dir)
                argv = container.command(argv, environment, [engine_dir, folder], [shown] if shown else [])
            program = find_program(argv, engine_dir)
            environment = {**os.environ, **environment}
            check_devices(endpoints, engine_dir, environment)
            try:
                process = subprocess.Popen(  # no thread runs yet
                    argv, executable=program, env=environment, preexec_fn=partial(die_with, os.getpid())
                )
            except OSError as fault:
                raise LeaseError(f"{argv[0]}: {fault.strerror}") from None
            with _signals_to(process):
                for keeper in keepers:
                    keeper.start()
                return Watch(host, lease, keepers, lost, say, chosen, patience_s, use, told_lost).wait(process)
        finally:
            for keeper in keepers:
                keeper.end()
            if container is not None:
                container.remove()


def describe(endpoints: Sequence[LeaseEndpoint]) -> str:
    """1/2 of gpu1:0, gpu2:0-3; labelled where devices are emulated."""
    from toolkit.lease.fraction import share_text

    words = []
    for endpoint in endpoints:
        where = where_text((endpoint.node, device.index) for device in endpoint.devices)
        first = endpoint.devices[0]
        part = "" if first.whole else f"{share_text(first.shards, first.of)} of "
        words.append(part + where)
    label = " (emulated devices: not a GPU's figures)" if any(e.emulated for e in endpoints) else ""
    return ", ".join(words) + label


def notes_of(endpoints: Sequence[LeaseEndpoint]) -> list[str]:
    """What its servers say of a lease that its owner ought to know, each once: what no kernel can do here, what was
    rounded, what is not held."""
    return list(dict.fromkeys(note for endpoint in endpoints for note in endpoint.notes))


def _give_back(host: Host, lease: int, say: Say) -> None:
    """Our connections are closed already, so the servers end it in seconds even if Slurm does not hear us."""
    try:
        host.slurm.cancel(lease)
    except LeaseError as fault:
        say(f"lease {lease}: Slurm cannot cancel it now ({fault}); its servers end it without this machine")


def run(
    host: Host,
    submission: Submission,
    argv: Sequence[str],
    say: Say,
    chosen: signal.Signals | None = None,
    start: ProgramStart | None = None,
    sees: Callable[[Sequence[LeaseEndpoint]], str] | None = None,
) -> int:
    """Ask, wait, run (`start`, here if nothing else is said), give back; the exit code. sees: what the program sees of
    the GPUs, in words."""
    lease, endpoints = ask.obtain(host, submission, say)
    kept_note.note_running()
    try:
        seen = sees(endpoints) if sees else ""
        say(f"lease {lease}: {describe(endpoints)}{f'; {seen}' if seen else ''}")
        for note in notes_of(endpoints):
            say(f"lease {lease}: {note}")
        return (start or start_and_wait)(host, argv, endpoints, say, chosen)
    except LeaseError as fault:  # before the program started
        raise (endings.cause_of(host, lease) or fault) from None
    finally:
        with ask.uninterrupted():
            _give_back(host, lease, say)


def run_on(
    host: Host,
    lease: int,
    argv: Sequence[str],
    say: Say,
    chosen: signal.Signals | None = None,
    check: Callable[[str], None] | None = None,
) -> int:
    """Run on a lease that is there, and leave it there. check: of its engine, before the program starts."""
    jobs = host.slurm.job_parts(lease)
    over = next((job for job in jobs if job.ended), None)
    if not jobs or over is not None:
        why = endings.ended_words(over) if over else "Slurm does not know it (any more)"
        raise LeaseError(f"lease {lease} has ended: {why}", Exit.RETRY)
    lost = manage.Lease(lease, tuple(jobs)).lost
    if lost:
        raise LeaseError(
            f"lease {lease} has ended in part: {lost} of its {number_of(lost + len(jobs), 'part')}", Exit.RETRY
        )
    if any(job.state != "RUNNING" for job in jobs):
        raise LeaseError(f"lease {lease} has not started yet ({jobs[0].reason or jobs[0].state.lower()})", Exit.RETRY)
    endpoints = endpoints_of(host, jobs)
    if check is not None and endpoints[0].where == "client":
        check(endpoints[0].engine)
    kept_note.note_held(lease)
    kept_note.note_running()
    return start_and_wait(host, argv, endpoints, say, chosen)
