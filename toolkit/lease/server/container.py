"""A program in a container on the GPU server: what root does there for a lease's owner, who may not use Docker himself.

    container look IMAGE                what the image is known by on this server
    container run --job=JOB --image=IMAGE --folder=FOLDER --environment=FILE [--tty] -- PROGRAM...

The owner chooses image, folder and command, and nothing else: the container runs as him, without capabilities, with the
network of the server as any program of his there, with the folder that he may enter, the lease's GPUs, and the job's
processors and memory. Who may use Docker is root on the server (docs/explanation/pool-security.md), so that
no other option is his.

The folder is opened as him and mounted from that by root: no link that he moves meanwhile leads elsewhere.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from toolkit.lease import LeaseError
from toolkit.lease.container_forms import ContainerWish, ImageNames, parse_wish
from toolkit.lease.engines import LeasedGpu
from toolkit.lease.instance_record import Instance
from toolkit.lease.machine.fence import DEV
from toolkit.lease.machine.host import Host, this_host
from toolkit.lease.server import container_limits
from toolkit.lease.server.instance import known, lives

LABEL = "elastic-ai-lease"
#: Of the lease's folder: that it may have containers. Docker is asked about them only then.
MARK = "containers"
#: Where folders of containers are mounted: not among the folders of leases, which are removed with all that is in them.
FOLDERS = "lease-folders"
MAX_ENVIRONMENT = 1 << 20
#: Of the lease's folder: a program that is about to make a container, by its number, and how long it may take.
STARTING, STARTING_S = "starting-", 20.0
#: How long a container that is removed may take to go.
GONE_S = 5.0
DOCKER_S = 60.0
#: How long Docker may take to say which containers there are: an Epilog asks, for which Slurm waits 120 s in all.
LOOK_S = 20.0
#: Of an image's configuration, what a program in it meets.
_MET = ("Cmd", "Entrypoint", "Env", "ExposedPorts", "Labels", "User", "Volumes", "WorkingDir")
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
#: As Docker reads names of images: registry, path, tag or digest.
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}")
#: Docker's own way of writing a mount has no way of writing these.
_FOLDER = re.compile(r"/[^:\x00-\x1f\x7f]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: What the emulated GPUs of a lab are for a program: libraries and a description. Their memory is in /dev/shm.
EMULATED = (Path("/etc/elastic-ai-emulated"),)
#: What nvidia-ctk writes where the GPUs are for containers (role nvidia_container_toolkit).
SPECIFICATIONS = (Path("/var/run/cdi/nvidia.yaml"), Path("/etc/cdi/nvidia.yaml"))
EMULATED_LINKER = Path("/etc/ld.so.conf.d/00-elastic-ai-emulated.conf")


class NotHere(LeaseError):
    """What this server lacks; its sentence follows the server's name."""

    def __init__(self, lacks: str) -> None:
        """lacks: no Docker."""
        super().__init__(f"has {lacks}")


