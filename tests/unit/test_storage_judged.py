"""Storage: what is planned of what the inventory declares, and how what was measured is judged."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.site import criterion, plan_of, result, verdict_of
from tests.support.storage_documents import (
    HOME,
    NODES,
    SCRATCH,
    alone,
    healthy_storage,
    hidden,
    joined,
    measured,
    report,
    site,
    watcher,
)
from validation.kinds import job_for, parse
from validation.kinds.parsing import ParseError
from validation.measures.storage.storage_figures import storage_figures
from validation.model import Measurement, Storage, Topology
from validation.plan.suites import PlanError

pytestmark = pytest.mark.computes


def judged(topology: Topology, changed: Mapping[str, Any] | None = None) -> Any:
    """The verdict of a run in which all is well but `changed`: measurement -> its result, or its document."""
    plan = plan_of(topology, ("storage",))
    results = [(changed or {}).get(m.id) or healthy_storage(m) for m in plan.measurements]
    return verdict_of(topology, plan, results)


def planned(topology: Topology, id_: str) -> Measurement:
    return plan_of(topology, ("storage",)).measurement(id_)


def test_shared_storage_is_measured_alone_one_by_one_and_together_and_own_storage_in_one_round() -> None:
    plan = plan_of(site(), ("storage",))
    assert [list(one) for one in plan.rounds] == [
        ["storage-shared.home"],
        *([f"storage-alone.{node}-home"] for node in NODES),
        [f"storage-alone.{node}-scratch" for node in NODES],
        ["storage-together.home"],
    ]
    assert any("GPUDirect Storage: no node with storage has a GPU" in left.why for left in plan.left_out)
    first, second = (plan.measurement(f"storage-alone.{node}-home").params["ops"] for node in NODES[:2])
    assert "one-read" in first, "one stream of the first node"
    assert "one-read" not in second
    assert plan.measurement("storage-alone.gpu1-scratch").params["seconds"] == 5
    assert plan.estimated_s < 300


def test_of_many_nodes_a_part_is_measured_alone_and_one_node_shares_with_nobody() -> None:
    many = plan_of(site(HOME, names=[f"gpu{n}" for n in range(20)]), ("storage",))
    assert sum(m.kind == "storage-alone" for m in many.measurements) == 8
    assert any("8 of 20 nodes" in left.why for left in many.left_out)
    one = plan_of(site(names=("gpu1",)), ("storage",))
    assert {m.kind for m in one.measurements} == {"storage-alone"}
    with pytest.raises(PlanError, match="no storage is declared"):
        plan_of(site().model_copy(update={"nodes": tuple(n.model_copy(update={"storage": ()}) for n in site().nodes)}),
                ("storage",))  # fmt: skip


def test_all_nodes_of_a_measurement_meet_in_one_folder_and_have_their_own_path() -> None:
    topology = site()
    job = job_for(planned(topology, "storage-shared.home"), topology)
    assert [seat.node for seat in job.sending] == list(NODES)
    assert len({seat.call.params["token"] for seat in job.sending}) == 1
    assert {seat.call.params["path"] for seat in job.sending} == {"/mnt/home"}


def test_a_figure_without_an_order_is_recorded_and_not_judged() -> None:
    verdict = judged(site())
    for id_ in ("st.read", "st.write", "st.randread", "st.randwrite", "st.meta", "st.readall", "st.writeall"):
        for one in criterion(verdict, id_).judgements:
            assert (one.verdict, one.reason_code) == ("not-applicable", "reported"), id_
    assert criterion(verdict, "st.seen").verdict == criterion(verdict, "st.flock").verdict == "pass"
    assert "in one stream" in (criterion(verdict, "st.read").judgements[0].text or "")


def test_the_order_is_the_floor_and_the_links_rate_the_ceiling() -> None:
    ordered = Storage(name="scratch", path="/scratch", read_gb_s=1.9, write_gb_s=1.5, read_iops=90_000)
    verdict = judged(site(ordered))
    assert {one.verdict for one in criterion(verdict, "st.read").judgements} == {"pass"}
    slow = criterion(verdict, "st.write").judgements[0]
    assert (slow.verdict, slow.reason_code, slow.bound.floor) == ("fail", "below-floor", 1.5)
    assert criterion(verdict, "st.randread").judgements[0].verdict == "pass"
    cached = judged(site(Storage(name="scratch", path="/scratch", link_gbps=10)))
    too_fast = criterion(cached, "st.read").judgements[0]
    assert (too_fast.verdict, too_fast.reason_code) == ("not-measured", "above-ceiling"), "2 GB/s over 10 Gbit/s"
    by_link = judged(site(Storage(name="scratch", path="/scratch", link_gbps=18)))
    assert criterion(by_link, "st.read").judgements[0].verdict == "pass", "2 of 2.25 GB/s"
    assert criterion(by_link, "st.write").judgements[0].verdict == "fail", "1 of 2.25 GB/s"


def test_all_at_once_is_the_sum_of_the_nodes_and_a_node_that_is_missing_is_named() -> None:
    topology = site(HOME.model_copy(update={"all_read_gb_s": 5.9}))
    good = criterion(judged(topology), "st.readall").judgements[0]
    assert good.verdict == "pass"
    assert good.value == pytest.approx(6.0, rel=0.01)
    m = planned(topology, "storage-together.home")
    dead = {"name": "home", "node": "gpu3", "path": "/mnt/home", "silent": "/mnt/home did not answer in 10 s (x)"}
    reports = {node: report(m, node, present=["gpu1", "gpu2"]) for node in ("gpu1", "gpu2")}
    found = judged(topology, {m.id: measured(m, joined(m, {**reports, "gpu3": dead}))})
    one = criterion(found, "st.readall").judgements[0]
    assert one.verdict == "not-measured"
    assert "gpu3: /mnt/home did not answer in 10 s" in one.reason
    assert "2 nodes together 4 GB/s" in one.reason


def test_a_slow_node_is_named_beside_the_others_even_without_an_order() -> None:
    m = planned(site(), "storage-alone.gpu2-home")
    verdict = judged(site(), {m.id: measured(m, alone(m, {"read": 0.4e9}))})
    slow = next(one for one in criterion(verdict, "st.read").judgements if m.id in one.evidence)
    assert "0.2 of what the other nodes reach" in slow.reason


def test_what_failed_on_a_node_is_its_own_reason_and_nothing_passes_without_a_figure() -> None:
    m = planned(site(), "storage-alone.gpu2-home")
    broken = report(m, "gpu2")["ops"] | {"read": {"error": "fio: io_u error: Input/output error"}}
    verdict = judged(site(), {m.id: measured(m, alone(m, ops=broken))})
    one = next(one for one in criterion(verdict, "st.read").judgements if m.id in one.evidence)
    assert (one.verdict, "Input/output error" in one.reason) == ("not-measured", True)
    lost = judged(site(), {m.id: result(m, status="failed", error="gpu2: /mnt/home did not answer in 10 s")})
    one = next(one for one in criterion(lost, "st.read").judgements if m.id in one.evidence)
    assert (one.verdict, "did not answer in 10 s" in one.reason) == ("not-measured", True)


@pytest.mark.parametrize(
    ("seconds", "verdict", "code"),
    [(0.02, "pass", "within-bounds"), (1.4, "not-measured", "too-noisy"), (3.0, "fail", "above-maximum")],
)
def test_a_write_is_seen_within_a_second_there_and_back(seconds: float, verdict: str, code: str) -> None:
    m = planned(site(), "storage-shared.home")
    made = joined(m, {node: watcher(m, node, seconds if node == "gpu2" else 0.02) for node in NODES})
    one = criterion(judged(site(), {m.id: measured(m, made)}), "st.seen").judgements[0]
    assert (one.verdict, one.reason_code) == (verdict, code)


def test_what_is_never_seen_fails_a_new_name_is_remarked_and_nodes_apart_are_named() -> None:
    m = planned(site(), "storage-shared.home")

    def seen(**changed: Any) -> Any:
        made = {node: changed.get(node) or watcher(m, node) for node in NODES}
        return criterion(judged(site(), {m.id: measured(m, joined(m, made))}), "st.seen").judgements[0]

    unseen = seen(gpu1=hidden(m, "gpu1"))
    assert (unseen.verdict, "did not read what gpu1 wrote" in unseen.reason) == ("fail", True)
    new = seen(gpu1=hidden(m, "gpu1", "new"))
    assert (new.verdict, new.reason_code) == ("pass", "remarked")
    lonely = {"present": ["gpu3"], "seen": [], "held": {}, "count": {}}
    two = ["gpu1", "gpu2"]
    pair = m.model_copy(update={"nodes": tuple(two)})
    apart = seen(gpu1=watcher(pair, "gpu1"), gpu2=watcher(pair, "gpu2"), gpu3=watcher(m, "gpu3", **lonely))
    assert (apart.verdict, "gpu3 does not see what gpu1, gpu2 write" in apart.reason) == ("fail", True)
    hung = watcher(m, "gpu3", **lonely, silent="/mnt/home did not answer in 10 s")
    dead = seen(gpu1=watcher(pair, "gpu1"), gpu2=watcher(pair, "gpu2"), gpu3={**hung, "present": []})
    assert (dead.verdict, "gpu3: /mnt/home did not answer" in dead.reason) == ("not-measured", True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"held": {"meanwhile": "taken", "after": "taken"}}, "gpu2 took the lock while another node held it"),
        ({"held": {"meanwhile": "No locks available (37)", "after": "taken"}}, "could not ask for the lock: No locks"),
        ({"held": {"meanwhile": "refused", "after": "not given in 20 s"}}, "was not given the lock after"),
        ({"count": {"turns": 50, "done": 50, "total": 149, "fault": "", "late": []}}, "150 turns under the lock were"),
    ],
)
def test_a_lock_that_does_not_hold_over_nodes_fails(changes: dict[str, Any], words: str) -> None:
    m = planned(site(), "storage-shared.home")
    made = {node: watcher(m, node, **(changes if node == "gpu2" else {})) for node in NODES}
    one = criterion(judged(site(), {m.id: measured(m, joined(m, made))}), "st.flock").judgements[0]
    assert (one.verdict, words in one.reason) == ("fail", True), one.reason


def test_what_fio_did_otherwise_than_planned_is_refused() -> None:
    m = planned(site(SCRATCH), "storage-alone.gpu1-scratch")
    for key, value in (("direct", "0"), ("rw", "write"), ("runtime", "1"), ("numjobs", "1")):
        ops = report(m, "gpu1")["ops"]
        ops["read"]["fio"]["jobs"][0]["job options"][key] = value
        with pytest.raises(ParseError, match=f"read: {key} is"):
            parse(m.kind, alone(m, ops=ops), m.params)
    ops = report(m, "gpu1")["ops"]
    ops["read"]["fio"]["jobs"][0]["read"]["io_bytes"] *= 2
    with pytest.raises(ParseError, match="bytes"):
        parse(m.kind, alone(m, ops=ops), m.params)


def test_the_report_has_a_line_for_each_node_and_says_what_was_not_measured() -> None:
    topology = site()
    plan = plan_of(topology, ("storage",))
    found = {m.id: healthy_storage(m) for m in plan.measurements if m.id != "storage-alone.gpu2-home"}
    documents: Any = SimpleNamespace(plan=plan, latest=found, lost=lambda _: "no result was recorded")
    rates, seen = storage_figures(documents)
    assert rates.table is not None
    assert seen.table is not None
    rows = {row[:2]: row for row in rates.table.rows}
    assert rows["scratch", "gpu3"][2:4] == ("2.000", "1.0000")
    assert rows["scratch", "gpu3"][8] == "500 s"
    assert rows["home", "gpu2"][2] == "not measured: no result was recorded"
    assert rows["home", "all 3 at once"][2] == "6.000"
    assert {row[3] for row in seen.table.rows} == {"2"}
    empty: Any = SimpleNamespace(plan=plan_of(topology), latest={}, lost=str)
    assert storage_figures(empty) == (), "a report without storage has no section of it"
