"""From answers to an inventory: what is proposed, what is marked, and what is refused with its cure."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import scan_answers
from toolkit.errors import UsageFault
from toolkit.scan import difference, shipped, wanted, written
from toolkit.scan.answer import Answer, parse
from toolkit.scan.contact import Login
from toolkit.scan.propose import Problem, Proposal, propose
from toolkit.scan.ranges import as_range
from toolkit.scan.reading import Read
from toolkit.scan.served import Served
from toolkit.scan.wanted import Wanted
from validation.measures.node import inventory_scan_probe as probe
from validation.model import Bom, Node, Port, SshTarget, Topology
from validation.rules.fabric import load_fabric

Json = dict[str, Any]
RAILS = "10.80.{rail}.0/24"


def proposed(*answers: Json, **given: Any) -> Proposal:
    """The proposal for nodes that gave these answers, each at the address that it says."""
    reads = []
    for number, answer in enumerate(answers):
        found, address = parse(answer), answer["reached_at"]
        assert isinstance(found, Answer), found
        one = Wanted(address, f"nodes.csv:{number + 2}", **given)
        reads.append(Read(one, Login(address, 22, "ops"), found))
    return propose(reads, RAILS, Served({scan_answers.H100: "H100"}), [load_fabric("roce400"), load_fabric("ib-ndr")])


def xe9680(number: int, **given: Any) -> Json:
    return scan_answers.xe9680(number, f"198.51.100.{30 + number}", **given)


def ports_with(*addresses: str) -> list[Json]:
    """The management port of gpu1, and fabric ports with these addresses."""
    management = scan_answers.management("198.51.100.31", 1, "netplan")
    own = [scan_answers.port(f"ens{31 + n}np0", 31 + n, addresses=[a]) for n, a in enumerate(addresses)]
    return [management, *own]


PROBLEMS: dict[str, tuple[list[Json], str]] = {
    "two rails in one network": (
        [xe9680(1, ports=ports_with("10.80.0.31/24", "10.80.0.32/24"))],
        "ports ens31np0 and ens32np0 are both in 10.80.0.0/24.*give each rail a network of its own",
    ),
    "two managers": (
        [xe9680(1, ports=[*ports_with(), scan_answers.port("ens31np0", 31, managers=["netplan", "NetworkManager"])])],
        "port ens31np0 is managed by netplan and NetworkManager: take it out of NetworkManager's files",
    ),
    "reached over IPv6 alone": (
        [xe9680(1, reached_at="2001:db8::31", over_ipv4=False)],
        "was reached at 2001:db8::31 and has no IPv4 address, and this release manages nodes over IPv4 alone",
    ),
    "one machine twice": (
        [xe9680(1), xe9680(1, reached_at="198.51.100.99")],
        "is the same machine as 198.51.100.31; remove one of them",
    ),
    "one name twice": (
        [xe9680(1), xe9680(2, hostname="gpu1")],
        "calls itself gpu1, as 198.51.100.32 does: hostnamectl hostname NAME",
    ),
    "no name": ([xe9680(1, hostname="localhost.localdomain")], "its host name is 'localhost', which no inventory"),
    "one fabric address twice": (
        [xe9680(1), xe9680(2, ports=[*ports_with("10.80.0.31/24")], reached_at="198.51.100.31")],
        "its fabric addresses would be those of gpu1",
    ),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_a_node_that_cannot_be_used_is_named_with_the_cure(case: str) -> None:
    answers, words = PROBLEMS[case]
    problems = proposed(*answers).problems
    assert any(re.search(words, one.why) for one in problems), problems


def test_a_list_that_names_a_node_otherwise_is_told_with_its_line() -> None:
    problems = proposed(xe9680(1), name="gpu7").problems
    words = "calls itself gpu1, and nodes.csv:2 calls it gpu7: hostnamectl hostname gpu7, or correct the list"
    assert problems == (Problem("198.51.100.31", words, "gpu1"),)
    assert problems[0].who == "198.51.100.31 (gpu1)"


def test_what_is_somebody_elses_is_to_be_looked_at_and_names_the_setting() -> None:
    found = proposed(xe9680(1, belongings=[{"component": "slurm", "what": "slurmd runs: twice"}]))
    words = "somebody else's slurm: slurmd runs: twice: refused by preflight unless preflight_take_over has slurm"
    assert words in found.nodes[0].checks
    assert json.loads(found.nodes[0].answer.model_dump_json())["belongings"] == ["slurm: slurmd runs: twice"]


def test_a_gpu_too_few_is_marked_where_it_is_and_the_others_make_the_bill() -> None:
    whole = xe9680(3)
    found = proposed(xe9680(1), xe9680(2), {**whole, "gpus": whole["gpus"][:7]})
    assert found.bom["gpu_servers"]["gpu_count"] == 8
    assert "gpu_count is 7 here, 8 in most of gpu_servers" in found.nodes[-1].checks
    assert found.also_head == "gpu1"
    assert "CHECK: every machine has GPUs, so gpu1 has the head's duties too" in written.hosts(found, "site")


def test_without_links_or_tools_nothing_is_guessed() -> None:
    """No ethtool, no link, no lspci: the rate is left out, and each gap is marked."""
    bare = {"speed_mbit": None, "fastest_mbit": None, "operstate": "down", "nic_model": "0x15b3:0x1021"}
    management = scan_answers.management("198.51.100.31", 1, "ifupdown")
    (node,) = proposed(xe9680(1, ports=[management, scan_answers.port("ens31np0", 31, **bare)])).nodes
    assert written.port_line(node.ports[0]) == "{interface: ens31np0, address: 10.80.0.31/24}"
    text = " ".join(node.checks)
    for words in ("says the rate of ens31np0", "no link on ens31np0", "nic_model without lspci"):
        assert words in text


def test_infiniband_ports_say_so() -> None:
    management = scan_answers.management("198.51.100.31", 1, "netplan")
    ib = scan_answers.port("ibp1", 31, link_layer="infiniband")
    found = proposed(xe9680(1, ports=[management, ib]))
    assert found.fabric == "ib-ndr"
    assert written.port_line(found.nodes[0].ports[0]).endswith("rate_gbps: 400, link_layer: infiniband}")


@pytest.mark.parametrize("field", ["hostname", "model", "kernel"])
@pytest.mark.parametrize("hostile", ["{{ lookup('pipe', 'id') }}", "a\nall: {vars: {x: y}}", "\x1b[2J"])
def test_an_answer_with_a_template_or_control_characters_is_refused(field: str, hostile: str) -> None:
    """What a node says ends in files whose values Ansible evaluates on the controller."""
    assert isinstance(parse(xe9680(1, **{field: hostile})), str)


@pytest.mark.parametrize(
    "value", ["yes", "1e3", "a: b", "- x", "#", "null", "0x15b3:0x1021", "PowerEdge R760", 'a"b', "é"]
)
def test_a_scalar_is_read_back_as_it_was(value: str) -> None:
    assert yaml.safe_load(f"x: {{y: {written.scalar(value)}}}") == {"x": {"y": value}}


BAD_LISTS = {
    "10.0.0.1\n10.0.0.1\n": "nodes:2: address 10.0.0.1 is in .*nodes:1 too; remove one of them",
    "address,password\n10.0.0.1,x\n": "nodes:1: unknown column 'password'.*no place in a list: --ask-password",
    "address,group\n10.0.0.1,gpus\n": "nodes:2: group 'gpus' is unknown; one of heads, clients, gpu_servers",
    "address,port\n10.0.0.1,0\n": "nodes:2: port '0' is none",
    "address,name\n10.0.0.[1:3],gpu\n": "nodes:2: one name or host key for the 3 nodes",
    "address,host_key\n10.0.0.1,aa:bb\n": "nodes:2: host_key 'aa:bb' is no fingerprint",
    "address,name\n,gpu\n": "nodes:2: no address",
    "10.0.0.[9:1]\n": "nodes:1: 10.0.0.*no such range",
    "10.0.0.[1:99999]\n": "99999 addresses; at most 4096 at a time",
    "-oProxyCommand=x\n": "nodes:1: '-oProxyCommand=x' is no address",
    "# none\n": "nodes: no address",
}


@pytest.mark.parametrize("text", BAD_LISTS)
def test_a_bad_list_is_refused_with_its_line(text: str, tmp_path: Path) -> None:
    file = tmp_path / "nodes"
    file.write_text(text)
    with pytest.raises(UsageFault, match=BAD_LISTS[text]):
        wanted.checked(wanted.from_file(file))


def test_ranges_and_columns_of_a_list(tmp_path: Path) -> None:
    file = tmp_path / "nodes.csv"
    file.write_text("# rack 1\naddress, group\n198.51.100.10,heads\n198.51.100.[31:33],gpu_servers\n")
    found = wanted.checked(wanted.from_file(file))
    assert [(one.address[-2:], one.group) for one in found] == [
        ("10", "heads"), ("31", "gpu_servers"), ("32", "gpu_servers"), ("33", "gpu_servers"),
    ]  # fmt: skip


def listed(**given: Any) -> Topology:
    """An inventory of gpu1 alone."""
    fields = {"name": "gpu1", "groups": ("gpu_servers",), "ssh": SshTarget(host="198.51.100.31", user="ops")}
    port = Port(interface="ens31np0", address="10.80.0.31", prefix=24, rate_gbps=400)
    return Topology(site="s", nodes=(Node.model_validate({**fields, "ports": (port,), **given}),))


DIFFERENCES: dict[str, tuple[Json, Json, str]] = {
    "count": ({"bom": Bom(gpu_count=4)}, {}, "gpu1: bom.gpu_count: the inventory says 4, the node 8"),
    "name": ({"name": "gpu9"}, {}, "gpu9: host name: the inventory says gpu9, the node gpu1"),
    "group": ({"groups": ("clients",)}, {}, "gpu1: group: the inventory says clients, the node has 8 GPUs"),
    "rate": (
        {},
        {"ports": [*ports_with(), scan_answers.port("ens31np0", 31, fastest_mbit=200_000)]},
        "gpu1: rate of port ens31np0: the inventory says 400 Gbit/s, the node 200 Gbit/s at most",
    ),
}


@pytest.mark.parametrize("case", DIFFERENCES)
def test_each_difference_is_one_line(case: str) -> None:
    inventory, answer, words = DIFFERENCES[case]
    assert [str(d) for d in difference.differences(listed(**inventory), proposed(xe9680(1, **answer)))] == [words]


def test_what_is_not_sure_is_no_difference() -> None:
    """Without a driver the GPUs' model is by PCI id, and ports that the inventory leaves out are somebody's choice."""
    declared = listed(bom=Bom(gpu_model="NVIDIA H100 80GB HBM3", fabric_port_count=1))
    assert difference.differences(declared, proposed(xe9680(1))) == []


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_managers_of_a_port(tmp_path: Path) -> None:
    """netplan writes networkd's files, so its name tells which of the two it is; ifupdown by its own file."""
    root = tree(
        tmp_path,
        {
            "sys/class/net/eno1/ifindex": "2\n",
            "sys/class/net/eno2/ifindex": "3\n",
            "run/systemd/netif/links/2": "ADMIN_STATE=configured\n"
            "NETWORK_FILE=/run/systemd/network/10-netplan-eno1.network\n",
            "run/systemd/netif/links/3": "ADMIN_STATE=unmanaged\n",
            "etc/network/interfaces": "auto lo\niface lo inet loopback\n  iface eno2 inet dhcp\n",
        },
    )
    assert probe.ifupdown_ports(root) == set()  # left by an upgrade: nothing is installed that reads it
    tree(tmp_path, {"usr/sbin/ifup": ""})
    ifupdown = probe.ifupdown_ports(root)
    more = {
        "usr/sbin/ifup": "",
        "etc/network/interfaces": "source /etc/net/*.cfg\n",
        "etc/net/a.cfg": "iface fab0 inet dhcp\niface fab1:1 x",
    }
    assert probe.ifupdown_ports(tree(tmp_path / "sourced", more)) == {"fab0", "fab1"}
    nm = probe.managed_by_networkmanager("eno1:unmanaged\neno2:connected\nbr\\:0:connected\n")
    assert nm == {"eno2", "br:0"}
    found: Callable[[str], list[str]] = lambda name: probe.managers(name, nm, ifupdown, root / "sys", root)  # noqa: E731
    assert (found("eno1"), found("eno2")) == (["netplan"], ["NetworkManager", "ifupdown"])


