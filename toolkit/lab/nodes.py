"""Booting and stopping one lab node: an overlay over the base image, run by systemd-nspawn."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from importlib import resources
from pathlib import Path

from toolkit.lab import devices, frameworks, standin
from toolkit.lab.devices import Emulation
from toolkit.lab.host import Host
from toolkit.lab.network import APT_CACHE_PORT, DNS
from toolkit.lab.sh import run
from toolkit.lab.sources import os_key
from toolkit.lab.spec import NETNS_PREFIX, LabSpec, NodeSpec, unpacked_root

CGROUP = Path("/sys/fs/cgroup")
WEIGHTS = {"cpu.shares": (1024, 262144), "cpu.weight": (100, 10000)}
"""What a group weighs against a program beside it, and at most, by the file that says so: of cgroup v1 and of v2."""
HALT = "SIGRTMIN+3"  # systemd's "halt now", systemd(1)
#: Word of the node's "kernel command line" without which systemd 256 and later refuse a cgroup v1 machine.
LEGACY_CGROUP = "SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1"
QEMU = "qemu-system-x86_64"
GRACE_S = 15.0  # a node may take this long to shut down before it is killed
KILLED_WITHIN_S = 5.0
"""What is killed is waited for as long; a busy machine takes long to look at all of it even once."""


def prepare(spec: LabSpec, node: NodeSpec, image: Path, public_key: str, built: Emulation | None = None) -> None:
    """Mount the node's file system and write into it what makes it this node."""
    home = spec.node_dir(node)
    for sub in ("upper", "work", "root", "docker"):
        (home / sub).mkdir(parents=True, exist_ok=True)
    (home / "docker").chmod(0o710)  # as Docker itself has its folder; a mount in the node, which stays when Docker goes
    root = home / "root"
    layers = f"lowerdir={image},upperdir={home / 'upper'},workdir={home / 'work'}"
    run(["mount", "-t", "overlay", f"{NETNS_PREFIX}{spec.name}", "-o", layers, str(root)])
    files = {**own_files(spec, node, public_key), "etc/machine-id": ""}  # systemd makes a new one at boot
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text)
    if spec.over:
        standin.write(root, standin.node_texts(os_key(spec.os), spec, node))
    devices.install(root, devices.node_files(spec, node, built))
    (root / "root/.ssh").chmod(0o700)
    (root / "root/.ssh/authorized_keys").chmod(0o600)
    key = root / "etc/ssh/ssh_host_ed25519_key"
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", node.name, "-f", str(key)])


def own_files(spec: LabSpec, node: NodeSpec, public_key: str) -> dict[str, str]:
    """What makes a copy of the image this node: path below its root -> text. Machines get the same as containers."""
    proxy = "DIRECT" if spec.mirror else f"http://10.77.{spec.index}.1:{APT_CACHE_PORT}"
    return {
        "etc/hostname": f"{node.name}\n",
        "etc/hosts": f"127.0.0.1 localhost\n{spec.management_address(node)} {node.name}\n",
        "etc/elastic-ai-lab": f"{spec.name}\n",
        # A hall without internet has no resolver, and nothing between apt and the mirror.
        "etc/resolv.conf": "" if spec.mirror else f"nameserver {DNS}\n",
        "etc/apt/apt.conf.d/90lab-cache": f'Acquire::http::Proxy "{proxy}";\n',
        "root/.ssh/authorized_keys": public_key,
    }


def host_public_key(spec: LabSpec, node: NodeSpec) -> str:
    """The node's ssh host key, as a known_hosts line wants it."""
    folder = "" if node.kind == "vm" else "root/etc/ssh"
    text = (spec.node_dir(node) / folder / "ssh_host_ed25519_key.pub").read_text()
    return " ".join(text.split()[:2])


SHARED = "/mnt/lab-shared"
"""A folder of the host that all containers of a lab see, as a site's nodes see a storage that they share."""


def shared_folder(spec: LabSpec) -> Path:
    """Where that folder is on the host; it goes with the lab."""
    return spec.dir / "shared"


#: Beyond what nspawn lets a container do: as on a machine.
CALLS = "@keyring bpf perf_event_open landlock_create_ruleset landlock_add_rule landlock_restrict_self"


