"""The inventories of real machines: read by the toolkit, judged by preflight from recordings, refused when unfit."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.module_docs import document
from tests.support.warm import ansible, asking_ansible
from toolkit.fabric_choice import choose_fabric
from toolkit.inventory import read_inventory, read_site

pytestmark = pytest.mark.systems

REPO = Path(__file__).parents[2]
RECORDED = REPO / "tests/data/facts"
MAKER = runpy.run_path(str(RECORDED / "make.py"))
SITES: tuple[str, ...] = tuple(MAKER["SITES"])
KEPT: tuple[str, ...] = MAKER["KEPT"]  # their recordings stand in tests/data
MACHINES = ("PowerEdge ", "VMware")
Json = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def warm() -> Iterator[None]:
    """`ansible-inventory` without the import of Ansible."""
    with asking_ansible():
        yield


def playbook(*arguments: str) -> subprocess.CompletedProcess[str]:
    # A connection would be tried through ssh; a program that is not there makes any try fail at once.
    return ansible("ansible-playbook", *arguments, ANSIBLE_SSH_EXECUTABLE="/nonexistent", ANSIBLE_NOCOLOR="1")


def preflight(site: str, recorded: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return playbook(
        "playbooks/preflight.yml", "-i", f"inventories/{site}", "-e", f"preflight_recorded={recorded}", *more
    )


def said(ran: subprocess.CompletedProcess[str]) -> str:
    """Output without line breaks, for messages are folded."""
    return " ".join((ran.stdout + ran.stderr).split())


def test_every_inventory_is_tried() -> None:
    there = {path.parent.name for path in (REPO / "inventories").glob("*/hosts.yml")} - {"lab"}
    assert there == set(SITES)


@pytest.mark.parametrize("site", KEPT)
def test_the_whole_site_can_be_read_by_ansible(site: str) -> None:
    ran = playbook("site.yml", "-i", f"inventories/{site}", "--syntax-check")
    assert ran.returncode == 0, said(ran)[-1500:]


@pytest.mark.parametrize("site", SITES)
def test_the_toolkit_reads_the_inventory(site: str) -> None:
    read = read_site(REPO / "inventories" / site)
    assert not read.topology.virtual
    for node in read.topology.nodes:
        assert node.bom.model
        assert node.bom.model.startswith(MACHINES)
        assert node.bom.gpu_count is not None
        assert node.slots == max(node.bom.gpu_count, 1)
        assert len(node.ports) == node.bom.fabric_port_count
        line_rate = choose_fabric(None, REPO / "inventories" / site, read.fabric).fabric.line_rate_gbps
        assert {port.rate_gbps for port in node.ports} <= {line_rate}
        assert node.stack["os"].replace(" ", "").replace(".", "") == MAKER["SITES"][site][0]


def test_the_toolkit_takes_every_key_of_a_port_that_the_role_takes(tmp_path: Path) -> None:
    """An inventory that provisions must not be refused by the validation."""
    spec = yaml.safe_load((REPO / "roles/fabric/meta/argument_specs.yml").read_text(encoding="utf-8"))
    options = spec["argument_specs"]["main"]["options"]["fabric_ports"]["options"]
    samples = {"interface": "ib0", "address": "192.0.2.1/24", "rate_gbps": 100, "mtu": 4092, "pkey": "0x8001"}
    samples |= {"rdma": True, "routes": ["10.80.0.0/16"], "table": 101, "vlan": 80, "bond_members": ["a", "b"]}
    port = {n: o["choices"][-1] if "choices" in o else samples.get(n, "ib0") for n, o in options.items()}
    hosts = {"gpu1": {"ansible_host": "192.0.2.31", "fabric_ports": [port]}}
    inventory = {"all": {"children": {"gpu_servers": {"hosts": hosts}}}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
    assert read_inventory(tmp_path).nodes[0].ports[0].interface == "ib0"


@pytest.mark.parametrize("site", SITES)
def test_the_inventory_names_a_release_and_a_fabric_that_exist(site: str) -> None:
    folder = REPO / "inventories" / site / "group_vars"
    files = [*folder.glob("all/*"), *folder.glob("all.yml")]
    shared = [yaml.safe_load(p.read_text(encoding="utf-8")) or {} for p in files]
    values = {key: value for part in shared for key, value in part.items()}
    assert (REPO / f"stacks/{values['stack_release']}.yml").is_file()
    read = read_site(REPO / "inventories" / site)  # what contradicts the fabric is refused
    assert {n.stack["stack_release"] for n in read.topology.nodes} == {values["stack_release"]}
    loaded = choose_fabric(None, REPO / "inventories" / site, read.fabric)
    assert loaded.fabric.name == values["fabric"] == read.record.hosts[0].variables["fabric"]
    assert {port.mtu for port in read.fabric.mtus} == {loaded.fabric.mtu}


def recordings(site: str, folder: Path) -> Path:
    """The folder with the recordings of a site's nodes, which are made in `folder` where they are not kept."""
    if site in KEPT:
        return RECORDED / site
    for path, data in MAKER["of_site"](site).items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(json.dumps(data), encoding="utf-8")
    return folder / site


