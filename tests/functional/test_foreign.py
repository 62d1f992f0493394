"""What belongs to somebody else is refused before anything is changed, read from a node's own files.

Nodes are folders in place of `/`, in the forms of dpkg, Slurm, MariaDB, containerd and NVIDIA's installers.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.functional.test_preflight import NODE, WANTED
from tests.support.node_modules import ROOT, load
from validation.probes import belongings

pytestmark = pytest.mark.systems

reader: Any = load("plugins/module_utils/foreign.py")
judge: Any = load("plugins/plugin_utils/foreign.py")
preflight: Any = load("plugins/plugin_utils/preflight.py")

KERNEL = "6.8.0-87-generic"
ALL = list(judge.COMPONENTS)
Plant = Callable[[Path], object]


def put(root: Path, path: str, text: str = "x\n") -> Path:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def process(root: Path, number: int, name: str, *words: str) -> None:
    put(root, f"/proc/{number}/comm", f"{name}\n")
    put(root, f"/proc/{number}/cmdline", "\0".join(words or (f"/usr/sbin/{name}",)) + "\0")


def package(root: Path, name: str, conffiles: dict[str, str] | None = None) -> None:
    """An installed package, as dpkg's status has it."""
    lines = [f"Package: {name}", "Status: install ok installed", "Version: 1.0-1"]
    sums = {path: hashlib.md5(text.encode()).hexdigest() for path, text in (conffiles or {}).items()}
    lines += ["Conffiles:", *(f" {path} {found}" for path, found in sums.items())] if sums else []
    status = root / "var/lib/dpkg/status"
    before = status.read_text(encoding="utf-8") if status.is_file() else ""
    put(root, "/var/lib/dpkg/status", before + "\n".join(lines) + "\n\n")
    for path, text in (conffiles or {}).items():
        put(root, path, text)


def ledger(root: Path, owner: str, **files: str) -> None:
    """That a run of ours wrote these files, with the text that is there."""
    entries = {
        path: {
            "original": False,
            "package": "",
            "sha256": hashlib.sha256((root / path.lstrip("/")).read_bytes()).hexdigest(),
        }
        for path in files.values()
    }
    put(root, f"/var/lib/elastic-ai/ledger/{owner}.files.json", json.dumps({"files": entries, "directories": {}}))


def of_packages(root: Path, owner: str, *names: str) -> None:
    text = json.dumps({"packages": names, "holds": {}})
    put(root, f"/var/lib/elastic-ai/ledger/{owner}.packages.json", text)