def boot(spec: LabSpec, node: NodeSpec, host: Host) -> None:
    """Start the node and return at once; it keeps running, over reboots, when this process ends."""
    home = spec.node_dir(node)
    for folder in (unpacked_root(), shared_folder(spec), *(one.root for one in frameworks.FRAMEWORKS)):
        folder.mkdir(parents=True, exist_ok=True)
    nspawn = [
        "nsenter", f"--net=/run/netns/{spec.node_ns(node)}", "--",
        "systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit",
        f"--directory={home / 'root'}", f"--machine={NETNS_PREFIX}{spec.name}-{node.name}", f"--hostname={node.name}",
        f"--network-namespace-path=/run/netns/{spec.node_ns(node)}", f"--kill-signal={HALT}",
        "--console=pipe", "--resolv-conf=off", "--timezone=off",
        "--capability=CAP_NET_ADMIN,CAP_IPC_LOCK,CAP_SYSLOG", f"--system-call-filter={CALLS}",
        f"--bind={home / 'docker'}:/var/lib/docker",
        f"--bind={shared_folder(spec)}:{SHARED}",
        f"--bind-ro={unpacked_root()}:/usr/local/libexec/elastic-ai-lab/unpacked",
        *(f"--bind-ro={one.root}:{one.place}" for one in frameworks.FRAMEWORKS),
        *([LEGACY_CGROUP] if host.cgroup != "v2" else []),
    ]  # fmt: skip
    # Without this /proc/sys/net is read-only in the node, and its network cannot be tuned.
    launch(spec, node, host, nspawn, {"SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network"})


def launch(spec: LabSpec, node: NodeSpec, host: Host, words: list[str], settings: dict[str, str] | None = None) -> None:
    """Start a node's program so that it outlives this process, can be found by the node's name, and starts again when
    it exits as nspawn does at a reboot. What it says goes to the node's console.log."""
    environment = dict(settings or {})
    log = spec.node_dir(node) / "console.log"
    if host.systemd:
        unit = unit_name(spec.name, node.name)
        # Stopped by SIGTERM, which nspawn answers with a clean halt; any other signal would only end nspawn itself.
        run(
            ["systemd-run", "--quiet", "--collect", f"--unit={unit}", f"--description=lab {spec.name}: {node.name}",
             "--property=Delegate=yes", "--property=KillMode=mixed", f"--property=TimeoutStopSec={GRACE_S:g}",
             "--property=Type=exec", "--property=SuccessExitStatus=133", "--property=RestartForceExitStatus=133",
             "--property=RestartSec=0",
             f"--property=StandardOutput=append:{log}", f"--property=StandardError=append:{log}",
             *(f"--setenv={k}={v}" for k, v in environment.items()), "--", *words]
        )  # fmt: skip
        return
    # A lock or pipe that the caller was started with must not live on in the node.
    inherited = [int(p.name) for p in Path("/proc/self/fd").iterdir() if int(p.name) > 2]
    closed = [(os.POSIX_SPAWN_CLOSE, fd) for fd in inherited if _inheritable(fd)]
    environment["NODE_CGROUPS"] = " ".join(str(path / "cgroup.procs") for path in _make_cgroups(spec.name, node.name))
    with resources.as_file(resources.files("toolkit.lab") / "files" / "node-loop") as loop, log.open("ab") as out:
        os.posix_spawn(
            "/bin/sh",
            ["sh", str(loop), *words],
            {**os.environ, **environment},
            setsid=True,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, out.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, out.fileno(), 2),
                *closed,
            ],
        )


def _inheritable(fd: int) -> bool:
    try:
        return os.get_inheritable(fd)
    except OSError:
        return False  # the listing's own, closed by now


def unit_name(lab: str, node: str) -> str:
    """The transient unit of a node on a host run by systemd."""
    return f"elastic-ai-lab-{lab}-{node}.service"


def _make_cgroups(lab: str, node: str) -> list[Path]:
    """A cgroup per mounted hierarchy, so that the node's processes can be found and ended as one."""
    made = []
    for hierarchy in sorted(p for p in CGROUP.iterdir() if (p / "cgroup.procs").exists()):
        group = hierarchy / "elastic-ai-lab" / lab / node
        group.mkdir(parents=True, exist_ok=True)
        if hierarchy.name == "cpuset":  # v1 cpusets start empty and take no process until filled
            for level in (group.parent.parent, group.parent, group):
                for name in ("cpuset.cpus", "cpuset.mems"):
                    (level / name).write_text((hierarchy / name).read_text())
        made.append(group)
        _weigh(hierarchy / "elastic-ai-lab")
    return made