@pytest.mark.parametrize("site", SITES)
def test_every_node_fits_by_its_recording(site: str, tmp_path: Path) -> None:
    ran = preflight(site, recordings(site, tmp_path))
    assert ran.returncode == 0, said(ran)[-1500:]
    nodes = {node.name for node in read_inventory(REPO / "inventories" / site).nodes}
    recap = {line.split()[0]: line for line in ran.stdout.partition("PLAY RECAP")[2].splitlines() if " ok=" in line}
    assert set(recap) == nodes
    assert all("failed=0" in line and "unreachable=0" in line for line in recap.values())


def other_kernel(modules: Json) -> None:
    modules["node_state"]["kernel"] = "6.14.0-36-generic"
    modules["node_state"]["kernels"] = ["6.14.0-36-generic"]


def newer_kernel(modules: Json) -> None:
    modules["node_state"]["kernels"].insert(0, "6.8.0-999-generic")


def secure_boot(modules: Json) -> None:
    modules["node_preflight"]["secure_boot"] = "enabled"


def volta(modules: Json) -> None:
    """V100 in place of the H100: the release of today does not know them."""
    gpus = [device for device in modules["node_state"]["pci"] if device["device"] == "0x2330"]
    assert gpus
    for gpu in gpus:
        gpu["device"] = "0x1db1"


def connectx4(modules: Json) -> None:
    for device in modules["node_state"]["pci"]:
        if device["vendor"] == "0x15b3":
            device["device"] = "0x1013"


def no_headers(modules: Json) -> None:
    modules["node_preflight"]["headers"] = "missing"


def other_system(modules: Json) -> None:
    modules["node_preflight"]["os"] = {"id": "ubuntu", "version": "16.04", "rhel_like": False}


def fabric_port_gone(modules: Json) -> None:
    del modules["node_preflight"]["links"]["ens33np0"]


CURRENT = yaml.safe_load((REPO / "stacks/current.yml").read_text())["stack_data"]["sets"]["ubuntu2404"]
# What is wrong with which node, and what its refusal has to say; gpu4 has four faults, told at once.
UNFIT: dict[str, tuple[tuple[Callable[[Json], None], ...], tuple[str, ...]]] = {
    "gpu1": ((other_kernel,), ("kernel 6.14.0-36-generic runs", "series 6.8")),
    "gpu2": ((newer_kernel,), ("6.8.0-999-generic is the newest installed", "boots it first")),
    "gpu3": ((secure_boot,), ("Secure Boot is on", "mokutil --import")),
    "gpu4": (
        (volta, connectx4, no_headers, fabric_port_gone),
        (
            f"CUDA {CURRENT['cuda']['toolkit']} has no code for",
            "reference-2019",
            "DOCA 3.2.3 has no driver for ConnectX-4",
            "headers are neither here nor in the package lists",
            "fabric port ens33np0 does not exist",
        ),
    ),
    "client1": ((other_system,), ("operating system is ubuntu 16.04",)),
}


