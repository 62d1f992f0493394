"""What roles derive from the inventory and from readings of nodes, as filters with data of small sites."""

from __future__ import annotations

import json
from typing import Any

import jinja2
import pytest
import yaml

from tests.support.node_modules import ROOT, load_filters

FABRIC, HOROVOD, REMOTING = (load_filters(name) for name in ("fabric", "horovod", "remoting"))
NETWORK = "/etc/systemd/network/05-elastic-ai-"


def node(**link: Any) -> dict[str, Any]:
    """A node with one port that is as declared, but for `link`."""
    live = {"exists": True, "addresses": ["10.0.0.1/24"], "mtu": 9000, "txqueuelen": 10000, **link}
    return {"links": {"fab0": live}, "units": {"elastic-ai-port@fab0.service": {"active": True, "enabled": True}}}


def test_each_port_has_its_files_and_no_other_stays() -> None:
    ports = [
        {"interface": "fab0"},
        {"interface": "ib0.8001", "pkey": "0x8001", "parent": "ib0"},
        {"interface": "ib0.8002", "pkey": "0x8002", "parent": "ib0"},
    ]
    files = FABRIC["fabric_port_files"](ports, [f"{NETWORK}fab0.network", f"{NETWORK}old.network"], "systemd-networkd")
    assert [(file["path"].removeprefix(NETWORK), file.get("template", "")) for file in files] == [
        ("fab0.network", "port.network.j2"),
        ("ib0.8001.network", "port.network.j2"),
        ("ib0.8002.network", "port.network.j2"),
        ("ib0.8001.netdev", "port.netdev.j2"),
        ("ib0.8002.netdev", "port.netdev.j2"),
        ("ib0.network", "parent.network.j2"),
        ("old.network", ""),
    ]
    assert [child["interface"] for child in files[5]["vars"]["fabric_children"]] == ["ib0.8001", "ib0.8002"]
    assert files[6]["state"] == "absent"


def test_only_ports_that_differ_are_activated_anew() -> None:
    ports = [{"interface": "fab0", "address": "10.0.0.1/24"}]
    activate, path = FABRIC["ports_to_activate"], "/etc/NetworkManager/system-connections/elastic-ai-fab0.nmconnection"
    assert activate(node(), ports, 9000, 10000, []) == []
    assert activate(node(), ports, 9000, 10000, [path]) == ["fab0"]
    assert activate(node(mtu=1500), ports, 9000, 10000, []) == ["fab0"]


@pytest.mark.parametrize(("enabled", "asked"), [(True, "left as it is"), (False, "True")])
def test_systemd_networkd_is_enabled_only_where_nobody_else_does(enabled: bool, asked: str) -> None:
    """netplan enables it in /run at each boot; enabled for good, it would stay so after a teardown."""
    tasks = yaml.safe_load((ROOT / "roles/fabric/tasks/ports.yml").read_text(encoding="utf-8"))
    (options,) = [t["ansible.builtin.systemd_service"] for t in tasks if t["name"] == "Restart systemd-networkd"]
    reading = {"units": {"systemd-networkd.service": {"enabled": enabled}}}
    shown = jinja2.Template(str(options["enabled"])).render(fabric_node=reading, omit="left as it is")
    assert shown == asked


def test_a_port_that_is_not_as_declared_is_named_with_what_differs() -> None:
    off, ports = FABRIC["fabric_ports_off"], [{"interface": "fab0", "address": "10.0.0.1/24"}]
    assert off(node(), ports, "9000", "10000") == []
    for change in ({"exists": False}, {"addresses": []}, {"mtu": 1500}, {"txqueuelen": 1000}):
        (found,) = off(node(**change), ports, 9000, 10000)
        assert "fab0" in found
    stopped = node()
    stopped["units"]["elastic-ai-port@fab0.service"]["enabled"] = False
    assert len(off(stopped, ports, 9000, 10000)) == 1
    assert off(stopped, [], 9000, 10000) == []


def test_only_settable_kernel_parameters_that_differ_are_set() -> None:
    state = {
        "sysctls": {
            "a": {"settable": True, "value": "1"},
            "b": {"settable": True, "value": "2"},
            "c": {"settable": False, "value": ""},
        }
    }
    assert FABRIC["sysctls_off"]({"a": 1, "b": 3, "c": 4}, state) == ["b"]


def test_training_goes_over_the_first_fabric_port_of_those_that_take_part() -> None:
    hostvars: dict[str, Any] = {
        "b": {"fabric_ports": [{"address": "10.0.0.2/24"}, {"address": "10.1.0.2/24"}], "ansible_host": "192.0.2.2"},
        "a": {"ansible_host": "192.0.2.1"},
        "c": {"horovod_state": "absent"},
        "d": {},
    }
    servers = HOROVOD["training_servers"](hostvars, hostvars)
    assert servers == ["a", "b", "d"]
    assert HOROVOD["training_addresses"](servers, hostvars) == ["192.0.2.1", "10.0.0.2", "d"]


