"""The systemd unit of a lease: one transient service, sandboxed, under a uid of its own."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from functools import partial
from pathlib import Path

from toolkit.lease import LeaseError
from toolkit.lease.engines import load
from toolkit.lease.instance_record import INSTANCE, PEER_TOKEN, TOKEN, Instance
from toolkit.lease.machine import quota
from toolkit.lease.machine.processes import groups_of, lease_of, numbers, read

PROGRAMS = Path("/usr/lib/elastic-ai/lease-server/bin")
#: The user whose processes share the MPS server: MPS serves one user at a time.
MPS_USER = "elastic-ai-engine"
#: What a unit may take beside its engine's own time until that listens.
START_S = 15
#: What a process of an engine may lock for RDMA: its rings of 4 MiB, and what a device's driver takes beside them.
MEMLOCK = "64M"


class UnitFailed(LeaseError):
    """systemd started the unit, and it failed: its journal has the cause."""


#: The home of a lease's engine, where the driver keeps what it has compiled: in memory, a part of the unit's own, for
#: the unit alone, and gone with it.
HOME, HOME_PART, MOST_HOME_BYTES = "/run/elastic-ai-home", 8, 1 << 30


def home_bytes(memory_bytes: int) -> int:
    """How large it may get."""
    return min(memory_bytes // HOME_PART, MOST_HOME_BYTES)


def home_environment(memory_bytes: int) -> dict[str, str]:
    """What tells the driver so. It stops in time, so that the home never is full."""
    limit = home_bytes(memory_bytes) * 3 // 4
    return {"HOME": HOME, "CUDA_CACHE_PATH": f"{HOME}/ComputeCache", "CUDA_CACHE_MAXSIZE": str(limit)}


#: MPS has the engines of all leases under one uid: none of them may read or write another's memory.
_APART = "SystemCallFilter=~process_vm_readv process_vm_writev"
#: gloo asks the kernel which interface an address is of (getifaddrs); without it no server of a lease meets another.
OF_PEERS = "RestrictAddressFamilies=AF_NETLINK"
_SANDBOX = (
    "NoNewPrivileges=yes",
    "ProtectSystem=strict",
    "ProtectHome=yes",
    "PrivateTmp=yes",
    "ProtectProc=invisible",
    "ProtectClock=yes",
    "ProtectHostname=yes",
    "ProtectKernelTunables=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelLogs=yes",
    "ProtectControlGroups=yes",
    "LockPersonality=yes",
    "RestrictSUIDSGID=yes",
    "RestrictRealtime=yes",
    "RestrictNamespaces=yes",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
    "CapabilityBoundingSet=",
    "SystemCallArchitectures=native",
    "SystemCallFilter=@system-service",
    # By which an engine gives up more of its rights; they are in none of systemd's sets.
    "SystemCallFilter=landlock_create_ruleset landlock_add_rule landlock_restrict_self",
    # A call that nobody foresaw is refused, as by a kernel that has it not, and ends no lease.
    "SystemCallErrorNumber=EPERM",
    "MemorySwapMax=0",
    # A stranger's connections are told, and not each of them (journald says how many were left out).
    "LogRateLimitIntervalSec=30",
    "LogRateLimitBurst=300",
    "InaccessiblePaths=-/run/munge -/etc/munge -/etc/slurm -/var/lib/slurm -/root",
    "UMask=0077",
    "LimitCORE=0",
    "OOMPolicy=stop",
    "KillMode=mixed",
    "IPAddressDeny=any",
    "DevicePolicy=closed",
    "TimeoutStopSec=10",
)


def start_s(instance: Instance) -> float:
    """How long the unit may take to start."""
    return START_S + (START_S if instance.native else load(instance.engine).STARTS_S)


def name_of(job: str) -> str:
    """The unit of a job (or of a static lease)."""
    return f"elastic-ai-lease@{job}.service"


def device_files(instance: Instance, dev: Path = Path("/dev")) -> list[str]:
    """The driver's device files that the unit may open; none for emulated devices, nor where no engine runs in it."""
    if instance.native:
        return []
    indices = [device.index for device in instance.devices if not device.emulated]
    files = [f"{dev}/nvidiactl", f"{dev}/nvidia-uvm", *(f"{dev}/nvidia{i}" for i in indices)] if indices else []
    files += [path for device in instance.devices for path in device.device_files]
    return files + (rdma_files(dev) if instance.transport == "verbs" else [])


