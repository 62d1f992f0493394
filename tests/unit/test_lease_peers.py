"""Servers of one lease that know each other: who is told of whom, and who is let in."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.lease_host import FakeHost
from tests.support.lease_texts import COMMENT, jobs_of, slurm_job
from tests.support.node_modules import load_filters
from toolkit.lease.engines import BESIDE
from toolkit.lease.fields import DamagedDocument
from toolkit.lease.instance_record import Instance
from toolkit.lease.jobs.lease_job import LeaseJob
from toolkit.lease.jobs.slurm_text import SlurmJob
from toolkit.lease.machine import unit
from toolkit.lease.machine.processes import Process
from toolkit.lease.machine.sockets import Occupant
from toolkit.lease.server import instance
from toolkit.lease.server.peers import meeting_of
from toolkit.lease.server_conf import ServerConf, read_server_conf

CLIENT, SERVERS = "10.77.1.12", {"gpu1": "10.77.1.13", "gpu2": "10.77.1.14", "gpu3": "10.77.1.15"}
GRES = ["gpu:v100:1(IDX:0)", "gpu:v100:1(IDX:0)"]


@dataclass(frozen=True)
class Node:
    """A GPU server of the pool, with the engine torch beside the first one."""

    host: FakeHost
    conf: ServerConf

    def start(self, job: SlurmJob) -> Instance:
        instance.start(self.host, job, self.conf)
        return self.host.systemd.units[str(job.id)]

    def secret(self, job: int = 41) -> str:
        return (self.host.run_dir / str(job) / "peer-token").read_text()


def server(folder: Path, node: str, key: bytes = b"k" * 128, servers: Mapping[str, str] = SERVERS) -> Node:
    current = folder / node / "current"
    current.mkdir(parents=True)
    host = FakeHost(folder=current)
    host.serve()
    torch = current.parent / BESIDE / "torch/current"
    torch.mkdir(parents=True)
    (torch / "engine.json").write_text('{"engine": "torch", "release": "r1", "torch": ["2.13"]}')
    python = torch.parent / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.touch(0o755)
    host.munge_key.write_bytes(key)
    told = {"node": node, "address": SERVERS[node], "ports": [21000, 23999], "engine_dir": str(current)}
    host.server_conf.write_text(json.dumps({**told, "shards_per_gpu": 140, "servers": dict(servers)}))
    return Node(host, read_server_conf(host.server_conf))


def job(number: int = 41, engine: str = "torch", node: str = "gpu[1-2]", **more: Any) -> SlurmJob:
    comment = json.dumps({**json.loads(COMMENT), "clients": [CLIENT], "engine": engine}, separators=(",", ":"))
    given = {"gres": GRES, "uid": os.getuid(), "memory_per_node": 65536, **more}
    return jobs_of(slurm_job(number, comment=comment, node=node, **given))[0]


def test_all_servers_of_a_lease_are_told_the_same_without_a_word_between_them(tmp_path: Path) -> None:
    one, two = server(tmp_path, "gpu1"), server(tmp_path, "gpu2")
    first, second = one.start(job()), two.start(job())
    assert first.peers == second.peers
    assert [(peer.address, peer.port) for peer in first.peers] == [
        (SERVERS["gpu1"], first.port),
        (SERVERS["gpu2"], second.port),
    ]
    assert one.secret() == two.secret()
    assert len(one.secret().strip()) == 64
    assert first.peers_text() == f"10.77.1.13 {first.port}\n10.77.1.14 {second.port}\n"
    assert Instance.read(one.host.run_dir / "41") == first


def test_another_server_comes_to_the_engine_alone_and_no_other_machine_does(tmp_path: Path) -> None:
    one = server(tmp_path, "gpu1")
    started = one.start(job())
    clients = {(CLIENT, started.port), (CLIENT, started.agent_port)}
    assert one.host.firewall.open == clients | {(SERVERS["gpu2"], started.port)}
    one.host.firewall.open, one.host.firewall.there = set(), False  # systemctl restart nftables
    instance.close_ports(one.host, one.conf)
    assert one.host.firewall.open == clients | {(SERVERS["gpu2"], started.port)}
    given = unit.properties(started, one.host.run_dir / "41")
    assert [line for line in given if line.startswith("IPAddress")] == [
        "IPAddressDeny=any", f"IPAddressAllow={CLIENT}", f"IPAddressAllow={SERVERS['gpu2']}",
    ]  # fmt: skip
    assert "RestrictAddressFamilies=AF_NETLINK" in given, "gloo asks by it which interface its address is of"
    one.host.systemd.stop("41")
    assert instance.end_instance(one.host, "41") == []
    assert one.host.firewall.open == set()


def test_the_secret_is_of_one_lease_and_for_root_and_the_unit_alone(tmp_path: Path) -> None:
    one = server(tmp_path, "gpu1")
    started = one.start(job())
    folder = one.host.run_dir / "41"
    assert (folder / "peer-token").stat().st_mode & 0o777 == 0o400
    assert f"LoadCredential=peer-token:{folder}/peer-token" in unit.properties(started, folder)
    secret = one.secret().strip()
    for file in ("endpoint.json", "instance.json", "token"):
        assert secret not in (folder / file).read_text()
    assert str(started.peers[1].port) not in (folder / "endpoint.json").read_text()
    tokens, ports = {secret}, {started.peers}
    for other in (job(42), job(uid=os.getuid() + 1), job(submit_time=1)):
        meeting = meeting_of(one.host, LeaseJob.of(other, "gpu1"), one.conf, "torch")
        assert meeting is not None
        tokens.add(meeting.token)
        ports.add(meeting.peers)
    another_pool = server(tmp_path / "b", "gpu1", key=b"l" * 128)
    another_pool.start(job())
    assert len({*tokens, another_pool.secret().strip()}) == 5
    assert len(ports) == 4, "nobody knows a port from an earlier lease"


def test_what_a_user_writes_of_a_job_changes_neither_secret_nor_servers(tmp_path: Path) -> None:
    one = server(tmp_path, "gpu1")
    plain = meeting_of(one.host, LeaseJob.of(job(), "gpu1"), one.conf, "torch")
    comment = json.loads(job().comment) | {"clients": [SERVERS["gpu3"]], "host": "gpu3", "parts": 7}
    wild = job(current_working_directory="/gpu3", standard_output="10.77.1.15 22")
    wild = replace(wild, comment=json.dumps(comment))
    assert meeting_of(one.host, LeaseJob.of(wild, "gpu1"), one.conf, "torch") == plain


BOTH = ["gpu:v100:2(IDX:0-1)"]


def test_the_gpus_of_one_server_meet_there_by_a_secret_of_its_own(tmp_path: Path) -> None:
    """Without a word of Slurm's or a key, at whatever port it got; nobody but its sessions and its client comes."""
    one = server(tmp_path, "gpu1", key=b"", servers={})
    started = one.start(job(node="gpu1", gres=BOTH, submit_time=0))
    own = SERVERS["gpu1"]
    assert [(peer.address, peer.port) for peer in started.peers] == [(own, started.port)]
    assert started.peers_text() == f"{own} {started.port}\n"
    assert one.host.firewall.open == {(CLIENT, started.port), (CLIENT, started.agent_port), (own, started.port)}
    given = unit.properties(started, one.host.run_dir / "41")
    assert [line for line in given if line.startswith("IPAddress")] == [
        "IPAddressDeny=any", f"IPAddressAllow={CLIENT}", f"IPAddressAllow={own}",
    ]  # fmt: skip
    secret = one.secret()
    assert len(secret.strip()) == 64
    instance.end_instance(one.host, "41")
    one.start(job(node="gpu1", gres=BOTH))
    assert one.secret() != secret