def test_the_fastest_mode_is_of_those_supported() -> None:
    said = "Settings for x:\n\tSupported link modes:   25000baseCR/Full\n\t                        100000baseSR4/Full\n"
    said += "\tSupported pause frame use: Symmetric\n\tAdvertised link modes:  400000baseCR4/Full\n"
    assert (probe.fastest_mbit(said), probe.fastest_mbit("Settings for veth0:\n")) == (100_000, None)


def test_the_shipped_program_carries_all_that_the_probe_imports() -> None:
    assert {
        "validation.probes.pcie",
        "validation.measures.node.facts_probe",
        "validation.probes.supervise",
    } <= shipped.sources().keys()


def test_the_shipped_program_runs_with_nothing_of_the_toolkit_beside_it(tmp_path: Path) -> None:
    """Packages above its modules are carried too, and no module needs a file of its own."""
    command = [sys.executable, "-I", "-B", "-"]
    done = subprocess.run(command, input=shipped.program(), capture_output=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert isinstance(parse(json.loads(done.stdout)), Answer)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["gpu8", "gpu9", "gpu10"], "gpu[8:10]"),
        (["198.51.100.31", "198.51.100.32"], "198.51.100.[31:32]"),
        (["ens1np0"], "ens1np0"),
        (["gpu1", "gpu3"], None),
        (["gpu09", "gpu10"], None),
        (["a1b1", "a2b2"], None),
        (["gpu1", "node2"], None),
    ],
)
def test_names_that_count_up_are_a_range(words: list[str], found: str | None) -> None:
    assert as_range(words) == found


