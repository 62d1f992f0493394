"""What the GPU roles ask of apt, asked of the real one, on the lab's stand-ins of NVIDIA's repository.

Nothing is installed: transactions are simulated (`apt-get -s`) in folders of their own. The repository has several
releases beside each other, and the newest is not the one that any stack release wants.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from tests.support import real_apt
from tests.support.node_modules import ROOT, load
from toolkit.lab.debrepo import make_key, make_repositories
from toolkit.lab.fake_packages import FakeRepository, load_fake_packages
from toolkit.lab.standin import load_system

pytestmark = pytest.mark.engines

gpu = load("plugins/plugin_utils/gpu.py")
Error = real_apt.packages.PackageError
SYSTEMS = ("debian12", "debian13", "ubuntu2204", "ubuntu2404")
H100, V100 = (
    {"address": "0000:18:00.0", "vendor": "0x10de", "device": device, "class": "0x030200", "numa_node": 0}
    for device in ("0x2330", "0x1db5")
)
SWITCH = {**H100, "address": "0000:05:00.0", "device": "0x22a3", "class": "0x068000"}


def role_vars(role: str) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((ROOT / f"roles/{role}/vars/main.yml").read_text(encoding="utf-8"))
    return data


def sets(system: str) -> list[dict[str, Any]]:
    """Every installable set of a stack release for this system whose driver comes from NVIDIA's repository."""
    releases = (yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "stacks").glob("*.yml")))
    found = [release["stack_data"]["sets"].get(system, {}) for release in releases if "stack_data" in release]
    return [s for s in found if not s.get("record") and s.get("nvidia_driver", {}).get("provider") == "cuda"]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cuda")
    make_key(root / "key")
    make_repositories([f for f in load_fake_packages() if f.repo == "cuda"], root / "out", root / "key/secret.asc")
    return root / "out/cuda"


@pytest.fixture
def node(repository: Path, tmp_path: Path, system: str) -> real_apt.Node:
    return real_apt.Node(tmp_path / "node", repository / system)


def driver(system: str, version: str, pci: list[Any]) -> dict[str, Any]:
    options = {"flavour": "auto", "user_space_only": False, "mps": True, "kernel": "6.1.0-37-amd64"}
    options |= {"in_container": True, "fabric_manager_version": ""}
    table = role_vars("nvidia_driver")["__nvidia_driver_systems"][system]["cuda"]
    plan: dict[str, Any] = gpu.driver_plan(table, version, pci, options)
    return plan


def cuda(data: dict[str, Any], system: str, versions: dict[str, str]) -> dict[str, str]:
    """What role cuda wants, with the parts of the toolkit."""
    table, known = data["__cuda_systems"][system], (data["__cuda_nccl_built_for"], data["__cuda_parts"])
    wanted: dict[str, str] = gpu.cuda_packages(table, versions, *known)
    return wanted


def configure(node: real_apt.Node, plan: dict[str, Any]) -> None:
    """Write the preferences as the role does before it installs anything."""
    template = jinja2.Template((ROOT / "roles/nvidia_driver/templates/preferences.j2").read_text(encoding="utf-8"))
    text = template.render(nvidia_driver_provider="cuda", __nvidia_driver_pin=plan["pin"], ansible_facts={})
    (node.root / "etc/apt/preferences.d/elastic-ai-nvidia-driver").write_text(text + "\n", encoding="utf-8")


def install_driver(node: real_apt.Node, plan: dict[str, Any]) -> dict[str, str]:
    forbidden = tuple(role_vars("nvidia_driver")["__nvidia_driver_forbidden"])
    if plan["before"]:
        node.transaction(plan["before"])
    return node.transaction(plan["packages"], forbidden)


def releases(installed: dict[str, str]) -> set[str]:
    """The releases that parts of the driver are of."""
    return {gpu.upstream_version(version) for name, version in installed.items() if not name.startswith("datacenter")}


@pytest.mark.parametrize("system", SYSTEMS)
def test_driver_cuda_and_dcgm_of_every_set_are_had_in_one_release_each(system: str, node: real_apt.Node) -> None:
    """A dependency that no role names follows the release that is wanted, not the repository's newest."""
    assert sets(system)
    for version in {parts["nvidia_driver"]["version"] for parts in sets(system)}:
        for pci in ([H100, SWITCH], [V100]):
            node.fresh()
            plan = driver(system, version, pci)
            configure(node, plan)
            installed = install_driver(node, plan)
            assert releases(installed) == {version}
            assert set(plan["packages"]) < set(installed), "the stand-ins have no part that the role does not name"
    data = role_vars("cuda")
    for parts in sets(system):
        wanted = cuda(data, system, parts["cuda"])
        assert wanted.items() <= node.would(wanted).items()


