"""A program on the GPU server itself: what root opens to its owner there, and the step that starts it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.support import lease_forms
from tests.support.lease_host import FakeHost, FakeSlurm
from tests.support.lease_texts import jobs_of, node_text, slurm_job
from tests.support.lease_there import THERE, end_of, planned, prolog, reached
from toolkit.lease import LeaseError, endpoint
from toolkit.lease.client import step
from toolkit.lease.engines import LeasedGpu
from toolkit.lease.jobs.slurm_text import SlurmError
from toolkit.lease.machine import unit
from toolkit.lease.machine.nvml import MigInstance
from toolkit.lease.on_server import notes_on_devices
from toolkit.lease.server import hooks, native


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(folder=tmp_path, slurm=FakeSlurm(node_text=node_text("gpu1") + node_text("gpu2")))


def test_a_lease_of_a_program_on_the_server_has_an_agent_and_lets_its_owner_in(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.serve()
    (host.engine_dir / "engine.json").unlink()  # it needs none
    assert prolog(host, monkeypatch, "gpu:v100:2(IDX:1-2)") == 0
    uid = os.getuid() or 1001
    assert host.fence.users == {1: {uid}, 2: {uid}}
    started = host.systemd.units["41"]
    assert not [p for p in unit.properties(started, Path("/x")) if p.startswith(("DeviceAllow", "SupplementaryG"))]
    assert started.memory_bytes == 128 << 20
    end = endpoint.parse(json.dumps(host.endpoint(41)))
    assert (end.where, end.engine, [device.uuid for device in end.devices]) == ("server", "", ["GPU-1", "GPU-2"])
    with pytest.raises(LeaseError, match="serves no other"):  # toolkit run --lease, toolkit lease env
        endpoint.check_engine([end], host.engine_dir)
    assert hooks.epilog(host) == 0
    assert host.fence.users == {}


@pytest.mark.parametrize(
    ("changes", "gres", "account", "words"),
    [
        ({}, "shard:v100:70(IDX:2)", "", "whole GPUs"),
        ({"native_jobs": ["research"]}, "shard:v100:70(IDX:2)", "teaching", "lets no programs of teaching onto"),
        ({"native_jobs": ["research"], "enforcement": "mps"}, "shard:v100:70(IDX:2)", "research", "own environment"),
        ({"enforcement": "mig"}, "shard:v100:70(IDX:2)", "", "not divided by MIG"),
        ({"native_jobs": "none"}, "gpu:v100:1(IDX:2)", "research", "lets no programs of research onto"),
        ({"native_jobs": ["research"]}, "gpu:v100:1(IDX:2)", "teaching", "lets no programs of teaching onto"),
    ],
)
def test_no_wording_of_a_job_gives_its_owner_more_than_a_native_job(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], gres: str, account: str, words: str
) -> None:
    host.serve(**changes)
    assert prolog(host, monkeypatch, gres, account=account) == 0
    assert words in host.endpoint(41)["error"]
    assert (host.fence.users, host.systemd.units) == ({}, {})


def test_a_part_that_nothing_holds_is_for_users_alone_whom_the_policy_trusts_with_it(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.serve(native_jobs=["research"])
    assert prolog(host, monkeypatch, "shard:v100:70(IDX:2)", account="research") == 0
    assert host.endpoint(41)["notes"][0].startswith(
        "its part is not enforced for the program: the pool's policy trusts"
    )
    assert host.fence.users == {2: {os.getuid() or 1001}}


def test_a_mig_instance_is_a_part_whose_files_alone_are_opened(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Emulated ones have no files, and are told so."""
    conf = host.serve(enforcement="mig")
    one = MigInstance("MIG-1", 1, 0, 2, 64, 22)
    host.gpus.found[2] = replace(host.gpus.found[2], mig=(one,), mig_slices=7)
    assert prolog(host, monkeypatch, "shard:v100:40(IDX:2)") == 0
    end = endpoint.parse(json.dumps(host.endpoint(41)))
    assert [device.uuid for device in end.devices] == ["MIG-1"]
    assert "nothing but its environment keeps the program to it" in end.notes[0]
    real = LeasedGpu(2, "MIG-1", "H200", 64, 40, 140, gpu_uuid="GPU-2", device_files=("/dev/nvidia-caps/nvidia-cap12",))
    assert notes_on_devices([real], conf, "") == []
    with pytest.raises(LeaseError, match="one part of one GPU"):
        notes_on_devices([real, replace(real, uuid="MIG-2")], conf, "research")
    folder = host.run_dir / "41"
    folder.chmod(0o700)
    lease_forms.instance(devices=(real,), where="server").write(folder)
    job = jobs_of(slurm_job(41, gres="shard:v100:40(IDX:2)", comment=THERE, uid=1001))[0]
    assert native.grant_lease(host, job, conf) == []
    assert host.fence.instances == {"/dev/nvidia-caps/nvidia-cap12": {1001}}
    assert native.revoke(host, "41") == []
    assert host.fence.instances == {}


