"""Ranges and rail rules: what they give each host, and each mistake as one line with file and place."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.node_modules import load

ROOT = Path(__file__).parents[2]
rails: Any = load("plugins/plugin_utils/rails.py")

RULES = """\
plugin: elastic_ai.toolkit.rails
groups:
  gpu_servers:
    ansible_host: 198.51.100.[31:32]
    fabric_ports:
      interface: ens[31:33]np0
      address: 10.80.{rail}.{host}/24
      rate_gbps: 400
"""


def given(text: str = RULES, **hosts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What hosts get; without any: gpu1 and gpu2 with nothing of their own."""
    members = [rails.Member(name, own) for name, own in (hosts or {"gpu1": {}, "gpu2": {}}).items()]
    groups = {"all": members, "gpu_servers": members, "clients": members[:1]}
    found: dict[str, dict[str, Any]] = rails.variables(rails.read_rules(text, "rails.yml"), groups, "rails.yml")
    return found


def test_each_host_gets_its_address_and_a_port_for_each_rail() -> None:
    assert given()["gpu2"] == {
        "ansible_host": "198.51.100.32",
        "fabric_ports": [
            {"interface": "ens31np0", "address": "10.80.0.32/24", "rate_gbps": 400},
            {"interface": "ens32np0", "address": "10.80.1.32/24", "rate_gbps": 400},
            {"interface": "ens33np0", "address": "10.80.2.32/24", "rate_gbps": 400},
        ],
    }


def test_a_leaf_switch_of_each_rail() -> None:
    found = given(RULES + "      leaf: su1-leaf{rail}\n")
    assert [port["leaf"] for port in found["gpu1"]["fabric_ports"]] == ["su1-leaf0", "su1-leaf1", "su1-leaf2"]


def test_what_stands_at_the_host_stays_and_its_own_address_counts() -> None:
    found = given(gpu1={"fabric_ports": []}, gpu2={"ansible_host": "198.51.100.99"})
    assert found["gpu1"] == {"ansible_host": "198.51.100.31"}
    assert [port["address"] for port in found["gpu2"]["fabric_ports"]] == [f"10.80.{rail}.99/24" for rail in range(3)]


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("gpu1", ["gpu1"]),
        ("gpu[8:10]", ["gpu8", "gpu9", "gpu10"]),
        ("gpu[08:10]", ["gpu08", "gpu09", "gpu10"]),
        ("r[1:2]n[1:3:2]", ["r1n1", "r1n3", "r2n1", "r2n3"]),
    ],
)
def test_ranges_are_ansibles(word: str, names: list[str]) -> None:
    from ansible.plugins.inventory import expand_hostname_range

    assert rails.expand_range(word) == names
    if "[" in word:
        assert list(expand_hostname_range(word)) == names


BAD = {
    ("[31:32]", "[31:33]"): "rails.yml:4: group gpu_servers: ansible_host: 3 addresses for 2 hosts (gpu1 to gpu2)",
    ("[31:32]", "[32:31]"): "rails.yml:4: .*the range ends before it begins",
    ("[31:32]", "[a:b]"): "rails.yml:4: .*a range is written like",
    ("[31:33]np0", "[1:9999999]"): "rails.yml:6: .*more than 4096",
    ("{rail}.{host}", "0.{host}"): "rails.yml:7: .*without {rail} all 3 ports would have it",
    ("/24", "/16"): "rails.yml:7: .*ens31np0 and ens32np0 of gpu1 are both in 10.80.0.0/16; each rail needs its own",
    ("/24", ""): "rails.yml:7: .*no prefix length; write it like 10.80.0.31/24",
    ("10.80", "10.800"): "rails.yml:7: .*write it like",
    ("{host}", "7"): "rails.yml:7: .*address 10.80.0.7 would be gpu1's and gpu2's",
    ("  gpu_servers", "  gpu_server"): "rails.yml:3: group gpu_server: is not in the inventory; there are: clients",
    ("ansible_host", "host"): "rails.yml:4: unknown key: host; known: ansible_host, fabric_ports",
    ("interface", "port"): "rails.yml:5: fabric_ports: interface: is missing; add it",
    ("groups", "group"): "rails.yml:2: unknown key: group",
    ("    ansible_host: 198.51.100.[31:32]\n", ""): "rails.yml:6: .*the last number of ansible_host; gpu1 has none",
    ("rate_gbps: 400", "rate_gbps: [}"): "rails.yml:8: not valid YAML: .*; correct this line",
    ("rate_gbps: 400", "interface: x"): "rails.yml:8: duplicate key: interface; it stands in line 6 too, keep one",
    ("rate_gbps: 400", "rate_gbps: {a: {b: 1, b: 2}}"): "rails.yml:8: duplicate key: b",
    ("rate_gbps: 400", "rate_gbps: !!int x"): "rails.yml:8: not valid YAML: 'x' is not a valid int",
    ("rate_gbps: 400", f"rate_gbps: {'[' * 70}{']' * 70}"): "rails.yml:8: not valid YAML: nested more than 60 levels",
    ("rate_gbps: 400", "rate_gbps: \a"): "rails.yml:8: not valid YAML: the character U.0007 is not allowed",
}


@pytest.mark.parametrize("change", BAD)
def test_each_mistake_is_one_line_with_its_place(change: tuple[str, str]) -> None:
    with pytest.raises(rails.RailsError, match=BAD[change].replace("(", r"\(").replace(")", r"\)")):
        given(RULES.replace(*change))


def test_a_host_has_the_rules_of_one_group() -> None:
    twice = RULES + "  clients:\n    fabric_ports: {interface: ens1np0, address: 10.90.0.1/24}\n"
    with pytest.raises(rails.RailsError, match=r"rails.yml:10: group clients: gpu1 has fabric_ports by the rule"):
        given(twice)


def test_the_reader_of_yaml_is_the_one_of_the_toolkit_and_needs_none_of_its_packages() -> None:
    """Ansible's Python loads it by its path, where a collection is installed without them."""
    script = (
        "import importlib.util, sys\n"
        "spec = importlib.util.spec_from_file_location('reader', sys.argv[1])\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "print({name.partition('.')[0] for name in sys.modules} & {'validation', 'toolkit', 'pydantic'})"
    )
    file = ROOT / "validation/base/yaml_text.py"
    done = subprocess.run([sys.executable, "-c", script, file], cwd="/", capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
    readers = [
        path
        for folder in ("plugins", "toolkit", "validation")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if re.search(r"yaml\.(compose|parse|scan|serialize)\b", path.read_text())
    ]
    assert readers == []
