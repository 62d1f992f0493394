"""What this machine is: everything that differs between hosts is detected here, nothing is configured."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from toolkit.errors import LabError
from toolkit.lab.sh import run
from toolkit.lab.spec import state_root
from validation.base.counting import number_of
from validation.base.project import python_words

#: tool -> Debian/Ubuntu package that brings it
TOOLS = {
    "gpg": "gnupg",
    "ip": "iproute2",
    "tc": "iproute2",
    "iptables": "iptables",
    "mmdebstrap": "mmdebstrap",
    "nsenter": "util-linux",
    "slirp4netns": "slirp4netns",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "systemd-nspawn": "systemd-container",
    "unshare": "util-linux",
}
#: For a lab with virtual machines also these.
VM_TOOLS = {"mke2fs": "e2fsprogs", "qemu-img": "qemu-utils", "qemu-system-x86_64": "qemu-system-x86"}
#: For nodes that have dnf also these.
RPM_TOOLS = {"createrepo_c": "createrepo-c", "modifyrepo_c": "createrepo-c", "rpmbuild": "rpm", "rpmsign": "rpm"}
#: For a lab whose switch announces its ports also these.
LLDP_TOOLS = {"lldpcli": "lldpd", "lldpd": "lldpd"}
#: inotify instances of a node, counted on labs: 6 to 7 on Debian; as EL 9, 9 when fresh and 16 to 18 while provisioned
#: (each ssh starts a user's systemd, and dnf leaves an agent of gpg for each signed repository). And a reserve.
INOTIFY_OF_A_NODE, INOTIFY_RESERVE = 18, 32
CAP_SYS_RESOURCE = 24  # capability number, linux/capability.h


@dataclass(frozen=True)
class Host:
    """This machine, as far as the lab cares. `cgroup` is "v2", "hybrid" or "v1"."""

    systemd: bool
    cgroup: str
    sys_resource: bool
    cores: int

    def describe(self) -> str:
        """One line for the user."""
        init = "systemd" if self.systemd else "no systemd"
        limits = "" if self.sys_resource else ", limits cannot be raised (no CAP_SYS_RESOURCE)"
        return f"{init} as PID 1, cgroup {self.cgroup}, {number_of(self.cores, 'core')}{limits}"


def detect() -> Host:
    """Look at the running machine."""
    cgroup = Path("/sys/fs/cgroup")
    if (cgroup / "cgroup.controllers").exists():
        mode = "v2"
    elif (cgroup / "unified" / "cgroup.procs").exists():
        mode = "hybrid"
    else:
        mode = "v1"
    bounding = 0
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapBnd:"):
            bounding = int(line.split()[1], 16)
    return Host(
        systemd=Path("/run/systemd/system").is_dir(),
        cgroup=mode,
        sys_resource=bool(bounding >> CAP_SYS_RESOURCE & 1),
        cores=os.cpu_count() or 1,
    )


def become_root() -> None:
    """Return when this process is root; otherwise start it again through sudo, or LabError where there is none."""
    if os.geteuid() == 0:
        os.umask(0o022)  # a stricter one would close the nodes' file systems to the nodes' own users
        os.environ["PATH"] = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"  # plain `su` leaves them out
        return
    if shutil.which("sudo") is None:
        raise LabError("the lab needs root (namespaces, mounts): run this as root or install sudo")
    keep = [f"{k}={v}" for k, v in os.environ.items() if k.startswith("ELASTIC_AI_")]
    os.execvp("sudo", ["sudo", *keep, *python_words("toolkit"), *sys.argv[1:]])


def _tools(vms: bool, rpms: bool, lldp: bool) -> dict[str, str]:
    return TOOLS | (VM_TOOLS if vms else {}) | (RPM_TOOLS if rpms else {}) | (LLDP_TOOLS if lldp else {})


def packages(vms: bool = False, rpms: bool = False, lldp: bool = False) -> list[str]:
    """The Debian packages that a lab needs; with `vms` also what virtual machines need, with `rpms` nodes with dnf,
    with `lldp` a switch that announces its ports."""
    return sorted(set(_tools(vms, rpms, lldp).values()))


def check_ready(
    vms: bool = False,
    which: Callable[[str], str | None] = shutil.which,
    rpms: bool = False,
    lldp: bool = False,
) -> None:
    """Refuse in one sentence what can't work: missing tools, a state folder on overlay; with `vms` also what virtual
    machines need beside, with `rpms` nodes with dnf, with `lldp` a switch that announces its ports."""
    tools = _tools(vms, rpms, lldp)
    missing = sorted({package for tool, package in tools.items() if which(tool) is None})
    if missing:
        raise LabError(f"missing packages: {' '.join(missing)}; install them with: apt-get install {' '.join(missing)}")
    root = state_root()
    root.mkdir(parents=True, exist_ok=True)
    fstype = run(["stat", "-f", "-c", "%T", str(root)]).stdout.strip()
    if fstype == "overlayfs":
        raise LabError(
            f"{root} is on an overlay file system, on which node file systems can't be stacked; "
            "set ELASTIC_AI_LAB_DIR to a folder on ext4, xfs, btrfs or tmpfs"
        )
    if vms and not Path("/dev/net/tun").exists():
        raise LabError("virtual machines need /dev/net/tun, which this machine's kernel does not have")


def check_memory(machines: int, mib_each: int, meminfo: str | None = None) -> None:
    """LabError when the memory that is available does not hold that many virtual machines."""
    text = Path("/proc/meminfo").read_text() if meminfo is None else meminfo
    available = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("MemAvailable:")) / 1024
    if available < machines * mib_each:
        raise LabError(
            f"{number_of(machines, 'virtual machine')} {'needs' if machines == 1 else 'need'} "
            f"{machines * mib_each / 1024:.1f} GiB of memory, and "
            f"{available / 1024:.1f} GiB are available; 'toolkit lab up --nodes 4' makes containers, which need little"
        )


def inotify_in_use(proc: Path = Path("/proc")) -> int:
    """inotify instances that this user's processes hold, root's, those in containers too."""
    count = 0
    for process in proc.glob("[0-9]*"):
        try:
            if process.stat().st_uid == os.geteuid():
                count += sum(str(entry.readlink()) == "anon_inode:inotify" for entry in (process / "fd").iterdir())
        except OSError:
            continue  # it has ended meanwhile
    return count


def raise_inotify(nodes: int, proc: Path = Path("/proc")) -> None:
    """Let root have as many inotify instances as it holds and that many nodes need, where the limit is lower.

    All containers share them (the kernel's default is 128); without one systemd boots no node, or units of it fail.
    """
    limit = proc / "sys/fs/inotify/max_user_instances"
    wanted = inotify_in_use(proc) + INOTIFY_OF_A_NODE * nodes + INOTIFY_RESERVE
    if int(limit.read_text()) < wanted:
        limit.write_text(str(wanted))


def give_to_caller(*paths: Path) -> None:
    """Hand files to the user who called sudo, so that Ansible can read the lab's key as that user."""
    uid, gid = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    if uid and gid:
        for path in paths:
            os.chown(path, int(uid), int(gid))