def test_training_takes_rdma_where_every_server_has_it() -> None:
    def hosts(*own: dict[str, Any], port: dict[str, Any] | None = None) -> dict[str, Any]:
        return {str(n): {"fabric_ports": [{"address": "10.0.0.2/24", **(port or {})}], **o} for n, o in enumerate(own)}

    def found(hostvars: dict[str, Any]) -> bool:
        return bool(HOROVOD["training_over_rdma"](hostvars, hostvars))

    assert found(hosts({"roce_enabled": True}, {"roce_enabled": "yes"}))
    assert found(hosts({"ofed_soft_roce": True}))
    assert found(hosts({}, port={"link_layer": "infiniband"}))
    assert not found(hosts({"roce_enabled": True}, {}))
    assert not found(hosts({"roce_enabled": "false"}))
    assert not found(hosts({"roce_enabled": True}, port={"rdma": False}))
    assert not found({"a": {"roce_enabled": True}})
    assert not found({})


def test_a_server_of_leases_that_the_run_does_not_reach_stays_as_recorded() -> None:
    found = {"gpus": [{"index": 0, "total_mib": 1000}], "problem": ""}
    hostvars: dict[str, Any] = {"g1.example.net": {"remoting_server_found": found}, "g2": {}, "g3": {}}
    recorded = json.dumps({"servers": {"g2": {"gpus": [], "problem": "no driver"}, "gone": {}}})
    servers = REMOTING["lease_servers"]
    assert servers(hostvars, hostvars, recorded) == {"g1": found, "g2": {"gpus": [], "problem": "no driver"}}
    assert servers(hostvars, hostvars, "") == {"g1": found}


def test_a_server_that_was_not_surveyed_keeps_what_the_last_survey_found() -> None:
    """In check mode nothing is surveyed, and an image that a user brought meanwhile is no difference."""
    found = {"gpus": [{"index": 0, "total_mib": 1000}], "problem": ""}
    recorded = json.dumps({"servers": {"g1": {**found, "offers": {"images": ["last"]}}}})
    servers, hostvars = REMOTING["lease_servers"], {"g1": {"remoting_server_found": found}}
    assert servers(hostvars, hostvars, recorded) == {"g1": {**found, "offers": {"images": ["last"]}}}
    hostvars["g1"]["remoting_server_offers"] = {"images": ["now"]}
    assert servers(hostvars, hostvars, recorded) == {"g1": {**found, "offers": {"images": ["now"]}}}


def test_the_memory_in_use_is_no_part_of_a_servers_description() -> None:
    said = json.dumps({"gpus": [{"index": 0, "total_mib": 1000, "used_mib": 7}], "problem": "", "more": 1})
    site = {"problem": "", "address": "10.0.0.1", "memory_mib": 512}
    assert REMOTING["lease_gpus"](said, "10.0.0.1", 512) == {"gpus": [{"index": 0, "total_mib": 1000}], **site}
    assert REMOTING["lease_gpus"]("", "10.0.0.1", 512) == {"gpus": [], **site}


def test_only_nodes_whose_exporter_runs_are_asked_for_metrics_and_limit_forgets_nobody() -> None:
    """The variable that the role registers; of hosts outside the run what the head's own configuration says."""
    tasks = yaml.safe_load((ROOT / "roles/monitoring/tasks/watch.yml").read_text("utf-8"))
    read = next(task["register"] for task in tasks if "elastic_ai.toolkit.node_state" in task)
    units = {state: {read: {"units": {"x.service": {"active": state == "on"}}}} for state in ("on", "off")}
    hostvars: dict[str, Any] = {"a": units["on"], "b": units["off"], "c": {}, "d": {}}
    targets = [{"targets": [f"{name}:9400"], "labels": {"node": name}} for name in ("b", "c", "gone")]
    recorded = yaml.safe_dump({"scrape_configs": [{"job_name": "dcgm", "static_configs": targets}]})
    running = load_filters("monitoring")["nodes_running"]
    assert running(hostvars, "x.service", hostvars, recorded, "dcgm") == ["a", "c"]
    assert running(hostvars, "x.service", hostvars, recorded, "node") == ["a"]
    assert running(hostvars, "x.service", hostvars, "", "dcgm") == ["a"]
    assert running(hostvars, "x.service", hostvars, "{broken", "dcgm") == ["a"]
