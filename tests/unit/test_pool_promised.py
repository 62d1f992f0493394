"""Leases held against what they were promised, by rows of Slurm's accounting."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.site import LAB, criterion, plan_of, result, results_of, verdict_of
from validation.kinds import parse
from validation.measures.pool import pool_use_probe
from validation.model import Judgement, Result
from validation.probes.tool import now

PLAN = plan_of(LAB, ("operations",))
NODES = "NodeName=gpu1 Gres=gpu:v100:2,shard:v100:10080 State=IDLE"
FROM, UNTIL, HOUR = 1_000_000_000, 1_000_036_000, 3600


def row(state: str = "COMPLETED", hours: float = 1, got: int = 2520, limit: str = "60", asked: int = 2520) -> str:
    """A lease of half a GPU for an hour, of the class research, that waited for a quarter of an hour."""
    start = FROM + HOUR
    times = (str(FROM + HOUR - 900), str(start), str(start + round(hours * HOUR)))
    tres = [f"billing={n},gres/shard={n},node=1" for n in (got, asked)]
    return "|".join(("1", "research", "all", state, *times, *tres, "gpu1", limit))


def judged(rows: list[str], before: bool = False) -> Judgement:
    """`before`: as a run recorded it that did not ask for times."""
    command = pool_use_probe.sacct(30)
    if before:
        rows, command = [one.rpartition("|")[0] for one in rows], [*command[:-1], command[-1].rpartition(",")[0]]
    doc: Any = {
        "kind": "pool-use", "tool": "sacct", "tool_version": "", "command": command, "returncode": 0,
        "stdout": "".join(f"{one}\n" for one in rows), "stderr": "", "started": now(), "ended": now(),
        "duration_s": 0.1, "error": None,
        "facts": {
            "from_s": FROM + HOUR - 900, "until_s": UNTIL, "nodes": pool_use_probe.nodes([NODES]), "emulated": True,
            "unwatched": "", "used": {}, "lines": len(rows),
        },
    }  # fmt: skip

    def change(m: Any) -> Result:
        if m.kind != "pool-use":
            return result(m, status="failed", error="no monitoring")
        samples, facts = parse("pool-use", doc, {"days": 30.0})
        return result(m, samples, facts=facts)

    (found,) = criterion(verdict_of(LAB, PLAN, results_of(PLAN, change)), "op.kept").judgements
    return found


def test_leases_with_all_they_asked_for_pass_and_are_counted() -> None:
    others = [row("PREEMPTED", 0.5), row("NODE_FAIL", 0.2), row("RUNNING", limit="UNLIMITED")]
    found = judged([row(), row("TIMEOUT", 1.02), row(hours=1.2), *others])
    assert found.verdict == "pass", found.reason
    assert found.reason == (
        "6 leases with the GPUs and the time that they asked for; 1 longer than its limit; "
        "1 given to another class of users; 1 ended with the server; the longest wait was 15 min"
    )


def test_leases_that_asked_for_nothing_are_not_counted_as_kept() -> None:
    found = judged([row(asked=0), row(asked=0)])
    assert (found.verdict, found.reason_code) == ("not-applicable", "reported")
    assert found.reason == "reported: no lease asked for GPUs by this record"
    assert judged([row(asked=0), row()]).reason.startswith("1 lease with the GPUs")


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (row(got=1260), "one of research on v100 asked for 0.5 GPUs and had 0.25"),
        (row("TIMEOUT", 0.5), "may last 1 h and was ended by its limit after 0.5 h"),
    ],
)
def test_what_was_not_kept_fails_and_is_named(one: str, words: str) -> None:
    found = judged([row(), one])
    assert (found.verdict, found.reason_code) == ("fail", "not-equal")
    assert found.reason.startswith("1 of 2 leases not kept: ")
    assert words in found.reason


def test_a_record_of_before_says_that_it_does_not_know() -> None:
    found = judged([row(), row(got=1260)], before=True)
    assert (found.verdict, found.reason_code) == ("not-applicable", "reported")
