"""Nothing that a user writes is ever structure: jobs whose names, comments and paths imitate Slurm's own words."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.lease_host import FakeHost
from tests.support.lease_spoofs import ADOPTS, HIDES, QUOTES, TAKES_ALL, Controller, alices_lease, bobs_job
from tests.support.lease_texts import FORMS, USERS_FIELDS, jobs_of, slurm_job
from toolkit.lease import LeaseError
from toolkit.lease.client import manage
from toolkit.lease.jobs import slurm
from toolkit.lease.jobs.slurm_text import Held
from toolkit.lease.server import hooks, instance

UID = os.getuid()


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    host = FakeHost(folder=tmp_path, slurm=slurm)  # type: ignore[arg-type]
    host.serve()
    return host


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> Controller:
    found = Controller([])
    monkeypatch.setattr(slurm.bounded, "run", found)
    return found


def prolog(monkeypatch: pytest.MonkeyPatch, host: FakeHost, number: int, **env: str) -> int:
    monkeypatch.setenv("SLURM_JOB_ID", str(number))
    monkeypatch.setenv("SLURM_JOB_UID", str(UID))
    for key, value in env.items():
        monkeypatch.setenv(key, value)
    return hooks.prolog(host)


@pytest.mark.parametrize("field", ["name", "comment", "current_working_directory"])
@pytest.mark.parametrize("spoof", [TAKES_ALL.replace("{uid}", str(UID)), QUOTES], ids=["text", "json"])
def test_a_name_gives_nobody_a_gpu(
    host: FakeHost, controller: Controller, monkeypatch: pytest.MonkeyPatch, field: str, spoof: str
) -> None:
    """C1: one share of a GPU, and a name that says four GPUs of somebody without an end."""
    controller.jobs = bobs_job("elastic-ai-lease", uid=UID)
    controller.jobs[0][field] = spoof
    assert prolog(monkeypatch, host, 99, SLURM_JOB_GPUS="1") == 0
    given = [(device.index, device.shards) for one in host.systemd.units.values() for device in one.devices]
    assert given in ([], [(1, 1)])
    if field == "name":
        assert (given, host.firewall.open) == ([], set())


def test_root_changes_no_job_of_another_for_a_name(
    host: FakeHost, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C2: the helper that sudo lets everybody run, and a name that adopts another's job."""
    monkeypatch.setenv("SUDO_UID", "2002")
    for field in ("name", "comment", "current_working_directory"):
        controller.jobs = alices_lease() + bobs_job("elastic-ai-lease")
        controller.jobs[1][field] = ADOPTS.replace("{uid}", "2002")
        for lease in ("99", "41"):
            if lease == "99" and field == "current_working_directory":
                continue  # his own lease, which he may extend; below
            with pytest.raises(LeaseError):
                manage.extend_as_root([lease, "1"], host)
    manage.extend_as_root(["99", "1"], host)
    updated = [args for args in controller.commands if args[1] == "update"]
    assert updated == [["scontrol", "update", "JobId=99", "TimeLimit=61"]]