def rdma_files(dev: Path = Path("/dev")) -> list[str]:
    """RDMA devices for programs, any of which may have the port; LeaseError where there is none."""
    found = sorted(str(path) for path in dev.glob("infiniband/uverbs*"))
    if not found:
        words = f"{dev}/infiniband has no device of RDMA (uverbs), and remoting_server_transport is verbs"
        raise LeaseError(f"{words}: is the port's driver loaded? toolkit check says")
    return found


def require_files(files: Sequence[str]) -> None:
    """Make the device files that are not there yet: systemd ignores a DeviceAllow= of them, and nothing in the sandbox
    may make them. LeaseError where that fails."""
    if all(Path(path).exists() for path in files):
        return
    with suppress(OSError):  # it is not installed: the error below says what is missing
        subprocess.run(["nvidia-modprobe", "-c0", "-u"], capture_output=True, check=False, timeout=20)
    missing = [path for path in files if not Path(path).exists()]
    if missing:
        raise LeaseError(f"{', '.join(missing)}: not there; nvidia-modprobe -c0 -u makes the driver's device files")


def properties(instance: Instance, folder: Path) -> list[str]:
    """Everything that the unit is, beyond its command."""
    job = instance.job
    emulated = not instance.native and any(device.emulated for device in instance.devices)
    identity = [f"User={MPS_USER}"] if instance.mps_pipe else ["DynamicUser=yes"]
    return [
        f"Description=Lease {instance.lease} of uid {instance.owner_uid} (job {job})",
        *identity,
        *([f"SupplementaryGroups={instance.device_group}"] if instance.device_group else []),
        *_SANDBOX,
        *([_APART] if instance.mps_pipe else []),
        "NotifyAccess=main",
        f"TimeoutStartSec={start_s(instance):.0f}",
        f"MemoryMax={instance.memory_bytes}",
        f"TemporaryFileSystem={HOME}:size={home_bytes(instance.memory_bytes)},mode=1777,nosuid,nodev",
        f"TasksMax={instance.tasks}",
        f"LimitNOFILE={8 * instance.tasks}",
        f"RuntimeDirectory=elastic-ai-lease-{job}",
        "RuntimeDirectoryMode=0700",
        f"LoadCredential=token:{folder / TOKEN}",
        f"LoadCredential=instance:{folder / INSTANCE}",
        *([f"LoadCredential={PEER_TOKEN}:{folder / PEER_TOKEN}", OF_PEERS] if instance.peers else []),
        *(f"IPAddressAllow={address}" for address in (*instance.clients, *instance.servers)),
        *(f"DeviceAllow={path} rw" for path in device_files(instance)),
        *([f"LimitMEMLOCK={MEMLOCK}"] if instance.transport == "verbs" else []),
        *(["ReadWritePaths=-/dev/shm/elastic-ai-devices"] if emulated else []),
        f"ExecStopPost=+{PROGRAMS}/stopped {job}",
    ]


def _systemctl(*args: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemctl", *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        env={**os.environ, "LC_ALL": "C", "LANGUAGE": ""},
    )


