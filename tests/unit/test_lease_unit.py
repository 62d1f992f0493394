"""The systemd unit of a lease: what it may reach, and what is taken from it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.support import lease_forms
from tests.support.lease_host import FakeHost
from tests.support.lease_texts import jobs_of, slurm_job
from toolkit.lease import LeaseError
from toolkit.lease.endpoint import parse
from toolkit.lease.jobs.slurm_text import SlurmJob
from toolkit.lease.machine import unit
from toolkit.lease.server import instance
from toolkit.lease.server_conf import ServerConf


def job() -> SlurmJob:
    return jobs_of(slurm_job(41, uid=os.getuid()))[0]


def test_the_sandbox(host: FakeHost, conf: ServerConf) -> None:
    instance.start(host, job(), conf)
    given = unit.properties(host.systemd.units["41"], Path("/run/elastic-ai/leases/41"))
    for wanted in (
        "DynamicUser=yes",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "PrivateTmp=yes",
        "IPAddressDeny=any",
        "IPAddressAllow=10.77.1.12",
        "CapabilityBoundingSet=",
        f"MemoryMax={4096 << 20}",
        "TasksMax=1024",
    ):
        assert wanted in given


def test_verbs_open_the_devices_of_rdma_and_nothing_else_does(
    host: FakeHost, conf: ServerConf, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance.start(host, job(), replace(conf, transport="verbs"))
    data, folder = host.systemd.units["41"], Path("/run/elastic-ai/leases/41")
    (host.folder / "dev/infiniband").mkdir(parents=True)
    with pytest.raises(LeaseError, match=r"no device of RDMA .* remoting_server_transport is verbs"):
        unit.device_files(data, host.folder / "dev")
    (host.folder / "dev/infiniband/uverbs1").touch()
    (host.folder / "dev/infiniband/rdma_cm").touch()
    assert unit.device_files(data, host.folder / "dev") == [str(host.folder / "dev/infiniband/uverbs1")]
    monkeypatch.setattr(unit, "rdma_files", lambda dev=None: ["/dev/infiniband/uverbs1"])
    given = unit.properties(data, folder)
    assert {"DeviceAllow=/dev/infiniband/uverbs1 rw", f"LimitMEMLOCK={unit.MEMLOCK}"} <= set(given)
    plain = unit.properties(replace(data, transport="tcp"), folder)
    assert not [line for line in plain if "infiniband" in line or "MEMLOCK" in line]
    endpoint = json.loads((host.run_dir / "41/endpoint.json").read_text())
    assert parse(json.dumps(endpoint)).server.transport == "verbs"
    del endpoint["transport"]  # of a server of an older release
    with pytest.raises(LeaseError, match="transport is missing; it is damaged, or another release"):
        parse(json.dumps(endpoint))


def test_an_engine_without_verbs_starts_no_lease_of_them(host: FakeHost, conf: ServerConf) -> None:
    (conf.engine_dir / "engine.json").write_text('{"engine": "lupine", "release": "1.0.0-cuda13.0"}')
    with pytest.raises(LeaseError, match="lupine speaks tcp and not verbs"):
        instance.start(host, job(), replace(conf, transport="verbs"))


def test_a_unit_has_the_tasks_that_its_engine_needs(host: FakeHost) -> None:
    """Lupine has a process for each of a program's, and a thread for each of its threads."""
    conf = replace(host.serve(enforcement="mps", mps_pipe=str(host.folder)), memory_mib=512)
    (conf.engine_dir / "engine.json").write_text('{"engine": "lupine", "release": "1.0.0-cuda13.0"}')
    instance.start(host, job(), conf)
    given = unit.properties(host.systemd.units["41"], Path("/run/elastic-ai/leases/41"))
    assert {"TasksMax=4096", "LimitNOFILE=32768"} <= set(given)


def test_a_gpu_of_the_driver_has_its_device_nodes_whatever_it_is_called(host: FakeHost, conf: ServerConf) -> None:
    host.gpus.found = [replace(gpu, emulated=False) for gpu in host.gpus.found]
    instance.start(host, job(), conf)
    assert host.endpoint(41)["devices"][0]["emulated"] is False
    given = unit.properties(host.systemd.units["41"], Path("/run/elastic-ai/leases/41"))
    assert {"DeviceAllow=/dev/nvidiactl rw", "DeviceAllow=/dev/nvidia2 rw", f"MemoryMax={4096 << 20}"} <= set(given)
    assert not any("elastic-ai-devices" in value for value in given)


