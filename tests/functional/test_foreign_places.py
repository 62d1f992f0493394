"""Other people's nodes in less usual places, and honest first nodes that have something of the same name."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.functional.test_foreign import (
    ALL,
    CONF,
    KERNEL,
    OURS,
    Plant,
    both,
    component,
    containers,
    file,
    installed,
    judge,
    ledger,
    package,
    process,
    put,
    reader,
    reasons,
    root,
    runs,
    seen,
)
from tests.functional.test_preflight import WANTED

pytestmark = pytest.mark.systems

__all__ = ["root"]
SLURMD = "[Service]\nExecStart=/opt/slurm/sbin/slurmd -D\n"
CONMON = ("/usr/bin/conmon", "--api-version", "1", "-c", "0a1b")
PLACES: dict[str, tuple[str, Plant, str]] = {
    "SLURM_CONF": (
        "slurm", both(file("/etc/default/slurmd", "SLURM_CONF=/srv/s.conf\n"), file("/srv/s.conf", CONF)),
        "/srv/s.conf of cluster prod under ctl01",
    ),
    "SLURM_CONF of sysconfig, exported": (
        "slurm", both(file("/etc/sysconfig/slurm", 'export SLURM_CONF="/srv/s.conf"\n'), file("/srv/s.conf", CONF)),
        "under ctl01",
    ),
    "on a share that is not mounted": (
        "slurm",
        file("/etc/default/slurmd", "SLURM_CONF=/nfs/s.conf\n"),
        "slurmd reads /nfs/s.conf (/etc/default/slurmd)",
    ),
    "-f of the options": (
        "slurm", file("/etc/sysconfig/slurmd", "SLURMD_OPTIONS='-f /nfs/s.conf'\n"), "slurmd reads /nfs/s.conf",
    ),
    "a unit of another name": (
        "slurm", file("/etc/systemd/system/worker.service", SLURMD), "worker.service starts /opt/slurm/sbin/slurmd",
    ),
    "a drop-in": (
        "slurm", file("/etc/systemd/system/slurmd.service.d/x.conf", "[Service]\nEnvironment=SLURM_CONF=/nfs/s.conf\n"),
        "slurmd reads /nfs/s.conf (/etc/systemd/system/slurmd.service.d/x.conf)",
    ),
    "a package's unit": (
        "slurm",
        file("/usr/lib/systemd/system/slurmd.service", "ExecStart=/usr/sbin/slurmd --conf-server ctl01:6817\n"),
        "slurmd takes its configuration from ctl01:6817",
    ),
    "a file that a unit names": (
        "slurm",
        both(
            file(
                "/etc/systemd/system/slurmd.service",
                "EnvironmentFile=-/opt/site/slurmd.env\nExecStart=/usr/sbin/slurmd\n",
            ),
            file("/opt/site/slurmd.env", "SLURMD_OPTIONS=--conf-server=ctl01\n"),
        ),
        "from ctl01 (/opt/site/slurmd.env)",
    ),
    "of a version": ("slurm", file("/opt/slurm/25.05/etc/slurm.conf", CONF), "/opt/slurm/25.05/etc/slurm.conf"),
    "Bright": ("slurm", file("/cm/shared/apps/slurm/var/etc/prod/slurm.conf", CONF), "under ctl01"),
    "included twice over": (
        "slurm",
        both(
            file("/etc/slurm/slurm.conf", "include a.conf\n"), file("/etc/slurm/a.conf", "Include b.conf\n"),
            file("/etc/slurm/b.conf", CONF),
        ),
        "of cluster prod under ctl01",
    ),
    "without a controller": ("slurm", file("/etc/slurm/slurm.conf", "NodeName=a\n"), "under an unnamed controller"),
    "containerd": ("docker", containers("default"), "1 container of containerd (namespace default)"),
    "podman": (
        "docker", runs("conmon", *CONMON, "--exit-command", "/usr/bin/podman"), "1 container of Podman that run",
    ),
    "CRI-O": ("kubernetes", runs("conmon", *CONMON, "--exit-dir", "/var/run/crio/exits"), "1 container of Kubernetes"),
    "CRI-O without a pod": ("kubernetes", runs("crio", "/usr/bin/crio"), "crio runs"),
    "k3s without its files": (
        "kubernetes", lambda r: (r / "run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/x").mkdir(parents=True),
        "1 container of Kubernetes",
    ),
    "k0s": ("kubernetes", runs("k0s", "/usr/local/bin/k0s", "worker"), "k0s runs"),
    "Docker of a snap": (
        "docker",
        lambda r: (r / "run/snap.docker/containerd/daemon/io.containerd.runtime.v2.task/moby/x").mkdir(parents=True),
        "1 container of Docker",
    ),
    "Docker's own containerd": (
        "docker",
        lambda r: (r / "run/docker/containerd/daemon/io.containerd.runtime.v2.task/moby/x").mkdir(parents=True),
        "1 container of Docker",
    ),
    "Docker with a folder of its own": (
        "docker",
        file(
            "/etc/systemd/system/docker.service.d/root.conf",
            "[Service]\nExecStart=\nExecStart=/usr/bin/dockerd --data-root /srv/docker\n",
        ),
        "/etc/systemd/system/docker.service.d/root.conf starts it otherwise",
    ),
    "OFED without its programs": ("ofed", installed("mlnx-ofed-kernel-dkms"), "package mlnx-ofed-kernel-dkms"),
    "DOCA": ("ofed", installed("doca-ofed"), "package doca-ofed"),
    "OFED of a tarball": ("ofed", file("/var/lib/dkms/mlnx-ofed-kernel/24.10/x"), "/var/lib/dkms/mlnx-ofed-kernel"),
}  # fmt: skip


@pytest.mark.parametrize("case", PLACES)
def test_what_is_somebody_elses_is_refused_wherever_it_stands(root: Path, case: str) -> None:
    name, plant, said = PLACES[case]
    assert reasons(root) == []
    plant(root)
    (reason,) = reasons(root)
    assert component(reason) == name
    assert said in reason
    assert reasons(root, (name,)) == []


def test_defaults_in_the_same_places_are_nobodys(root: Path) -> None:
    put(root, "/etc/default/slurmd", "# options\nSLURMD_OPTIONS=\n")
    put(root, "/etc/sysconfig/slurmd", 'SLURMD_OPTIONS=""\n')
    put(
        root, "/usr/lib/systemd/system/slurmd.service",
        "EnvironmentFile=-/etc/default/slurmd\nExecStart=/usr/sbin/slurmd --systemd $SLURMD_OPTIONS\n"
        "ConditionPathExists=/etc/slurm/slurm.conf\n",
    )  # fmt: skip
    put(root, "/etc/systemd/system/docker.service.d/http-proxy.conf", "[Service]\nEnvironment=HTTPS_PROXY=http://p\n")
    put(root, "/etc/systemd/system/backup.service", "[Service]\nExecStart=/usr/bin/backup -f /etc/backup.conf\n")
    (root / "run/containerd/io.containerd.runtime.v2.task/default").mkdir(parents=True)
    for name in ("doca-host", "mlnx-tools", "mlnx-fw-updater", "podman", "containerd", "rdma-core"):
        package(root, name)
    assert reasons(root) == []


def test_a_node_of_ours_has_none_of_it(root: Path) -> None:
    put(root, "/etc/slurm/slurm.conf", OURS)
    put(root, "/etc/systemd/system/slurmd.service.d/elastic-ai.conf", "[Service]\nRestart=on-failure\n")
    put(root, "/etc/default/slurmd", "SLURM_CONF=/etc/slurm/slurm.conf\n")
    ledger(root, "slurm", a="/etc/slurm/slurm.conf", b="/etc/systemd/system/slurmd.service.d/elastic-ai.conf")
    process(root, 9, "slurmd")
    containers("default")(root)
    for release in ("current", "older"):
        assert reasons(root, provisioned_release=release) == []


def test_a_key_that_was_put_there_soon_after_the_package_is_somebodys(root: Path) -> None:
    """A kickstart that installs munge and brings the site's key: the package's own was made when it was configured."""
    put(root, "/var/lib/dpkg/info/munge.list")
    key = put(root, "/etc/munge/munge.key", "k" * 128)
    when = time.time() - 300
    said = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))
    put(root, "/var/log/dpkg.log", f"{said} install munge:amd64 <none> 0.5\n{said} configure munge:amd64 0.5 <none>\n")
    assert [component(r) for r in reasons(root)] == ["munge"]
    os.utime(key, (when + 2, when + 2))
    assert reasons(root) == []


def test_an_exporter_in_a_container_on_the_nodes_own_network_is_somebodys(root: Path) -> None:
    process(root, 9, "node_exporter", "/bin/node_exporter")
    put(root, "/proc/9/status", "NSpid:\t9\t1\n")
    for number, space in ((1, "net:[1]"), (9, "net:[2]")):
        (root / f"proc/{number}/ns").mkdir(parents=True)
        (root / f"proc/{number}/ns/net").symlink_to(space)
    assert reasons(root) == []
    (root / "proc/9/ns/net").unlink()
    (root / "proc/9/ns/net").symlink_to("net:[1]")
    assert [component(r) for r in reasons(root)] == ["monitoring"]


@pytest.mark.parametrize(
    "path", ["/cm/local/apps/cmd/etc/cmd.conf", "/opt/xcat/xcatinfo", "/etc/warewulf/warewulf.conf", "/warewulf/config"]
)
def test_a_node_that_another_system_deploys_is_told(root: Path, path: str) -> None:
    put(root, path, "SERVER=192.0.2.1\n")
    wanted = {**WANTED, "take_over": [], "takes": ALL, "heads": []}
    (note,) = judge.foreign_notes(seen(root), wanted)
    assert note.startswith(f"another system deploys this node ({path})")
    assert reasons(root) == []


def test_packages_of_ofed_are_asked_of_rpm_too(tmp_path: Path) -> None:
    answer = lambda command: (0, "kmod-mlnx-ofa_kernel\nmlnx-tools\n", "") if "*mlnx*" in command else (1, "", "")  # noqa: E731
    assert reader.read_foreign(answer, KERNEL, tmp_path)["ofed"] == ["package kmod-mlnx-ofa_kernel"]