def _weigh(top: Path) -> None:
    """Give each node of all labs below `top` the weight of a group, and each lab and all labs that of their nodes.

    Otherwise all labs of a machine together would have as much of its processors as any one of its other programs.
    """
    try:
        labs = {lab: sum(node.is_dir() for node in lab.iterdir()) for lab in top.iterdir() if lab.is_dir()}
    except OSError:
        return  # gone meanwhile
    for group, count in (*labs.items(), (top, sum(labs.values()))):
        for name, (one, most) in WEIGHTS.items():
            if count and (group / name).exists():
                with contextlib.suppress(OSError):
                    (group / name).write_text(str(min(count * one, most)))


def processes(lab: str, node: str) -> set[int]:
    """Every process of the node, whichever cgroup of the node's tree it moved to."""
    found: set[int] = set()
    trees = [h / "elastic-ai-lab" / lab / node for h in CGROUP.iterdir() if h.is_dir()]
    trees.append(CGROUP / "system.slice" / unit_name(lab, node))
    for folder in (Path(f) for tree in trees for f, _, _ in os.walk(tree)):
        try:
            found.update(int(p) for p in (folder / "cgroup.procs").read_text().split())
        except OSError:
            continue  # the cgroup went away meanwhile
    return found


def start_mark(lab: str, node: str) -> int | None:
    """A number that is another after each start of a container, None while it is off. systemd-nspawn starts again at a
    reboot of its container; qemu does not at one of its machine, which therefore has no such mark."""
    return min((pid for pid in processes(lab, node) if _words(pid)[:1] == [b"systemd-nspawn"]), default=None)


def stop(lab: str, names: list[str], host: Host, grace_s: float = GRACE_S) -> None:
    """Shut containers down cleanly, all at once; kill what is left after `grace_s` seconds, and machines at once: their
    disks go with them, and an emulated shutdown takes long."""
    if host.systemd and names:
        run(["systemctl", "stop", *(unit_name(lab, n) for n in names)], check=False)
    for pid in {p for n in names for p in processes(lab, n)}:
        # node-loop must not start the node again; nspawn passes the halt on to the node's init
        words = _words(pid)
        if QEMU.encode() in words or (b"systemd-nspawn" in words and words[0] == b"sh"):
            _kill(pid, signal.SIGKILL)
        elif words[:1] == [b"systemd-nspawn"]:
            _kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while (left := {p for n in names for p in processes(lab, n)}) and time.monotonic() < deadline:
        if not any(_words(p)[:1] == [b"systemd-nspawn"] for p in left):
            break  # nobody is left who could shut anything down
        time.sleep(0.05)
    deadline = time.monotonic() + KILLED_WITHIN_S
    while left := {p for n in names for p in processes(lab, n)}:
        for pid in left:
            _kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    for name in names:
        remove_cgroups(lab, name)


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def remove_cgroups(lab: str, node: str) -> None:
    """Remove the node's (empty) cgroups, deepest first, and the lab's when it was the last."""
    for hierarchy in (h for h in CGROUP.iterdir() if h.is_dir()):
        top = hierarchy / "elastic-ai-lab"
        tree = top / lab / node
        inner = [Path(folder) for folder, _, _ in os.walk(tree, topdown=False)]  # deepest first
        for folder in [*inner, top / lab, top]:
            try:
                folder.rmdir()
            except OSError:
                continue  # absent, or other nodes are still in it
        _weigh(top)


def mounts_below(folder: Path) -> list[Path]:
    """Mount points in and below `folder`, deepest first."""
    points = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = Path(line.split()[4].replace("\\040", " "))
        if point == folder or folder in point.parents:
            points.append(point)
    return sorted(points, key=lambda p: -len(p.parts))


def unmount(folder: Path) -> None:
    """Unmount everything in and below `folder`."""
    for point in mounts_below(folder):
        run(["umount", "--lazy", str(point)])


def discard(home: Path) -> None:
    """Delete a node's folder once nothing is mounted in it any more."""
    unmount(home)
    shutil.rmtree(home, ignore_errors=True)
