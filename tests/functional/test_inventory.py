"""Inventories through the real ansible-inventory: what becomes a topology, and what is refused with file and line."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import scan_answers
from tests.support.warm import asking_ansible
from toolkit.inventory import InventoryError, read_inventory
from toolkit.lab_inventory import ROOT, ansible_environment
from toolkit.scan import written
from toolkit.scan.answer import Answer, parse
from toolkit.scan.contact import Login
from toolkit.scan.propose import propose
from toolkit.scan.reading import Read
from toolkit.scan.served import Served
from toolkit.scan.wanted import Wanted
from validation.model import LabLink

pytestmark = pytest.mark.systems

GOOD = """\
all:
  vars:
    ansible_user: root
    ansible_ssh_common_args: -o UserKnownHostsFile={{ inventory_dir }}/known -o StrictHostKeyChecking=yes
    ansible_ssh_private_key_file: "{{ inventory_dir }}/key"
    stack: {os: debian 12}
  children:
    heads:
      hosts:
        head1:
          ansible_host: 10.0.0.1
    gpu_servers:
      hosts:
        gpu1:
          ansible_host: 10.0.0.2
          ansible_port: 2222
          fabric_ports:
            - {interface: fab0, address: 10.1.0.2/24, rate_gbps: 1}
          training_slots: 2
          bom: {model: R740, gpu_count: 4}
        gpu2:
          ansible_host: 10.0.0.3
          fabric_ports:
            - interface: fab0
              address: 10.1.0.3/24
          bom: {gpu_count: 4}
    elsewhere:
      hosts:
        printer: {ansible_host: 10.0.0.9}