def nothing(command: list[str]) -> tuple[int, str, str]:
    return 1, "", ""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A freshly installed Debian."""
    package(tmp_path, "base-files")
    return tmp_path


def seen(root: Path, **more: Any) -> dict[str, Any]:
    return {**NODE, "foreign": reader.read_foreign(nothing, KERNEL, root), **more}


def reasons(root: Path, take_over: tuple[str, ...] = (), takes: list[str] = ALL, **more: Any) -> list[str]:
    wanted = {**WANTED, "take_over": list(take_over), "takes": takes, "heads": ["head", "10.0.0.1"], "left_out": []}
    return list(judge.foreign_reasons(seen(root, **more), wanted))


def component(reason: str) -> str:
    """Whose word for preflight_take_over a refusal has."""
    return reason.partition("preflight_take_over: [")[2].partition("]")[0]


CONF = "# theirs\nClusterName=prod\nSlurmctldHost=ctl01(192.0.2.7)\nNodeName=gpu1 CPUs=8\n"
OURS = "ClusterName=elastic\nSlurmctldHost=head(10.0.0.1)\n"


def foreign_slurm(root: Path) -> None:
    put(root, "/etc/slurm/slurm.conf", CONF)
    put(root, "/etc/munge/munge.key", "k" * 128)
    process(root, 100, "slurmd", "/usr/sbin/slurmd", "-D", "-s")


def test_a_node_of_another_slurm_is_refused_with_controller_paths_and_both_ways_out(root: Path) -> None:
    foreign_slurm(root)
    said = {component(reason): reason for reason in reasons(root, jobs=["17", "23"])}
    assert set(said) == {"slurm", "munge", "jobs"}
    assert "/etc/slurm/slurm.conf of cluster prod under ctl01; slurmd runs" in said["slurm"]
    assert "/etc/munge/munge.key" in said["munge"]
    assert "jobs 17, 23" in said["jobs"]
    for reason in said.values():
        assert "Nothing was changed" in reason
        assert "out" in reason.rpartition("else ")[2]


@pytest.mark.parametrize(
    ("said", "ours"),
    [
        ("head", True),
        ("head:6817", True),
        ("other:6817,head:6817", True),
        ("HEAD.cluster.example:6817,other", True),
        ("ctl01:6817,ctl02:6817", False),
    ],
)
def test_controllers_of_a_slurmd_are_compared_one_by_one(said: str, ours: bool) -> None:
    assert judge._ours([said], {"heads": ["head"]}) is ours


def test_what_is_said_to_be_ours_passes_and_is_told(root: Path) -> None:
    foreign_slurm(root)
    assert reasons(root, ("slurm", "munge", "jobs"), jobs=["17"]) == []
    (left,) = reasons(root, ("slurm", "jobs"), jobs=["17"])
    assert component(left) == "munge"
    wanted = {**WANTED, "take_over": ["slurm", "munge"], "takes": ALL, "heads": ["head"]}
    notes = judge.foreign_notes(seen(root), wanted)
    assert [note.split(" taken over")[0] for note in notes] == ["somebody else's munge key", "somebody else's Slurm"]
    assert all("(preflight_take_over)" in note for note in notes)


def test_what_was_taken_over_stays_recorded_with_its_day(root: Path) -> None:
    foreign_slurm(root)
    put(root, "/etc/chrony/chrony.conf", "server ntp.example.net\n")
    wanted = {**WANTED, "take_over": ["slurm", "munge"], "takes": ALL, "heads": ["head"]}
    first = judge.taken_over(seen(root), wanted, "", "2026-11-28")
    assert list(first) == ["/etc/chrony/chrony.conf", "munge", "slurm"]
    assert {entry["on"] for entry in first.values()} == {"2026-11-28"}
    assert "of cluster" in first["slurm"]["found"]
    assert judge.taken_over(seen(root), wanted, json.dumps(first), "2026-11-29") == first, "a run that was cut short"
    put(root, "/etc/munge/munge.key", "ours")
    ledger(root, "slurm", key="/etc/munge/munge.key")
    second = judge.taken_over(seen(root), wanted, json.dumps(first), "2026-11-30")
    assert second == first, "which no longer finds their key"
    assert judge.taken_over(seen(root), {**wanted, "take_over": []}, "", "2026-11-30").keys() == {
        "/etc/chrony/chrony.conf"
    }
    assert judge.taken_over(seen(root), wanted, '{"cut', "2026-11-28").keys() == first.keys() - {"munge"}


def test_what_the_role_does_not_touch_here_is_not_refused(root: Path) -> None:
    foreign_slurm(root)
    put(root, "/var/lib/mysql/wordpress/db.opt")
    assert reasons(root, takes=["docker", "ofed"]) == []
    assert [component(r) for r in reasons(root, takes=["database"])] == ["database"]


def runfile(root: Path) -> None:
    put(root, "/usr/bin/nvidia-uninstall")
    put(root, f"/lib/modules/{KERNEL}/modules.dep", "kernel/drivers/video/nvidia.ko:\n")


def containers(space: str) -> Plant:
    return lambda root: (root / f"run/containerd/io.containerd.runtime.v2.task/{space}/abc").mkdir(parents=True)


def file(path: str, text: str = "x\n") -> Plant:
    return lambda root: put(root, path, text)


def runs(name: str, *words: str) -> Plant:
    return lambda root: process(root, 9, name, *words)


def both(*plants: Plant) -> Plant:
    return lambda root: [plant(root) for plant in plants]


def installed(*names: str) -> Plant:
    return lambda root: [package(root, name) for name in names]


MODULES = f"/lib/modules/{KERNEL}/modules.dep"
PROMETHEUS, REGISTRY = "/etc/prometheus/prometheus.yml", "/etc/docker/registry/config.yml"
PLANTED: dict[str, tuple[str, Plant, str]] = {
    "configless": (
        "slurm", runs("slurmd", "/usr/sbin/slurmd", "--conf-server", "ctl01:6817"),
        "slurmd takes its configuration from ctl01:6817",
    ),
    "configless, stopped": (
        "slurm", file("/etc/default/slurmd", 'SLURMD_OPTIONS="--conf-server ctl01"\n'),
        "from ctl01 (/etc/default/slurmd)",
    ),
    "built by hand": ("slurm", file("/opt/slurm/etc/slurm.conf", CONF), "/opt/slurm/etc/slurm.conf"),
    "a file by -f": (
        "slurm", both(file("/srv/slurm.conf", CONF), runs("slurmd", "slurmd", "-f", "/srv/slurm.conf")),
        "/srv/slurm.conf of cluster prod under ctl01",
    ),
    "old key words": ("slurm", file("/etc/slurm-llnl/slurm.conf", "controlmachine = CTL9\n"), "under CTL9"),
    "included": (
        "slurm", both(file("/etc/slurm/slurm.conf", "include site.conf\n"), file("/etc/slurm/site.conf", CONF)),
        "of cluster prod under ctl01",
    ),
    "a controller": ("slurm", runs("slurmctld"), "slurmctld runs"),
    "gres": ("slurm", file("/etc/slurm/gres.conf", "Name=gpu File=/dev/nvidia0\n"), "/etc/slurm/gres.conf"),
    "key": ("munge", file("/etc/munge/munge.key", "k" * 128), "/etc/munge/munge.key"),
    "daemon.json": ("docker", file("/etc/docker/daemon.json", '{"data-root": "/srv"}'), "/etc/docker/daemon.json"),
    "broken daemon.json": ("docker", file("/etc/docker/daemon.json", "{"), "/etc/docker/daemon.json"),
    "containers": ("docker", containers("moby"), "1 container of Docker"),
    "database": ("database", file("/var/lib/mysql/wordpress/db.opt"), "databases wordpress in /var/lib/mysql"),
    "accounting": ("database", file("/var/lib/mysql/slurm_acct_db/db.opt"), "slurm_acct_db"),
    "database elsewhere": (
        "database", both(file("/etc/mysql/my.cnf", "[mysqld]\ndatadir = /srv/db\n"), file("/srv/db/shop/x")),
        "databases shop in /srv/db",
    ),
    "ofed": ("ofed", file("/usr/bin/ofed_info"), "/usr/bin/ofed_info"),
    "runfile": ("driver", runfile, "NVIDIA's runfile (/usr/bin/nvidia-uninstall)"),
    "dkms": ("driver", file("/var/lib/dkms/nvidia/550.54/source/x"), "DKMS builds (/var/lib/dkms/nvidia)"),
    "operator": ("driver", file("/run/nvidia/validations/driver-ready"), "GPU operator's driver container"),
    "by hand": ("driver", file(MODULES, "extra/nvidia.ko.zst: x\n"), "extra/nvidia.ko.zst"),
    "Ubuntu's": ("driver", installed(f"linux-modules-nvidia-580-open-{KERNEL}"), "linux-modules-nvidia-580-open"),
    "another repository": (
        "driver", installed("nvidia-driver-550", "libnvidia-compute-550"),
        "packages libnvidia-compute-550, nvidia-driver-550",
    ),
    "stream": ("driver", file("/etc/dnf/modules.d/nvidia-driver.module", "[nvidia-driver]\n"), "nvidia-driver.module"),
    "kubelet": ("kubernetes", runs("kubelet"), "Kubernetes (kubelet runs)"),
    "stopped kubelet": ("kubernetes", file("/var/lib/kubelet/config.yaml"), "/var/lib/kubelet/config.yaml"),
    "k3s": ("kubernetes", runs("k3s-agent"), "k3s-agent runs"),
    "pods": ("kubernetes", containers("k8s.io"), "1 container of Kubernetes"),
    "PBS": ("scheduler", runs("pbs_mom"), "PBS (pbs_mom runs)"),
    "LSF": ("scheduler", both(lambda r: process(r, 8, "lim"), runs("sbatchd")), "LSF (sbatchd runs, lim runs)"),
    "HTCondor": ("scheduler", runs("condor_master"), "HTCondor"),
    "prometheus": ("monitoring", file(PROMETHEUS, "scrape_configs: []\n"), PROMETHEUS),
    "exporter": ("monitoring", runs("node_exporter", "/opt/ne/node_exporter"), "/opt/ne/node_exporter runs"),
    "registry": ("registry", file(REGISTRY, "version: 0.1\n"), REGISTRY),
    "nccl": ("libraries", file("/etc/nccl.conf", "NCCL_IB_HCA=mlx5_4\n"), "/etc/nccl.conf"),
}  # fmt: skip


@pytest.mark.parametrize("case", PLANTED)
def test_each_thing_of_somebody_elses_is_refused_by_its_component(root: Path, case: str) -> None:
    name, plant, said = PLANTED[case]
    assert reasons(root) == []
    plant(root)
    (reason,) = reasons(root)
    assert reason.startswith("somebody else's ")
    assert f"say that it is yours (preflight_take_over: [{name}])" in reason
    assert said in reason
    assert reasons(root, (name,)) == []


def test_every_component_has_a_case_and_a_choice() -> None:
    spec = yaml.safe_load((ROOT / "roles/preflight/meta/argument_specs.yml").read_text())
    option = spec["argument_specs"]["main"]["options"]["preflight_take_over"]
    assert set(option["choices"]) == set(judge.COMPONENTS)
    assert option["default"] == []
    assert {name for name, _, _ in PLANTED.values()} | {"jobs"} == set(judge.COMPONENTS)
    assert set(judge.OF_FILE) <= set(reader.FILES)


def test_defaults_of_a_distribution_are_nobodys(root: Path) -> None:
    """Packages with their own files, a key that munge's package made, examples, an empty configuration."""
    package(root, "docker-registry", {"/etc/docker/registry/config.yml": "version: 0.1\n"})
    package(
        root,
        "prometheus",
        {"/etc/default/prometheus": 'ARGS=""\nX=1\n', "/etc/prometheus/prometheus.yml": "global: {}\n"},
    )
    package(root, "libucx0", {"/etc/ucx/ucx.conf": "UCX_A=1\n"})
    package(root, "nvidia-container-toolkit")
    package(root, "firmware-nvidia-gsp")
    package(root, "nvidia-modprobe")
    put(root, "/var/lib/dpkg/info/munge.list", "/etc/munge\n")
    put(root, "/etc/munge/munge.key", "k" * 128)
    put(root, "/etc/slurm/slurm.conf", "# nothing yet\n\n")
    put(root, "/etc/docker/daemon.json", "{}\n")
    put(root, "/usr/share/doc/slurmd/examples/slurm.conf.simple", CONF)
    for name in ("mysql", "performance_schema", "sys", "#innodb_redo", ".rocksdb"):
        put(root, f"/var/lib/mysql/{name}/x")
    put(root, "/etc/nccl.conf", "# NCCL\n")
    process(root, 9, "lim")
    process(root, 10, "prometheus", "/usr/bin/prometheus", "--web.x")
    assert reasons(root) == []
    put(root, "/etc/slurm/slurm.conf", "ClusterName=cluster\nSlurmctldHost=localhost\n")
    assert reasons(root) == [], "EPEL's package brings such a file"
    process(root, 11, "slurmd")
    assert reasons(root) != [], "with a daemon it is somebody's cluster of one machine"


