"""GPUs of leases that nobody uses: measured, told, given another chance, and taken back."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.lease_host import FakeHost
from tests.support.lease_texts import COMMENT, jobs_of, slurm_job
from tests.support.node_modules import load
from toolkit.lease import LeaseError, instance_record
from toolkit.lease.jobs.slurm_text import SlurmJob
from toolkit.lease.server import idle, instance, sweep
from toolkit.lease.server_conf import ServerConf, class_of, read_server_conf
from toolkit.lease.wire import Deadline, EndCode
from toolkit.pool_policy import check_pool
from validation.model.load import ConfigError

LIMITS = {"classes.v100": 30.0, "users.teaching": 20.0}
UID = os.getuid() or 1001


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    host = FakeHost(folder=tmp_path)
    monkeypatch.setattr(instance_record.os, "fchown", lambda *_: None)
    return host


def job(number: int = 41, gres: str = "shard:v100:70(IDX:2)", **more: Any) -> SlurmJob:
    account = more.pop("account", "research")
    return replace(jobs_of(slurm_job(number, gres=gres, uid=UID, **more))[0], account=account)


def serve(host: FakeHost, **more: Any) -> ServerConf:
    return host.serve(idle_minutes=LIMITS, **more)


def after(host: FakeHost, minutes: float) -> dict[str, str]:
    host.clock.now += 60 * minutes
    return idle.look(host)


def due(host: FakeHost, number: int = 41) -> Any:
    return Deadline.read(host.run_dir / str(number) / "deadline")


def test_it_is_told_and_then_taken_back(host: FakeHost) -> None:
    instance.start(host, job(), serve(host))
    assert "it is taken back when its GPUs were not used for 30 minutes" in host.endpoint(41)["notes"]
    assert idle.look(host) == {}
    assert after(host, 24.9) == {}
    assert due(host).idle_due is None
    assert after(host, 0.2) == {
        "41": "its GPUs were not used for 25 minutes; its owner is notified that they end at 30"
    }
    assert (due(host).idle_due, due(host).early) == (30 * 60, False)
    assert after(host, 2) == {}, "told once"
    assert after(host, 3) == {"41": "its GPUs were not used for 30 minutes: taken back"}
    assert (due(host).code, due(host).due) == (EndCode.IDLE, host.clock.now)
    assert after(host, 1) == {}, "it is on its way"


def test_a_call_of_its_program_begins_the_time_anew(host: FakeHost) -> None:
    instance.start(host, job(), serve(host))
    assert idle.look(host) == {}
    assert list(after(host, 26)) == ["41"]
    host.systemd.cpu_s["41"] = 0.04
    assert after(host, 1) == {}, "its engine woke up by itself"
    assert due(host).idle_due is not None
    host.systemd.cpu_s["41"] = 0.06
    assert after(host, 1) == {"41": "its GPUs are used again after 28 minutes"}
    assert due(host).idle_due is None
    assert after(host, 24.9) == {}, "from that call on"
    host.systemd.cpu_s["41"] = 1.0
    assert after(host, 0) == {}
    for _ in range(40):  # little by little is use as well
        host.systemd.cpu_s["41"] += 0.02
        assert after(host, 3) == {}


def test_work_on_a_whole_gpu_is_use_though_its_engine_rests(host: FakeHost) -> None:
    instance.start(host, job(gres="gpu:v100:2(IDX:0-1)"), serve(host))
    instance.start(host, job(42, gres="shard:v100:70(IDX:3)"), serve(host))
    host.gpus.works = {"GPU-1": 3, "GPU-3": 100}
    assert idle.look(host) == {}
    assert list(after(host, 31)) == ["42"], "the work of a part's GPU may be its neighbour's"
    host.gpus.works = {}
    assert list(after(host, 31)) == ["41"]


def test_a_program_on_the_server_is_judged_by_its_gpus(host: FakeHost) -> None:
    there = COMMENT[:-1] + ',"where":"server"}'
    instance.start(host, job(gres="gpu:v100:1(IDX:0)", comment=there), serve(host))
    host.gpus.works, host.systemd.cpu_s["41"] = {"GPU-0": 1}, None
    assert idle.look(host) == {}
    assert after(host, 31) == {}
    host.gpus.works = {"GPU-0": None}
    assert after(host, 31) == {}, "what NVML does not say is no idleness"
    host.gpus.broken = LeaseError("NVML is not there")
    assert after(host, 31) == {}
    host.gpus.broken, host.gpus.works = None, {}
    assert list(after(host, 31)) == ["41"]


def test_what_cannot_be_measured_is_left_alone(host: FakeHost) -> None:
    instance.start(host, job(), serve(host))
    host.systemd.cpu_s["41"] = None
    assert idle.look(host) == {}
    assert after(host, 90) == {}
    (host.run_dir / "41" / idle.FILE).write_text("{")
    host.systemd.cpu_s["41"] = 0.0
    assert after(host, 29) == {}, "its time begins anew"


def test_the_parts_of_a_lease_here_count_as_one(host: FakeHost) -> None:
    for number, task in ((41, 0), (42, 1)):
        instance.start(host, replace(job(number, gres=f"gpu:v100:1(IDX:{task})"), array=41, task=task), serve(host))
    host.gpus.works = {"GPU-0": 80}
    assert idle.look(host) == {}
    assert after(host, 31) == {}
    host.gpus.works = {}
    assert sorted(after(host, 31)) == ["41", "42"]


def test_an_end_that_is_announced_is_not_replaced(host: FakeHost) -> None:
    instance.start(host, job(), serve(host))
    idle.look(host)
    instance.move_end(host, "41", 5.0, instance.due_at(host, 5.0, EndCode.PREEMPTED))
    assert after(host, 90) == {}
    assert due(host).code is EndCode.PREEMPTED


def test_a_lease_without_a_limit_is_not_looked_at(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    instance.start(host, job(), host.serve())
    monkeypatch.setattr(host.gpus, "utilisation", lambda: pytest.fail("NVML was asked"))
    assert after(host, 9999) == {}
    assert not any("taken back when" in note for note in host.endpoint(41)["notes"])


def test_the_shortest_time_of_its_classes_holds() -> None:
    conf = ServerConf("gpu1", "10.0.0.1", idle_minutes=LIMITS)
    assert conf.idle_limit_s(1001, "research", ["Tesla V100-SXM2-32GB"]) == 1800
    assert conf.idle_limit_s(1001, "teaching", ["Tesla V100-SXM2-32GB"]) == 1200
    assert conf.idle_limit_s(1001, "teaching", ["NVIDIA H200"]) == 1200
    assert conf.idle_limit_s(1001, "research", ["NVIDIA H200"]) is None
    assert conf.idle_limit_s(0, "teaching", ["Tesla V100"]) is None, "root is in no class"
    assert replace(conf, gpu_class="v100").idle_limit_s(1, "", ["Tesla V101"]) == 1800, "as the inventory calls it"
    slurm = load("plugins/plugin_utils/slurm.py")
    for name in ("Tesla V100-SXM2-32GB", "NVIDIA H200", "NVIDIA A100-SXM4-80GB", "NVIDIA L40S", "Emulated V100", "x"):
        assert class_of(name) == slurm.gpu_class(name), name


def test_the_sweep_takes_back_only_with_slurms_word(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(sweep, "tell", said.append)
    instance.start(host, job(), serve(host))
    host.slurm.answers["squeue"] = "41 RUNNING N/A N/A\n"
    assert sweep.sweep(host) == 0
    host.clock.now += 31 * 60
    host.slurm.answers["squeue"] = (1, "Unable to contact slurm controller")
    assert sweep.sweep(host) == 0
    assert due(host).code is EndCode.TIME
    host.slurm.answers["squeue"] = "41 RUNNING N/A N/A\n"
    assert sweep.sweep(host) == 0
    assert due(host).code is EndCode.IDLE
    assert said[-1] == "lease 41: its GPUs were not used for 31 minutes: taken back"


def test_the_policy_says_it_and_the_server_reads_it(tmp_path: Path) -> None:
    pool: dict[str, Any] = {
        "classes": {"v100": {"idle_minutes": 30}, "h100": {}},
        "users": {"teaching": {"groups": ["students"], "idle_minutes": 20}},
    }
    assert check_pool(pool, 5040).users["teaching"].idle_minutes == 20
    for wrong in (0, 4.9, -1, "soon"):
        with pytest.raises(ConfigError, match="idle_minutes"):
            check_pool({"classes": {"v100": {"idle_minutes": wrong}}}, 5040)
    minutes = load("plugins/plugin_utils/remoting.py").lease_idle_minutes(pool)
    assert minutes == {"classes.v100": 30.0, "users.teaching": 20.0}
    assert load("plugins/plugin_utils/remoting.py").lease_idle_minutes({"classes": {"v100": None}}) == {}
    path = tmp_path / "server.json"
    conf = {"node": "gpu1", "address": "10.0.0.1", "ports": [1, 2], "engine_dir": "/e", "idle_minutes": minutes}
    path.write_text(json.dumps(conf))
    assert read_server_conf(path).idle_minutes == minutes


@pytest.mark.parametrize(
    ("pool", "images", "found"),
    [
        ({}, [], "training"),
        ({"default_image": ""}, [{"name": "small"}, {"name": "large"}], "small"),
        ({"default_image": "site:3"}, [{"name": "small"}], "site:3"),
    ],
)
def test_the_default_image_is_the_policys_else_one_that_is_kept(pool: Any, images: Any, found: str) -> None:
    assert load("plugins/plugin_utils/remoting.py").lease_default_image(pool, images) == found
