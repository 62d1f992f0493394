"""What users see of the pool on the lab: the queue, when GPUs can be had, what they may have; and a policy compared."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from conftest import Lab, toolkit

from tests.support.lease_lab import json_in, run_as, shell, until


def waiting(pool: Lab) -> list[tuple[int, str, str | None]]:
    code, out = run_as(pool, "bob", "toolkit gpus --json")
    assert code == 0, out
    return [(one["place"], one["user"], one["what"]) for one in json_in(out)["waiting"]]


@pytest.mark.usefixtures("nothing_left")
def test_the_queue_and_when_its_turn_comes(pool: Lab) -> None:
    code, out = run_as(pool, "alice", "toolkit lease request -n 8 --time 10m --json")
    assert code == 0, out
    lease, ends = json_in(out)["lease"], datetime.fromisoformat(json_in(out)["until"]).timestamp()
    code, out = run_as(pool, "bob", "toolkit lease request -p 1/2 --time 5m --no-wait --json")
    assert code == 0, out
    waits = json_in(out)["lease"]
    until(lambda: waiting(pool), [(1, "bob", "1/2 GPU")])
    code, out = run_as(pool, "alice", "toolkit gpus --when -n 1 --json")
    assert code == 0, out
    when = json_in(out)
    assert (when["now"], when["after"], when["waiting"]) == (False, [lease], 1)
    # Slurm's own estimate may be minutes later: the job's limit in whole minutes, and its rounds.
    assert -60 < datetime.fromisoformat(when["start"]).timestamp() - ends < 600
    code, out = run_as(pool, "alice", "toolkit gpus --when -n 9")
    assert (code, "the pool has 8 GPUs" in out) == (2, True), out
    for user, number in (("bob", waits), ("alice", lease)):
        assert run_as(pool, user, f"toolkit lease release {number}")[0] == 0
    until(lambda: waiting(pool), [])
    until(lambda: json_in(run_as(pool, "alice", "toolkit gpus --when -n 8 --json")[1])["now"], True)


@pytest.mark.usefixtures("nothing_left")
def test_what_alice_may_have(pool: Lab) -> None:
    code, out = run_as(pool, "alice", "toolkit gpus --limits --json")
    assert code == 0, out
    classes = {one["name"]: one for one in json_in(out)["classes"]}
    (own,) = [one for one in classes.values() if one["default"]]
    assert (own["used"], own["jobs"]) == (0, 1000)
    assert {one["name"] for one in own["classes"]} == {"v100"}
    code, out = run_as(pool, "alice", "toolkit lease request -n 2 -p 1/4 --time 5m --json")
    assert code == 0, out
    code, said = run_as(pool, "alice", "toolkit gpus --limits")
    assert (code, "you have 0.5" in said) == (0, True), said
    assert run_as(pool, "alice", f"toolkit lease release {json_in(out)['lease']}")[0] == 0


def test_another_policy_is_compared_with_the_heads(pool: Lab, tmp_path: Path) -> None:
    applied = shell(pool, "head", "cat /etc/elastic-ai/slurm/pool.json")
    file = tmp_path / "pool.yml"
    file.write_text("slurm_pool:\n  users:\n    few: {users: [alice], max_gpus_per_user: 1/2, max_hours: 2}\n")
    done = toolkit("pool", "check", file, "-i", pool.inventory)
    assert done.returncode == 0, done.stderr
    assert "alice" in done.stdout
    assert "1/2 GPU" in done.stdout
    assert "bob" in done.stdout, "is in no class any more"
    assert "no GPU" in done.stdout
    assert shell(pool, "head", "cat /etc/elastic-ai/slurm/pool.json") == applied
