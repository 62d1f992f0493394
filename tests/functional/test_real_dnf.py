"""package_set's half for dnf, asked of the real one: ansible.builtin.dnf on RPM repositories of stand-ins.

All of it lies in a folder of its own (an installation root); packages are installed there for real, and hold nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from tests.support import real_dnf
from tests.support.node_modules import ROOT, load, run
from validation.probes import installed
from validation.probes.tool import Ran

pytestmark = pytest.mark.engines

docker, gpu = load("plugins/plugin_utils/docker.py"), load("plugins/plugin_utils/gpu.py")
node_state = load("plugins/modules/node_state.py")
RUNNING, NEWEST = "5.14.0-570.58.1.el9_6", "5.14.0-611.5.1.el9_7"
KERNEL = f"{RUNNING}.{real_dnf.MACHINE}"
H100 = {"address": "0000:18:00.0", "vendor": "0x10de", "device": "0x2330", "class": "0x030200", "numa_node": 0}
DRIVER = yaml.safe_load((ROOT / "roles/nvidia_driver/vars/main.yml").read_text(encoding="utf-8"))
FORBIDDEN_BEFORE = ["linux-image-*", "kernel", "kernel-core*"]  # roles/nvidia_driver/tasks/install.yml


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lacking = real_dnf.missing_tools()
    if lacking:
        pytest.skip(f"not installed: {', '.join(lacking)}")
    folder = tmp_path_factory.mktemp("rpm")
    real_dnf.make_repositories(folder)
    return folder


@pytest.fixture
def node(tmp_path: Path, repositories: Path) -> Iterator[real_dnf.Node]:
    """It runs the older of the two kernels that its repositories have, and has never been updated."""
    with real_dnf.node_of(tmp_path, repositories) as made:
        answer = made.dnf({"name": [f"kernel-core-{RUNNING}"], "state": "present"}, check=False)
        if "root" in answer.get("msg", ""):
            pytest.skip("needs root")
        assert made.installed() == {f"kernel-core-{KERNEL}"}, answer
        yield made


def enable(node: real_dnf.Node, version: str, user_space_only: bool = False) -> None:
    """Choose the driver's module stream as the role does, where it does."""
    found = plan(version, user_space_only)
    (file,) = [f for f in DRIVER["__nvidia_driver_files"] if f["path"] == "/etc/dnf/modules.d/nvidia-driver.module"]
    when = jinja2.Template(file["when"]).render(__nvidia_driver_os="el9", nvidia_driver_plan=found)
    if when != "True":
        return
    template = jinja2.Template((ROOT / "roles/nvidia_driver/templates/nvidia-driver.module.j2").read_text())
    text = template.render(nvidia_driver_version=version, nvidia_driver_plan=found)
    (node.root / "etc/dnf/modules.d/nvidia-driver.module").write_text(f"{text}\n", encoding="utf-8")


def plan(version: str, user_space_only: bool = False) -> dict[str, Any]:
    options = {"flavour": "auto", "user_space_only": user_space_only, "mps": True, "kernel": KERNEL}
    options |= {"in_container": user_space_only, "fabric_manager_version": ""}
    table = DRIVER["__nvidia_driver_systems"]["el9"]["cuda"]
    found: dict[str, Any] = gpu.driver_plan(table, version, [H100], options)
    return found


