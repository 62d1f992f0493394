"""Where a program of `toolkit run` runs: here by an engine, or on the GPU server itself, and what is refused."""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.support.lease_host import FakeHost, FakeSlurm
from tests.support.lease_texts import node_text
from tests.support.lease_there import end_of, planned, prolog, reached
from toolkit.lease import LeaseError
from toolkit.lease.client import ask, placement, step
from toolkit.lease.client.run_request import RunRequest
from toolkit.lease.container_forms import ImageNames
from toolkit.lease.engines import NAMES, load
from toolkit.lease.jobs.submission import JobGpus, Submission
from toolkit.lease.lease_request import LeaseWish
from toolkit.lease.on_server import part_refusal, servers_for
from toolkit.lease.pool_file import parse_pool

TRAIN, COPIES = ("python", "train.py"), ("/usr/bin/elastic-ai-copybench", "--json")


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(folder=tmp_path, slurm=FakeSlurm(node_text=node_text("gpu1") + node_text("gpu2")))


def test_an_engine_without_the_runtime_starts_no_program_that_was_not_told_so() -> None:
    """It would train on the processor without a word."""

    def refuse(engine: str, request: RunRequest) -> None:
        placement.refuse_unfit(engine, request, placement.needs(request))

    with pytest.raises(LeaseError, match=r"reference\) runs kernels by the driver API alone, and python.*--driver-api"):
        refuse("reference", RunRequest(TRAIN))
    refuse("reference", RunRequest(TRAIN, driver_api=True))
    refuse("reference", RunRequest(TRAIN, no_kernels=True))
    refuse("reference", RunRequest(COPIES))
    refuse("reference", RunRequest(("elastic-ai-train", "--steps", "50")))
    refuse("lupine", RunRequest(TRAIN))


def test_every_engine_says_whether_it_runs_kernels() -> None:
    assert {name: load(name).RUNS_KERNELS for name in NAMES} == dict.fromkeys(NAMES, True)
    assert {name for name in NAMES if not load(name).RUNS_RUNTIME} == {"reference", "torch", "tensorflow"}


@pytest.mark.parametrize(
    ("engine", "where", "whole", "program", "driver_api", "found"),
    [
        ("lupine", "auto", True, TRAIN, False, ("client", "python runs here, its GPUs by the engine lupine")),
        ("lupine", "auto", False, TRAIN, False, ("client", "python runs here, its GPUs by the engine lupine")),
        ("lupine", "server", True, TRAIN, False, ("server", "")),
        ("reference", "auto", True, TRAIN, False, ("server", "python runs on the server itself: the engine here")),
        ("reference", "auto", False, TRAIN, True, ("client", "python runs here")),
        ("reference", "auto", False, COPIES, False, ("client", "/usr/bin/elastic-ai-copybench runs here")),
        ("reference", "client", True, TRAIN, True, ("client", "")),
        ("reference", "auto", False, ("nvidia-smi", "-L"), False, ("client", "nvidia-smi runs here")),
        ("torch", "auto", True, ("nvidia-smi",), False, ("client", "nvidia-smi runs here")),
        ("reference", "client", True, ("nvidia-smi",), False, ("client", "")),
        ("", "auto", True, TRAIN, False, ("server", "python runs on the server itself: no remoting engine is")),
    ],
)
def test_auto_takes_the_engine_where_it_is_enough_and_else_the_server(
    host: FakeHost, engine: str, where: Any, whole: bool, program: tuple[str, ...], driver_api: bool,
    found: tuple[str, str],
) -> None:  # fmt: skip
    if engine:
        (host.engine_dir / "engine.json").write_text(json.dumps({"engine": engine, "release": "r1"}))
    request = RunRequest(program, LeaseWish(part=None if whole else "1/2"), where=where, driver_api=driver_api)
    chosen = placement.place(host, request)
    assert (chosen.where, chosen.told.startswith(found[1]), bool(chosen.told)) == (found[0], True, bool(found[1]))


