"""What is known of a program that goes on alone: what was ordered, and how far it is."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import signal
import socket
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, cast

from toolkit.lease import LeaseError
from toolkit.lease.display import shortened
from toolkit.lease.fields import DamagedDocument, Fields
from toolkit.lease.kept import folder
from validation.base.visible import visible

ORDER, STATUS, ENVIRONMENT = "order.json", "status.json", "environment.json"
#: The status is written over in place, in blocks that it has from the start: a full disk does not keep the end from
#: being noted.
STATUS_BYTES = 4096
MOST_WORDS, MOST_LEASES = 600, 16
INTERRUPTED = 128 + signal.SIGINT
#: Who looks whether a supervisor lives has the lock for a moment.
LOOKS_S = 2.0
BOOT = Path("/proc/sys/kernel/random/boot_id")
State = Literal["starting", "waiting", "running", "ended"]


def this_machine() -> str:
    """Its name, as leases have it."""
    return socket.gethostname().split(".")[0][:64]


def _boot() -> str:
    try:
        return BOOT.read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True)
class Order:
    """What is run. command: of the toolkit. words: the program's, for people. afterwards: a shell command (`then`), and
    an address, each "" for none. host: where it runs. umask: the user's. made: seconds since the epoch."""

    command: tuple[str, ...]
    words: tuple[str, ...]
    directory: str
    then: str
    mail: str
    host: str
    umask: int
    made: float

    @classmethod
    def read(cls, path: Path) -> Order:
        """Of a program's folder; DamagedDocument for anything else."""
        fields = Fields.in_file(path / ORDER)
        found = cls(
            command=fields.texts("command", r"(?s:[^\0]*)"),
            words=fields.texts("words", r"(?s:[^\0]*)"),
            directory=fields.text("directory", r"(?s:/[^\0]*)"),
            then=fields.text("then", r"(?s:[^\0]*)"),
            mail=fields.text("mail"),
            host=fields.text("host"),
            umask=fields.number("umask", most=0o777),
            made=fields.seconds("made"),
        )
        fields.end()
        if not found.command or not found.words:
            fields.refuse("command", "is empty")
        return found

    def text(self) -> str:
        """The file's content."""
        return json.dumps(asdict(self))

    @property
    def program(self) -> str:
        """The program in one line that can only be read."""
        line = visible(shlex.join(self.words))
        return shortened(line, MOST_WORDS)


@dataclass(frozen=True)
class Status:
    """How far it is. leases: all that it has had, the last one is its own now. held: whether that lease was there
    before it, and stays. code: its exit code, None until it is known. why: in place of a code, or beside it. dropped:
    bytes of its output that are no longer there. boot: of its machine, which has started again where it is another.
    pid: of its supervisor, 0 before there is one. ended: seconds since the epoch."""

    state: State = "starting"
    leases: tuple[int, ...] = ()
    held: bool = False
    code: int | None = None
    why: str = ""
    dropped: int = 0
    boot: str = ""
    pid: int = 0
    ended: float | None = None

    @classmethod
    def read(cls, text: str) -> Status:
        """DamagedDocument for anything else."""
        fields = Fields.of(text, STATUS)
        found = cls(
            state=cast(State, fields.text("state", "starting|waiting|running|ended")),
            leases=fields.numbers("leases"),
            held=fields.flag("held"),
            code=fields.number_or_none("code", most=255),
            why=fields.text("why"),
            dropped=fields.number("dropped"),
            boot=fields.text("boot"),
            pid=fields.number("pid"),
            ended=fields.seconds_or_none("ended"),
        )
        fields.end()
        return found

    def text(self) -> bytes:
        """The file's content, always of one size."""
        short = replace(self, leases=self.leases[-MOST_LEASES:], why=visible(self.why)[:MOST_WORDS])
        return json.dumps(asdict(short)).encode().ljust(STATUS_BYTES - 1) + b"\n"

    @property
    def lease(self) -> int | None:
        """Its lease, None where it has none yet."""
        return self.leases[-1] if self.leases else None


