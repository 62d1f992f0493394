"""More computing than a part while nobody else has the GPU, and less as soon as somebody does."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.support import lease_forms
from tests.support.lease_host import FakeHost, FakeSlurm
from tests.support.lease_texts import COMMENT, jobs_of, node_text, slurm_job
from toolkit.lease import LeaseError
from toolkit.lease.client import ask
from toolkit.lease.engines import reference
from toolkit.lease.instance_record import Instance
from toolkit.lease.jobs.job_comment import JobComment
from toolkit.lease.jobs.slurm_text import SlurmJob
from toolkit.lease.lease_request import LeaseWish
from toolkit.lease.server import ceiling, instance, sweep
from toolkit.lease.server.lease_locks import Busy
from toolkit.lease.server_conf import ServerConf

Q, H, T = Fraction(1, 4), Fraction(1, 2), Fraction(3, 4)


@pytest.fixture(autouse=True)
def held_by_processors(monkeypatch: Any) -> None:
    monkeypatch.setattr(reference, "HOLDS_PROCESSORS", True, raising=False)


def lease(job: str, shards: int, up_to: int = 0, gpu: int = 0, **more: Any) -> Instance:
    return lease_forms.instance(job=job, devices=(lease_forms.leased_gpu(gpu, shards),), up_to=up_to, **more)


@pytest.mark.parametrize(
    ("leases", "found"),
    [
        ([lease("1", 35, 140)], {"1": 1}),
        ([lease("1", 35, 70)], {"1": H}),
        ([lease("1", 35, 140), lease("2", 105)], {"1": Q}),
        ([lease("1", 35, 140), lease("2", 70)], {"1": H}),
        ([lease("1", 35, 140), lease("2", 140, gpu=1)], {"1": 1}),
        ([lease("1", 35, 140), lease("2", 35, 140)], {"1": H, "2": H}),
        ([lease("1", 35, 140), lease("2", 35, 70)], {"1": Fraction(5, 8), "2": Fraction(3, 8)}),
        ([lease("1", 35)], {}),
        ([lease("1", 35, 35)], {"1": Q}),
        ([lease("1", 35, 140, where="server")], {}),
    ],
)
def test_what_is_free_is_shared_and_the_part_is_never_less(leases: list[Instance], found: dict[str, Any]) -> None:
    assert ceiling.shares({one.job: one for one in leases}) == found


def test_a_native_job_on_the_gpu_leaves_the_part() -> None:
    assert ceiling.shares({"1": lease("1", 35, 140)}, taken={0}) == {"1": Q}


def test_devices_of_a_real_gpu_are_not_held() -> None:
    real = replace(lease("1", 35, 140), devices=(lease_forms.leased_gpu(0, 35, emulated=False),))
    assert ceiling.shares({"1": real}) == {}
    assert "changes nothing" in ceiling.note(real)


def job(number: int, shards: int, up_to: int = 0) -> SlurmJob:
    comment = COMMENT[:-1] + (f',"up_to":{up_to}}}' if up_to else "}")
    return jobs_of(slurm_job(number, gres=f"shard:v100:{shards}(IDX:2)", uid=os.getuid(), comment=comment))[0]


def test_it_is_given_taken_back_and_given_again(host: FakeHost, conf: ServerConf) -> None:
    instance.start(host, job(41, 35, up_to=140), conf)
    assert host.systemd.shares == {"41": 1}
    assert any("up to 1 of each GPU while nobody else has it" in note for note in host.endpoint(41)["notes"])
    instance.start(host, job(42, 105), conf)
    assert host.systemd.shares == {"41": Q}
    assert instance.end_instance(host, "42") == []
    assert host.systemd.shares == {"41": 1}


def test_it_is_taken_back_before_the_other_starts(host: FakeHost, conf: ServerConf) -> None:
    instance.start(host, job(41, 35, up_to=140), conf)
    host.systemd.fails = LeaseError("no start")
    with pytest.raises(LeaseError):
        instance.start(host, job(42, 105), conf)
    # given to nobody: the next sweep at the latest gives it to the first again
    ceiling.rebalance(host)
    assert host.systemd.shares == {"41": 1}


def test_what_is_known_already_is_not_set_again_and_a_failure_ends_no_lease(host: FakeHost, conf: ServerConf) -> None:
    instance.start(host, job(41, 35, up_to=140), conf)
    host.systemd.shares.clear()
    ceiling.rebalance(host)
    assert host.systemd.shares == {}

    def broken(one: Instance, share: Fraction) -> None:
        raise LeaseError("no group")

    host.systemd.hold = broken  # type: ignore[method-assign]
    instance.start(host, job(42, 105), conf)
    assert set(host.systemd.units) == {"41", "42"}


def test_a_busy_server_fails_no_start_and_no_end(host: FakeHost, conf: ServerConf, monkeypatch: Any) -> None:
    instance.start(host, job(41, 35, up_to=140), conf)

    def busy(*_: Any) -> None:
        raise Busy("somebody has the lock")

    monkeypatch.setattr(ceiling, "locked", busy)
    instance.start(host, job(42, 105), conf)
    assert instance.end_instance(host, "42") == []


def test_a_damaged_record_takes_everything_back(host: FakeHost, conf: ServerConf) -> None:
    instance.start(host, job(41, 35, up_to=140), conf)
    (host.run_dir / "50").mkdir()
    (host.run_dir / "50/instance.json").write_text("?")
    ceiling.rebalance(host)
    assert host.systemd.shares == {"41": Q}


def test_the_sweep_gives_what_an_end_without_a_word_has_left(host: FakeHost, conf: ServerConf) -> None:
    instance.start(host, job(41, 35, up_to=140), conf)
    host.systemd.shares["41"] = Q
    (host.run_dir / "41" / ceiling.FILE).unlink()
    host.slurm.answers["squeue"] = "41 RUNNING N/A N/A\n"
    sweep.sweep(host)
    assert host.systemd.shares == {"41": 1}


def test_the_request_says_so_and_an_older_one_reads_as_before() -> None:
    asked = JobComment(("10.0.0.1",), "client1", up_to=140)
    assert JobComment.read(asked.text()) == asked
    assert "up_to" not in JobComment(("10.0.0.1",), "client1").text()


def against(tmp_path: Path, wish: LeaseWish, where: Any = "client", enforcement: str = "engine") -> Any:
    host = FakeHost(folder=tmp_path, slurm=FakeSlurm(node_text=node_text("gpu1", "IDLE"), said=[[]]))
    host.serve()
    host.network.routes["10.0.0.1"] = "10.0.0.2"
    host.pool_conf.parent.mkdir(parents=True, exist_ok=True)
    server = {"address": "10.0.0.1", "enforcement": enforcement, "memory_mib": 512}
    host.pool_conf.write_text(json.dumps({"servers": {"gpu1": server}}))
    return ask.against_pool(host, wish, "run", lambda _: None, where)


def test_the_wish_becomes_shards(tmp_path: Path) -> None:
    asked = against(tmp_path, LeaseWish(part="1/4", up_to="1/2"))
    assert (asked.request.part.shards, asked.request.up_to) == (35, 70)
    assert asked.comment.up_to == 70
    assert asked.request.text == "1/4 GPU up to 1/2"
    assert asked.gpus.count == 35, "Slurm grants the part alone"


@pytest.mark.parametrize(
    ("wish", "more", "told"),
    [
        (LeaseWish(up_to="1/2"), {}, "goes with a part"),
        (LeaseWish(part="1/2", up_to="1/4"), {}, "is less than the part"),
        (LeaseWish(part="1/2", up_to="much"), {}, "not a number"),
        (LeaseWish(part="1/2", up_to="1"), {"where": "server"}, "on the server omit it"),
        (LeaseWish(part="1/2", up_to="1"), {"enforcement": "mps"}, "gpu1 holds parts by MPS"),
        (LeaseWish(part="1/2", up_to="1"), {"enforcement": "mig"}, "gpu1 holds parts by MIG"),
    ],
)
def test_a_ceiling_that_cannot_be_is_refused_before_anything_is_leased(
    tmp_path: Path, wish: LeaseWish, more: dict[str, Any], told: str
) -> None:
    with pytest.raises(LeaseError, match=told):
        against(tmp_path, wish, **more)
