"""Parts of GPUs as MIG instances: those that exist, of exactly the size that was asked for, each to one lease."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.lease_host import FakeHost
from tests.support.lease_texts import jobs_of, slurm_job
from toolkit.lease import LeaseError, engines
from toolkit.lease.machine import unit
from toolkit.lease.machine.nvml import Gpu, MigInstance
from toolkit.lease.server import hooks, instance, mig
from toolkit.lease.server_conf import ServerConf

#: GPU 0 as 1 + 1 + 2 + 3 slices of seven, GPU 1 not divided.
INSTANCES = tuple(
    MigInstance(f"MIG-{i}", i, 0, slices, 32 * slices, 11 * slices) for i, slices in enumerate((1, 1, 2, 3))
)
GPUS = [
    Gpu(0, "GPU-0", "Emulated H200", 256, 0, True, 80, INSTANCES, 7),
    Gpu(1, "GPU-1", "Emulated H200", 256, 0, True, 80),
]
NO_FILE = Path("/nonexistent")


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    found = FakeHost(folder=tmp_path)
    found.gpus.found = list(GPUS)
    found.gpus.sizes.clear()
    return found


@pytest.fixture
def conf(host: FakeHost) -> ServerConf:
    return host.serve(enforcement="mig")


def start(host: FakeHost, conf: ServerConf, number: int, shards: int, gpu: int = 0, **more: Any) -> dict[str, Any]:
    gres = f"shard:v100:{shards}(IDX:{gpu})"
    instance.start(host, jobs_of(slurm_job(number, uid=os.getuid(), gres=gres, **more))[0], conf)
    return host.endpoint(number)


def test_a_part_is_an_instance_of_exactly_its_size(host: FakeHost, conf: ServerConf) -> None:
    first, second = start(host, conf, 41, 20), start(host, conf, 42, 20)
    third = start(host, conf, 43, 40)
    given = [told["devices"][0] for told in (first, second, third)]
    assert [(d["uuid"], d["memory_mib"], d["limit_mib"]) for d in given] == [
        ("MIG-0", 32, None),
        ("MIG-1", 32, None),
        ("MIG-2", 64, None),
    ]
    assert [d["context_bytes"] for d in given] == [0, 0, 0], "nothing is cut, so nothing has to be measured"
    assert "2/7 of a GPU is a MIG instance of 64 MiB and 22 SMs" in third["notes"]
    assert not [note for note in third["notes"] if "you get" in note or "not limited" in note]
    command = engines.load("reference").command(host.systemd.units["43"].start(NO_FILE, NO_FILE))
    assert (command.environment["CUDA_VISIBLE_DEVICES"], "--memory-limit" in command.argv) == ("MIG-2", False)


def test_what_no_instance_is_is_refused_with_those_that_there_are(host: FakeHost, conf: ServerConf) -> None:
    for shards, words in (
        (35, r"GPU 0 has no MIG instance of 1/4 \(there are: 1/7, 2/7, 3/7\)"),
        (140, "whole GPUs are those that are not divided"),
    ):
        with pytest.raises(LeaseError, match=words):
            start(host, conf, 41, shards)
        assert not host.endpoint(41)["again"], "it would be refused for ever"
    with pytest.raises(LeaseError, match="GPU 1 is not divided by MIG"):
        start(host, conf, 41, 20, gpu=1)
    start(host, conf, 42, 60)
    with pytest.raises(LeaseError, match="all MIG instances of 3/7 of GPU 0 are in use"):
        start(host, conf, 43, 60)
    assert host.endpoint(43)["again"], "Slurm counts slices and not instances: another GPU may have one"
    assert start(host, conf, 44, 140, gpu=1)["devices"][0]["uuid"] == "GPU-1"


def test_without_the_setting_a_divided_gpu_is_not_leased(host: FakeHost, conf: ServerConf) -> None:
    for shards in (20, 140):
        with pytest.raises(LeaseError, match="set remoting_server_enforcement: mig"):
            start(host, replace(conf, enforcement="engine"), 41, shards)


def test_an_instance_counts_for_its_gpu(host: FakeHost, conf: ServerConf) -> None:
    start(host, conf, 41, 60)
    native = jobs_of(slurm_job(50, name="train", comment="", gres="gpu:v100:1(IDX:0)", user="bob", uid=2002))[0]
    assert hooks.give_way(host, native, conf) is False
    assert host.slurm.commands == [["scontrol", "requeue", "50"]]


def test_the_engine_of_production_is_held_by_mig(host: FakeHost, conf: ServerConf) -> None:
    start(host, conf, 41, 20)
    asked = host.systemd.units["41"].start(NO_FILE, NO_FILE)
    lupine = engines.load("lupine")
    assert lupine.keeps_part(asked) == ""
    plain = replace(asked, devices=tuple(replace(device, gpu_uuid="") for device in asked.devices))
    assert "remoting_server_enforcement: mig" in lupine.keeps_part(plain)


def test_a_unit_opens_the_files_of_its_instances_and_no_others(
    host: FakeHost, conf: ServerConf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.gpus.found = [replace(gpu, emulated=False) for gpu in GPUS]
    monkeypatch.setattr(mig, "CAPABILITIES", tmp_path / "capabilities")
    monkeypatch.setattr(mig, "DEVICES", tmp_path / "caps")
    (tmp_path / "caps").mkdir()
    for place, minor in (("gi2", 21), ("gi2/ci0", 22)):
        access = tmp_path / "capabilities/gpu0/mig" / place / "access"
        access.parent.mkdir(parents=True, exist_ok=True)
        access.write_text(f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
        (tmp_path / f"caps/nvidia-cap{minor}").touch()
    start(host, conf, 43, 40)
    given = [word for word in unit.properties(host.systemd.units["43"], tmp_path) if word.startswith("DeviceAllow=")]
    assert given == [
        *(f"DeviceAllow=/dev/{name} rw" for name in ("nvidiactl", "nvidia-uvm", "nvidia0")),
        *(f"DeviceAllow={tmp_path}/caps/nvidia-cap{minor} rw" for minor in (21, 22)),
    ]
    (tmp_path / "caps/nvidia-cap22").unlink()
    with pytest.raises(LeaseError, match="nvidia-cap22 is not there"):
        mig.device_files(0, INSTANCES[2])
    with pytest.raises(LeaseError, match="gi3/access: No such file"):
        mig.device_files(0, INSTANCES[3])
