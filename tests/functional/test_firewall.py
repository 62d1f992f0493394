"""Role firewall: which networks are the site's, and that firewalld reads what the role writes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from tests.support.node_modules import ROOT, load_filters
from tests.support.nodes_network import written

pytestmark = pytest.mark.systems

FILTERS = load_filters("firewall")
HOSTS: dict[str, Any] = {
    "gpu1": {"ansible_host": "192.0.2.8", "fabric_ports": [{"address": "10.80.0.31/24"}, {"address": "10.80.1.31/24"}]},
    "gpu2": {"ansible_host": "192.0.2.9", "fabric_ports": [{"address": "10.80.0.32/24"}]},
    "named": {"ansible_host": "named.example.net", "fabric_ports": [{"address": "10.90.0.0/31"}]},
    "here": {"ansible_host": "127.0.0.1"},
}
# What firewalld's own library reads; it belongs to the system's Python.
READ = """
import json, sys
from firewall.core.io.ipset import ipset_reader
from firewall.core.io.policy import policy_reader
policy, ipset = policy_reader("elastic-ai.xml", sys.argv[2]), ipset_reader("elastic-ai.xml", sys.argv[1])
print(json.dumps([policy.target, policy.priority, policy.ingress_zones, policy.egress_zones,
                  [str(rule) for rule in policy.rules], ipset.type, ipset.options, ipset.entries]))
"""


def test_the_sites_networks_are_as_few_as_there_can_be_and_nodes_known_by_name_are_told() -> None:
    found = FILTERS["site_networks"](HOSTS, HOSTS, ["198.51.100.0/24"])
    assert found == {
        "networks": ["10.80.0.0/23", "10.90.0.0/31", "192.0.2.8/31", "198.51.100.0/24"],
        "unknown": ["named", "here"],
    }


@pytest.mark.parametrize(
    ("given", "why"), [("2001:db8::/64", "of IPv6"), ("10.0.0.5/24", "host bits"), ("lan", "no network")]
)
def test_a_network_that_the_firewall_cannot_let_in_is_refused_in_words(given: str, why: str) -> None:
    with pytest.raises(AnsibleFilterError, match=rf"firewall_networks: {given} .*{why}.*write it like"):
        FILTERS["site_networks"](HOSTS, HOSTS, [given])


def test_rules_of_ufw_are_known_by_their_comment() -> None:
    """As ufw 0.36.2 wrote user.rules for `ufw allow from NET comment elastic-ai`, and for a rule of the site's own."""
    rules = (
        "### tuple ### allow any any 0.0.0.0/0 any 10.80.0.0/24 in comment=656c61737469632d6169\n"
        "-A ufw-user-input -s 10.80.0.0/24 -j ACCEPT\n"
        "### tuple ### allow any any 0.0.0.0/0 any 192.0.2.9 in comment=656c61737469632d6169\n"
        "### tuple ### allow tcp 22 0.0.0.0/0 any 0.0.0.0/0 in\n"
    )
    assert FILTERS["ufw_networks"](rules) == ["10.80.0.0/24", "192.0.2.9/32"]
    assert FILTERS["ufw_networks"]("") == []


def test_firewalld_reads_what_the_role_writes(tmp_path: Path) -> None:
    files = yaml.safe_load((ROOT / "roles/firewall/vars/main.yml").read_text("utf-8"))["__firewall_files"]
    networks = ["10.80.0.0/23", "192.0.2.8/31"]
    ipset, policy = written(tmp_path, "firewall", files, __firewall_site={"networks": networks})
    said = subprocess.run(
        ["/usr/bin/python3", "-c", READ, str(ipset.parent), str(policy.parent)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert json.loads(said.stdout) == [
        "CONTINUE", -10, ["ANY"], ["HOST"],
        ['rule family="ipv4" source ipset="elastic-ai" accept'],
        "hash:net", {"family": "inet"}, networks,
    ]  # fmt: skip