"""


@pytest.fixture(scope="module", autouse=True)
def warm() -> Iterator[None]:
    """`ansible-inventory` without the import of Ansible."""
    with asking_ansible():
        yield


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site1"
    folder.mkdir()
    (folder / "key").touch()
    (folder / "hosts.yml").write_text(GOOD)
    return folder


def changed(site: Path, old: str, new: str) -> int:
    """Replace in hosts.yml; the line on which the change stands."""
    assert old in GOOD
    (site / "hosts.yml").write_text(GOOD.replace(old, new, 1))
    return GOOD[: GOOD.index(old)].count("\n") + 1


def fault(site: Path) -> str:
    with pytest.raises(InventoryError) as caught:
        read_inventory(site)
    words = str(caught.value)
    assert "\n" not in words
    return words


def test_an_inventory_becomes_a_topology(site: Path) -> None:
    topology = read_inventory(site)
    assert topology.site == "site1"
    assert [n.name for n in topology.nodes] == ["head1", "gpu1", "gpu2"], "printer is in none of our groups"
    gpu1 = topology.node("gpu1")
    assert (gpu1.ssh.host, gpu1.ssh.port, gpu1.ssh.user) == ("10.0.0.2", 2222, "root")
    assert gpu1.ssh.key_file == str(site / "key")
    assert gpu1.ssh.extra_args == ("-o", f"UserKnownHostsFile={site}/known", "-o", "StrictHostKeyChecking=yes")
    assert [(p.interface, p.address, p.prefix, p.rate_gbps) for p in gpu1.ports] == [("fab0", "10.1.0.2", 24, 1.0)]
    assert (gpu1.slots, topology.node("gpu2").slots, topology.node("head1").slots) == (2, 4, 1)
    assert gpu1.stack == {"os": "debian 12"}
    assert gpu1.bom.model == "R740"
    assert not topology.virtual


def test_sockets_of_the_bill_of_materials_are_the_platforms(site: Path) -> None:
    """Bounds of memory bandwidth follow from them, so that they are declared once."""
    changed(
        site, "bom: {gpu_count: 4}", "bom: {cpu_sockets: 2, memory_gib: 384}\n          platform: {memory_mts: 2666}"
    )
    gpu2 = read_inventory(site).node("gpu2")
    assert (gpu2.platform.sockets, gpu2.platform.memory_mts, gpu2.bom.memory_gib) == (2, 2666, 384)


def test_lab_variables_make_a_rehearsal(site: Path) -> None:
    link = "lab_link: {rate_gbps: 0.1, rtt_max_us: 1000}\n    elastic_ai_virtual: systemd-nspawn"
    changed(site, "stack: {os: debian 12}", link)
    topology = read_inventory(site / "hosts.yml")
    assert topology.lab_link == LabLink(rate_gbps=0.1, rtt_max_us=1000)
    assert topology.virtual
    assert topology.site == "site1"


@pytest.mark.parametrize("emulated", [True, False])
def test_a_lab_of_virtual_machines(site: Path, emulated: bool) -> None:
    link = "lab_link: {rate_gbps: 1, rtt_max_us: 1000, emulated: true}\n    elastic_ai_virtual: qemu\n"
    link += f"    elastic_ai_emulated: {str(emulated).lower()}"
    changed(site, "stack: {os: debian 12}", link)
    topology = read_inventory(site / "hosts.yml")
    assert topology.lab_link == LabLink(rate_gbps=1, rtt_max_us=1000, emulated=True)
    assert {(node.virtual, node.emulated) for node in topology.nodes} == {("qemu", emulated)}


def test_gpus_that_a_node_is_to_have(site: Path) -> None:
    assert {node.name: (node.gpus, node.mig) for node in read_inventory(site).nodes}["gpu2"] == (4, False)
    changed(site, "bom: {gpu_count: 4}", "bom: {gpu_count: 2}\n          gpu_mig: true")
    assert (read_inventory(site).node("gpu2").gpus, read_inventory(site).node("gpu2").mig) == (2, True)
    virtual = "elastic_ai_virtual: systemd-nspawn\n    elastic_ai_emulated_gpus: 3"
    changed(site, "stack: {os: debian 12}", virtual)
    assert (read_inventory(site).node("gpu2").gpus, read_inventory(site).node("gpu2").emulated_gpus) == (7, 3)


def test_a_node_that_is_left_out_of_the_training(site: Path) -> None:
    assert {node.trains for node in read_inventory(site).nodes} == {True}
    changed(site, "bom: {gpu_count: 4}", "bom: {gpu_count: 4}\n          horovod_state: absent")
    assert [node.name for node in read_inventory(site).nodes if not node.trains] == ["gpu2"]


def test_the_host_of_a_virtual_machine(site: Path) -> None:
    assert {node.hypervisor_host for node in read_inventory(site / "hosts.yml").nodes} == {None}
    changed(site, "stack: {os: debian 12}", "elastic_ai_hypervisor_host: esx1")
    assert {node.hypervisor_host for node in read_inventory(site / "hosts.yml").nodes} == {"esx1"}


def test_a_port_that_carries_tcp_only(site: Path) -> None:
    assert [port.rdma for port in read_inventory(site / "hosts.yml").node("gpu1").ports] == [True]
    changed(site, "10.1.0.2/24, rate_gbps: 1", "10.1.0.2/24, rate_gbps: 1, rdma: false")
    assert [port.rdma for port in read_inventory(site / "hosts.yml").node("gpu1").ports] == [False]
    changed(site, "10.1.0.2/24, rate_gbps: 1", "10.1.0.2/24, rate_gbps: 1, leaf: su1-leaf0")
    assert [port.leaf for port in read_inventory(site / "hosts.yml").node("gpu1").ports] == ["su1-leaf0"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("address: 10.1.0.3/24", "address: 10.1.0.3/24\n              rdma: sometimes", "gpu2: fabric_ports.0.rdma: "),
        (
            "ansible_host: 10.0.0.3",
            "ansible_host: 10.0.0.1",
            "ansible_host: 10.0.0.1 port 22 is also used by head1",
        ),
        ("10.1.0.3/24", "10.1.0.2/24", "gpu2: fabric_ports.0.address: 10.1.0.2 is also used by gpu1/fab0"),
        ("ansible_host: 10.0.0.3", "ansible_host: 10.0.0.3\n          elastic_ai_emulated: true", "elastic_ai_virtual"),
        (
            "ansible_host: 10.0.0.3",
            "ansible_host: 10.0.0.3\n          elastic_ai_emulated_gpus: 4",
            "elastic_ai_virtual",
        ),
        ("address: 10.1.0.3/24", "address: 10.1.0.3", "has no prefix length; write it like 10.0.0.1/24"),
        ("address: 10.1.0.3/24", "address: 10.1.0.300/24", "does not appear to be an IPv4 or IPv6"),
        ("address: 10.1.0.3/24", "adress: 10.1.0.3/24", "gpu2: fabric_ports.0.adress: unknown key"),
        ("training_slots: 2", "training_slots: two", "gpu1: training_slots: input should be a valid integer"),
        ("ansible_port: 2222", "ansible_port: 222222", "gpu1: ansible_port: "),
        ("stack: {os: debian 12}", "stack: {os: 12}", "stack.os: input should be a valid string"),
        ("bom: {gpu_count: 4}", "bom: {gpu_number: 4}", "gpu2: bom.gpu_number: unknown key"),
        ("bom: {gpu_count: 4}", "bom: {cpu_cores: 0}", "gpu2: bom.cpu_cores: "),
        (
            "bom: {gpu_count: 4}",
            "bom: {cpu_sockets: 2}\n          platform: {sockets: 2}",
            "gpu2: platform.sockets: is in bom.cpu_sockets too",
        ),
        (
            "ansible_host: 10.0.0.3",
            'ansible_host: "{{ lookup(1) }}"',
            "gpu2: ansible_host: Ansible cannot resolve it: ",
        ),
        ("ansible_host: 10.0.0.3", "ansible_connection: docker", "gpu2: ansible_connection: "),
        ("training_slots: 2", "training_slots: 2: 3", "not valid YAML"),
    ],
)
def test_a_fault_names_file_and_line(site: Path, old: str, new: str, words: str) -> None:
    line = changed(site, old, new)
    found = fault(site)
    assert words in found
    file, at, _ = found.split(":", 2)
    assert file == str(site / "hosts.yml")
    # a wrong key of a list's item is told at the item's first line
    assert abs(int(at) - line) <= 1


def test_a_fault_in_group_vars_is_found_there(site: Path) -> None:
    (site / "group_vars").mkdir()
    (site / "group_vars" / "gpu_servers.yml").write_text("---\n# ours\ntraining_slots: many\n")
    changed(site, "          training_slots: 2\n", "")
    assert fault(site).startswith(f"{site}/group_vars/gpu_servers.yml:3: gpu1: training_slots: ")


@pytest.mark.parametrize(
    ("read", "unread", "cure"),
    [
        ("group_vars/all/vault.yml", "group_vars/all.yml", "move it to {site}/group_vars/all/main.yml"),
        ("group_vars/gpu_servers/machine.yml", "group_vars/gpu_servers.json", "group_vars/gpu_servers/main.json"),
        ("host_vars/gpu1/own.yml", "host_vars/gpu1.yaml", "host_vars/gpu1/main.yaml"),
        ("host_vars/gpu.1.yml", "host_vars/gpu.1.yaml", "make one file of them"),
        ("group_vars/all", "group_vars/all.yml", "make one file of them"),
    ],
)
def test_variables_that_ansible_does_not_read_are_refused(site: Path, read: str, unread: str, cure: str) -> None:
    """Of a folder and a file of one name Ansible takes the folder alone: profile, fabric and login were gone."""
    for name in (read, unread):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text("planted: true\n" if not name.endswith("json") else '{"planted": true}')
    said = fault(site)
    first = f"{site / read}" if read.count("/") == 1 else f"{(site / read).parent}/"
    assert said.startswith(f"{site / unread}: Ansible does not read it, since {first} is there too; ")
    assert cure.format(site=site) in said
    (site / unread).unlink()
    read_inventory(site)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("gpu_server.yml", "gpu_servers"), ("gpu-servers/machine.yml", "gpu_servers"), ("clent.yml", "clients"),
     ("of_another_site.yml", None)],
)  # fmt: skip
def test_variables_of_a_group_that_is_spelt_otherwise_are_refused(site: Path, name: str, meant: str | None) -> None:
    (site / "group_vars" / name).parent.mkdir(parents=True)
    (site / "group_vars" / name).write_text("planted: true\n")
    if meant is None:
        read_inventory(site)
    else:
        assert fault(site).endswith(f"; did you mean {meant}?")


def test_no_gpu_servers_is_refused(site: Path) -> None:
    (site / "hosts.yml").write_text("all:\n  children:\n    heads:\n      hosts:\n        head1: {}\n")
    assert fault(site) == f"{site}/hosts.yml:1: no host in group gpu_servers; add the machines to be accepted"


def test_a_missing_inventory_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lab = Path(__file__).parents[2] / "inventories/lab"
    assert fault(Path("inventories/lab")) == f"inventories/lab: no such file; the lab's inventory is {lab}"
    Path("inventories/lab").mkdir(parents=True)
    assert fault(Path("inventories/lab")) == f"inventories/lab/hosts.yml: no such file; the lab's inventory is {lab}"
    Path("inventories/site2").mkdir()
    Path("inventories/site2/hosts.yml").write_text(textwrap.dedent("all: {}\n"))
    assert "did you mean inventories/site2?" in fault(Path("inventories/site3"))


def test_validation_expects_the_release_that_was_provisioned_by(site: Path) -> None:
    changed(site, "stack: {os: debian 12}", "stack: {os: debian 12}\n    stack_release: current")
    assert read_inventory(site).nodes[0].stack == {"os": "debian 12", "stack_release": "current"}
    changed(
        site,
        "stack: {os: debian 12}",
        "stack_release: current\n    stack: {os: debian 12, stack_release: reference-2019}",
    )
    with pytest.raises(InventoryError, match=r"stack.stack_release: is reference-2019, and stack_release is current"):
        read_inventory(site)


def test_nothing_is_agreed_on_where_the_inventory_has_no_stack(site: Path) -> None:
    changed(site, "stack: {os: debian 12}", "stack_release: current")
    assert read_inventory(site).nodes[0].stack == {}


def test_a_key_that_is_not_there_is_told_before_ssh_is_asked(site: Path) -> None:
    (site / "key").unlink()
    assert f"{site}/key: no such file" in fault(site)


def test_an_ini_inventory_works_too(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("[gpu_servers]\ngpu1 ansible_host=10.0.0.2 ansible_port=2200\n")
    assert read_inventory(tmp_path / "hosts").node("gpu1").ssh.port == 2200


def test_two_nodes_of_one_name_are_refused_with_both_lines(site: Path) -> None:
    """Ansible takes the last of them and says so at most in a warning: a node would never be looked at."""
    line = changed(site, "        gpu2:\n", "        gpu1:\n")
    words = "give each a name of its own, or remove one"
    assert fault(site) == (
        f"{site}/hosts.yml:{line}: gpu1 stands here twice, in line {line - 7} too, and Ansible takes the last; {words}"
    )


@pytest.mark.parametrize("address", ["10.0.0.4", "10.0.0.3"])
def test_a_name_in_two_groups_is_one_node_unless_it_has_two_addresses(site: Path, address: str) -> None:
    entry = f"    clients:\n      hosts:\n        gpu2: {{ansible_host: {address}}}\n    elsewhere:\n"
    line = changed(site, "    elsewhere:\n", entry)
    if address == "10.0.0.3":
        assert read_inventory(site).node("gpu2").groups == ("clients", "gpu_servers")
    else:
        second = GOOD[: GOOD.index("10.0.0.3")].count("\n") + 1
        assert fault(site) == (
            f"{site}/hosts.yml:{line + 2}: gpu2 has ansible_host 10.0.0.4 here and 10.0.0.3 in "
            f"{site}/hosts.yml:{second}, and Ansible makes one node of both; give each node a name of its own"
        )


def test_two_nodes_of_one_name_are_refused_in_an_ini_inventory(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(
        "[gpu_servers]\ngpu1 ansible_host=10.0.0.2\ngpu2 ansible_host=10.0.0.3\n[rack1]\ngpu1\n"
        "[rack2]\ngpu2 ansible_host=10.0.0.3 # as above\n[rack2:vars]\nwords=gpu1 ansible_host=10.0.0.9\n"
    )
    assert len(read_inventory(tmp_path / "hosts").nodes) == 2
    (tmp_path / "hosts").write_text("[gpu_servers]\ngpu1 ansible_host=10.0.0.2\ngpu1 ansible_host='10.0.0.3'\n")
    assert fault(tmp_path / "hosts").startswith(
        f"{tmp_path}/hosts:3: gpu1 has ansible_host 10.0.0.3 here and 10.0.0.2 "
    )


def test_rules_give_what_nine_lines_for_each_server_gave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From any folder; a mistake in the rules is told with their file and line, one in what they give too."""
    site = tmp_path / "site"
    shutil.copytree(ROOT / "inventories/xe9680", site)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANSIBLE_CONFIG", raising=False)
    assert ansible_environment(site)["ANSIBLE_CONFIG"] == str(ROOT / "ansible.cfg"), "where the plugin is found"
    gpu4 = read_inventory(site).node("gpu4")
    assert gpu4.ssh.host == "198.51.100.34"
    assert [(p.interface, p.address, p.rate_gbps) for p in gpu4.ports] == [
        (f"ens{31 + rail}np0", f"10.80.{rail}.34", 400) for rail in range(8)
    ]
    rules, text = site / "rails.yml", (site / "rails.yml").read_text()
    rules.write_text(text.replace("[31:34]", "[31:35]"))
    line = text.split("198.51.100.[31:34]")[0].count("\n") + 1
    with pytest.raises(InventoryError) as fault:
        read_inventory(site)
    words = "group gpu_servers: ansible_host: 5 addresses for 4 hosts (gpu1 to gpu4); make them as many"
    assert str(fault.value) == f"{rules}:{line}: {words}"
    before, gpu_servers = text.split("  gpu_servers:")
    rules.write_text(f"{before}  gpu_servers:{gpu_servers.replace('rate_gbps: 400', 'rate_gbps: fast')}")
    line = text.rstrip().count("\n") + 1
    with pytest.raises(InventoryError, match=rf"{rules}:{line}: gpu1: fabric_ports.0.rate_gbps: "):
        read_inventory(site)


def test_what_a_scan_writes_by_rule_is_read_as_it_was_proposed(tmp_path: Path) -> None:
    reads = []
    for number in range(1, 4):
        answer = parse(scan_answers.xe9680(number, f"198.51.100.{30 + number}"))
        assert isinstance(answer, Answer)
        address = f"198.51.100.{30 + number}"
        reads.append(Read(Wanted(address, "list"), Login(address, 22, "ops"), answer))
    proposal = propose(reads, "10.80.{rail}.0/24", Served(), [])
    texts = written.files(proposal, "site", "ops")
    written.write(tmp_path / "site", texts)
    assert "rails.yml" in texts
    found = {
        node.name: (node.ssh.host, [(p.interface, f"{p.address}/{p.prefix}", p.rate_gbps) for p in node.ports])
        for node in read_inventory(tmp_path / "site").nodes
    }
    assert found == {
        node.name: (node.read.login.address, [(p.interface, p.address, p.rate_gbps) for p in node.ports])
        for node in proposal.nodes
    }
