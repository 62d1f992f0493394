"""A lab's switch: its configuration agrees with the lab's hosts, and each fault is one difference at one port."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from toolkit.errors import LabError
from toolkit.lab import drillplan, faults
from toolkit.lab.debrepo import Served
from toolkit.lab.inventory import inventory_document
from toolkit.lab.leaf import leaf, serve
from toolkit.lab.leaf.leaffaults import LEAF_FAULTS
from toolkit.lab.spec import LabSpec, make_spec
from toolkit.switches.check import Checked, check
from toolkit.switches.read import read_text
from toolkit.switches.wanted import Site, read

WHAT = {"switch-mtu": "mtu", "switch-pfc": "pfc", "switch-pfc-two": "pfc", "switch-dscp": "dscp", "switch-cnp": "cnp"}


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabSpec:
    """Four containers and a switch, as far as files go."""
    monkeypatch.setenv("ELASTIC_AI_LAB_DIR", str(tmp_path / "state"))
    made = make_spec("x", 3, 4, 1, switch=True)
    made.dir.mkdir(parents=True)
    leaf.prepare(made)
    return made


@pytest.fixture
def site(spec: LabSpec, tmp_path: Path) -> Site:
    """The lab's inventory, as `toolkit switch check` reads it."""
    private = tmp_path / "inventory/.lab"
    private.mkdir(parents=True)
    leaf.copy_into(spec, private)
    (private / "id").touch()
    served = Served(tmp_path, (), tmp_path / "key", "")
    document = inventory_document(spec, private / "id", private / "known_hosts", served, private)
    (private.parent / "hosts.yml").write_text(yaml.safe_dump(document))
    return read(private.parent)


def compared(spec: LabSpec, site: Site) -> Checked:
    text = (leaf.folder(spec) / leaf.CONFIGURATION).read_text()
    return check(site, [read_text(text, leaf.NAME, leaf.NAME)])


def planted(spec: LabSpec, **kinds: str) -> None:
    (spec.dir / "faults.json").write_text(json.dumps(kinds))
    leaf.write(spec)


def cables(spec: LabSpec) -> dict[str, str]:
    found: dict[str, str] = json.loads((leaf.folder(spec) / leaf.PLACE).read_text())["cables"]
    return found


def test_the_switch_of_a_lab_agrees_with_its_hosts_and_each_fault_is_one_difference(spec: LabSpec, site: Site) -> None:
    checked = compared(spec, site)
    assert (checked.differences, checked.unchecked, checked.ports) == ((), (), 4)
    assert site.known_hosts is not None
    assert set(WHAT) == set(LEAF_FAULTS)
    for kind, fault in LEAF_FAULTS.items():
        planted(spec, gpu2=kind)
        found = compared(spec, site).differences
        assert [(one.what, one.host, one.node) for one in found] == [(WHAT[kind], "gpu2 fab0", "gpu2")], kind
        assert fault.words in found[0].words
        assert cables(spec)["f-gpu2"] == "Eth1/4"
        leaf.write(spec, well="gpu2")
        assert not compared(spec, site).differences


def test_crossed_cables_are_in_each_others_port_and_one_in_another_switch_announces_nothing(spec: LabSpec) -> None:
    assert cables(spec) == {"f-head": "Eth1/1", "f-client1": "Eth1/2", "f-gpu1": "Eth1/3", "f-gpu2": "Eth1/4"}
    planted(spec, gpu1="cables-crossed", client1="cable-swapped")
    assert cables(spec) == {"f-head": "Eth1/1", "f-client1": "", "f-gpu1": "Eth1/4", "f-gpu2": "Eth1/3"}
    words = [" ".join(one) for one in serve.port_settings(cables(spec))]
    assert "configure ports f-client1 lldp status disabled" in words
    assert "configure ports f-gpu1 lldp portidsubtype local Eth1/4 description Eth1/4" in words
    assert sum("status rx-and-tx" in one for one in words) == 3


def test_faults_of_a_switch_need_one_and_crossed_cables_take_the_next_node_too(spec: LabSpec) -> None:
    without = make_spec("y", 3, 4, 1)
    for kind in ("cables-crossed", *LEAF_FAULTS):
        assert faults.FAULTS[kind].nodes == "all with switch"
        with pytest.raises(LabError, match="lab up --switch"):
            faults.check(without, without.node("gpu1"), kind)
    turns = drillplan.turns(spec, ("cables-crossed", *LEAF_FAULTS))
    for turn in turns:
        names = [node.name for _, node in turn.planted]
        names += [spec.after(node).name for kind, node in turn.planted if kind == "cables-crossed"]
        assert len(names) == len(set(names))
    assert {kind for turn in turns for kind, _ in turn.planted} == {"cables-crossed", *LEAF_FAULTS}