def test_what_a_list_says_is_confirmed_for_each_job_alone(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """However a wrong list came about: root asks again, for one job, and acts on nothing else."""

    class Lies:
        commands: ClassVar[list[list[str]]] = []

        def job_parts(self, lease: int) -> Any:
            return [replace(one, uid=2002, user="bob", array=99) for one in jobs_of(alices_lease())]

        def job(self, number: int) -> Any:
            return next((one for one in jobs_of(alices_lease()) if one.id == number), None)

        def run(self, args: list[str], **_how: Any) -> Any:
            self.commands.append(args)
            raise AssertionError(args)

    monkeypatch.setenv("SUDO_UID", "2002")
    with pytest.raises(LeaseError, match="job 41 is no part of it"):
        manage.extend_as_root(["99", "1"], FakeHost(slurm=Lies()))  # type: ignore[arg-type]
    assert Lies.commands == []


@pytest.mark.parametrize("field", ["name", "comment", "current_working_directory", "command"])
def test_a_stranger_hides_nobody(host: FakeHost, controller: Controller, field: str) -> None:
    """M4: job 41 twice, once by Slurm and once in another job's name."""
    controller.jobs = alices_lease() + bobs_job("train")
    controller.jobs[1][field] = HIDES
    (lease,) = manage.leases(host.slurm.jobs())
    assert (lease.id, lease.jobs[0].held) == (41, (Held("gpu1", 2, 70),))


@pytest.mark.parametrize("name", [TAKES_ALL, ADOPTS, HIDES, QUOTES, "elastic-ai-lease\n", "\udcff"])
def test_no_name_of_a_native_job_takes_a_gpu_from_a_lease(
    host: FakeHost, controller: Controller, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Slurm gave a GPU that is leased once more, to a job with a name that is to keep the server from looking."""
    controller.jobs = lease_of(gres="shard:v100:140(IDX:1)") + bobs_job(name, uid=UID, gres="gpu:v100:1(IDX:1)")
    assert prolog(monkeypatch, host, 41, SLURM_JOB_GPUS="1") == 0
    assert prolog(monkeypatch, host, 99, SLURM_JOB_GPUS="1") == 0
    assert ["scontrol", "requeue", "99"] in controller.commands
    assert set(host.systemd.units) == {"41"}
    assert host.fence.users.get(1, set()) == set()


def test_a_name_that_is_no_utf8_is_a_name(
    host: FakeHost, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Prolog that ends by a traceback drains the node: every user could."""
    controller.jobs = bobs_job("\udcff\udc80", uid=UID) + alices_lease()
    assert prolog(monkeypatch, host, 99, SLURM_JOB_GPUS="1") == 0
    assert [job.name for job in host.slurm.jobs()] == ["\\udcff\\udc80", "elastic-ai-lease"]


def lease_of(uid: int = UID, **more: Any) -> Any:
    return slurm_job(41, uid=uid, **more)


@pytest.mark.parametrize(
    ("said", "env", "code", "told"),
    [
        (lease_of(), {}, 0, "started"),
        (lease_of(), {"SLURM_JOB_GPUS": "2"}, 0, "started"),
        (lease_of(), {"SLURM_JOB_GPUS": "1"}, 1, "GPUs 2, and to the Prolog: 1"),
        (lease_of(gres="gpu:v100:2(IDX:0,2)"), {"SLURM_JOB_GPUS": "0,2"}, 0, "started"),
        (lease_of(gres="gpu:v100:2(IDX:0,2)"), {"SLURM_JOB_GPUS": "0"}, 1, "GPUs 0, 2, and to the Prolog: 0"),
        (lease_of(name="train"), {"SLURM_JOB_GPUS": "0"}, 1, "GPUs 2, and to the Prolog: 0"),
        (lease_of(), {"SLURM_JOB_UID": str(UID + 1)}, 1, f"of uid {UID}, and to the Prolog: of uid {UID + 1}"),
        (lease_of(name="elastic-ai-lease "), {}, 0, ""),
        (lease_of(name="Elastic-AI-lease"), {}, 0, ""),
        # its owner put it back into the queue meanwhile: no reason to drain
        (lease_of(state="PENDING", gres=""), {"SLURM_JOB_GPUS": "2"}, 0, "is not here any more"),
        (lease_of(node="gpu2"), {"SLURM_JOB_GPUS": "2"}, 0, "is not here any more"),
        (lease_of(gres="shard:v100:160(IDX:0-1)"), {"SLURM_JOB_GPUS": "0,1"}, 0, "on several GPUs"),
    ],
)
def test_the_prolog_holds_two_answers_against_each_other(
    host: FakeHost,
    controller: Controller,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    said: Any,
    env: dict[str, str],
    code: int,
    told: str,
) -> None:
    controller.jobs = said
    assert prolog(monkeypatch, host, 41, **env) == code
    assert told in capsys.readouterr().err
    assert bool(host.systemd.units) == (told == "started")


def test_what_a_job_holds_and_cannot_be_told_is_said_to_its_owner(
    host: FakeHost, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller.jobs = lease_of(gres="shard:v100:160(IDX:0-1)")
    assert prolog(monkeypatch, host, 41) == 0
    assert "on several GPUs" in host.endpoint(41)["error"]
    assert instance.end_instance(host, "41") == []


#: Any bytes that a C string can hold, as Python reads them, and what looks like Slurm's or JSON's own.
HOSTILE = st.one_of(
    st.binary(max_size=4096).map(lambda b: b.replace(b"\0", b"").decode("utf-8", "surrogateescape")),
    st.text(max_size=200),
    st.lists(
        st.sampled_from(
            ["\n", "\n\n", " ", "JobId=41", "JobName=elastic-ai-lease", "UserId=root(0)", "GRES=gpu:v100:4(IDX:0-3)",
             "elastic-ai-lease", '"', "\\", '", "', '"user_id": 0', "}, {", "]", "\0", "\x7f", "\u2028", "\udcff",
             "\x1b[2J", '"job_id": 41', "x" * 1024]
        ),
        max_size=12,
    ).map("".join),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    spoofs=st.dictionaries(st.sampled_from(USERS_FIELDS), HOSTILE, min_size=1, max_size=4),
    form=st.sampled_from(FORMS),
)
def test_what_users_write_changes_no_other_field_of_any_job(spoofs: dict[str, str], form: str) -> None:
    honest = alices_lease() + slurm_job(42, array=42, task=1, gres="gpu:v100:1(IDX:0)", name="train", comment=None)
    (bobs,) = bobs_job("train", comment=None)
    plain, seen = jobs_of([*honest, bobs], form), jobs_of([*honest, bobs | spoofs], form)
    assert seen[:2] == plain[:2]
    # A class of users is its user's own choice only where Slurm knows him in it.
    own = {"name": seen[2].name, "comment": seen[2].comment, "account": seen[2].account}
    assert replace(plain[2], **own) == seen[2]
    if "name" in spoofs:
        assert (seen[2].name == "elastic-ai-lease") == (spoofs["name"] == "elastic-ai-lease")
    seen[2].name.encode("utf-8")  # it can be printed


def test_a_reason_that_names_servers_is_one_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Slurm 22.05 says after a restart of its controller, while servers have not answered yet."""
    said = "23 PENDING ReqNodeNotAvail, UnavailableNodes:gpu[1-2]\n"
    monkeypatch.setattr(slurm, "run", lambda args: CompletedProcess(args, 0, said, ""))
    assert [(s.id, s.state, s.reason) for s in slurm.states(23)] == [(23, "PENDING", "ReqNodeNotAvail")]
