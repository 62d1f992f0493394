"""The rdma-ports probe: settings read through stand-ins of dcb and ethtool, its document parsed whole or not at all."""

from __future__ import annotations

import copy
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

import pytest

from tests.support.rdma_documents import RECORDED
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.rdma import rdma_ports_probe
from validation.measures.rdma.ports import Gid, RdmaPortsFacts
from validation.probes import rdma_ports_qos

DCB_PFC = '{"prio_pfc":[false,false,false,true,false,false,false,false],"pfc_cap":8,"delay":0}'
DCB_APP = '{"dscp_prio":[[26,3],[48,6]]}'


def stand_in(folder: Path, name: str, body: str) -> None:
    """A tool of this name on the PATH."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder first on the PATH, with a dcb that says what a lossless port says."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    stand_in(folder, "dcb", f"case $2 in pfc) echo '{DCB_PFC}';; app) echo '{DCB_APP}';; esac")
    stand_in(folder, "ethtool", "printf 'Pause parameters:\\nAutonegotiate:\\toff\\nRX:\\t\\toff\\nTX:\\t\\toff\\n'")
    return folder


def tree(root: Path, contents: dict[str, str]) -> Path:
    for name, text in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


CONFIGFS = {
    "config/rdma_cm/mlx5_0/ports/1/default_roce_mode": "RoCE v2",
    "config/rdma_cm/mlx5_0/ports/1/default_roce_tos": "106",
}
MLX5 = {
    **CONFIGFS,
    "sys/class/infiniband/mlx5_0/tc/1/traffic_class": "Global tclass=106",
    "sys/class/net/fab0/ecn/roce_np/enable/3": "1",
    "sys/class/net/fab0/ecn/roce_rp/enable/3": "1",
}


def test_settings_of_a_lossless_port(tools: Path, tmp_path: Path) -> None:
    tree(tmp_path, MLX5)
    assert rdma_ports_qos.roce("fab0", "mlx5_0", 1, tmp_path / "sys", tmp_path / "config") == {
        "roce_mode": "RoCE v2",
        "tos": 106,
        "pause": {"rx": False, "tx": False},
        "trust": "dscp",
        "dscp_prio": {"26": 3, "48": 6},
        "pfc": [3],
        "traffic_class": 106,
        "ecn": True,
        "unread": [],
    }


def test_what_a_port_has_not_is_none_with_its_reason(tools: Path, tmp_path: Path) -> None:
    stand_in(tools, "dcb", "echo 'Attribute read: Operation not supported' >&2; exit 255")
    stand_in(tools, "ethtool", "exit 76")
    found = rdma_ports_qos.roce("fab0", "rxe_fab0", 1, tmp_path / "sys", tmp_path / "config")
    assert {found[key] for key in ("roce_mode", "tos", "pause", "trust", "pfc", "ecn", "traffic_class")} == {None}
    assert found["unread"] == [
        "RDMA-CM's defaults: configfs has no rdma_cm (is the module rdma_cm loaded?)",
        "PFC and DSCP trust: the device of fab0 has no DCB (dcb: Attribute read: Operation not supported)",
    ]


def test_a_missing_tool_is_a_reason_too(tools: Path, tmp_path: Path) -> None:
    (tools / "dcb").unlink()
    found = rdma_ports_qos.dcb("fab0")
    assert found["trust"] is None
    assert "dcb is not installed" in found["unread"][0] or "has no DCB" in found["unread"][0]


def test_the_driver_counts_pauses(tools: Path) -> None:
    stand_in(
        tools, "ethtool", "printf '     rx_prio3_pause: 12\\n     tx_pause_storm_error_events: 0\\n     rx_bytes: 9\\n'"
    )
    assert rdma_ports_qos.driver_counters("fab0") == {"rx_prio3_pause": 12, "tx_pause_storm_error_events": 0}


@pytest.mark.parametrize(("said", "value"), [("unlimited", -1), ("64", 65536), ("", None)])
def test_memlock_is_that_of_a_new_session_of_an_ordinary_user(
    tools: Path, monkeypatch: pytest.MonkeyPatch, said: str, value: int | None
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    stand_in(tools, "runuser", f'[ "$*" = "-u nobody -- sh -c ulimit -l" ] && echo {said}')
    found = rdma_ports_qos.memlock()
    assert (found["bytes"], found["user"]) == (value, "nobody")
    assert bool(found["unread"]) == (value is None)


def test_without_root_the_own_session_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("resource.getrlimit", lambda _: (65536, -1))
    assert rdma_ports_qos.memlock() == {"bytes": 65536, "user": "uid 1000", "unread": ""}


def test_the_policy_is_what_provisioning_wrote(tmp_path: Path) -> None:
    path = tmp_path / "roce.json"
    assert rdma_ports_qos.policy(path) is None
    path.write_text('{"tos": 106, "pfc": [3], "sysfs_root": "/sys"}')
    assert rdma_ports_qos.policy(path) == {"tos": 106, "pfc": [3]}
    path.write_text("{")
    assert rdma_ports_qos.policy(path) is None


def test_a_port_without_a_device_is_no_error_of_the_probe() -> None:
    doc = rdma_ports_probe.probe(rdma_ports_probe.Asked(interfaces=["nosuchport0"]))
    assert doc["error"] is None
    _, facts = parse("rdma-ports", doc)
    assert isinstance(facts, RdmaPortsFacts)
    assert [(p.interface, p.device, p.present) for p in facts.ports] == [("nosuchport0", "", False)]


def test_the_active_mtu_is_read() -> None:
    assert rdma_ports_probe.active_mtu(RECORDED["stdout"]) == 4096
    assert rdma_ports_probe.active_mtu("\t\t\tmax_mtu:\t\t4096 (5)\n") is None


def test_a_recorded_soft_roce_port() -> None:
    samples, facts = parse("rdma-ports", RECORDED)  # type: ignore[arg-type]
    assert isinstance(facts, RdmaPortsFacts)
    (port,) = facts.ports
    assert (port.interface, port.device, port.state, port.link_layer) == ("fab0", "rxe_fab0", "ACTIVE", "Ethernet")
    assert (port.qos.roce_mode, port.qos.tos, port.qos.pfc) == ("RoCE v2", 0, None)
    assert port.gids[1] == Gid(index=1, type="RoCE v2", gid=IPv6Address("::ffff:10.78.0.13"), interface="fab0")
    assert port.counters["link_downed"] == 0
    assert (facts.memlock.bytes, facts.policy) == (323506176, None)
    assert {(s.metric, s.value, s.unit) for s in samples} == {
        ("fab0.rate_gbps", 2.5, "Gbit/s"),
        ("fab0.active_mtu_bytes", 4096, "bytes"),
    }


@pytest.mark.parametrize(
    "spoil",
    [
        lambda facts: facts.update(ports=[]),
        lambda facts: facts["ports"][0].update(state=""),
        lambda facts: facts["ports"][0]["counters"].update(rcvd_seq_err=-1),
        lambda facts: facts["ports"][0]["counters"].update(rcvd_seq_err="many"),
        lambda facts: facts["ports"][0].pop("link_layer"),
        lambda facts: facts["ports"][0]["qos"].update(tos=1.5),
        lambda facts: facts["memlock"].pop("user"),
        lambda facts: facts["memlock"].update(bytes="-1"),
        lambda facts: facts["memlock"].update(bytes=True),
        lambda facts: facts.pop("memlock"),
        lambda facts: facts.pop("policy"),
        lambda facts: facts["ports"].append(facts["ports"][0]),
        lambda facts: facts["ports"][0].update(gids=["1 RoCE v2 ::ffff:10.78.0.13 fab0"]),
        lambda facts: facts["ports"][0]["gids"][1].update(gid="no-address"),
        lambda facts: facts["ports"][0].update(active_mtu_bytes=9000),
        lambda facts: facts["ports"][0].update(rate_gbps=0),
        lambda facts: facts["ports"][0]["counters"].update(link_downed=1.5),
    ],
)
def test_a_document_that_lacks_something_is_refused(spoil: Any) -> None:
    doc = copy.deepcopy(RECORDED)
    spoil(doc["facts"])
    with pytest.raises(ParseError):
        parse("rdma-ports", doc)  # type: ignore[arg-type]