def test_a_packages_file_that_was_edited_is_somebodys(root: Path) -> None:
    package(root, "prometheus", {"/etc/prometheus/prometheus.yml": "global: {}\n"})
    put(root, "/etc/prometheus/prometheus.yml", "global: {}\nscrape_configs: []\n")
    assert [component(r) for r in reasons(root)] == ["monitoring"]


def test_an_edited_file_that_is_replaced_and_kept_is_a_note(root: Path) -> None:
    put(root, "/etc/chrony/chrony.conf", "server ntp.example.net\n")
    wanted = {**WANTED, "take_over": [], "takes": ALL, "heads": []}
    (note,) = judge.foreign_notes(seen(root), wanted)
    assert note.startswith("/etc/chrony/chrony.conf is not as its package brought it")
    found = hashlib.md5(b"server ntp.example.net\n").hexdigest()
    put(root, "/var/lib/ucf/hashfile", f"{found}  /etc/chrony/chrony.conf\n")
    assert judge.foreign_notes(seen(root), wanted) == [], "ucf brought it so"


def test_another_clock_and_another_firewall_are_notes(root: Path) -> None:
    wanted = {**WANTED, "take_over": [], "takes": ALL, "heads": []}
    put(root, "/etc/ntpsec/ntp.conf", "# empty\n")
    assert judge.foreign_notes(seen(root), wanted) == []
    put(root, "/etc/ntpsec/ntp.conf", "server ntp.example.net\n")
    put(root, "/etc/iptables/rules.v4", "*filter\n")
    clock, firewall = judge.foreign_notes(seen(root), wanted)
    assert "/etc/ntpsec/ntp.conf; role base installs chrony in its place" in clock
    assert "/etc/iptables/rules.v4, which role firewall leaves alone" in firewall
    assert reasons(root) == []