def changed_copy(folder: Path, changes: dict[str, tuple[Callable[[Json], None], ...]]) -> Path:
    shutil.copytree(RECORDED / "xe9680", folder)
    for node, faults in changes.items():
        path = folder / f"{node}.json"
        document = json.loads(path.read_text(encoding="utf-8"))
        for change in faults:
            change(document["modules"])
        path.write_text(json.dumps(document), encoding="utf-8")
    return folder


def test_what_is_unfit_is_refused_node_by_node_with_every_reason(tmp_path: Path) -> None:
    folder = changed_copy(tmp_path / "one", {node: faults for node, (faults, _) in UNFIT.items()})
    ran = preflight("xe9680", folder)
    assert ran.returncode != 0
    refusals = re.findall(r"\[ERROR\]: .*?(\w+) cannot be provisioned: (.*?) Origin: ", said(ran))
    assert {node for node, _ in refusals} == set(UNFIT), "those and no others"
    for node, refusal in refusals:
        for word in UNFIT[node][1]:
            assert word in refusal, f"{node}: {refusal}"


def hgx(ident: str, managed: bool) -> Callable[[Json], None]:
    """HGX B200 or B300 in place of H100: no NVSwitch on the bus, and the functions through which they are managed."""

    def change(modules: Json) -> None:
        pci = [device for device in modules["node_state"]["pci"] if not device["class"].startswith("0x0680")]
        for device in pci:
            if device["device"] == "0x2330":
                device["device"] = ident
        like = next(device for device in pci if device["device"] == "0x1021")
        four = ("0000:05:00.0", "0000:05:00.1", "0000:06:00.0", "0000:06:00.1")
        pci += [{**like, "address": one, "class": "0x020700", "manages_switches": managed} for one in four]
        modules["node_state"]["pci"] = pci

    return change


@pytest.mark.parametrize("ident", ["0x2901", "0x3182"])
def test_boards_with_nvlink_5_are_served_with_the_set_as_it_is(tmp_path: Path, ident: str) -> None:
    ran = preflight("xe9680", changed_copy(tmp_path / "hgx", {"gpu1": (hgx(ident, True),)}), "--limit", "gpu1")
    assert ran.returncode == 0, said(ran)[-1500:]


@pytest.mark.parametrize(
    ("managed", "more", "words"),
    [
        (False, "{}", "B200 has NVLink 5, and none of the ConnectX-7 functions through which its NVSwitches are"),
        (
            True,
            '{"nvidia_driver_provider": "canonical"}',
            "need NVLSM beside Fabric Manager, which NVIDIA's repository",
        ),
        (True, '{"nvidia_driver_nvlsm_version": "2025.06.11"}', "NVLSM 2025.06.11 is older than 2025.10.12, which"),
    ],
)
def test_boards_with_nvlink_5_that_would_not_come_up_are_refused_before_anything_is_changed(
    tmp_path: Path, managed: bool, more: str, words: str
) -> None:
    folder = changed_copy(tmp_path / "hgx", {"gpu1": (hgx("0x2901", managed),)})
    ran = preflight("xe9680", folder, "--limit", "gpu1", "-e", more)
    assert ran.returncode != 0
    assert words in said(ran)


def grace(modules: Json) -> None:
    """GB200: the processor of every one is ARM's."""
    modules["node_preflight"]["architecture"] = "aarch64"
    for device in modules["node_state"]["pci"]:
        if device["device"] == "0x2330":
            device["device"] = "0x2941"


