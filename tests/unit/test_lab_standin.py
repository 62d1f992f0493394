"""Systems that lab nodes stand in for: what Ansible takes them for, what names them, and that everybody is told."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.facts.system.distribution import Distribution, DistributionFiles

from tests.support.node_modules import ROOT, load
from toolkit.errors import LabError
from toolkit.lab import host, inventory, standin
from toolkit.lab.debrepo import Served
from toolkit.lab.fake_packages import load_fake_packages
from toolkit.lab.sources import RELEASES, os_key, os_release, over_of
from toolkit.lab.spec import make_spec
from validation.model import Node, SshTarget

SYSTEMS = sorted(key for key, release in RELEASES.items() if release.over)
UBUNTU = [key for key in SYSTEMS if key.startswith("ubuntu")]
EL = [key for key in SYSTEMS if key.startswith("el")]
SERVED = Served(Path("/v"), ("cuda",), Path("/v/key.asc"), "AB12")
os_key_of_facts = load("plugins/plugin_utils/os.py").os_key
systems = load("plugins/plugin_utils/systems.py")


@pytest.mark.parametrize("key", SYSTEMS)
def test_nodes_are_taken_for_the_system_and_say_that_they_stand_in_for_it(key: str, tmp_path: Path) -> None:
    system, release = standin.load_system(key), RELEASES[key]
    standin.write(tmp_path, {"/etc/os-release": system.files["/usr/lib/os-release"]})
    shown = os_release(tmp_path)
    shown.setdefault("VERSION_CODENAME", "")
    assert (shown["ID"], shown["VERSION_ID"], shown["VERSION_CODENAME"]) == (
        release.id,
        release.version,
        release.codename,
    )
    assert shown["VARIANT_ID"] == "elastic-ai-stand-in"
    assert "stand-in" in system.files["/etc/issue"]
    if key not in UBUNTU:
        text = system.files["/etc/redhat-release"]
        _, facts = DistributionFiles(None)._parse_dist_file("RedHat", text, "/etc/redhat-release", {})
        facts |= {"os_family": Distribution.OS_FAMILY[str(facts["distribution"])]}
        assert os_key_of_facts({"distribution_version": shown["VERSION_ID"], **facts}) == key
        return
    # Ansible goes by single words of the file: "Debian" anywhere would make it Debian.
    _, facts = DistributionFiles(None).parse_distribution_file_Debian(
        "Debian", system.files["/usr/lib/os-release"], "/etc/os-release", {}
    )
    assert os_key_of_facts({"distribution_version": shown["VERSION_ID"], **facts}) == key


@pytest.mark.parametrize("key", UBUNTU)
def test_the_installer_claims_the_fabric_port_by_name_and_by_wildcard(key: str) -> None:
    spec = make_spec("x", 3, 4, 1, RELEASES[key].title, over=over_of(RELEASES[key]))
    claims = []
    for node in spec.nodes:
        texts = standin.node_texts(key, spec, node)
        ports = yaml.safe_load(texts["/etc/netplan/50-cloud-init.yaml"])["network"]["ethernets"]
        assert ports["mgmt0"]["addresses"] == [f"{spec.management_address(node)}/24"]
        assert ports["en"]["match"] == {"name": "en*"}
        mine = {name: port for name, port in ports.items() if name not in ("mgmt0", "en")}
        assert all(port["dhcp4"] for port in mine.values())
        claims += [port.get("match", {"name": name})["name"] for name, port in mine.items()]
    assert sorted(claims) == ["fab*", "fab*", "fab0", "fab0"]


@pytest.mark.parametrize("key", EL)
def test_networkmanager_of_el_owns_the_ports_by_a_connection_or_by_none(key: str) -> None:
    spec = make_spec("x", 3, 4, 1, RELEASES[key].title, over=over_of(RELEASES[key]))
    folder = "/etc/NetworkManager/system-connections"
    claims = []
    for node in spec.nodes:
        texts = standin.node_texts(key, spec, node)
        mgmt = ConfigParser()
        mgmt.read_string(texts[f"{folder}/mgmt0.nmconnection"])
        assert mgmt["ipv4"]["addresses"] == f"{spec.management_address(node)}/24"
        assert "proxy=http://10.77.3.1:3142\n" in texts["/etc/dnf/dnf.conf"]
        claim = ConfigParser()
        claim.read_string(texts.get(f"{folder}/fab0.nmconnection", ""))
        assert not claim.sections() or claim["ipv4"]["method"] == "auto"
        claims.append(len(claim.sections()) > 0)
    assert sorted(claims) == [False, False, True, True]


@pytest.mark.parametrize("key", EL)
def test_what_makes_a_node_one_of_debian_is_not_on_one_of_el(key: str) -> None:
    """Roles and facts go by these programs and files; the image needs them until it is made."""
    system = standin.load_system(key)
    assert {"/etc/debian_version", "/usr/bin/apt-get", "/usr/bin/dpkg-query"} <= set(system.hidden)
    assert standin.has_rpms(key)
    assert not any(map(standin.has_rpms, UBUNTU))


def test_a_python_of_els_version_is_the_newest_of_pyenvs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert standin.pyenv_tree("3.9") is None
    for version in ("3.9.9", "3.9.18", "3.10.1", "3.9.20"):
        (tmp_path / f"versions/{version}/bin").mkdir(parents=True)
    for version in ("3.9.9", "3.9.18"):
        (tmp_path / f"versions/{version}/bin/python3.9").touch()
    assert standin.pyenv_tree("3.9") == tmp_path / "versions/3.9.18"


def test_a_lab_of_el_needs_what_makes_its_packages() -> None:
    with pytest.raises(LabError, match="missing packages: createrepo-c rpm;"):
        host.check_ready(
            which=lambda tool: None if tool.startswith(("rpm", "createrepo", "modify")) else tool, rpms=True
        )
    assert set(host.packages(rpms=True)) - set(host.packages()) == {"createrepo-c", "rpm"}


@pytest.mark.parametrize("key", UBUNTU)
def test_what_has_another_name_on_the_system_is_in_its_stand_in_repository(key: str) -> None:
    """Of Slurm's packages: their names are the only ones by which the systems of apt differ."""
    data = yaml.safe_load((ROOT / "roles/slurm/vars/main.yml").read_text(encoding="utf-8"))
    base = os_key(RELEASES[key].base.title)
    renamed = ["__slurm_t64" in data["__slurm_systems"][one] for one in (base, key)]
    variables = ["__slurm_t64" if one else "__slurm_debian" for one in renamed]
    lists = [{name for names in data[variable]["packages"].values() for name in names} for variable in variables]
    there = [one for one in load_fake_packages() if one.repo == standin.load_system(key).repository]
    assert [one.of_system for one in there] == [True]
    assert lists[1] - lists[0] <= {package.name for package in there[0].of(key)}


