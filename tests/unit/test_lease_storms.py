"""What a storm of leases shows: each fault of an invented one is found, and none in one without."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support import lease_storm, lease_storms
from tests.support.lease_storms import Storm, faults
from toolkit.lease import SHARDS_PER_GPU as GPU
from toolkit.pool_policy import check_pool


def outcome(lease: int, wish: str, where: str, from_s: float, until_s: float, **more: Any) -> dict[str, Any]:
    base = {"user": "bob", "wish": wish, "death": "none", "code": 0, "lease": lease, "seconds": 5.0, "said": ""}
    return base | {"urgent": False, "where": where, "from_s": from_s, "until_s": until_s, "shards": 0} | more


def row(job: str, resources: str, state: str = "CANCELLED by 2001") -> list[str]:
    return [job, "elastic-ai-lease", state, resources]


CLEAN = Storm(
    outcomes=[
        outcome(41, "-p 1/2", "1/2 of gpu1:0", 0, 20),
        outcome(42, "-n 2 -p 1/4", "1/4 of gpu1:0, 1/4 of gpu1:0", 5, 20),
        outcome(44, "-n 2", "gpu1:0-1", 20, 30),
        outcome(0, "-n 1", "", 0, 0, death="interrupt while waiting", code=130),
    ],
    watched={"gpu1": {"most": GPU, "instances": 4}, "gpu2": {"most": 0, "instances": 0}},
    rows=[
        row("41", f"billing={GPU // 2},gres/shard={GPU // 2}"),
        row("42_0", f"gres/shard={GPU // 4}"),
        row("42_1", f"gres/shard={GPU // 4}"),
        row("44", "gres/gpu=2"),
    ],
)
LOST = "lease 41 has ended: a job of higher priority needs its GPUs"


def test_a_storm_without_a_fault_has_none() -> None:
    assert faults(CLEAN) == []
    assert lease_storms.summary(CLEAN).startswith("4 leases asked for, 3 of them given")


def test_every_wish_of_a_storm_is_counted() -> None:
    assert {" ".join(wish) for wish in lease_storm.WISHES} == set(lease_storms.WISHES)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"outcomes": [*CLEAN.outcomes[:2], outcome(44, "-n 2", "gpu1:0-1", 18, 30)]}, "gpu1:0 was given twice"),
        ({"watched": {"gpu1": {"most": GPU + 1, "instances": 1}}}, f"gpu1 gave {GPU + 1} of {GPU} shards"),
        ({"left": {"gpu2": "elastic-ai-lease@41.service"}}, "left on gpu2: elastic-ai-lease@41.service"),
        ({"queue": "41 all elastic"}, "still in the queue"),
        (
            {"nodes": frozenset({"idle none", "drained Kill task failed"})},
            "servers are drained Kill task failed, idle none",
        ),
        ({"rows": CLEAN.rows[:3]}, "lease 44 (-n 2) had 0 shards"),
        ({"rows": [*CLEAN.rows[:3], row("44", "gres/gpu=1")]}, f"lease 44 (-n 2) had {GPU} shards"),
        ({"rows": [*CLEAN.rows, row("46", "", "RUNNING")]}, "job 46 is RUNNING"),
        ({"outcomes": [outcome(41, "-p 1/2", "1/2 of gpu1:0", 0, 20, code=2)]}, "-p 1/2 ended with 2"),
        ({"outcomes": [outcome(41, "-p 1/2", "1/2 of gpu1:0", 0, 20, seconds=300.0)]}, "took 300.0 s"),
    ],
)
def test_every_fault_of_a_storm_is_found(change: dict[str, Any], words: str) -> None:
    (found,) = faults(replace(CLEAN, **change))
    assert words in found


def test_a_part_for_memory_counts_what_its_client_was_told() -> None:
    two = [outcome(41, "-m 100", "1/2 of gpu1:0", 0, 20, shards=2600), outcome(42, "-p 1/2", "1/2 of gpu1:0", 0, 20)]
    (found,) = lease_storms.given_twice(two)
    assert found == f"gpu1:0 was given twice, of {GPU} shards: lease 41: 2600, lease 42: {GPU // 2}"


def test_losing_to_one_that_goes_before_is_no_fault_where_there_are_such() -> None:
    lost = replace(CLEAN, outcomes=[outcome(41, "-p 1/2", "1/2 of gpu1:0", 0, 20, code=143, said=LOST)])
    urgent = replace(lost, outcomes=[{**lost.outcomes[0], "urgent": True}])
    assert faults(lost, urgents=True) == []
    assert len(faults(lost)) == len(faults(urgent, urgents=True)) == 1


def test_the_storms_policy_is_one() -> None:
    pool = check_pool(lease_storms.PREEMPTING["slurm_pool"])
    assert pool.users["urgent"].preempts == ("patient",)
    assert next(iter(pool.users)) == "patient"  # whose leases are not asked for as urgent