@pytest.mark.parametrize(
    ("engine", "where", "whole", "policy", "words"),
    [
        (
            "reference",
            "auto",
            False,
            "whole",
            "neither here nor on the server: .*driver API alone; .*no server can hold.*--driver-api",
        ),
        ("reference", "auto", True, "none", "neither here nor on the server: .*policy lets no programs"),
        (
            "",
            "auto",
            False,
            "whole",
            "nor on the server: no remoting engine is installed here; no server can hold",
        ),
        ("", "client", True, "whole", "^no remoting engine is installed here; --where server runs python on"),
        ("lupine", "server", False, "whole", "--where server: no server can hold a program there to a part"),
        ("lupine", "server", True, "none", "--where server: the pool's policy"),
        ("reference", "client", True, "whole", "may need the CUDA runtime"),
    ],
)
def test_what_can_run_nowhere_is_refused_before_anything_is_asked_for(
    host: FakeHost, engine: str, where: Any, whole: bool, policy: str, words: str
) -> None:
    if engine:
        (host.engine_dir / "engine.json").write_text(json.dumps({"engine": engine, "release": "r1"}))
    servers = {"gpu1": {"enforcement": "engine"}, "gpu2": {"enforcement": "mps"}}
    host.pool_conf.write_text(json.dumps({"servers": servers, "native_jobs": policy}))
    with pytest.raises(LeaseError, match=words):
        placement.place(host, RunRequest(TRAIN, LeaseWish(part=None if whole else "1/2"), where=where))


@pytest.mark.parametrize(
    ("pool", "count", "memory", "words"),
    [
        ({"servers": {"gpu1": {"enforcement": "engine"}}, "native_jobs": ["research"]}, 1, None, "^$"),
        ({"servers": {"gpu1": {"enforcement": "mps"}}, "native_jobs": ["research"]}, 1, None, "own environment"),
        ({"servers": {"gpu1": {"enforcement": "mps"}, "gpu2": {"enforcement": "mig"}}}, 1, None, "^$"),
        ({"servers": {"gpu1": {}}}, 1, None, "^$"),  # described by a run of another release
        ({"servers": {}}, 1, None, "^$"),
        ({"servers": {"gpu1": {"enforcement": "mig"}}}, 2, None, "one part of one GPU"),
        ({"servers": {"gpu1": {"enforcement": "mig"}}}, 1, 4096, "by -p, not by its memory"),
    ],
)
def test_a_part_there_is_refused_here_only_where_no_server_can_hold_it(
    pool: Any, count: int, memory: int | None, words: str
) -> None:
    assert re.search(words, part_refusal(parse_pool(json.dumps(pool), "pool.json"), count, memory))


def wish(host: FakeHost, count: int) -> Submission:
    reached(host)
    return ask.against_pool(host, LeaseWish(count), "run", print, "server")


def test_a_program_on_the_server_has_one_job_with_its_share_of_the_server(host: FakeHost) -> None:
    """Without any engine on this machine."""
    asked = wish(host, 2)
    assert (asked.jobs, asked.comment.where) == (1, "server")
    assert {"--gres=gpu:2", "--cpus-per-task=1", f"--mem={2 * (int(22784 * 0.9) // 4)}"} <= set(asked.options())
    assert wish(host, 1).gpus == JobGpus("shard", 140)  # all parts of a GPU, which Slurm counts right