@pytest.mark.parametrize("key", SYSTEMS)
def test_everybody_is_told_that_it_is_a_stand_in(key: str) -> None:
    over = RELEASES[key].base.title
    spec = make_spec("x", 3, 2, 1, RELEASES[key].title, over=over_of(RELEASES[key]))
    assert spec.os_words == f"{RELEASES[key].title} (stand-in over {over})"
    shared = inventory.inventory_document(spec, Path("/k"), Path("/h"), SERVED, Path("/keys"))["all"]["vars"]
    assert shared["elastic_ai_os_stand_in"] == over
    assert shared["stack_release"] == ("rehearsal" if key in UBUNTU else "current")
    interpreter = "/usr/bin/python3" if key in UBUNTU else "/usr/libexec/platform-python"
    assert shared["ansible_python_interpreter"] == interpreter
    target = SshTarget(host="h", port=22, user="root", key_file=None, extra_args=())
    node = Node(name="n", groups=(), ssh=target, ports=(), virtual="systemd-nspawn", os_stand_in=over)
    assert node.virtual_words == f"systemd-nspawn, operating system is a stand-in over {over}"
    with pytest.raises(ValueError, match="but is not virtual"):
        Node(name="n", groups=(), ssh=target, ports=(), os_stand_in="debian 12")


@pytest.mark.parametrize("key", SYSTEMS)
def test_what_a_site_has_to_state_the_inventory_states_and_labels(key: str) -> None:
    spec = make_spec("x", 3, 2, 1, RELEASES[key].title, over=over_of(RELEASES[key]))
    shared = inventory.inventory_document(spec, Path("/k"), Path("/h"), SERVED, Path("/keys"))["all"]["vars"]
    assert systems.system_unstated(key, shared, [], True) == []
    asked = [reason.split()[0] for reason in systems.system_unstated(key, {}, [], True)]
    assert list(standin.load_system(key).stated) == asked
    assert all(isinstance(shared[name], str) for name in asked), "a version as a number loses zeros"
    if asked:
        assert inventory.labels(spec).startswith(f"# {', '.join(asked)}: values of this stand-in")
    else:
        assert inventory.labels(spec) == ""


def test_of_debian_nobody_is_told_so() -> None:
    spec = make_spec("x", 3, 2, 1)
    shared = inventory.inventory_document(spec, Path("/k"), Path("/h"), SERVED, Path("/keys"))["all"]["vars"]
    assert spec.os_words == "debian 12"
    assert not {"elastic_ai_os_stand_in", "horovod_state"} & shared.keys()
    assert inventory.labels(spec) == ""


def test_virtual_machines_cannot_stand_in_for_another_system() -> None:
    with pytest.raises(LabError, match="stand-in over debian 12, which containers alone can be; leave --os out"):
        make_spec("x", 0, 4, 1, "ubuntu 24.04", vms=True, over="debian 12")


def test_a_package_on_hold_that_is_not_in_the_image_is_refused(tmp_path: Path) -> None:
    data = standin.load_system("ubuntu2404").model_dump()
    with pytest.raises(ValueError, match="on hold, but not in the image: linux-generic"):
        standin.System.model_validate({**data, "held": ["linux-generic"]})


def test_a_package_that_the_repository_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"linux-generic-hwe-24\.04 is not in vendor/ubuntu\.yml"):
        standin.guise("ubuntu2404", Served(tmp_path, (), tmp_path / "key", ""))
    with pytest.raises(LabError, match=r"bash is not in vendor/el9/baseos\.yml"):
        standin.guise("el9", Served(tmp_path, (), tmp_path / "key", ""))


def test_every_system_that_roles_know_and_no_release_of_debian_is_stood_in_for() -> None:
    known = yaml.safe_load((ROOT / "roles/dcgm/vars/main.yml").read_text(encoding="utf-8"))["__dcgm_systems"]
    assert sorted(key for key in known if not key.startswith("debian")) == SYSTEMS


def test_keys_of_systems_are_those_of_the_tables() -> None:
    assert [os_key(RELEASES[key].title) for key in SYSTEMS] == SYSTEMS