def instinct(modules: Json) -> None:
    """MI300X in place of the H100, and no NVSwitch."""
    pci = [device for device in modules["node_state"]["pci"] if not device["class"].startswith("0x0680")]
    for device in pci:
        if device["device"] == "0x2330":
            device |= {"vendor": "0x1002", "device": "0x74a1", "class": "0x120000"}
    modules["node_state"]["pci"] = pci


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (grace, "architecture is aarch64; supported: x86_64 (ARM servers (GH200, GB200 and GB300 with Grace among "
                "them) need packages, engines, images and IMEX domains that this release does not have): leave the "
                "node out of the inventory"),
        (instinct, "it is a GPU server with no NVIDIA GPU on its PCI bus, and its accelerators (AMD 1002:74a1 (8)) are "
                   "not NVIDIA's, which alone are served: take it out of the group gpu_servers"),
    ],
)  # fmt: skip
def test_arm_and_amd_are_refused_at_minute_0_in_one_sentence(
    tmp_path: Path, change: Callable[[Json], None], words: str
) -> None:
    ran = preflight("xe9680", changed_copy(tmp_path / "one", {"gpu1": (change,)}), "--limit", "gpu1")
    assert ran.returncode != 0
    (refusal,) = re.findall(r"\[ERROR\]: .*?gpu1 cannot be provisioned: (.*?) Origin: ", said(ran))
    assert refusal == words


def test_a_mix_of_driver_and_fabric_manager_is_refused() -> None:
    mix = '{"stack_overrides": {"fabric_manager": {"version": "580.105.08"}}}'
    ran = preflight("xe9680", RECORDED / "xe9680", "-e", mix, "--limit", "gpu1")
    assert ran.returncode != 0
    driver = CURRENT["nvidia_driver"]["version"]
    assert f"Fabric Manager must be of the driver's version {driver}" in said(ran)


@pytest.mark.skipif(shutil.which("gpg") is None, reason="gpg makes the key")
def test_a_repository_key_with_sha1_alone_is_refused_on_debian_13_and_not_before(tmp_path: Path) -> None:
    home = tmp_path / "gnupg"
    home.mkdir(mode=0o700)
    gpg = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--pinentry-mode=loopback", "--passphrase", ""]
    make = [*gpg, "--cert-digest-algo", "SHA1", "--quick-gen-key", "old <old@example.net>", "rsa2048", "sign", "never"]
    subprocess.run(make, check=True, capture_output=True)
    subprocess.run([*gpg, "--armor", "--output", str(tmp_path / "old.asc"), "--export"], check=True)
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False)
    subprocess.run(["gpgconf", "--homedir", str(home), "--remove-socketdir"], check=False, capture_output=True)

    def debian13(modules: Json) -> None:
        other = json.loads((RECORDED / "os/debian13.json").read_text(encoding="utf-8"))["modules"]
        modules["node_state"].update({key: other["node_state"][key] for key in ("kernel", "kernels")})
        modules["node_preflight"].update({key: other["node_preflight"][key] for key in ("os", "python", "sqv")})

    keys = ("-e", json.dumps({"preflight_repository_keys": {"cuda": str(tmp_path / "old.asc")}}), "--limit", "gpu2")
    ran = preflight("xe9680", changed_copy(tmp_path / "one", {"gpu2": (debian13,)}), *keys)
    assert ran.returncode != 0
    assert "of repository cuda has only SHA-1 self-signatures" in said(ran)
    ran = preflight("xe9680", RECORDED / "xe9680", *keys)
    assert ran.returncode == 0, said(ran)[-1500:]


def test_the_recordings_are_what_their_maker_writes() -> None:
    command = [sys.executable, str(RECORDED / "make.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_node_of_an_inventory_has_a_recording_with_its_own_addresses(tmp_path: Path) -> None:
    for site in SITES:
        folder = recordings(site, tmp_path)
        for node in read_inventory(REPO / "inventories" / site).nodes:
            document = json.loads((folder / f"{node.name}.json").read_text(encoding="utf-8"))
            links = document["modules"]["node_preflight"]["links"]
            assert [node.ssh.host] in links.values(), f"{site}/{node.name}"
            assert {port.interface for port in node.ports} <= set(links)
            assert document["about"].startswith("Constructed"), "a constructed recording has to say so"


def test_the_recordings_hold_what_the_modules_return() -> None:
    """Against the modules' own documentation, so that a new key is missed here and not on a customer's site."""
    for path in sorted(RECORDED.glob("*/*.json")):
        modules = json.loads(path.read_text(encoding="utf-8"))["modules"]
        for module in ("node_state", "node_preflight"):
            assert set(document(module, "RETURN")) == set(modules[module]), f"{path.name}: {module}"