def test_a_regular_group_is_a_rule_and_one_odd_node_makes_lines_for_all() -> None:
    texts = written.files(proposed(*(xe9680(n) for n in range(1, 5))), "site", "ops")
    assert "        gpu[1:4]:\n" in texts["hosts.yml"]
    assert yaml.safe_load(texts["rails.yml"])["groups"] == {
        "gpu_servers": {
            "ansible_host": "198.51.100.[31:34]",
            "fabric_ports": {"interface": "ens[31:38]np0", "address": "10.80.{rail}.{host}/24", "rate_gbps": 400},
        }
    }
    odd = xe9680(3)
    texts = written.files(proposed(xe9680(1), xe9680(2), {**odd, "gpus": odd["gpus"][:7]}), "site", "ops")
    assert "rails.yml" not in texts
    assert texts["hosts.yml"].count("fabric_ports:") == 3


def test_what_preflight_would_refuse_on_el_is_answered_in_the_inventory() -> None:
    """The head makes the training's image only with Debian or Ubuntu; DOCA's key is on no record for EL."""

    def answers(head: str, server: str) -> Json:
        found = proposed(
            scan_answers.node("head1", "198.51.100.10", os=head),
            xe9680(1, os=server, ports=ports_with("10.80.0.31/24")),
        )
        return dict(yaml.safe_load(written.files(found, "site", "ops")["group_vars/all/stack.yml"]))

    of_el = answers("rhel 9.6", "rhel 9.6")
    assert (of_el["horovod_state"], of_el["ofed_provider"]) == ("absent", "inbox")
    assert not {"horovod_state", "ofed_provider"} & answers("ubuntu 24.04", "ubuntu 24.04").keys()
    mixed = answers("ubuntu 24.04", "rocky 9.6")
    assert ("horovod_state" in mixed, mixed["ofed_provider"]) == (False, "inbox")
    alone = proposed(xe9680(1, os="rocky 9.6"))
    assert alone.also_head
    assert "horovod_state: absent" in written.files(alone, "site", "ops")["group_vars/all/stack.yml"]