def test_the_processor_time_of_an_engine_is_without_its_agents(tmp_path: Path) -> None:
    """By a constructed /proc: the agent (its parent is systemd), the engine, and what of it has ended."""
    tick = os.sysconf("SC_CLK_TCK")
    for pid, parent, name, times, group in (
        (100, 1, "(agent)", (900, 90, 0, 0), "elastic-ai-lease@41.service"),
        (101, 100, "(a) b (c)", (tick, tick, 2 * tick, 3 * tick), "elastic-ai-lease@41.service"),
        (102, 101, "(child)", (4 * tick, 0, 0, 0), "elastic-ai-lease@41.service"),
        (103, 100, "(other)", (5000, 0, 0, 0), "elastic-ai-lease@42.service"),
        (200, 1, "(agent)", (900, 0, 0, 0), "elastic-ai-lease@43.service"),
    ):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(f"0::/system.slice/{group}\n")
        words = ["S", parent, *([0] * 9), *times, 20, 0]
        (tmp_path / str(pid) / "stat").write_text(f"{pid} {name} {' '.join(map(str, words))}\n")
    assert unit.engine_cpu_s("41", tmp_path) == 11.0
    assert unit.engine_cpu_s("43", tmp_path) is None, "an agent alone"
    (tmp_path / "102/stat").unlink()
    assert unit.engine_cpu_s("41", tmp_path) == 7.0


def test_device_files_that_are_not_there_are_made_or_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """systemd passes over a DeviceAllow= of a file that is not there, and nothing in the sandbox may make it."""
    host, dev = FakeHost(folder=tmp_path), tmp_path / "dev"
    host.gpus.found = [replace(gpu, emulated=False) for gpu in host.gpus.found]
    instance.start(host, job(), host.serve())
    needed = unit.device_files(host.systemd.units["41"], dev)
    assert [Path(path).name for path in needed] == ["nvidiactl", "nvidia-uvm", "nvidia2"]
    dev.mkdir()
    for name in ("nvidiactl", "nvidia2"):
        (dev / name).touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LeaseError, match=r"^\S+/dev/nvidia-uvm: not there; nvidia-modprobe -c0 -u makes"):
        unit.require_files(needed)
    (tmp_path / "nvidia-modprobe").write_text(f'#!/bin/sh\n[ "$*" = "-c0 -u" ] && : > {dev}/nvidia-uvm\n')
    (tmp_path / "nvidia-modprobe").chmod(0o755)
    unit.require_files(needed)
    assert (dev / "nvidia-uvm").exists()
    assert unit.device_files(lease_forms.instance(), dev) == [], "emulated"


def test_a_home_is_the_units_own_and_bounded(host: FakeHost) -> None:
    instance.start(host, job(), host.serve())
    data = host.systemd.units["41"]
    given = unit.properties(data, Path("/run/elastic-ai/leases/41"))
    (home,) = [value for value in given if value.startswith("TemporaryFileSystem=")]
    size = data.memory_bytes // 8
    assert home == f"TemporaryFileSystem=/run/elastic-ai-home:size={size},mode=1777,nosuid,nodev"
    told = unit.home_environment(data.memory_bytes)
    assert told["HOME"] == "/run/elastic-ai-home"
    assert told["CUDA_CACHE_PATH"].startswith(told["HOME"])
    assert 0 < int(told["CUDA_CACHE_MAXSIZE"]) < size, "the driver stops before it is full"
    assert unit.home_bytes(1 << 40) == unit.MOST_HOME_BYTES


def test_a_call_that_nobody_foresaw_ends_no_lease(host: FakeHost) -> None:
    """Without a number of an error the filter's answer is a signal that kills."""
    for conf in (host.serve(), host.serve(enforcement="mps", mps_pipe=str(host.folder))):
        host.systemd.units.clear()
        instance.end_instance(host, "41")
        instance.start(host, job(), conf)
        given = unit.properties(host.systemd.units["41"], Path("/x"))
        assert "SystemCallErrorNumber=EPERM" in given
        assert any(value.startswith("SystemCallFilter=") for value in given)


def test_an_engine_may_give_up_more_of_its_rights(host: FakeHost) -> None:
    """The engine tensorflow confines its servers by Landlock, whose calls are in no set of systemd's that a service is
    given."""
    instance.start(host, job(), host.serve())
    given = unit.properties(host.systemd.units["41"], Path("/x"))
    allowed = " ".join(value.partition("=")[2] for value in given if value.startswith("SystemCallFilter="))
    assert {"landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"} <= set(allowed.split())
    assert "~landlock" not in allowed


def test_every_filter_of_system_calls_answers_with_an_error() -> None:
    """Of all units that the project writes."""
    root = Path(__file__).parents[2]
    for path in (*(root / "roles").rglob("*"), *(root / "toolkit").rglob("*.py")):
        if path.is_file() and path.suffix in (".py", ".j2", ".yml", ".service", ".conf"):
            text = path.read_text(errors="replace")
            assert ("SystemCallFilter=" in text) <= ("SystemCallErrorNumber=" in text), path


def test_under_mps_all_engines_are_one_users_and_none_reads_anothers_memory(host: FakeHost) -> None:
    instance.start(host, job(), host.serve(enforcement="mps", mps_pipe=str(host.folder)))
    given = unit.properties(host.systemd.units["41"], Path("/run/elastic-ai/leases/41"))
    allowed, without = (given.index(f"SystemCallFilter={calls}") for calls in (
        "@system-service", "~process_vm_readv process_vm_writev"))  # fmt: skip
    assert allowed < without, "systemd takes them in their order"
    role = yaml.safe_load((Path(__file__).parents[2] / "roles/remoting_server/vars/main.yml").read_text())
    assert f"User={role['__remoting_server_mps_user']}" in given
    assert "DynamicUser=yes" not in given


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
