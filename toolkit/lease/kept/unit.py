"""The unit in which a program goes on alone: one of the system's, under its user's own uid.

A unit of the user's own manager would need a session of theirs, or lingering. The helper `keep` runs as root for the
user who called sudo. It takes one word, a name of 12 digits, reads no file of the user's, and starts one program, whose
path is fixed, as that user: what the user could start in a login, without the login. A job of Slurm's is no login: a
unit would be outside of its control group, with processors and memory that the job was not given.
"""

from __future__ import annotations

import os
import pwd
import re
import resource
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from toolkit.lease import SERVER_CONF, LeaseError
from toolkit.lease.kept.folder import NAME

LIB = Path("/usr/lib/elastic-ai/lease/bin")
KEEP, SUPERVISE = LIB / "keep", LIB / "supervise"
#: What programs say is in English.
PLAIN = {"LC_ALL": "C", "LANGUAGE": ""}
#: Of one user on one machine at a time.
MOST_UNITS = 64
#: Hard limits of the caller's processes, which hold the unit's too: setrlimit(2), systemd.exec(5).
LIMITS = ("AS", "CORE", "CPU", "DATA", "FSIZE", "MSGQUEUE", "NOFILE", "NPROC", "RSS", "SIGPENDING", "STACK")
CGROUP = Path("/proc/self/cgroup")
#: Parts of a job's control group, as Slurm names them with and without systemd: cgroups(5), Slurm's cgroup.conf.
_OF_JOB = re.compile(r"job_[0-9]+|(?:[^/]*_)?slurmstepd.*")
#: A program has so long to end when its unit is stopped, as by a shutdown; its lease is given back meanwhile.
STOP_S = 60
#: Stopped after it when the machine is: by these it gives its lease back, notes its end, and sends its mail.
NEEDED = ("dbus.service", "munge.service", "network.target", "remote-fs.target")


def unit_of(uid: int, name: str) -> str:
    """The unit of a user's program."""
    return f"elastic-ai-kept-{uid}-{name}.service"


def refuse_in_job() -> None:
    """LeaseError in a job of Slurm's."""
    paths = [line.split(":", 2)[-1] for line in CGROUP.read_text("utf-8", "replace").splitlines()]
    if any(_OF_JOB.fullmatch(part) for path in paths for part in path.split("/")):
        raise LeaseError("no program goes on alone from a job of Slurm's: start it from a login")


def _limit(bound: int) -> str:
    return "infinity" if bound == resource.RLIM_INFINITY else str(bound)


def limits() -> dict[str, str]:
    """Of this process, as settings of a unit. Memory may be locked up to the hard limit at once, as RDMA needs it."""
    found = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in LIMITS}
    settings = {f"Limit{name}": f"{_limit(soft)}:{_limit(hard)}" for name, (soft, hard) in found.items()}
    return settings | {"LimitMEMLOCK": _limit(resource.getrlimit(resource.RLIMIT_MEMLOCK)[1])}


def command(user: pwd.struct_passwd, name: str) -> list[str]:
    """systemd-run's command line. It is in the slice of the user's sessions, whose limits hold it too, and outlives
    them; so do the limits of this process. Its shared memory is its own: logind removes a user's when the last session
    ends (RemoveIPC). It has no folder in /run, which root's services share and whose size no quota bounds."""
    unit = unit_of(user.pw_uid, name)
    settings = (
        f"User={user.pw_uid}",
        f"Slice=user-{user.pw_uid}.slice",
        "KillMode=mixed",
        f"TimeoutStopSec={STOP_S}",
        f"After={' '.join(NEEDED)}",
        "TemporaryFileSystem=/dev/shm:mode=1777,nosuid,nodev",
        *(f"{key}={value}" for key, value in limits().items()),
        "OOMPolicy=continue",
        "WorkingDirectory=/",
        "StandardInput=null",
    )
    words = ["systemd-run", "--quiet", "--collect", f"--unit={unit}", f"--description=Program of {user.pw_name}"]
    return [*words, *(f"--property={setting}" for setting in settings), "--", str(SUPERVISE), name]


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **PLAIN}
    try:
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60, env=environment)
    except FileNotFoundError as fault:
        raise LeaseError(f"{fault.filename} is not installed here, and programs go on alone by it") from None
    except subprocess.TimeoutExpired:
        raise LeaseError(f"{words[0]} did not answer within 60 s") from None


def machine_stops() -> bool:
    """Whether this machine is being shut down or started again."""
    with suppress(LeaseError):
        return _run(["systemctl", "is-system-running"]).stdout.strip() == "stopping"
    return False


def keep_as_root(argv: Sequence[str]) -> None:
    """The helper: start the unit of the caller's program. LeaseError where that cannot be."""
    if len(argv) != 1 or not re.fullmatch(NAME, argv[0]):
        raise LeaseError("usage: keep NAME")
    refuse_in_job()
    caller = os.environ.get("SUDO_UID", "0")
    if not re.fullmatch(r"[0-9]{1,10}", caller):
        raise LeaseError("only a user of this machine keeps programs here")
    try:
        user = pwd.getpwuid(int(caller))
    except KeyError:
        raise LeaseError(f"uid {caller} is no user of this machine") from None
    pattern = unit_of(user.pw_uid, "*")
    there = _run(["systemctl", "list-units", "--plain", "--no-legend", "--state=active,activating", pattern])
    if len(there.stdout.splitlines()) >= MOST_UNITS and user.pw_uid != 0:
        raise LeaseError(f"{MOST_UNITS} of your programs go on alone here already; end some: toolkit lease list")
    done = _run(command(user, argv[0]))
    if done.returncode:
        raise LeaseError(f"systemd did not start it: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")


def refuse_missing() -> None:
    """LeaseError where this machine keeps no programs."""
    refuse_in_job()
    if not KEEP.exists() and SERVER_CONF.exists():
        raise LeaseError("--detach: programs of a GPU server run in jobs alone; use it on a client")
    if not KEEP.exists():
        raise LeaseError(f"--detach needs {KEEP}, which is not here; the administrator runs site.yml (toolkit deploy)")


def start(name: str) -> None:
    """Have root start the unit of this user's program. LeaseError where that cannot be."""
    words = [str(KEEP), name]
    try:
        done = subprocess.run(
            words if os.geteuid() == 0 else ["sudo", "--non-interactive", *words],
            capture_output=True, text=True, check=False, timeout=120, env={**os.environ, **PLAIN},
        )  # fmt: skip
    except FileNotFoundError as fault:
        raise LeaseError(f"{fault.filename} is not installed here, and programs go on alone by it") from None
    except subprocess.TimeoutExpired:
        raise LeaseError("the program was not started within 120 s") from None
    if done.returncode:
        raise LeaseError((done.stderr.strip().splitlines() or ["the program was not started"])[-1])