def test_the_key_of_an_upgraded_package_is_known_by_dpkgs_log(root: Path) -> None:
    listed = put(root, "/var/lib/dpkg/info/munge.list")
    key = put(root, "/etc/munge/munge.key", "k" * 128)
    made = time.time() - 9 * 86400
    os.utime(key, (made, made))
    assert [component(r) for r in reasons(root)] == ["munge"], "put there long before the package that is listed"
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(made + 5))
    put(root, "/var/log/dpkg.log.1", f"{when} install munge:amd64 <none> 0.5.15-2\n")
    assert reasons(root) == []
    os.utime(listed, (made - 86400, made - 86400))
    put(root, "/var/log/dpkg.log.1", "")
    assert [component(r) for r in reasons(root)] == ["munge"], "put there a day after the package"


def test_what_an_earlier_run_brought_passes_also_where_it_was_cut_short(root: Path) -> None:
    put(root, "/etc/slurm/slurm.conf", OURS)
    put(root, "/etc/slurm/gres.conf", "Name=gpu File=/dev/nvidia0\n")
    put(root, "/etc/munge/munge.key", "k" * 128)
    put(root, "/etc/docker/daemon.json", '{"features": {"cdi": true}}')
    ledger(root, "slurm", a="/etc/slurm/slurm.conf", b="/etc/slurm/gres.conf", c="/etc/munge/munge.key")
    ledger(root, "docker", a="/etc/docker/daemon.json")
    of_packages(root, "slurm", "slurmd", "mariadb-server")
    of_packages(root, "nvidia_driver", "nvidia-driver-cuda")
    of_packages(root, "ofed_doca", "doca-ofed")
    put(root, "/usr/bin/ofed_info")
    package(root, "nvidia-driver-cuda")
    put(root, "/var/lib/mysql/slurm_acct_db/x")
    process(root, 9, "slurmd")
    process(root, 10, "slurmctld")
    containers("moby")(root)
    of_packages(root, "docker", "docker-ce")
    for release in ("", "current"):
        assert reasons(root, jobs=["17"], provisioned_release=release) == []


