"""Where a program of `toolkit run` runs: here by an engine, or on the GPU server itself, and what is refused."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.lease_host import FakeHost, FakeSlurm
from tests.support.lease_texts import COMMENT, node_text, slurm_job
from toolkit.commands import lease_shared, run
from toolkit.lease import LeaseError, ask, endpoint, hooks, step, unit
from toolkit.lease.engines import NAMES, LeasedGpu, load
from toolkit.lease.job_comment import parse_comment
from toolkit.lease.on_server import refuse_parts
from toolkit.lease.slurm import SlurmError

THERE = COMMENT[:-1] + ',"where":"server"}'
TRAIN, COPIES = ("python", "train.py"), ("/usr/bin/elastic-ai-copybench", "--json")


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(folder=tmp_path, slurm=FakeSlurm(node_text=node_text("gpu1") + node_text("gpu2")))


def prolog(host: FakeHost, monkeypatch: pytest.MonkeyPatch, gres: str, comment: str = THERE, **more: Any) -> int:
    host.slurm.said = [slurm_job(41, gres=gres, comment=comment, uid=os.getuid() or 1001, **more)]
    monkeypatch.setenv("SLURM_JOB_ID", "41")
    return hooks.prolog(host)


def test_an_engine_without_kernels_starts_no_program_that_was_not_told_so() -> None:
    """It would train on the processor without a word."""
    with pytest.raises(LeaseError, match=r"reference\) runs no kernels, so python could compute nothing.*--no-kernels"):
        run.refuse_without_kernels("reference", TRAIN, False)
    run.refuse_without_kernels("reference", TRAIN, True)
    run.refuse_without_kernels("reference", COPIES, False)
    run.refuse_without_kernels("lupine", TRAIN, False)


def test_every_engine_says_whether_it_runs_kernels() -> None:
    assert {name: load(name).RUNS_KERNELS for name in NAMES} == {"bitfusion": True, "lupine": True, "reference": False}


@pytest.mark.parametrize(
    ("engine", "where", "whole", "program", "no_kernels", "found"),
    [
        ("lupine", "auto", True, TRAIN, False, ("client", "python runs here, its GPUs by the engine lupine")),
        ("lupine", "auto", False, TRAIN, False, ("client", "python runs here, its GPUs by the engine lupine")),
        ("lupine", "server", True, TRAIN, False, ("server", "")),
        ("reference", "auto", True, TRAIN, False, ("server", "python runs on the server itself: the engine here")),
        ("reference", "auto", False, TRAIN, True, ("client", "python runs here")),
        ("reference", "auto", False, COPIES, False, ("client", "/usr/bin/elastic-ai-copybench runs here")),
        ("reference", "client", True, TRAIN, True, ("client", "")),
        ("", "auto", True, TRAIN, False, ("server", "python runs on the server itself: no remoting engine is")),
    ],
)
def test_auto_takes_the_engine_where_it_is_enough_and_else_the_server(
    host: FakeHost, engine: str, where: str, whole: bool, program: tuple[str, ...], no_kernels: bool,
    found: tuple[str, str],
) -> None:  # fmt: skip
    if engine:
        (host.engine_dir / "engine.json").write_text(json.dumps({"engine": engine, "release": "r1"}))
    place, words = run.place(host, where, whole, program, no_kernels)
    assert (place, words.startswith(found[1]), bool(words)) == (found[0], True, bool(found[1]))


@pytest.mark.parametrize(
    ("engine", "where", "whole", "policy", "words"),
    [
        (
            "reference",
            "auto",
            False,
            "whole",
            "neither here nor on the server: .*no kernels; .*whole GPUs.*--no-kernels",
        ),
        ("reference", "auto", True, "none", "neither here nor on the server: .*policy lets no programs"),
        ("", "auto", False, "whole", "no remoting engine is installed here.*whole GPUs"),
        ("", "client", True, "whole", "no remoting engine is installed here"),
        ("lupine", "server", False, "whole", "--where server: a program there gets whole GPUs"),
        ("lupine", "server", True, "none", "--where server: the pool's policy"),
        ("reference", "client", True, "whole", "could compute nothing"),
    ],
)
def test_what_can_run_nowhere_is_refused_before_anything_is_asked_for(
    host: FakeHost, engine: str, where: str, whole: bool, policy: str, words: str
) -> None:
    if engine:
        (host.engine_dir / "engine.json").write_text(json.dumps({"engine": engine, "release": "r1"}))
    host.pool_conf.write_text(json.dumps({"servers": {}, "native_jobs": policy}))
    with pytest.raises(LeaseError, match=words):
        run.place(host, where, whole, TRAIN, False)


def wish(host: FakeHost, count: int) -> tuple[ask.LeaseRequest, list[list[str]]]:
    host.pool_conf.write_text(json.dumps({"servers": {"gpu1": {"address": "10.78.1.13"}}}))
    host.network.routes["10.78.1.13"] = "10.78.1.12"
    return lease_shared.make_request(host, count, None, None, None, "", None, "run", False, "server")


def test_a_program_on_the_server_has_one_job_with_its_share_of_the_server(host: FakeHost) -> None:
    """Without any engine on this machine."""
    _request, parts = wish(host, 2)
    assert len(parts) == 1
    assert {"--gres=gpu:2", "--cpus-per-task=2", f"--mem={2 * (int(22784 * 0.9) // 4)}"} <= set(parts[0])
    comment = next(word.removeprefix("--comment=") for word in parts[0] if word.startswith("--comment="))
    assert parse_comment(comment).where == "server"
    assert wish(host, 1)[1][0][-1] == "--gres=shard:140"  # all parts of a GPU, which Slurm counts right
    with pytest.raises(LeaseError, match=r"6 GPUs for a program on the server itself .* has 4 at most"):
        wish(host, 6)


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
    assert started["memory_bytes"] == 128 << 20
    end = endpoint.parse(json.dumps(host.endpoint(41)))
    assert (end.where, end.engine, [d["uuid"] for d in end.devices]) == ("server", "", ["GPU-1", "GPU-2"])
    with pytest.raises(LeaseError, match="serves no other"):  # toolkit run --lease, toolkit lease environment
        endpoint.check_engine([end], host.engine_dir)
    assert hooks.epilog(host) == 0
    assert host.fence.users == {}


@pytest.mark.parametrize(
    ("changes", "gres", "account", "words"),
    [
        ({}, "shard:v100:70(IDX:2)", "", "whole GPUs"),
        ({"native_jobs": ["research"]}, "shard:v100:70(IDX:2)", "research", "whole GPUs"),
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


def test_an_instance_of_a_divided_gpu_is_no_whole_gpu() -> None:
    """Who may open the device file reaches the GPU's other instances too."""
    whole = LeasedGpu(0, "GPU-0", "X", 256, 140, 140)
    refuse_parts([whole])
    with pytest.raises(LeaseError, match="whole GPUs"):
        refuse_parts([whole, replace(whole, uuid="MIG-1", gpu_uuid="GPU-0")])


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