def test_more_gpus_than_a_server_has_are_equal_numbers_of_the_fewest_servers(host: FakeHost) -> None:
    """In one job, so that all begin and end together."""
    asked = wish(host, 6)
    assert asked.jobs == 1
    assert {"--nodes=2", "--ntasks=2", "--gres=gpu:3", "--cpus-per-task=1", f"--mem={3 * (int(22784 * 0.9) // 4)}"} <= (
        set(asked.options())
    )
    assert {"--nodes=2", "--gres=gpu:4", "--cpus-per-task=2"} <= set(wish(host, 8).options())  # all that they have
    for count, apart, gpus, servers in (
        (8, False, [8, 8], 1), (16, False, [8, 8], 2), (6, False, [4, 4, 2], 2), (6, False, [2, 2, 2], 3),
        (2, True, [4, 4], 2), (12, False, [8, 4, 4], 3), (9, False, [8, 8, 8], 3),
    ):  # fmt: skip
        assert servers_for(count, apart, gpus) == (servers, False)
    for count, gpus, servers in (
        (3, [2, 2], 2), (5, [4, 4], 2), (6, [2, 4], 2), (7, [4] * 7, 2), (9, [8, 8], 2), (11, [8] * 20, 2),
    ):  # fmt: skip
        assert servers_for(count, False, gpus) == (servers, True)
    for count, apart, gpus, words in (
        (9, False, [4, 4], "do not have 9 GPUs .*4, 4"), (3, True, [4, 4], "--apart: 3 GPUs"), (2, False, [], "none"),
    ):  # fmt: skip
        with pytest.raises(LeaseError, match=words):
            servers_for(count, apart, gpus)


def test_an_odd_number_of_gpus_is_one_job_whose_numbers_slurm_chooses(host: FakeHost) -> None:
    """Memory and processors go by the GPU, for no server's share is known before."""
    asked = wish(host, 5)
    words = asked.options()
    assert asked.jobs == 1
    assert {"--nodes=2", "--ntasks=2", "--gpus=5", "--cpus-per-task=1", f"--mem-per-gpu={int(22784 * 0.9) // 4}"} <= (
        set(words)
    )
    assert not [word for word in words if word.startswith(("--gres", "--mem=", "--cpus-per-gpu"))]
    assert asked.request.crowded  # two processors for four GPUs
    text = (node_text("gpu1") + node_text("gpu2")).replace("CPUTot=2", "CPUTot=9").replace("CPUEfctv=2", "CPUEfctv=9")
    host.slurm.node_text = text
    asked = wish(host, 5)
    assert {"--gpus=5", "--cpus-per-gpu=2"} <= set(asked.options())
    assert not [word for word in asked.options() if word.startswith("--cpus-per-task")]
    assert not asked.request.crowded


