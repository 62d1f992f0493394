"""What on a node belongs to somebody else: files, services and work that no ledger of the toolkit knows.

Read only, and without a judgement: plugin_utils/foreign.py says what it means. Standard library alone.
"""

from __future__ import annotations

import datetime
import gzip
import hashlib
import json
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.module_utils.foreign_slurm import (
    SLURM_DAEMONS,
    at,
    read_slurm,
    read_text,
    says,
)

Runner = Callable[[list[str]], tuple[int, str, str]]

LEDGERS = "var/lib/elastic-ai/ledger"
#: Files that a role writes as a whole, under a name that is not the toolkit's own.
FILES = (
    "/etc/chrony.conf",
    "/etc/chrony/chrony.conf",
    "/etc/default/prometheus",
    "/etc/default/prometheus-node-exporter",
    "/etc/dnf/modules.d/nvidia-driver.module",
    "/etc/docker/daemon.json",
    "/etc/docker/registry/config.yml",
    "/etc/munge/munge.key",
    "/etc/nccl.conf",
    "/etc/prometheus/prometheus.yml",
    "/etc/slurm/cgroup.conf",
    "/etc/slurm/gres.conf",
    "/etc/slurm/job_submit.lua",
    "/etc/slurm/slurm.conf",
    "/etc/slurm/slurmdbd.conf",
    "/etc/ucx/ucx.conf",
    "/usr/bin/toolkit",
)
#: What the roles neither write nor read, and what does the same work.
BESIDE = {
    "image": (
        "/cm/local/apps/cmd/etc/cmd.conf",
        "/opt/xcat/xcatinfo",
        "/xcatpost/mypostscript",
        "/etc/warewulf/warewulf.conf",
        "/warewulf/config",
        "/warewulf/run.sh",
    ),
    "time": ("/etc/ntp.conf", "/etc/ntpsec/ntp.conf", "/etc/openntpd/ntpd.conf"),
    "firewall": (
        "/etc/iptables/rules.v4",
        "/etc/sysconfig/iptables",
        "/etc/sysconfig/nftables.conf",
        "/etc/systemd/system/sysinit.target.wants/nftables.service",
        "/etc/shorewall/rules",
        "/etc/ferm/ferm.conf",
        "/etc/csf/csf.conf",
    ),
}
MONITORING = ("prometheus", "node_exporter")
#: Of the distributions' packages, the last one of EPEL's.
PACKAGED = ("/usr/bin/prometheus", "/usr/bin/prometheus-node-exporter", "/usr/bin/node_exporter")
#: Names of processes (15 characters of them) by who runs them.
PROCESSES = {
    "Kubernetes": ("kubelet", "k3s", "k3s-server", "k3s-agent", "rke2", "kubelite", "crio", "k0s"),
    "PBS": ("pbs_mom", "pbs_server", "pbs_comm"),
    "LSF": ("sbatchd", "mbatchd", "lim"),
    "Grid Engine": ("sge_execd", "sge_qmaster"),
    "HTCondor": ("condor_master", "condor_startd"),
    "Nomad": ("nomad",),
    "Flux": ("flux-broker",),
}
#: Files that an agent has where it does not run at the moment.
AGENT_FILES = {
    "Kubernetes": (
        "/etc/kubernetes/kubelet.conf",
        "/var/lib/kubelet/config.yaml",
        "/etc/rancher/k3s/k3s.yaml",
        "/var/lib/rancher/k3s/agent",
        "/var/lib/rancher/rke2/agent",
        "/var/snap/microk8s/current",
        "/var/lib/k0s/kubelet.conf",
    ),
    "PBS": ("/etc/pbs.conf", "/var/spool/pbs/mom_priv/config", "/var/spool/torque/mom_priv/config"),
    "LSF": ("/etc/lsf.conf",),
    "HTCondor": ("/etc/condor/condor_config.local",),
    "Nomad": ("/etc/nomad.d/nomad.hcl",),
}
#: Packages that are, or bring, an NVIDIA driver, whoever made them.
DRIVER_PACKAGES = re.compile(
    r"nvidia-(driver|open|kernel|dkms|headless|utils|compute-utils|fabricmanager|fabric-manager|kmod|smi|current)(-|$)"
    r"|nvidia-(tesla|legacy)-\S*driver|linux-(modules|objects|signatures)-nvidia-|libnvidia-compute|libcuda1$"
    r"|cuda-drivers|(kmod|akmod|dkms)-nvidia|xorg-x11-drv-nvidia"
)
OFED_PROGRAMS = ("/usr/bin/ofed_info", "/usr/sbin/ofed_uninstall.sh")
#: Packages of an OFED's or DOCA's kernel modules, whose programs may be left out.
OFED_PACKAGES = re.compile(
    r"(kmod-)?mlnx-of(ed-kernel|a_kernel)|mlnx-ofed-|doca-(ofed|all|kernel|roce|networking)(-|$)"
)
#: Where a containerd has what runs: the distribution's, Docker's own, and those of k3s, RKE2, snaps and k0s.
CONTAINERD = (
    "run/containerd",
    "run/docker/containerd/daemon",
    "run/k3s/containerd",
    "run/k0s/containerd",
    "run/snap.docker/containerd/daemon",
    "var/snap/microk8s/common/run/containerd",
)
#: What the GPU operator's driver container leaves on its host.
OPERATOR = ("/run/nvidia/driver/usr", "/run/nvidia/driver/proc", "/run/nvidia/validations/driver-ready")
OWN_DATABASES = {"mysql", "performance_schema", "sys", "information_schema", "test"}