def test_a_node_of_ours_that_another_cluster_took_is_refused(root: Path) -> None:
    put(root, "/etc/slurm/slurm.conf", OURS)
    ledger(root, "slurm", a="/etc/slurm/slurm.conf")
    process(root, 9, "slurmd")
    assert reasons(root, provisioned_release="current") == []
    put(root, "/etc/slurm/slurm.conf", OURS + "PropagateResourceLimits=NONE\n")
    assert reasons(root, provisioned_release="current") == [], "edited, and still under the head of this inventory"
    put(root, "/etc/slurm/slurm.conf", CONF)
    (reason,) = reasons(root, provisioned_release="current")
    assert "of cluster prod under ctl01" in reason


def test_after_a_teardown_nothing_is_left_to_refuse(root: Path) -> None:
    """The driver is in memory until the next boot, and dpkg remembers a removed package's files."""
    put(root, "/proc/driver/nvidia/version", "NVRM version: 580.173.02\n")
    text = "Package: nvidia-driver-cuda\nStatus: deinstall ok config-files\nVersion: 1\n\n"
    put(root, "/var/lib/dpkg/status", text)
    (root / "run/containerd/io.containerd.runtime.v2.task/moby").mkdir(parents=True)
    (root / "var/lib/mysql").mkdir(parents=True)
    assert reasons(root) == []