def _locked(file: int, how: int) -> bool:
    """False where another has it; OSError where there are no locks."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _status_at(file: int) -> Status:
    return Status.read(os.pread(file, STATUS_BYTES, 0).decode("utf-8", "replace"))


class Notes:
    """The status as its supervisor writes it. While the supervisor lives nobody else has the file's lock."""

    def __init__(self, path: Path) -> None:
        """Take it over. LeaseError where another supervisor has it, or its user wants it no more."""
        self._file = os.open(path / STATUS, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        until = time.monotonic() + LOOKS_S
        while not _locked(self._file, fcntl.LOCK_EX):
            if time.monotonic() > until:
                os.close(self._file)
                raise LeaseError(f"{path}: its program is kept already")
            time.sleep(0.01)
        if _status_at(self._file).state == "ended":
            os.close(self._file)
            raise LeaseError(f"{path}: its program has ended already")
        self.status = Status(boot=_boot(), pid=os.getpid())
        self.change()

    def change(self, **values: object) -> None:
        """Some fields of it."""
        self.status = replace(self.status, **values)  # type: ignore[arg-type]  # names of fields, by this package alone
        os.pwrite(self._file, self.status.text(), 0)

    def lease(self, number: int, held: bool = False) -> None:
        """It has this lease now. held: the lease was there before, and stays."""
        self.change(leases=(*self.status.leases, number), state="waiting", held=held)

    def end(self, code: int | None, why: str = "") -> None:
        """It has ended."""
        self.change(state="ended", code=code, why=why, ended=time.time())


@dataclass(frozen=True)
class Kept:
    """A program that goes on alone, or has ended."""

    path: Path
    order: Order
    status: Status
    lives: bool

    @property
    def name(self) -> str:
        """Of its folder and its unit."""
        return self.path.name

    @property
    def over(self) -> bool:
        """Whether it has ended, or what kept it is gone."""
        return self.status.state == "ended" or not self.lives

    @property
    def lost(self) -> str:
        """Why its end is not known; "" where it is, or has not come."""
        if self.status.state == "ended" or self.lives:
            return ""
        if self.order.host == this_machine() and self.status.boot and self.status.boot != _boot():
            return f"{self.order.host} was started again while it ran"
        return f"what kept it on {self.order.host} was killed"


def _status(path: Path) -> tuple[Status, bool]:
    """And whether its supervisor lives."""
    with (path / STATUS).open("rb") as file:
        for _try in range(3):
            try:
                status = _status_at(file.fileno())
            except DamagedDocument:
                time.sleep(0.02)  # it was being written
            else:
                break
        else:
            status = _status_at(file.fileno())
        return status, not _locked(file.fileno(), fcntl.LOCK_SH)


def read(path: Path) -> Kept:
    """Of a program's folder; DamagedDocument or OSError where it is none."""
    order = Order.read(path)
    status, lives = _status(path)
    if not lives and status.state != "ended":
        status, lives = _status(path)  # it may have ended between the two looks
    return Kept(path, order, status, lives)


def withdraw(path: Path) -> bool:
    """Note that a program has ended which no supervisor keeps yet, so that none begins with it. False where one keeps
    it, or it has ended."""
    file = os.open(path / STATUS, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if not _locked(file, fcntl.LOCK_EX):
            return False
        status = _status_at(file)
        if status.state == "ended":
            return False
        ended = replace(status, state="ended", code=INTERRUPTED, ended=time.time())
        os.pwrite(file, ended.text(), 0)
        return True
    finally:
        os.close(file)


def everything() -> list[Kept]:
    """All of this user's, the newest first; what cannot be read is none."""
    found = []
    for path in folder.folders():
        try:
            found.append(read(path))
        except (OSError, LeaseError):
            continue
    return found


def of_lease(lease: int) -> Kept | None:
    """The newest that has, or had, this lease; None where none did."""
    return next((one for one in everything() if lease in one.status.leases), None)


def running() -> dict[int, Kept]:
    """Those that go on, by their lease; none where the folder is not this user's alone."""
    try:
        found = everything()
    except LeaseError:
        return {}
    return {one.status.lease: one for one in reversed(found) if not one.over and one.status.lease is not None}


def _write(path: Path, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        while data:
            data = data[os.write(file, data) :]
        os.fsync(file)  # a disk that is full is full now, and not later
    finally:
        os.close(file)


def _try_lock(path: Path) -> None:
    """LeaseError where a file system has none: nobody would see whether a program is kept."""
    file = os.open(path / STATUS, os.O_RDWR | os.O_CLOEXEC)
    try:
        _locked(file, fcntl.LOCK_EX)
    except OSError as fault:
        remove(path)
        words = f"{path}: this file system has no locks (flock: {fault.strerror}); programs go on alone by them"
        raise LeaseError(words) from None
    finally:
        os.close(file)


def make(order: Order, environment: dict[str, str]) -> Path:
    """A new program's folder. The environment is there until its supervisor has read it. LeaseError where it cannot be
    written."""
    path = folder.new_folder()
    try:
        _write(path / STATUS, Status().text())
        _try_lock(path)
        _write(path / ENVIRONMENT, json.dumps(environment).encode("utf-8", "surrogateescape"))
        _write(path / ORDER, order.text().encode())
    except OSError as fault:
        remove(path)
        raise LeaseError(f"{path}: {fault.strerror}; what the program prints is kept there") from None
    return path


def take_environment(path: Path) -> dict[str, str]:
    """The user's environment, which is not there afterwards. LeaseError where it is none."""
    file = path / ENVIRONMENT
    try:
        data = json.loads(file.read_bytes().decode("utf-8", "surrogateescape"))
        file.unlink()
    except (OSError, ValueError) as fault:
        raise LeaseError(f"{file}: {fault}") from None
    return {str(key): str(value) for key, value in data.items()} if isinstance(data, dict) else {}


def remove(path: Path) -> None:
    """A program's folder with all that is in it."""
    shutil.rmtree(path, ignore_errors=True)