def test_a_gpu_that_cannot_be_opened_to_its_owner_starts_nothing(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.serve()
    host.fence.left = ["/dev/nvidia2: Operation not supported"]
    assert prolog(host, monkeypatch, "gpu:v100:1(IDX:2)") == 0
    assert "cannot open its GPUs to you: /dev/nvidia2" in host.endpoint(41)["error"]
    assert (host.fence.users, host.systemd.units) == ({}, {})


def test_the_programs_environment_is_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_CPU_BIND", "SBATCH_GRES", "SRUN_DEBUG"):
        monkeypatch.setenv(name, "7")
    monkeypatch.setenv("MODEL", "resnet50")
    found = step.user_environment()
    assert not [name for name in found if name.startswith(("SLURM_", "SBATCH_G", "SRUN_"))]
    assert found["MODEL"] == "resnet50"
    assert found.get("LC_ALL") == os.environ.get("LC_ALL")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((1, "srun: error: Unable to contact slurm controller"), "Unable to contact"),
        (
            (1, "gpu1 other-folder"),
            "gpu1 has another folder .*copy it there by --sync",
        ),
        ((1, "gpu1 no-folder"), "gpu1 has no folder /.*, or not for you; copy it there by --sync"),
        ((1, "gpu1 no-program"), "^gpu1 has no program train$"),
        (
            (1, "what a shell prints\ngpu2 no-program\ngpu1 no-program"),
            "^gpu1 has no program train; gpu2 has no .* train$",
        ),
    ],
)
def test_a_folder_that_is_not_the_servers_is_no_place_to_run(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: tuple[int, str], words: str
) -> None:
    host.serve()
    prolog(host, monkeypatch, "gpu:v100:1(IDX:2)")
    end = end_of(host)

    def said(args: list[str], **_: Any) -> Any:
        out, err = ("", answer[1]) if answer[1].startswith("srun") else (answer[1] + "\n", "")
        return CompletedProcess(args, answer[0], out, err)

    monkeypatch.setattr(host.slurm, "run", said)
    with pytest.raises((LeaseError, SlurmError), match=words):
        step.look(host, [end], tmp_path, "train")


def test_a_controller_that_starts_anew_is_asked_again_before_a_program_is_given_up(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.serve()
    prolog(host, monkeypatch, "gpu:v100:1(IDX:2)")
    words = "srun: error: Unable to create step for job 41: Memory required by task is not available"
    answers = [CompletedProcess([], 1, "", words)] * 3 + [CompletedProcess([], 0, "", "")]
    monkeypatch.setattr(host.slurm, "run", lambda *_args, **_more: answers.pop(0))
    step.look(host, [end_of(host)], Path("/"), "train")
    assert answers == []
    monkeypatch.setattr(host.slurm, "run", lambda *_args, **_more: CompletedProcess([], 1, "", words))
    with pytest.raises(SlurmError, match="Memory required"):
        step.look(host, [end_of(host)], Path("/"), "train")


def test_the_step_has_the_leases_gpus_by_name(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    host.serve()
    prolog(host, monkeypatch, "gpu:v100:2(IDX:1-2)")
    words = step.command([end_of(host)], Path("/home/alice"), ["python", "x.py"], step.HERE)
    assert words[-2:] == ["python", "x.py"]
    assert {"srun", "--jobid=41", "--chdir=/home/alice", "--nodes=1", "--ntasks=1"} <= set(words)
    assert json.loads(words[-3])["nodes"]["gpu1"]["CUDA_VISIBLE_DEVICES"] == "GPU-1,GPU-2"
    assert "--pty" in step.command([end_of(host)], Path("/"), ["sh"], step.How(terminal=True))
    old = replace(end_of(host), where="client")
    with pytest.raises(LeaseError, match=r"run site\.yml"):
        step.start_and_wait(host, ["sh"], [old], print)


def test_more_processes_than_processors_are_one_step_all_the_same(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And otherwise Slurm goes on counting."""
    reached(host)
    host.serve()
    prolog(host, monkeypatch, "gpu:v100:4(IDX:0-3)")
    wishes = (["-n", "4", "--start", "gpu"], ["-n", "1", "--start", "gpu"], ["-n", "4"])
    hows = [planned(host, *words).how for words in wishes]
    assert [how.crowded for how in hows] == [True, False, False]
    assert "--overcommit" in step.command([end_of(host)], Path("/"), ["sh"], hows[0])