def state(node: real_dnf.Node, names: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Versions as role nvidia_driver reads them, on this node."""

    class Module:
        run_command = staticmethod(node.commands)

    monkeypatch.setattr(node_state.shutil, "which", lambda name: None if name == "dpkg-query" else f"/usr/bin/{name}")
    versions: dict[str, str] = node_state.read_packages(Module(), names)[0]
    return versions


def test_a_driver_is_installed_in_its_release_beside_the_running_kernel(
    node: real_dnf.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dkms wants kernel-devel-matched: that of the running kernel comes before the driver, which brings none."""
    found = plan("580.126.20")
    enable(node, "580.126.20")
    assert node.ask(wanted=found["before"], forbid=FORBIDDEN_BEFORE).get("msg") is None
    assert {f"kernel-devel-{KERNEL}", f"kernel-devel-matched-{KERNEL}"} <= node.installed()
    answer = node.ask(wanted=found["packages"], forbid=DRIVER["__nvidia_driver_forbidden"])
    assert answer.get("msg") is None
    parts = {name for name in node.installed() if "nvidia" in name}
    assert len(parts) > len(found["packages"])
    assert {part for part in parts if "580.126.20-1.el9" not in part} == set()
    assert not [name for name in node.installed() if name.startswith("kernel-") and NEWEST in name and "core" in name]
    assert "nvidia-driver-cuda-3:580.126.20-1.el9.*" in node.locked()

    wanted = {**found["before"], **found["packages"]}
    seen = state(node, list(wanted), monkeypatch)
    assert {name for name, version in wanted.items() if not seen[name] or (version and seen[name] != version)} == set()
    again = node.ask(check=True, wanted=found["packages"], forbid=DRIVER["__nvidia_driver_forbidden"])
    assert (again.get("msg"), again["changed"]) == (None, False)


def test_user_space_alone_is_had_in_its_release(node: real_dnf.Node) -> None:
    """As in a container, without a kernel of its own: dnf hides what is in another stream than the enabled one."""
    node.dnf({"name": ["kernel-core"], "state": "absent"}, check=False)
    wanted = plan("580.126.20", user_space_only=True)["packages"]
    assert "kmod-nvidia-open-dkms" not in wanted
    enable(node, "580.126.20", user_space_only=True)
    assert node.ask(wanted=wanted, forbid=DRIVER["__nvidia_driver_forbidden"]).get("msg") is None
    parts = {name for name in node.installed() if "nvidia" in name}
    assert {part for part in parts if "580.126.20-1.el9" not in part} == set()


def test_what_dkms_wants_of_a_kernel_is_refused_in_the_drivers_transaction(node: real_dnf.Node) -> None:
    wanted = plan("580.126.20")["packages"]
    refused = node.ask(wanted=wanted, forbid=DRIVER["__nvidia_driver_forbidden"])
    assert "kmod-nvidia-open-dkms" in refused["msg"], "the module's stream is not enabled: the default one has another"
    enable(node, "580.126.20")
    answer = node.ask(check=True, wanted=wanted, forbid=DRIVER["__nvidia_driver_forbidden"])
    # Of no kernel in particular kernel-devel-matched is the newest's, and brings that kernel; by itself as well.
    assert f"would install kernel-core ({NEWEST}), which this role must not touch" in answer["msg"]
    answer = node.ask(check=True, wanted={"kernel-devel-matched": ""}, forbid=["kernel-core"])
    assert f"would install kernel-core ({NEWEST}), which this role must not touch" in answer["msg"]


def test_cudnn_is_had_in_an_older_release(node: real_dnf.Node) -> None:
    data = yaml.safe_load((ROOT / "roles/cuda/vars/main.yml").read_text(encoding="utf-8"))
    table = data["__cuda_systems"]["el9"]
    wanted = gpu.cuda_packages(table, {"toolkit": "13.0.2", "cudnn": "9.13.0.50"}, data["__cuda_nccl_built_for"])
    answer = node.ask(check=True, wanted={name: v for name, v in wanted.items() if "cudnn" in name})
    assert [line for line in answer["transaction"] if line.startswith("install libcudnn9")] == [
        f"install {name} (9.13.0.50-1)" for name in sorted(name for name in wanted if "cudnn" in name)
    ]


def test_a_toolkit_comes_with_the_parts_of_its_own_release(node: real_dnf.Node) -> None:
    """Its package names them "or later"."""
    data = role_vars("cuda")
    table, known = data["__cuda_systems"]["el9"], (data["__cuda_nccl_built_for"], data["__cuda_parts"])
    alone = node.ask(check=True, wanted={"cuda-toolkit-13-1": "13.1.1-1"})["transaction"]
    assert {"install cuda-nvcc-13-1 (13.1.122-1)", "install libcublas-13-1 (13.2.2.2-1)"} <= set(alone)
    wanted = gpu.cuda_packages(table, {"toolkit": "13.1.1"}, *known)
    lines = [line for line in node.ask(check=True, wanted=wanted)["transaction"] if line.startswith("install ")]
    lines = [line for line in lines if "versionlock" not in line]  # what holds them
    assert sorted(lines) == sorted(f"install {name} ({version})" for name, version in wanted.items())


def role_vars(role: str) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((ROOT / f"roles/{role}/vars/main.yml").read_text(encoding="utf-8"))
    return data


def of_roles(release: str = "current") -> tuple[dict[str, str], ...]:
    """Package -> version or "": what a stack release has the roles install on EL 9 beside the driver; and with
    the system's own RDMA packages in place of DOCA's."""
    stack = yaml.safe_load((ROOT / f"stacks/{release}.yml").read_text(encoding="utf-8"))["stack_data"]["sets"]["el9"]
    cuda, ofed, slurm = role_vars("cuda"), role_vars("ofed"), role_vars("slurm")["__slurm_systems"]["el9"]["packages"]
    doca = f"{stack['ofed']['version']}-{ofed['__ofed_doca_builds'][stack['ofed']['version']]}"
    ctk = role_vars("nvidia_container_toolkit")["__nvidia_container_toolkit_names"]
    system = {"os_key": "el9", **role_vars("docker")["__docker_systems"]["el9"]}
    free = [
        *role_vars("base")["__base_systems"]["el9"]["packages"],
        *role_vars("kernel")["__kernel_systems"]["el9"]["tools"],
        *(name for names in slurm.values() for name in names),
        *role_vars("roce")["__roce_systems"]["el9"],
        *role_vars("remoting_client")["__remoting_client_systems"]["RedHat"],
        *role_vars("remoting_server")["__remoting_server_own_packages"],
        *role_vars("acceptance")["__acceptance_systems"]["RedHat"],
        role_vars("monitoring")["__monitoring_el"]["package"],
    ]
    wanted = {
        **gpu.cuda_packages(
            cuda["__cuda_systems"]["el9"], stack["cuda"], cuda["__cuda_nccl_built_for"], cuda["__cuda_parts"]
        ),
        **gpu.dcgm_packages(role_vars("dcgm")["__dcgm_names"], stack["dcgm"]["version"], ["13"]),
        **dict.fromkeys(ctk, f"{stack['container_toolkit']['version']}-1"),
        **docker.docker_packages(system, "docker_ce", stack["docker"]["version"]),
        **dict.fromkeys(free, ""),
    }
    return {**wanted, "doca-ofed": doca}, {**wanted, **dict.fromkeys(ofed["__ofed_systems"]["el9"]["inbox"], "")}


@pytest.mark.parametrize("release", ["current", "previous"])
def test_what_the_roles_want_of_a_stack_is_had_in_its_releases(node: real_dnf.Node, release: str) -> None:
    """Packages and indices are signed, and several releases lie side by side."""
    for wanted in of_roles(release):
        answer = node.ask(check=True, wanted=wanted)
        assert answer.get("msg") is None
        brought = {line.split()[1]: line for line in answer["transaction"] if line.startswith("install ")}
        absent = {name: version for name, version in wanted.items() if f"({version}" not in brought.get(name, "")}
        assert absent == {}


def test_a_stand_in_takes_its_folders_with_it(node: real_dnf.Node) -> None:
    """As EL's packages do, which own them; else a teardown seems to leave something behind."""
    folder = node.root / "usr/local/cuda-13.1"
    node.dnf({"name": ["cuda-toolkit-13-1"], "state": "present"}, check=False)
    assert (folder / "bin/nvcc").is_file()
    node.dnf({"name": ["cuda-toolkit-13-1"], "state": "absent"}, check=False)
    assert not folder.exists()
    assert (node.root / "usr/local").is_dir()


def test_the_versions_that_a_validation_reads_are_those_that_roles_pin(
    node: real_dnf.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the epoch where a package has one; else each such package seems to have moved since provisioning."""
    wanted = {name: v for name, v in of_roles()[0].items() if name in ("docker-ce-cli", "libnccl")}
    assert [":" in version for version in sorted(wanted.values())] == [True, False]
    assert node.ask(wanted=wanted).get("msg") is None
    absent = (127, "", "")

    def run_tool(tool: tuple[str, ...], **_: Any) -> Ran:
        return Ran(list(tool), *(node.commands(list(tool)) if tool[0] == "rpm" else absent))

    monkeypatch.setattr(installed, "run_tool", run_tool)
    (node.root / "record.json").write_text(json.dumps({"pinned": wanted}), encoding="utf-8")
    found = installed.collect(node.root / "record.json", node.root / "none")
    assert found["drift"] == []
    assert found["nccl"] == f"libnccl {wanted['libnccl']}"


def test_an_index_that_another_has_touched_is_refused(tmp_path: Path, repositories: Path) -> None:
    copy = tmp_path / "repositories"
    shutil.copytree(repositories, copy)
    with (copy / "epel/el9/repodata/repomd.xml").open("a", encoding="utf-8") as index:
        index.write("<!-- another -->\n")
    (tmp_path / "node").mkdir()
    with real_dnf.node_of(tmp_path / "node", copy) as touched:
        answer = touched.dnf({"name": ["dkms"], "state": "present"}, check=True)
    assert "repomd.xml GPG signature verification error" in answer["msg"]


def test_a_package_that_nobody_has_signed_is_refused(tmp_path: Path, repositories: Path) -> None:
    """NVIDIA's repository has no signature on its index: the packages' own are what is verified there."""
    copy = tmp_path / "repositories"
    shutil.copytree(repositories, copy)
    (package,) = (copy / "epel/el9").glob("sockperf-*.rpm")
    subprocess.run(["rpmsign", "--delsign", package], check=True, capture_output=True)
    subprocess.run(["createrepo_c", "--quiet", copy / "epel/el9"], check=True)
    (tmp_path / "node").mkdir()
    with real_dnf.node_of(tmp_path / "node", copy) as plain:
        entry = plain.root / "etc/yum.repos.d/epel.repo"
        text = entry.read_text(encoding="utf-8")
        entry.write_text(text.replace("repo_gpgcheck=1", "repo_gpgcheck=0"), encoding="utf-8")
        answer = plain.dnf({"name": ["sockperf"], "state": "present"}, check=False)
    assert "is not signed" in answer["msg"]


HOLDS = """
import sys, dnf.lock
with dnf.lock.build_rpmdb_lock(sys.argv[1], True):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: dnf keeps other users' locks elsewhere")
def test_a_lock_of_dnf_is_waited_for_and_its_holder_named(tmp_path: Path) -> None:
    asked = {"locks": [str(tmp_path / "rpmdb_lock.pid")], "lock_timeout_s": 0}
    command = ["/usr/bin/python3", "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        assert other.stdout.readline() == "held\n"
        answer = run("dnf_free", asked)
        other.communicate()
    assert answer["failed"]
    assert f"rpmdb_lock.pid is held by process {other.pid} (/usr/bin/python3 -c" in answer["msg"]
    assert not run("dnf_free", asked).get("failed")