def start(instance: Instance, folder: Path) -> None:
    """Start the unit and wait until its engine listens. LeaseError with the reason when it does not."""
    require_files(device_files(instance))
    unit, limit_s = name_of(instance.job), start_s(instance) + 15
    command = ["systemd-run", "--quiet", "--collect", f"--unit={unit}", "--service-type=notify"]
    command += [f"--property={value}" for value in properties(instance, folder)]
    try:
        done = subprocess.run(
            [*command, str(PROGRAMS / "agent")], capture_output=True, text=True, check=False, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        raise LeaseError(f"systemd did not start {unit} within {limit_s:.0f} s") from None
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise UnitFailed(f"{unit} did not start: {said[0] if said else 'no reason given'}")
    share = None if instance.native else quota.share_of(instance.engine, instance.devices)
    if share is not None:
        hold(instance, share)


def hold(instance: Instance, share: Fraction) -> None:
    """A part of what processors stand in for has its share of one. LeaseError where it cannot be held."""
    _systemctl("set-property", "--runtime", name_of(instance.job), *quota.properties(share))
    try:
        quota.hold(instance.job, share, partial(pids, instance.job))
    except OSError as fault:
        raise LeaseError(f"its share of a processor cannot be held: {fault.filename}: {fault.strerror}") from None


def run_apart(name: str, command: Sequence[str]) -> None:
    """Start a program as a service of its own, and do not wait for it."""
    words = ["systemd-run", "--quiet", "--no-block", "--collect", f"--unit={name}", *command]
    subprocess.run(words, check=False, timeout=20)


def active(job: str) -> bool:
    """Whether the unit runs, or is about to, or is ending."""
    done = _systemctl("show", "--property=ActiveState", "--value", name_of(job))
    return done.stdout.strip() not in ("inactive", "failed", "")


def stop(job: str) -> None:
    """Stop the unit, and forget that it failed."""
    _systemctl("stop", name_of(job))
    _systemctl("reset-failed", name_of(job))
    quota.forget(job)


def running() -> list[str]:
    """Jobs with a unit on this server."""
    done = _systemctl("list-units", "--plain", "--no-legend", "--all", "elastic-ai-lease@*.service")
    names = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    return [name.removeprefix("elastic-ai-lease@").removesuffix(".service") for name in names]


def pids(job: str, proc: Path = Path("/proc")) -> list[int]:
    """Processes in the unit's control group."""
    return [pid for pid in numbers(proc) if lease_of(groups_of(pid, proc), proc) == job]


def uids(job: str, proc: Path = Path("/proc")) -> set[int]:
    """Under which uids they run: with DynamicUser one that is the unit's alone."""
    return {process.uid for process in map(partial(read, proc=proc), pids(job, proc)) if process is not None}


def engine_cpu_s(job: str, proc: Path = Path("/proc")) -> float | None:
    """Processor time that the engine of a unit has used, its ended processes included; without the agent's, which is
    the process that systemd started. None where none of it runs."""
    own, spent = pids(job, proc), {}
    for pid in own:
        try:
            # After the name, which may hold anything: state, ppid, ... utime, stime, cutime, cstime (proc(5)).
            words = (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
            spent[pid] = (int(words[1]), sum(int(words[i]) for i in (11, 12, 13, 14)))
        except (OSError, ValueError, IndexError):
            continue  # it has ended, and its parent has its time
    engine = [ticks for parent, ticks in spent.values() if parent in own]
    return sum(engine) / os.sysconf("SC_CLK_TCK") if engine else None


def reason_left(job: str, folder: Path = Path("/run")) -> str:
    """Why the agent says that it ended. A process of the lease made that file: no link is followed, and only plain
    words are taken."""
    path = folder / f"elastic-ai-lease-{job}" / "reason"
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with os.fdopen(handle, "rb") as stream:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return ""
        text = stream.read(160).decode(errors="replace")
    return "".join(c for c in text.strip() if c.isalnum() or c in " '.,:()/-")


def journal(job: str, lines: int = 2) -> Sequence[str]:
    """The last words of the unit, for an error that names its cause."""
    done = subprocess.run(
        ["journalctl", "--output=cat", "--lines=5", "--no-pager", f"_SYSTEMD_UNIT={name_of(job)}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    return list(dict.fromkeys(line for line in done.stdout.splitlines() if line.strip()))[-lines:]