def test_the_reference_engine_and_one_gpu_have_no_meeting(tmp_path: Path) -> None:
    one = server(tmp_path, "gpu1")
    for wish in ({"gres": BOTH, "engine": "reference"}, {"gres": GRES[:1]}):
        found = LeaseJob.of(job(node="gpu1", **wish), "gpu1")
        assert meeting_of(one.host, found, one.conf, str(wish.get("engine", "torch"))) is None


@pytest.mark.parametrize(
    ("wish", "how"),
    [
        ({"node": "gpu1", "gres": GRES[:1]}, {}),
        ({"engine": "reference"}, {}),
        ({"node": "gpu[1,4]"}, {}),  # of which the role knows no address
        ({"submit_time": 0}, {}),
        ({}, {"servers": {}}),  # site.yml of an earlier release
        ({}, {"servers": SERVERS | {"gpu2": SERVERS["gpu1"]}}),
        ({}, {"servers": SERVERS | {"gpu2": "gpu2.example.net"}}),
        ({}, {"servers": SERVERS | {"gpu1": "10.77.1.99"}}),
        ({}, {"key": b"short"}),
    ],
)
def test_a_lease_whose_servers_cannot_be_told_goes_by_its_client(
    tmp_path: Path, wish: dict[str, Any], how: dict[str, Any]
) -> None:
    one = server(tmp_path, "gpu1", **how)
    started = one.start(job(**wish))
    assert started.peers == ()
    assert not (one.host.run_dir / "41/peer-token").exists()
    assert {address for address, _port in one.host.firewall.open} == {CLIENT}
    given = unit.properties(started, one.host.run_dir / "41")
    assert not [line for line in given if "peer" in line or "AF_NETLINK" in line]