def ledgers(root: Path) -> dict[str, Any]:
    """Roles that have a ledger here: the files of each with their checksums, and owners of packages."""
    found: dict[str, Any] = {"files": {}, "packages": []}
    for path in sorted((root / LEDGERS).glob("*.json")):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        owner, _, kind = path.name[:-5].partition(".")
        if not isinstance(data, dict):
            continue
        if kind == "files":
            for file, entry in (data.get("files") or {}).items():
                found["files"][file] = str((entry or {}).get("sha256", ""))
        elif kind == "packages" and (data.get("packages") or data.get("holds")):
            found["packages"].append(owner)
    return found


def shipped(root: Path, path: str, run: Runner) -> bool:
    """Whether a file is as a package of the distribution brought it."""
    status = read_text(root / "var/lib/dpkg/status")
    if status:
        found = re.search(rf"^ {re.escape(path)} ([0-9a-f]{{32}})", status, re.MULTILINE) or re.search(
            rf"^([0-9a-f]{{32}})\s+{re.escape(path)}$", read_text(root / "var/lib/ucf/hashfile"), re.MULTILINE
        )
        try:
            content = at(root, path).read_bytes()
        except OSError:
            return False
        return bool(found) and hashlib.md5(content, usedforsecurity=False).hexdigest() == found[1]  # type: ignore[index]
    code, out, _ = run(["rpm", "-Vf", "--nodeps", "--noscripts", path])
    if code not in (0, 1) or "not owned" in out:
        return False
    return not any(re.search(rf"\s{re.escape(path)}$", line) for line in out.splitlines())


def made_by_package(root: Path, run: Runner, key: str = "/etc/munge/munge.key", within_s: int = 600) -> bool:
    """Whether munge's key is the one that its package made when it was installed, which nobody else has."""
    try:
        made = at(root, key).stat().st_mtime
    except OSError:
        return False
    times, listed = [], root / "var/lib/dpkg/info/munge.list"
    if listed.exists():
        log = list(_dpkg_log(root))
        configured = [_log_time(line) for line in log if re.search(r" configure munge:", line)]
        if configured:  # which is when it makes the key, and nothing else takes so long
            return any(-5 <= made - one <= 60 for one in configured)
        times.append(listed.stat().st_mtime)
        times += [_log_time(line) for line in log if re.search(r" install munge:", line)]
    else:
        code, out, _ = run(["rpm", "-q", "--qf", "%{INSTALLTIME}\n", "munge"])
        times += [float(line) for line in out.split() if line.isdigit()] if code == 0 else []
    return any(abs(made - one) <= within_s for one in times)


def _dpkg_log(root: Path) -> Iterable[str]:
    for path in sorted((root / "var/log").glob("dpkg.log*")):
        try:
            text = gzip.open(path, "rt").read() if path.suffix == ".gz" else path.read_text(errors="replace")  # noqa: SIM115
        except (OSError, EOFError):
            continue
        yield from text.splitlines()