def test_what_runs_in_a_container_on_the_node_is_left_alone(root: Path) -> None:
    process(root, 9, "slurmd")
    put(root, "/proc/9/status", "Name:\tslurmd\nNSpid:\t9\t4\n")
    assert reasons(root) == []
    put(root, "/proc/9/status", "Name:\tslurmd\nNSpid:\t9\n")
    assert [component(r) for r in reasons(root)] == ["slurm"]


def test_an_inventory_is_told_of_it_before(root: Path) -> None:
    assert belongings.belongings(root) == []
    foreign_slurm(root)
    put(root, "/proc/200/comm", "slurmstepd\n")
    put(root, "/proc/200/cmdline", "slurmstepd: [17.batch]")
    put(root, "/etc/docker/daemon.json", '{"a": 1}')
    put(root, "/usr/bin/ofed_info")
    assert [(one["component"], one["what"]) for one in belongings.belongings(root)] == [
        ("slurm", "/etc/slurm/slurm.conf under ctl01"),
        ("slurm", "slurmd runs"),
        ("jobs", "17 of Slurm"),
        ("docker", "/etc/docker/daemon.json"),
        ("ofed", "/usr/bin/ofed_info"),
    ]
    named = {*belongings.AGENTS.values(), *belongings.FILES.values()}
    assert named <= set(judge.COMPONENTS)
    put(root, "/etc/elastic-ai/provisioned.json", "{}")
    assert belongings.belongings(root) == [], "a run of ours has been here"


def test_drivers_are_told_from_what_only_has_their_name() -> None:
    drivers = (
        "nvidia-driver-580-open nvidia-driver nvidia-open nvidia-open-580 nvidia-dkms-580 nvidia-kernel-open-dkms "
        "nvidia-headless-no-dkms-580-server cuda-drivers-fabricmanager cuda-drivers kmod-nvidia akmod-nvidia "
        "kmod-nvidia-open-dkms xorg-x11-drv-nvidia-cuda nvidia-fabricmanager-550 nvidia-tesla-470-driver libcuda1 "
        "libnvidia-compute nvidia-utils-580-server nvidia-kernel-common"
    )
    others = (
        "nvidia-container-toolkit nvidia-container-toolkit-base libnvidia-container1 nvidia-gpu-firmware "
        "nvidia-modprobe "
        "nvidia-settings nvidia-detect firmware-nvidia-gsp nvidia-cuda-toolkit nvidia-vaapi-driver linux-image-amd64"
    )
    assert [name for name in drivers.split() if not reader.DRIVER_PACKAGES.match(name)] == []
    assert [name for name in others.split() if reader.DRIVER_PACKAGES.match(name)] == []


def test_dnfs_packages_are_read_too(tmp_path: Path) -> None:
    answers = {"-qa": (0, "kmod-nvidia\nnvidia-gpu-firmware\n", ""), "-Vf": (0, "S.5....T.  c /etc/nccl.conf\n", "")}
    put(tmp_path, "/etc/nccl.conf", "NCCL_X=1\n")
    put(tmp_path, "/etc/ucx/ucx.conf", "UCX_X=1\n")
    told = reader.read_foreign(lambda command: answers.get(command[1], (1, "", "")), KERNEL, tmp_path)
    assert told["driver"]["packages"] == ["kmod-nvidia"]
    default = {entry["path"]: entry["default"] for entry in told["files"]}
    assert default == {"/etc/nccl.conf": False, "/etc/ucx/ucx.conf": True}


def test_nothing_is_written_by_the_reading(root: Path) -> None:
    foreign_slurm(root)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    reader.read_foreign(nothing, KERNEL, root)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