def end_of(host: FakeHost) -> endpoint.LeaseEndpoint:
    return endpoint.parse(json.dumps(host.endpoint(41)))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((1, "srun: error: Unable to contact slurm controller"), "Unable to contact"),
        ((1, "has another folder /home/alice than this machine"), "gpu1 has another folder .*copy it there by --sync"),
        ((1, "has no program train"), "^gpu1 has no program train$"),
    ],
)
def test_a_folder_that_is_not_the_servers_is_no_place_to_run(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: tuple[int, str], words: str
) -> None:
    host.serve()
    prolog(host, monkeypatch, "gpu:v100:1(IDX:2)")
    end = end_of(host)

    def said(args: list[str], **_: Any) -> Any:
        from subprocess import CompletedProcess

        out, err = ("", answer[1]) if answer[1].startswith("srun") else (answer[1] + "\n", "")
        return CompletedProcess(args, answer[0], out, err)

    monkeypatch.setattr(host.slurm, "run", said)
    with pytest.raises((LeaseError, SlurmError), match=words):
        step.look(host, end, tmp_path, "train")


def test_the_step_has_the_leases_gpus_by_name(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    host.serve()
    prolog(host, monkeypatch, "gpu:v100:2(IDX:1-2)")
    words = step.command(end_of(host), Path("/home/alice"), ["python", "x.py"], False, False)
    assert words[-2:] == ["python", "x.py"]
    assert {"srun", "--jobid=41", "--chdir=/home/alice", "CUDA_VISIBLE_DEVICES=GPU-1,GPU-2"} <= set(words)
    assert "--pty" in step.command(end_of(host), Path("/"), ["sh"], True, False)
    old = replace(end_of(host), where="client")
    with pytest.raises(LeaseError, match=r"run site\.yml"):
        step.start_and_wait(host, ["sh"], [old], print)