def _log_time(line: str) -> float:
    try:
        return datetime.datetime.strptime(line[:19], "%Y-%m-%d %H:%M:%S").timestamp()
    except ValueError:
        return 0.0


def _same_network(root: Path, process: Path) -> bool:
    try:
        return (process / "ns/net").readlink() == (root / "proc/1/ns/net").readlink()
    except OSError:
        return False


def processes(root: Path) -> dict[str, list[list[str]]]:
    """Command lines of the processes by name, of those that are asked about; not those in containers."""
    names = {*SLURM_DAEMONS, *MONITORING, "conmon", *(name for many in PROCESSES.values() for name in many)}
    found: dict[str, list[list[str]]] = {}
    for process in (root / "proc").glob("[0-9]*"):  # no further: one that ends meanwhile is an error of glob's
        path = process / "comm"
        name = read_text(path).strip()
        contained = re.search(r"^NSpid:\t\d+\t", read_text(path.parent / "status"), re.MULTILINE)
        # a container on the node's own network has the ports that the node's own would have
        if name in names and (not contained or (name in MONITORING and _same_network(root, path.parent))):
            words = [word for word in read_text(path.parent / "cmdline").split("\0") if word]
            found.setdefault(name, []).append(words)
    return found


def read_files(root: Path, known: dict[str, str], run: Runner) -> list[dict[str, Any]]:
    """Files that roles would write over: whose they are, as far as that can be told."""
    found = []
    for path in FILES:
        file = at(root, path)
        if not file.is_file():
            continue
        content = file.read_bytes()
        entry: dict[str, Any] = {"path": path, "known": path in known, "as_written": False, "default": False}
        if path in known:
            entry["as_written"] = hashlib.sha256(content).hexdigest() == known[path]
        elif path.endswith("munge.key"):
            entry["default"] = made_by_package(root, run)
        elif path.endswith(".json"):
            entry["default"] = content.strip() in (b"", b"{}")
        else:
            entry["default"] = not says(content.decode(errors="replace")) or shipped(root, path, run)
        found.append(entry)
    return found


def read_agents(root: Path, running: dict[str, list[list[str]]]) -> dict[str, list[str]]:
    """Who else gives work to this node: processes and files by the name of the system."""
    found: dict[str, list[str]] = {}
    for who, names in PROCESSES.items():
        signs = [f"{name} runs" for name in names if name in running]
        if who == "LSF" and signs == ["lim runs"]:  # another program may have so short a name
            signs = []
        signs += [path for path in AGENT_FILES.get(who, ()) if at(root, path).exists()]
        if signs:
            found[who] = signs
    return found


def installed(root: Path, run: Runner, wanted: re.Pattern[str], *globs: str) -> list[str]:
    """Installed packages of these names; `globs` are what rpm is asked for."""
    status = read_text(root / "var/lib/dpkg/status")
    if status:
        there = re.compile(r"^Status: \w+ \w+ (?!not-installed|config-files)", re.MULTILINE)
        blocks = [block.strip() for block in status.split("\n\n") if there.search(block)]
        names = [match[1] for match in (re.match(r"Package: (\S+)", block) for block in blocks) if match]
    else:
        code, out, _ = run(["rpm", "-qa", "--qf", "%{NAME}\n", *globs])
        names = out.split() if code == 0 else []
    return sorted({name for name in names if wanted.match(name)})


def read_driver(root: Path, kernel: str, run: Runner) -> dict[str, Any]:
    """An NVIDIA driver, and by which of its makers' ways it came."""
    packages = installed(root, run, DRIVER_PACKAGES, "*nvidia*", "cuda-drivers*")
    runfile = [p for p in ("/usr/bin/nvidia-uninstall", "/usr/bin/nvidia-installer") if at(root, p).exists()]
    container = [path for path in OPERATOR if at(root, path).exists()]
    dkms = [f"/{path.relative_to(root)}" for path in sorted((root / "var/lib/dkms").glob("nvidia*")) if path.is_dir()]
    modules = re.findall(r"^(\S*/nvidia\.ko\S*):", read_text(root / f"lib/modules/{kernel}/modules.dep"), re.MULTILINE)
    return {
        "packages": packages,
        "runfile": runfile,
        "container": container,
        "dkms": [] if packages else dkms,
        "modules": [] if packages or runfile or dkms else [f"/lib/modules/{kernel}/{path}" for path in modules],
    }


