"""A lease on its server, with systemd, nftables and NVML replaced by what remembers: nothing stays, whatever fails."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from lease_texts import COMMENT, job_text

from toolkit.lease import LeaseError, firewall, hooks, instance, nvml, slurm, static, unit
from toolkit.lease.server_conf import ServerConf, read_server_conf
from toolkit.lease.slurm_text import Held, Job, parse_job

GPUS = [nvml.Gpu(i, f"GPU-{i}", "Emulated V100", 256, 0) for i in range(4)]


class Server:
    """What stands for the machine."""

    def __init__(self) -> None:
        self.units: dict[str, dict[str, Any]] = {}
        self.open: set[tuple[str, int]] = set()
        self.fail = ""
        self.commands: list[list[str]] = []

    def start(self, data: dict[str, Any], folder: Path) -> None:
        assert {(c, p) for c in data["clients"] for p in (data["port"], data["agent_port"])} <= self.open
        assert (folder / "token").stat().st_mode & 0o777 == 0o400
        if self.fail:
            raise LeaseError(self.fail)
        self.units[data["job"]] = data

    def admit(self, clients: list[str], ports: tuple[int, ...]) -> None:
        self.open |= {(c, p) for c in clients for p in ports}

    def shut(self, ports: list[int]) -> None:
        self.open = {(c, p) for c, p in self.open if p not in ports}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Server:
    fake = Server()
    run = tmp_path / "leases"
    for module in (instance, hooks):
        monkeypatch.setattr(module, "RUN_DIR", run)
    monkeypatch.setattr(unit, "start", fake.start)
    monkeypatch.setattr(unit, "stop", lambda job: fake.units.pop(job, None))
    monkeypatch.setattr(unit, "active", lambda job: job in fake.units)
    monkeypatch.setattr(unit, "running", lambda: list(fake.units))
    monkeypatch.setattr(unit, "pids", lambda job: [999_999] if job in fake.units else [])
    monkeypatch.setattr(unit, "said_in_journal", lambda job: ["its last words"])
    monkeypatch.setattr(firewall, "own_addresses", lambda: {"127.0.0.1", "172.17.0.1", "10.77.1.13"})
    monkeypatch.setattr(firewall, "loaded", lambda: True)
    monkeypatch.setattr(firewall, "admit", fake.admit)
    monkeypatch.setattr(firewall, "shut", fake.shut)
    monkeypatch.setattr(firewall, "admitted", lambda: fake.open)
    monkeypatch.setattr(nvml, "gpus", lambda: GPUS)
    monkeypatch.setattr(nvml, "processes", dict)
    return fake


@pytest.fixture
def conf(tmp_path: Path) -> ServerConf:
    (tmp_path / "engine.json").write_text('{"engine": "reference", "release": "r1"}')
    return ServerConf("gpu1", "127.0.0.1", (31000, 31099), tmp_path)


def job(number: int = 41, gres: str = "shard:v100:70(IDX:2)", **more: Any) -> Job:
    return parse_job(job_text(number, gres=gres, user=f"alice({os.getuid()})", **more))


def endpoint(number: int) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((instance.RUN_DIR / str(number) / "endpoint.json").read_text())
    return data


def test_a_lease_has_its_own_devices_limit_ports_and_token(server: Server, conf: ServerConf) -> None:
    instance.start(job(), conf)
    told = endpoint(41)
    assert [(d["uuid"], d["limit_mib"], d["emulated"]) for d in told["devices"]] == [("GPU-2", 128, True)]
    assert len(told["token"]) > 40
    assert (instance.RUN_DIR / "41" / "endpoint.json").stat().st_mode & 0o777 == 0o400
    assert server.open == {(c, p) for c in ("10.77.1.12", "10.78.1.12") for p in (told["port"], told["agent_port"])}
    assert "token" not in json.dumps(server.units["41"])
    assert any("computing is not limited" in note for note in told["notes"])


def test_a_job_that_is_no_lease_gives_way_to_leases(
    server: Server, conf: ServerConf, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance.start(job(41, gres="shard:v100:70(IDX:2)"), conf)
    monkeypatch.setattr(hooks, "read_server_conf", lambda: conf)
    monkeypatch.setattr(hooks.slurm, "run", lambda args, **_: server.commands.append(args) or Done())
    hooks.give_way(job(50, gres="gpu:v100:2(IDX:0-1)", name="train", comment="(null)"))
    assert server.commands == []
    hooks.give_way(job(51, gres="gpu:v100:2(IDX:1-2)", name="train", comment="(null)"))
    assert server.commands == [["scontrol", "requeue", "51"]]
    Done.returncode = 1  # an interactive one cannot be queued again
    hooks.give_way(job(52, gres="gpu:v100:1(IDX:2)", name="train", comment="(null)"))
    assert server.commands[-1] == ["scancel", "52"]


class Done:
    """A command that worked."""

    returncode, stdout, stderr = 0, "", ""


def test_an_address_of_the_server_itself_is_no_client(server: Server, conf: ServerConf) -> None:
    bridged = COMMENT.replace('"10.77.1.12"', '"172.17.0.1","10.77.1.12"')
    instance.start(job(comment=bridged), conf)
    assert {c for c, _ in server.open} == {"10.77.1.12", "10.78.1.12"}
    instance.start(job(42, comment=COMMENT.replace("10.78.1.12", "127.0.0.1")), conf)
    assert server.units["42"]["clients"] == ["10.77.1.12", "127.0.0.1"]  # it serves on this one: the client is here
    with pytest.raises(LeaseError, match="addresses of gpu1 itself"):
        instance.start(
            job(43, "gpu:v100:1(IDX:3)", comment=COMMENT.replace('"10.77.1.12","10.78.1.12"', '"172.17.0.1"')), conf
        )


def test_a_whole_gpu_has_no_limit_and_no_part_of_another_node(server: Server, conf: ServerConf) -> None:
    instance.start(job(gres="gpu:v100:2(IDX:0-1)"), conf)
    assert [d["limit_mib"] for d in endpoint(41)["devices"]] == [None, None]
    with pytest.raises(LeaseError, match="gave the lease no GPU"):
        instance.start(job(42, gres="gpu:v100:1(IDX:3)", node="gpu2"), conf)


def test_a_gpu_is_never_given_out_twice(server: Server, conf: ServerConf) -> None:
    instance.start(job(41), conf)
    instance.start(job(42), conf)
    for gres in ("shard:v100:1(IDX:2)", "gpu:v100:1(IDX:2)"):
        with pytest.raises(LeaseError, match="already has leases for 140 of 140 shards"):
            instance.start(job(43, gres=gres), conf)
    assert set(server.units) == {"41", "42"}


@pytest.mark.parametrize(
    ("comment", "words"), [("{}", "another release"), (COMMENT.replace('"run"', '"x"'), "no valid mode")]
)
def test_what_cannot_start_leaves_its_reason_and_nothing_else(
    server: Server, conf: ServerConf, comment: str, words: str
) -> None:
    with pytest.raises(LeaseError, match=words):
        instance.start(job(comment=comment), conf)
    assert words in endpoint(41)["error"]
    assert (server.open, server.units) == (set(), {})
    assert sorted(p.name for p in (instance.RUN_DIR / "41").iterdir()) == ["endpoint.json"]
    assert instance.end_instance("41") == []
    assert not (instance.RUN_DIR / "41").exists()


def test_a_unit_that_fails_takes_rule_port_and_token_with_it(server: Server, conf: ServerConf) -> None:
    server.fail = "elastic-ai-lease@41.service did not start: timeout"
    with pytest.raises(LeaseError, match="its last words"):
        instance.start(job(), conf)
    assert server.open == set()
    assert sorted(p.name for p in (instance.RUN_DIR / "41").iterdir()) == ["endpoint.json"]


def test_no_engine_no_driver_no_ports(
    server: Server, conf: ServerConf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LeaseError, match="no remoting engine is installed"):
        instance.start(job(), ServerConf("gpu1", "127.0.0.1", (31000, 31099), tmp_path / "none"))
    with pytest.raises(LeaseError, match="all ports for leases"):
        instance.start(job(), ServerConf("gpu1", "127.0.0.1", (31000, 31000), tmp_path))
    with pytest.raises(LeaseError, match="no MPS daemon"):
        instance.start(
            job(), ServerConf("gpu1", "127.0.0.1", (31000, 31099), tmp_path, enforcement="mps", mps_pipe="/x")
        )

    def broken() -> list[nvml.Gpu]:
        raise LeaseError("this server has no libnvidia-ml.so.1")

    monkeypatch.setattr(nvml, "gpus", broken)
    with pytest.raises(LeaseError, match="no libnvidia-ml"):
        instance.start(job(), conf)
    assert server.open == set()


def test_the_end_is_verified(server: Server, conf: ServerConf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "verify_gone", lambda *a: ["process 7 still runs"])
    instance.start(job(), conf)
    assert instance.end_instance("41") == ["process 7 still runs"]
    assert (instance.RUN_DIR / "41").exists()  # so that the sweep comes back to it


def test_memory_that_stays_on_a_gpu_is_found(server: Server, conf: ServerConf, monkeypatch: pytest.MonkeyPatch) -> None:
    instance.start(job(), conf)
    monkeypatch.setattr(nvml, "processes", lambda: {"GPU-2": [999_999]})
    assert instance.verify_gone("0", [999_999], [], patience_s=0) == ["process 999999 still has memory on GPU-2"]


def test_a_prolog_starts_leases_and_nothing_else(
    server: Server, conf: ServerConf, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = {41: job(), 50: job(50, name="train"), 51: job(51, comment="mine")}
    monkeypatch.setattr(slurm, "job_parts", lambda number: [jobs[number]] if number in jobs else [])
    monkeypatch.setattr(hooks, "read_server_conf", lambda: conf)
    for number in (41, 50, 51, 60):
        monkeypatch.setenv("SLURM_JOB_ID", str(number))
        assert hooks.prolog() == 0
    assert set(server.units) == {"41"}
    assert endpoint(41)["token"] not in capsys.readouterr().err
    monkeypatch.setenv("SLURM_JOB_ID", "41")
    assert hooks.epilog() == 0
    assert (server.units, server.open, instance.known()) == ({}, set(), {})
    monkeypatch.setenv("SLURM_JOB_ID", "60")
    assert hooks.epilog() == 0


def test_the_sweep_ends_what_nobody_ended(
    server: Server, conf: ServerConf, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(hooks, "read_server_conf", lambda: conf)
    given_back: list[str] = []
    monkeypatch.setattr(hooks, "give_back", lambda job_id, lease, why: given_back.append(f"{job_id}: {why}"))
    for number, gres in ((41, "gpu:1(IDX:0)"), (42, "gpu:1(IDX:1)"), (43, "gpu:1(IDX:2)")):
        instance.start(job(number, gres=gres), conf)
        os.utime(instance.RUN_DIR / str(number), (0, 0))
    server.units.pop("43")  # died without its ExecStopPost
    server.open.add(("10.0.0.9", 31098))  # a rule of nobody
    monkeypatch.setattr(hooks, "_jobs_here", lambda node: None)
    assert hooks.sweep() == 0
    assert set(server.units) == {"41", "42"}  # Slurm does not answer: nothing is taken
    monkeypatch.setattr(hooks, "_jobs_here", lambda node: {"41": 4102444800.0, "43": None})
    assert hooks.sweep() == 0
    assert set(server.units) == {"41"}
    assert given_back == ["43: its instance is gone"]
    assert ("10.0.0.9", 31098) not in server.open
    assert float((instance.RUN_DIR / "41" / "deadline").read_text()) == 4102444800.0


def test_the_sandbox(server: Server, conf: ServerConf) -> None:
    instance.start(job(), conf)
    given = unit.properties(server.units["41"], Path("/run/elastic-ai/leases/41"))
    for wanted in (
        "DynamicUser=yes",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "PrivateTmp=yes",
        "IPAddressDeny=any",
        "IPAddressAllow=10.77.1.12",
        "CapabilityBoundingSet=",
        f"MemoryMax={(2048 + 128) << 20}",
    ):
        assert wanted in given


def test_the_reason_of_a_lease_follows_no_link(tmp_path: Path) -> None:
    folder = tmp_path / "elastic-ai-lease-41"
    folder.mkdir()
    (tmp_path / "secret").write_text("root only")
    (folder / "reason").symlink_to(tmp_path / "secret")
    assert unit.reason_left("41", tmp_path) == ""
    (folder / "reason").unlink()
    (folder / "reason").write_text("its time is over; $(reboot)\n")
    assert unit.reason_left("41", tmp_path) == "its time is over (reboot)"
    (folder / "reason").unlink()
    os.mkfifo(folder / "reason")
    assert unit.reason_left("41", tmp_path) == ""


def test_the_servers_own_description(tmp_path: Path) -> None:
    path = tmp_path / "server.json"
    with pytest.raises(LeaseError, match="offers no leases"):
        read_server_conf(path)
    path.write_text('{"node": "gpu1", "address": "10.0.0.1", "ports": [1, 2], "engine_dir": "/e", "grace_s": 5}')
    assert read_server_conf(path) == ServerConf("gpu1", "10.0.0.1", (1, 2), Path("/e"), grace_s=5)
    path.write_text('{"node": "gpu1"}')
    with pytest.raises(LeaseError, match=r"run site\.yml again"):
        read_server_conf(path)


def test_shares_of_all_kinds_are_counted() -> None:
    held = [Held("gpu1", 0, 0), Held("gpu1", 1, 20)]
    conf = ServerConf("gpu1", "127.0.0.1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvml, "gpus", lambda: GPUS)
        assert [(d.shards, d.limit_mib) for d in instance.devices_of(held, conf, 0)] == [(140, None), (20, 36)]
        assert [d.limit_mib for d in instance.devices_of(held, conf, 30)] == [30, 30]
        with pytest.raises(LeaseError, match="only 4 GPUs"):
            instance.devices_of([Held("gpu1", 9, 0)], conf, 0)


def test_static_leases_take_what_is_free_and_refuse_the_rest(
    server: Server, conf: ServerConf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(static, "RUN_DIR", instance.RUN_DIR)
    wish = {"count": 2, "shards": 70, "clients": ["10.0.0.2"], "host": "client1", "what": "2 x 1/2 GPU", "seconds": 60}
    first = static.start(wish, conf)
    assert (first["job"], [d["index"] for d in first["devices"]]) == ("s1", [0, 0])
    assert static.start(wish | {"count": 3, "shards": 140}, conf)["job"] == "s2"
    with pytest.raises(LeaseError, match="gpu1 has not that much free: 0 GPUs"):
        static.start(wish | {"count": 1, "shards": 7}, conf)
    assert set(server.units) == {"s1", "s2"}
    assert [(row["lease"], row["where"]) for row in static.listed(instance.known(), "gpu1")] == [
        ("s1", "gpu1:0"),
        ("s2", "gpu1:1-3"),
    ]
    assert instance.end_instance("s1") == []
    assert static.start(wish, conf)["job"] == "s3"