@pytest.mark.parametrize("system", ["ubuntu2604"])
def test_the_driver_that_a_lab_states_and_the_rest_of_a_set_are_had(system: str, node: real_apt.Node) -> None:
    """No set has a version of the driver there: it is the site's to state, and of a lab its stand-in's."""
    stated = load_system(system).stated["nvidia_driver_version"]
    plan = driver(system, stated, [H100, SWITCH])
    configure(node, plan)
    assert releases(install_driver(node, plan)) == {stated}
    data = role_vars("cuda")
    for parts in sets(system):
        assert parts["nvidia_driver"]["version"] == ""
        wanted = cuda(data, system, parts["cuda"])
        assert wanted.items() <= node.would(wanted).items()


@pytest.mark.parametrize("system", ["debian13", "ubuntu2404"])
def test_a_toolkit_comes_with_the_parts_of_its_own_release(system: str, node: real_apt.Node) -> None:
    """The toolkit's package names its parts "or later": by itself it brings those of a later update."""
    alone = node.would({"cuda-toolkit-13-1": "13.1.1-1"})
    assert (alone["cuda-nvcc-13-1"], alone["libcublas-13-1"]) == ("13.1.122-1", "13.2.2.2-1")
    data = role_vars("cuda")
    wanted = cuda(data, system, {"toolkit": "13.1.1"})
    came = node.transaction(wanted)
    assert came == wanted, "a part comes along that is not pinned"
    assert set(alone) < set(came)
    site = {"13.1.1": {**data["__cuda_parts"]["13.1.1"], "libcublas": "13.2.2.2", "libcublas-{dev}": "13.2.2.2"}}
    assert node.would(cuda({**data, "__cuda_parts": site}, system, {"toolkit": "13.1.1"})) == {
        "libcublas-13-1": "13.2.2.2-1",
        "libcublas-dev-13-1": "13.2.2.2-1",
    }


@pytest.mark.parametrize("system", ["debian12"])  # it has the same names everywhere
def test_dcgm_comes_with_its_proprietary_parts_in_one_version(system: str, node: real_apt.Node) -> None:
    """Profiling fields and most of `dcgmi diag` are in these; apt has them as recommendations, which no role takes."""
    for version, majors in {(parts["dcgm"]["version"], major) for parts in sets(system) for major in ("12", "12 13")}:
        wanted = gpu.dcgm_packages(role_vars("dcgm")["__dcgm_names"], version, majors.split())
        installed = node.would(wanted)
        assert set(installed.values()) == {f"1:{version}-1"}
        names = {f"datacenter-gpu-manager-4-proprietary-cuda{major}" for major in majors.split()}
        assert {"datacenter-gpu-manager-4-proprietary", *names} <= set(installed)


@pytest.mark.parametrize("system", ["debian12", "ubuntu2404"])
def test_the_stand_ins_refuse_what_nvidias_repository_refuses(system: str, node: real_apt.Node) -> None:
    """Without preferences a pinning package comes too late for the driver; cuDNN needs its headers named."""
    with pytest.raises(Error, match=r"Depends: .* \(= 580\.126\.20-\S+\) but 580\.\S+ is to be installed"):
        node.would(driver(system, "580.126.20", [H100])["packages"])
    version = "9.13.0.50-1"
    with pytest.raises(Error, match=r"libcudnn9-headers-cuda-13 \(= 9\.13\.0\.50-1\) but 9\.28\.1\.4-1 is to be"):
        node.would({"libcudnn9-cuda-13": version, "libcudnn9-dev-cuda-13": version})


@pytest.mark.parametrize("system", ["debian12", "ubuntu2404"])
def test_a_release_is_changed_both_ways_past_what_pinning_packages_leave_behind(
    system: str, node: real_apt.Node
) -> None:
    for version in ("580.126.20", "580.95.05", "580.126.20"):
        plan = driver(system, version, [H100, SWITCH])
        configure(node, plan)
        installed = install_driver(node, plan)
        # Any release of nvidia-modprobe will do for the others, so that apt lets the one stay that is there.
        assert releases({name: v for name, v in installed.items() if name != "nvidia-modprobe"}) == {version}
    left = {path.name for path in (node.root / "etc/apt/preferences.d").iterdir()}
    assert {"nvidia-driver-pinning-580.95.05.pref", "nvidia-driver-pinning-580.126.20.pref"} < left