def read_databases(root: Path) -> dict[str, Any]:
    """Databases in MariaDB's or MySQL's folder, beside the system's own."""
    folder = "/var/lib/mysql"
    settings = [*(root / "etc/mysql").rglob("*.cnf"), *(root / "etc/my.cnf.d").glob("*.cnf"), root / "etc/my.cnf"]
    for path in sorted(settings):
        told = re.search(r"^\s*datadir\s*=\s*(\S+)", read_text(path), re.MULTILINE)
        folder = told[1].strip("\"'") if told else folder
    try:
        there = sorted(path.name for path in at(root, folder).iterdir() if path.is_dir())
    except OSError:
        there = []
    names = [n for n in there if n not in OWN_DATABASES and not n.startswith(("#", ".", "lost+found"))]
    return {"folder": folder, "names": names}


def read_containers(root: Path, running: dict[str, list[list[str]]]) -> dict[str, int]:
    """Containers that run, by the namespace of containerd: moby is Docker's, k8s.io Kubernetes'; podman has none."""
    counted: dict[str, int] = {}
    for place in CONTAINERD:
        for space in (root / place / "io.containerd.runtime.v2.task").glob("*"):
            there = sum(1 for one in space.glob("*") if one.is_dir())
            counted[space.name] = counted.get(space.name, 0) + there
    for words in running.get("conmon", []):
        who = "k8s.io" if any("crio" in word for word in words) else "podman"
        counted[who] = counted.get(who, 0) + 1
    return {name: count for name, count in sorted(counted.items()) if count}


def read_docker(root: Path, known: dict[str, str]) -> list[str]:
    """Files of systemd that start Docker otherwise than its package does, which daemon.json would contradict."""
    units = root / "etc/systemd/system"
    files = [units / "docker.service", *sorted((units / "docker.service.d").glob("*.conf"))]
    paths = [(f"/{file.relative_to(root)}", says(read_text(file))) for file in files]
    return [
        path for path, lines in paths if path not in known and any(re.match(r"ExecStart\s*=\s*\S", x) for x in lines)
    ]


def read_ofed(root: Path, run: Runner) -> list[str]:
    """An OFED or DOCA: its programs, else its packages, else modules that DKMS builds."""
    programs = [p for p in OFED_PROGRAMS if at(root, p).exists()]
    packages = [f"package {name}" for name in installed(root, run, OFED_PACKAGES, "*mlnx*", "*mlx*", "doca-*")]
    built = [f"/{path.relative_to(root)}" for path in sorted((root / "var/lib/dkms").glob("mlnx-of*")) if path.is_dir()]
    return programs or packages or built


def read_monitoring(root: Path, running: dict[str, list[list[str]]]) -> list[str]:
    """Prometheus or its exporter of nodes from another place than the distribution's packages."""
    found = []
    for name in MONITORING:
        for words in running.get(name, []):
            if words and words[0] not in PACKAGED:
                found.append(shlex.quote(words[0]))
    return sorted(set(found))


def read_beside(root: Path) -> dict[str, list[str]]:
    """What else keeps time or filters packets here: its files where they say anything."""
    return {kind: [p for p in paths if says(read_text(at(root, p)))] for kind, paths in BESIDE.items()}


def read_foreign(run: Runner, kernel: str, root: Path = Path("/")) -> dict[str, Any]:
    """All of it."""
    known, running = ledgers(root), processes(root)
    return {
        "ledgers": sorted(known["packages"]),
        "files": read_files(root, known["files"], run),
        "slurm": read_slurm(root, running),
        "agents": read_agents(root, running),
        "driver": read_driver(root, kernel, run),
        "ofed": read_ofed(root, run),
        "databases": read_databases(root),
        "containers": read_containers(root, running),
        "docker": read_docker(root, known["files"]),
        "monitoring": read_monitoring(root, running),
        "beside": read_beside(root),
    }