def docker(*words: str, timeout_s: float = DOCKER_S) -> subprocess.CompletedProcess[str]:
    """One of Docker's commands. LeaseError where it is not there or does not answer."""
    try:
        return subprocess.run(
            ["docker", *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            env={**os.environ, "LC_ALL": "C", "LANGUAGE": ""},
        )
    except FileNotFoundError:
        raise NotHere("no Docker, which --image needs (playbooks/containers.yml)") from None
    except subprocess.TimeoutExpired:
        raise LeaseError(f"Docker did not answer within {timeout_s:.0f} s") from None


def check_name(image: str) -> str:
    """The name, if it may be one. LeaseError where it is none."""
    if not _IMAGE.fullmatch(image):
        raise LeaseError(f"--image {image[:80]!r}: not the name of an image")
    return image


def identity(image: str) -> str:
    """The image's identity on this server, by which Docker runs it here; LeaseError where it is not there."""
    done = docker("image", "inspect", "--format", "{{.Id}}", check_name(image))
    found = done.stdout.strip()
    if done.returncode == 0 and re.fullmatch(r"sha256:[0-9a-f]{64}", found):
        return found
    said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    if "no such image" in said.lower():
        raise NotHere(f"no image {image}; the administrator brings it there (docker pull, docker load)")
    raise LeaseError(f"Docker: {said}")


def names(image: str) -> ImageNames:
    """What an image is known by, to be compared with other servers'. Its content (layers, environment, command) is the
    same for both ways of keeping it."""
    known_by = ImageNames(identity(image))
    try:
        [said] = json.loads(docker("image", "inspect", check_name(image)).stdout)
        layers = said["RootFS"]["Layers"]
        config = {key: (said.get("Config") or {}).get(key) for key in _MET}
        repository = tuple(str(one) for one in said.get("RepoDigests") or [])
        descriptor = str((said.get("Descriptor") or {}).get("digest") or "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return known_by  # a Docker that says it in another way: the identity alone
    config = {key: value for key, value in config.items() if value and (key, value) != ("WorkingDir", "/")}
    met = [said.get("Architecture"), said.get("Os"), layers, config]
    content = hashlib.sha256(json.dumps(met, sort_keys=True).encode()).hexdigest()
    return replace(known_by, descriptor=descriptor, repository=repository, content=f"sha256:{content}")


def lease_of(host: Host, job: str, caller: int) -> Instance:
    """The caller's lease with a program on this server. LeaseError where that job is none."""
    instance = known(host).get(job) if job.isdigit() else None
    if instance is None or instance.owner_uid != caller or not instance.native:
        raise LeaseError(f"job {job[:20]} is no lease of yours with a program on this server")
    return instance


def _as(user: pwd.struct_passwd) -> None:
    os.setgroups(os.getgrouplist(user.pw_name, user.pw_gid))
    os.setresgid(user.pw_gid, user.pw_gid, 0)
    os.setresuid(user.pw_uid, user.pw_uid, 0)


def _as_root() -> None:
    os.setresuid(0, 0, 0)
    os.setresgid(0, 0, 0)
    os.setgroups([])


def opened_as(user: pwd.struct_passwd, folder: str, environment: str) -> tuple[int, dict[str, str]]:
    """The folder, opened as the user, and the variables in the file `environment`, read as him. LeaseError where he may
    not."""
    _as(user)
    try:
        handle = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        if not os.access(folder, os.X_OK, effective_ids=True):
            raise PermissionError(13, "Permission denied")
        source = os.open(environment, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(source, "rb") as stream:
            if not stat.S_ISREG(os.fstat(source).st_mode):
                raise LeaseError("the program's environment is no file")
            data = json.loads(stream.read(MAX_ENVIRONMENT))
    except OSError as fault:
        raise LeaseError(f"{fault.filename or folder}: {fault.strerror}") from None
    except ValueError:
        raise LeaseError("the program's environment cannot be read") from None
    finally:
        _as_root()
    told = {str(key): str(value) for key, value in data.items()} if isinstance(data, dict) else {}
    bad = [key for key, value in told.items() if not _VARIABLE.fullmatch(key) or re.search(r"[\0\r\n]", value)]
    if bad:
        raise LeaseError(f"the variable {bad[0][:40]!r} is none that Docker reads from a file")
    return handle, told


def emulated_words() -> tuple[list[str], dict[str, str]]:
    """docker's options for emulated GPUs, and variables."""
    libraries = [Path(line) for line in EMULATED_LINKER.read_text().split() if line.startswith("/")]
    words = [f"--volume={path}:{path}:ro" for path in [*EMULATED, *libraries]]
    return words, {"LD_LIBRARY_PATH": ":".join(map(str, libraries))}


def gpu_words(devices: Sequence[LeasedGpu], dev: Path = DEV) -> tuple[list[str], dict[str, str]]:
    """docker's options for exactly these GPUs or MIG instances, and variables.

    Real ones by their CDI names (nvidia-ctk), which bring the driver's libraries; over the device files that Docker
    would make with root's rights the server's own are mounted, whose access lists let the owner in.
    """
    if any(device.emulated for device in devices):
        return emulated_words()
    if not any(path.exists() for path in SPECIFICATIONS):
        raise NotHere("no CDI specification of its GPUs (nvidia-ctk; playbooks/containers.yml), or no Docker 25")
    words = [f"--device=nvidia.com/gpu={device.uuid}" for device in devices]
    paths = [dev / "nvidiactl", *(dev / f"nvidia{index}" for index in sorted({device.index for device in devices}))]
    paths += [Path(path) for device in devices for path in device.device_files]
    return [*words, *(f"--volume={path}:{path}" for path in paths)], {}


@dataclass(frozen=True)
class ContainerParts:
    """What root has made for a container. image: its identity. mount: where the folder is mounted, and its name; None
    for /, which is the image's. file: with its variables. limits: docker's options that hold it to its lease (module
    container_limits)."""

    image: str
    mount: tuple[Path, str] | None
    file: Path
    limits: Sequence[str]


def command(
    instance: Instance, wish: ContainerWish, user: pwd.struct_passwd, parts: ContainerParts
) -> tuple[list[str], dict[str, str]]:
    """docker's command line, and variables that the GPUs need; the program's are in a file: others may see command
    lines, and what is in docker's own environment would be obeyed by it, as root."""
    gpus, variables = gpu_words(instance.devices)
    groups = [gid for gid in os.getgrouplist(user.pw_name, user.pw_gid) if gid != user.pw_gid]
    words = ["docker", "create", "--rm", f"--label={LABEL}={instance.job}", "--pull=never", "--init"]
    words += ["--interactive", *(["--tty"] if wish.tty else [])]
    words += [f"--user={user.pw_uid}:{user.pw_gid}", *(f"--group-add={group}" for group in groups)]
    words += ["--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=host", "--ipc=host", "--restart=no"]
    words += parts.limits
    words += [f"--volume={parts.mount[0]}:{parts.mount[1]}", f"--workdir={parts.mount[1]}"] if parts.mount else []
    return [*words, *gpus, f"--env-file={parts.file}", parts.image, *wish.program], variables


def _mount(handle: int, place: Path) -> None:
    place.mkdir(mode=0o700, parents=True)
    source = f"/proc/{os.getpid()}/fd/{handle}"
    done = subprocess.run(
        ["mount", "--bind", source, place],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C", "LANGUAGE": ""},
    )
    if done.returncode:
        place.rmdir()
        raise LeaseError(f"the folder cannot be mounted: {done.stderr.strip()}")


def _unmount(place: Path) -> None:
    subprocess.run(["umount", "--lazy", place], capture_output=True, check=False)
    with suppress(OSError):
        place.rmdir()  # and nothing that is in it


@contextmanager
def starting(host: Host, job: str) -> Iterator[None]:
    """What is done within is seen by the lease's end, or is not begun: the end says first that nothing starts any more,
    then waits for those that are within (`remove`), and looks last. LeaseError for a lease that has ended."""
    path = host.run_dir / job / f"{STARTING}{os.getpid()}"
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
    except FileNotFoundError:
        raise LeaseError(f"lease of job {job} has ended") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if not lives(host, job):
            raise LeaseError(f"lease of job {job} has ended")
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _ours() -> dict[str, str]:
    """docker's own environment, in which nothing is the user's."""
    return {"PATH": PATH, "HOME": "/root", "LC_ALL": "C.UTF-8", "LANGUAGE": ""}


def _create(words: Sequence[str], file: Path, variables: Mapping[str, str]) -> str:
    """The container, which does not run yet: its identity. A container that this program did not start never starts."""
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.writelines(f"{key}={value}\n" for key, value in variables.items())
        done = subprocess.run(words, env=_ours(), capture_output=True, text=True, check=False, timeout=DOCKER_S)
    except subprocess.TimeoutExpired:
        raise LeaseError(f"Docker did not answer within {DOCKER_S:.0f} s") from None
    except FileNotFoundError:
        raise NotHere("no Docker, which --image needs (playbooks/containers.yml)") from None
    finally:
        file.unlink(missing_ok=True)
    if done.returncode:
        raise LeaseError(f"Docker: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
    return (done.stdout.split() or [""])[-1]


def run(host: Host, wish: ContainerWish, caller: int) -> int:
    """`run`: the program's exit code."""
    job = wish.job
    instance = lease_of(host, job, caller)
    user = pwd.getpwuid(caller)
    image = identity(wish.image)
    handle, told = opened_as(user, wish.folder, wish.environment)
    # As the kernel names it: a link on the way is the image's business no more.
    real = str(Path(f"/proc/self/fd/{handle}").readlink())
    if not _FOLDER.fullmatch(real):
        raise LeaseError(f"{real!r}: Docker mounts no folder of such a name")
    place = host.run_dir.with_name(FOLDERS) / job / str(os.getpid())
    # Signals of Slurm reach Docker's client too, which passes them on; sudo sends its own to this one. A terminal's
    # stop key would stop it in the middle of a start.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT):
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)
    mount = (place, real) if real != "/" else None
    file = host.run_dir / job / f"environment-{os.getpid()}"
    try:
        with starting(host, job):
            (host.run_dir / job / MARK).touch(mode=0o400)
            limits, cache = container_limits.words(instance, docker)
            words, variables = command(instance, wish, user, ContainerParts(image, mount, file, limits))
            if mount is not None:
                _mount(handle, place)
            container = _create(words, file, {**cache, **told, **variables})
        words = ["docker", "start", "--attach", "--interactive", container]
        return subprocess.run(words, env=_ours(), check=False).returncode
    finally:
        if mount is not None:
            _unmount(place)


def labelled(job: str = "") -> set[str]:
    """Leases that have containers here, in whatever state; `job`: identities of that lease's. Empty without Docker."""
    if shutil.which("docker") is None:
        return set()
    wanted = f"{LABEL}={job}" if job else LABEL
    shown = "{{.ID}}" if job else f'{{{{.Label "{LABEL}"}}}}'
    try:
        done = docker("ps", "--all", "--no-trunc", f"--filter=label={wanted}", f"--format={shown}", timeout_s=LOOK_S)
    except LeaseError:
        return set()
    return {word for word in done.stdout.split() if job or word.isdigit()} if done.returncode == 0 else set()


def _settle(host: Host, job: str) -> None:
    """Wait for programs that are about to make a container; who takes too long is killed, and with it its wish."""
    until = host.clock.monotonic() + STARTING_S
    for path in (host.run_dir / job).glob(f"{STARTING}*"):
        while True:
            try:
                handle = os.open(path, os.O_RDONLY)
            except OSError:
                break  # it is through
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break  # it has ended
            except OSError:
                late = host.clock.monotonic() > until
                if late:
                    with suppress(OSError, ValueError):
                        os.kill(int(path.name.removeprefix(STARTING)), signal.SIGKILL)
            finally:
                os.close(handle)
            host.clock.sleep(0.05)


def remove(host: Host, job: str) -> list[str]:
    """Containers of a lease that has ended, and mounts of their folders. What is left, in words."""
    if not job.isdigit() or not ((host.run_dir / job / MARK).exists() or labelled(job)):
        return []
    _settle(host, job)
    left: list[str] = []
    try:
        until = host.clock.monotonic() + GONE_S
        while True:
            found = docker("ps", "--all", "--quiet", f"--filter=label={LABEL}={job}", timeout_s=LOOK_S).stdout.split()
            if not found or (left and host.clock.monotonic() > until):
                break
            done = docker("rm", "--force", "--volumes", *found)
            # A container that goes by itself meanwhile is an error of Docker's, and none here: the next look decides.
            left = [f"containers {' '.join(found)}: {done.stderr.strip() or 'still there'}"]
            host.clock.sleep(0.1)
        left = left if found else []
    except LeaseError as fault:
        left = [f"containers of the lease: {fault}"]
    places = host.run_dir.with_name(FOLDERS) / job
    for place in places.glob("*"):
        _unmount(place)
    with suppress(OSError):
        places.rmdir()
    container_limits.remove(job)
    return left


def main() -> int:
    """As sudo starts it."""
    caller, argv = int(os.environ.get("SUDO_UID", os.getuid())), sys.argv[1:]
    host = this_host()
    node = os.uname().nodename.split(".")[0]
    try:
        if len(argv) == 2 and argv[0] == "look":
            print(names(argv[1]).text())
            return 0
        if argv[:1] == ["run"]:
            return run(host, parse_wish(argv[1:]), caller)
        raise LeaseError("container look IMAGE, or container run ... -- PROGRAM")
    except NotHere as fault:
        print(f"{node} {fault}", file=sys.stderr)
        return 125
    except LeaseError as fault:
        print(f"{node}: {fault}", file=sys.stderr)
        return 125
