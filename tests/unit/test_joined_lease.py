"""Leases in a Slurm of the site's own: nodes, partitions and jobs there that are not the pool's."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.lease_host import FakeClock, FakeSlurm
from tests.support.lease_texts import jobs_of, node_text, slurm_job
from toolkit.commands import gpus as command
from toolkit.lease import LeaseError, pool
from toolkit.lease.client import ask, placement
from toolkit.lease.client.run_request import RunRequest
from toolkit.lease.fraction import GpuPart
from toolkit.lease.jobs.slurm_text import SlurmError, parse_nodes
from toolkit.lease.jobs.submission import JobGpus, Submission
from toolkit.lease.lease_request import LeaseRequest, LeaseWish
from toolkit.lease.machine.host import Host
from toolkit.lease.pool_file import read_pool
from toolkit.lease.queue.limits import limits


def there(name: str, gres: str, partitions: str) -> str:
    return node_text(name, "IDLE", gres).replace("Partitions=all,v100", f"Partitions={partitions}")


#: Two servers of the pool, one of theirs in the same partition, and one in another.
CLUSTER = (
    there("gpu1", "gpu:v100:4,shard:v100:560", "batch,lease")
    + there("gpu2", "gpu:h100:4,shard:h100:560", "batch,lease")
    + there("other1", "gpu:v100:4,shard:v100:560", "batch,lease")
    + there("other2", "gpu:v100:4", "batch")
)
NODES = parse_nodes(CLUSTER)
WHOLE = GpuPart(140, 140)
SERVER = {"address": "10.0.0.1", "gpus": [{"index": 0, "name": "V100", "memory_mib": 16384}]}


def host(folder: Path, joined: str = "lease", **more: Any) -> Host:
    path = folder / "pool.json"
    path.write_text(json.dumps({"servers": {"gpu1": SERVER, "gpu2": SERVER}, "joined": joined}))
    slurm = FakeSlurm(**{"node_text": CLUSTER, **more})
    return Host(slurm=slurm, clock=FakeClock(), pool_conf=path)


def names(nodes: Any) -> list[str]:
    return [node.name for node in nodes]


def test_only_the_pools_own_servers_take_leases(tmp_path: Path) -> None:
    here = host(tmp_path)
    assert names(ask.eligible_here(here, LeaseRequest(1, WHOLE), NODES)) == ["gpu1", "gpu2"]
    assert names(ask.eligible_here(here, LeaseRequest(1, WHOLE, (), "h100"), NODES)) == ["gpu2"]
    for request, words in (
        (LeaseRequest(1, WHOLE, ("other1",)), "no such server"),
        (LeaseRequest(1, WHOLE, (), "batch"), "the pool has no such class; it has h100, v100"),
    ):
        with pytest.raises(LeaseError, match=words):
            ask.eligible_here(here, request, NODES)


def test_a_pool_of_its_own_asks_for_its_default_partition(tmp_path: Path) -> None:
    here = host(tmp_path, joined="")
    assert here.slurm.default_partition() == "all"
    assert names(ask.eligible_here(here, LeaseRequest(1, WHOLE, (), "batch"), NODES)) == names(NODES)


def test_a_lease_names_its_partition_and_keeps_off_other_nodes_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ask, "clients_for", lambda *_: ("10.0.0.2",))
    monkeypatch.setattr(ask, "host_mib", lambda *_: 512)
    monkeypatch.setattr(ask, "engine_told", lambda *_: "")
    asked = ask.against_pool(host(tmp_path), LeaseWish(count=1, gpu_class="h100"), "run", print)
    assert asked.partition == "lease"
    assert asked.excluded == ("gpu1", "other1")
    words = asked.options()
    assert "--partition=lease" in words
    assert "--partition=h100" not in words
    assert "--exclude=gpu1,other1" in words
    assert "--oversubscribe" not in words, "it would not get a node on which jobs of theirs run"
    own = Submission(LeaseRequest(1, WHOLE, (), "h100"), JobGpus("gpu", 1), 1, (), "client1")
    assert "--partition=h100" in own.options()
    assert "--oversubscribe" in own.options()


def test_a_part_for_any_program_is_refused_before_their_slurm_is_asked(tmp_path: Path) -> None:
    """With the reference engine alone: a test in a lab waited for a lease that nobody had asked for."""
    here = host(tmp_path)
    servers = {"gpu1": {**SERVER, "enforcement": "engine"}}
    here.pool_conf.write_text(json.dumps({"servers": servers, "joined": "lease"}))
    here = replace(here, engine_dir=tmp_path)
    (tmp_path / "engine.json").write_text('{"engine": "reference", "release": "r1"}')
    request = RunRequest(("sleep", "600"), LeaseWish(part="1/2"))
    with pytest.raises(LeaseError, match=r"sleep can run neither here nor on the server: .* give --driver-api"):
        placement.place(here, request)
    assert (here.slurm.commands, here.slurm.submitted) == ([], [])
    assert placement.place(here, replace(request, no_kernels=True)).where == "client"


def test_a_user_without_an_account_there_is_sent_to_its_administrator() -> None:
    fault = SlurmError("Invalid account or account/partition combination specified")
    request = LeaseRequest(1, WHOLE, (), "")
    said = ask.explain(fault, request, "lease")
    assert "ask its administrator for an account there" in said
    assert "--class" in ask.explain(fault, request)


def test_gpus_shows_the_pools_servers_and_the_queue_of_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = slurm_job(51, "train", None, "gpu:v100:4(IDX:0-3)", "other1", partition="batch")
    waits = slurm_job(52, "later", None, "", state="PENDING", partition="batch", end=None)
    here = host(tmp_path, said=[theirs + waits])
    monkeypatch.setattr(command, "on_head", lambda *_: False)
    monkeypatch.setattr(command, "this_host", lambda: here)
    done = CliRunner().invoke(command.gpus, ["--json"])
    data = json.loads(done.output)
    assert {gpu["node"] for gpu in data["gpus"]} == {"gpu1", "gpu2"}
    assert data["waiting"] == []


def test_what_pool_json_says_of_other_nodes_is_nothing(tmp_path: Path) -> None:
    joined = read_pool(host(tmp_path).pool_conf)
    assert {gpu.node for gpu in pool.gpus_of(NODES, jobs_of([]), joined)} == {"gpu1", "gpu2"}
    alone = read_pool(host(tmp_path, joined="").pool_conf)
    assert {gpu.node for gpu in pool.gpus_of(NODES, jobs_of([]), alone)} == set(names(NODES))


def test_limits_of_their_accounting_are_read_as_they_have_them(tmp_path: Path) -> None:
    """A QOS among several, limits in GPUs, classes of GPU that are no partitions."""
    answers = {
        "sacctmgr --noheader --parsable2 show user": "alice|physics\n",
        "sacctmgr --noheader --parsable2 show assoc": "physics|alice|long,normal\n",
        "sacctmgr --noheader --parsable2 show qos": "normal|0|||||\nlong|5|gres/gpu=8|gres/gpu=2|7|2-00:00:00|\n",
        "scontrol --oneliner show partition": (
            "PartitionName=batch MaxTime=UNLIMITED\nPartitionName=lease MaxTime=08:00:00\n"
        ),
    }
    (one,) = limits(host(tmp_path, answers=answers), "alice", NODES, [])
    assert (one.name, one.gpus, one.together, one.jobs) == ("physics", Fraction(2), Fraction(8), 7)
    assert [(c.name, c.longest_s) for c in one.classes] == [("h100", 28800), ("v100", 28800)]