def test_a_port_that_another_lease_has_is_not_taken_and_one_that_a_user_has_is(tmp_path: Path) -> None:
    one = server(tmp_path, "gpu1")
    started = one.start(job())
    wanted = started.port
    instance.end_instance(one.host, "41")
    sockets = one.host.sockets

    class Squatter(Process):
        def kill(self) -> None:
            sockets.squatters.clear()
            sockets.busy.clear()

    sockets.squatters.append(Occupant(Squatter(7, "1", 1001, "nc"), (wanted,)))
    sockets.busy.add(wanted)
    assert one.start(job()).port == wanted
    instance.end_instance(one.host, "41")
    two = server(tmp_path / "b", "gpu1")
    other = replace(
        started, job="40", lease=40, devices=(replace(started.devices[0], index=3, uuid="GPU-3"),), peers=()
    )
    (two.host.run_dir / "40").mkdir(parents=True)
    other.write(two.host.run_dir / "40")
    again = two.start(job())
    assert again.port != wanted
    assert again.peers == (), "the others would not find it: all goes by the client"


def test_a_record_of_before_has_no_servers_and_a_damaged_one_is_none(tmp_path: Path) -> None:
    one = server(tmp_path, "gpu1")
    data = json.loads(one.start(job()).text())
    with pytest.raises(DamagedDocument, match="address"):
        Instance.parse(json.dumps(data | {"peers": [{"address": "gpu2; reboot", "port": 1}]}))
    with pytest.raises(DamagedDocument, match="port"):
        Instance.parse(json.dumps(data | {"peers": [{"address": "10.0.0.1", "port": 0}]}))
    del data["peers"]
    assert Instance.parse(json.dumps(data)).peers == ()


def test_addresses_of_all_servers_are_the_inventorys() -> None:
    addresses = load_filters("remoting")["lease_addresses"]
    hostvars: dict[str, Any] = {
        "g1.example.net": {
            "fabric_ports": [{"address": "10.0.0.1/24"}, {"address": "10.9.0.1/24"}],
            "ansible_host": "a",
        },
        "g2": {"ansible_host": "192.0.2.7"},
        "g3": {"remoting_server_address": " 10.0.0.3 ", "fabric_ports": [{"address": "10.0.0.9/24"}]},
        "g4": {"fabric_ports": [{"interface": "fab0"}]},
    }
    assert addresses(hostvars, hostvars) == {"g1": "10.0.0.1", "g2": "192.0.2.7", "g3": "10.0.0.3", "g4": "g4"}