@pytest.mark.parametrize("system", ["debian12"])
def test_a_driver_that_would_bring_a_kernel_is_refused_and_nothing_of_it_stays(
    system: str, node: real_apt.Node
) -> None:
    plan = driver(system, "580.999.01", [V100])
    configure(node, plan)
    with pytest.raises(Error, match=r"would install linux-image-6\.1\.0-999-amd64"):
        install_driver(node, plan)
    assert node.installed() == {}


def upgraded(node: real_apt.Node) -> set[str]:
    """What an upgrade of everything would touch: it is apt's candidates that unattended-upgrades walks through."""
    code, said = node.run(["apt-get", "-s", "-o", "Debug::NoLocking=1", "dist-upgrade"])
    assert code == 0, said
    return {line.split()[1] for line in said.splitlines() if line.startswith(("Inst ", "Remv "))}


@pytest.mark.parametrize("system", ["debian12", "ubuntu2404"])
def test_no_upgrade_touches_a_held_part(system: str, node: real_apt.Node) -> None:
    """By the hold alone, though the repository has a later release and no preference keeps it back."""
    plan = driver(system, "580.126.20", [H100, SWITCH])
    configure(node, plan)
    came = install_driver(node, plan)
    for preference in (node.root / "etc/apt/preferences.d").iterdir():  # the role's, and the pinning package's own
        preference.unlink()
    parts = {name for name in plan["packages"] if "pinning" not in name}  # whose name has its one release
    assert parts <= upgraded(node), "there is no later release to be kept from"
    node.status = {
        name: text.replace("Status: install ok", "Status: hold ok") if name in parts else text
        for name, text in node.status.items()
    }
    node._write_status()
    assert node.apt.held() == parts
    assert upgraded(node) & parts == set()
    assert node.installed() == came


@pytest.mark.parametrize("system", ["ubuntu2404"])
def test_unattended_upgrades_is_told_each_pinned_package_and_no_other(system: str, node: real_apt.Node) -> None:
    """As apt reads the file; unattended-upgrades takes each entry for a regular expression from a name's beginning."""
    environment = jinja2.Environment(trim_blocks=True)
    environment.filters["regex_escape"] = re.escape
    template = environment.from_string((ROOT / "roles/packages/templates/unattended-upgrades.j2").read_text("utf-8"))
    pinned = ["cuda-toolkit-13-1", "libnvidia-compute-580", "libstdc++6"]
    text = template.render(packages_owner="cuda", __packages_pinned=pinned)
    (node.root / "etc/apt/apt.conf.d/52elastic-ai-cuda").write_text(text, encoding="utf-8")
    code, said = node.run(["apt-config", "dump", "--format", "%v%n", "Unattended-Upgrade::Package-Blacklist"])
    entries = [line for line in said.splitlines() if line]
    assert (code, len(entries)) == (0, len(pinned)), said
    others = ["cuda-toolkit-13-1-config-common", "libnvidia-compute-5800", "libstdc++6-dev", "cuda-toolkit-13_1"]
    assert [name for name in pinned + others if any(re.match(entry, name) for entry in entries)] == pinned


def test_an_exporter_that_wants_a_later_dcgm_does_not_move_the_held_one(tmp_path: Path, repository: Path) -> None:
    """The hold alone does not stop it: roles may change what another role of the toolkit holds."""
    package = {"os": ["ubuntu2404"], "name": "datacenter-gpu-manager-exporter", "version": "4.9.0-1"}
    package |= {"depends": "datacenter-gpu-manager-4-core (>= 1:4.7.0)"}
    later = {"repo": "later", "label": "later", "layout": "flat", "source": "made for this test", "packages": [package]}
    make_key(tmp_path / "key")
    make_repositories([FakeRepository.model_validate(later)], tmp_path / "out", tmp_path / "key/secret.asc")
    node = real_apt.Node(tmp_path / "node", repository / "ubuntu2404")
    node.transaction(gpu.dcgm_packages(role_vars("dcgm")["__dcgm_names"], "4.6.0", ["13"]))
    source = f"deb [trusted=yes] file:{tmp_path}/out/later/ubuntu2404 ./\n"
    (node.root / "etc/apt/sources.list.d/later.list").write_text(source)
    node.apt.must(["apt-get", "update"])
    wanted = {package["name"]: ""}
    assert node.would(wanted)["datacenter-gpu-manager-4-core"] == "1:4.7.0-1"
    install = (ROOT / "roles/monitoring/tasks/install.yml").read_text(encoding="utf-8")
    assert 'packages_forbid: "{{ __monitoring_forbidden }}"' in install
    with pytest.raises(Error, match=r"datacenter-gpu-manager-4-core .*which this role must not touch"):
        node.plan(wanted, tuple(role_vars("monitoring")["__monitoring_forbidden"]))