def test_unequal_servers_are_parts_of_one_step_each_with_its_own_gpus(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of 22.05 over both has one GPU of the first, whatever the job has there."""
    host.serve()
    prolog(host, monkeypatch, "gpu:v100:2(IDX:1-2)")
    two = end_of(host)
    ends = [two, replace(two, node="gpu2", devices=two.devices[:1])]

    def said(start: Any, **more: Any) -> list[list[str]]:
        found: list[list[str]] = [[]]
        for word in step.command(ends, Path("/home/alice"), ["echo", ":", "=:"], step.How(start=start, **more)):
            found.append([]) if word == ":" else found[-1].append(word)
        return found

    for start, tasks in (("server", ("1", "1")), ("gpu", ("2", "1"))):
        first, second = said(start)
        assert {"--jobid=41", "--nodelist=gpu1", "--gpus=2", f"--ntasks={tasks[0]}", "--input=0"} <= set(first)
        assert {"--nodelist=gpu2", "--gpus=1", f"--ntasks={tasks[1]}", "--input=none", "--chdir=/home/alice"} <= (
            set(second)
        )
        assert (first.count("-Q"), second.count("-Q")) == (2, 0)  # more than two are none
        assert first[-3:] == second[-3:] == ["echo", "=:", "==:"]
    (once,) = said("once")
    assert {"--nodes=1", "--nodelist=gpu1", "--gpus=2", "--ntasks=1"} <= set(once)
    job = json.loads(once[-4])["job"]
    assert (job["SLURM_TASKS_PER_NODE"], job["SLURM_NTASKS"], job["SLURM_GPUS"]) == ("2(x1),1(x1)", "3", "1")
    looked: list[list[str]] = []
    monkeypatch.setattr(
        host.slurm, "run", lambda words, **_: looked.append(words) or CompletedProcess(words, 0, "", "")
    )
    step.look(host, ends, Path("/"), "train", how=step.How(start="gpu", mpi="pmix"))
    for words, node, tasks in zip(looked, ("gpu1", "gpu2"), (2, 1), strict=True):  # srun of several parts may never end
        assert {f"--nodelist={node}", f"--ntasks={tasks}", "--gres=none", "--quiet", "--mpi=pmix"} <= set(words)
        assert not [word for word in words if word == ":" or word.startswith("--gpus")]


def test_a_launcher_of_its_own_steps_gets_no_unequal_numbers_of_three_servers(host: FakeHost) -> None:
    host.slurm.node_text = "".join(node_text(name) for name in ("gpu1", "gpu2", "gpu3"))
    reached(host)
    with pytest.raises(LeaseError, match="--start once: 3 servers would give 11 GPUs in unequal numbers"):
        planned(host, "-n", "11", "--start", "once")
    for words, servers in (
        (["-n", "11"], 3),
        (["-n", "5", "--start", "once"], 2),
        (["-n", "12", "--start", "once"], 3),
    ):
        assert planned(host, *words).submission.servers == servers


def test_an_engine_of_its_own_client_is_given_what_it_can_honour_and_nothing_else(host: FakeHost) -> None:
    """What was left out without a word was taken for granted by its user."""
    host.engine_dir.mkdir(parents=True, exist_ok=True)
    (host.engine_dir / "engine.json").write_text('{"engine": "bitfusion", "release": "4.5"}')
    for changes, named in (
        ({"wish": LeaseWish(seconds=7200)}, "--time"),
        ({"wish": LeaseWish(gpu_class="h200")}, "--class"),
        ({"wish": LeaseWish(2, apart=True)}, "--apart"),
        ({"lease": 41}, "--lease"),
        ({"static": "/x"}, "--static"),
        ({"signal_name": "USR1"}, "--signal"),
        ({"image": "a:1", "variables": ("HOME",)}, "--image, -e"),
    ):
        with pytest.raises(LeaseError, match=f"knows no leases; omit {named}$"):
            placement.command_by_engine(host, RunRequest(("true",), **changes))
    words = placement.command_by_engine(host, RunRequest(("true",), LeaseWish(2, "1/3", servers="10.0.0.9")))
    assert words == ["bitfusion", "run", "-n", "2", "-p", "0.333333", "-l", "10.0.0.9:56001", "--", "true"]
    (host.engine_dir / "engine.json").write_text('{"engine": "lupine", "release": "1"}')
    assert placement.command_by_engine(host, RunRequest(("true",))) is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--mpi", "pmix"], "--mpi: a container does not reach Slurm's MPI"),
        (["--start", "once", "-n", "8"], "--start once: these are 2 servers"),
    ],
)
def test_what_a_container_cannot_reach_is_refused_before_anything_is_leased(
    host: FakeHost, words: list[str], said: str
) -> None:
    """It would be the same program as often, each alone."""
    reached(host)
    host.slurm.answers = {"srun --immediate=10": ImageNames("sha256:1").text()}
    with pytest.raises(LeaseError, match=said):
        planned(host, "--image", "train:3", *words)
    assert planned(host, *words).how.image == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--sync", "gone"], "--sync gone: not a folder"),
        (["--sync", "file"], "--sync file: not a folder"),
        (["--sync", "broken"], "device is a device"),
        (["--sync", "broken", "--folder", "/"], "--sync and --folder"),
        (["--image", "no-such:1"], "--image no-such:1: gpu1 has no image no-such:1; gpu2 has no image no-such:1"),
        (["--image", "-v"], "not the name of an image"),
    ],
)
def test_bad_input_is_one_error_and_the_pool_is_as_before(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], said: str
) -> None:
    """Whatever else is right with the command."""
    reached(host)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "broken").mkdir()
    os.mknod(tmp_path / "broken" / "device", 0o666 | stat.S_IFCHR, os.makedev(0, 0))
    asks = "srun --immediate=10 --nodelist={0} "
    host.slurm.answers = {asks.format(name): (125, f"{name} has no image no-such:1") for name in ("gpu1", "gpu2")}
    with pytest.raises(LeaseError, match=said):
        planned(host, "-n", "2", *words)
    assert (host.slurm.submitted, host.slurm.cancelled) == ([], [])
