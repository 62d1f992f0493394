"""What is judged from columns, for all measurements of a criterion at once, is what is judged one by one."""

from __future__ import annotations

import json
from array import array
from itertools import accumulate

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.site import CRITERIA, LAB, PLAN, REAL, busy, plan_of, real_results, results_of, verdict_of
from validation.columns import Columns, packed
from validation.fabric import load_fabric
from validation.judging import values
from validation.judging.alike import Alike
from validation.judging.case import make_case
from validation.model import Result, Sample, VerdictDoc
from validation.model_verdict import Judgements, others

KINDS = {"path-mtu": "path_mtu_bytes", "tcp-bandwidth": "tcp_bandwidth_gbps", "tcp-latency": "tcp_rtt_us"}
WAYS = (
    "same", "slow", "fast", "wide", "negative", "zero", "few", "none", "unit", "two units", "lost", "failed",
    "ok with error", "busy", "again", "again, slow", "odd count",
)  # fmt: skip


def spoilt(one: Result, way: str, metric: str) -> list[Result]:
    def values_(change):
        return one.model_copy(
            update={
                "samples": tuple(
                    s.model_copy(update={"value": change(n, s.value)}) if s.metric == metric else s
                    for n, s in enumerate(one.samples)
                )
            }
        )

    mine = [s for s in one.samples if s.metric == metric]
    if way == "few":
        return [one.model_copy(update={"samples": tuple(mine[:1])})]
    if way == "odd count":
        return [one.model_copy(update={"samples": (*one.samples, mine[0])})]
    if way == "none":
        return [one.model_copy(update={"samples": ()})]
    if way == "unit":
        return [one.model_copy(update={"samples": tuple(s.model_copy(update={"unit": "byte"}) for s in one.samples)})]
    if way == "two units":
        return [one.model_copy(update={"samples": (*one.samples, Sample(metric=metric, value=1.0, unit="s"))})]
    if way == "lost":
        return []
    if way == "failed":
        return [one.model_copy(update={"status": "failed", "error": "it did not start", "samples": ()})]
    if way == "ok with error":
        return [one.model_copy(update={"error": "odd"})]
    if way == "busy":
        return [one.model_copy(update={"denied": busy(steal=0.3)})]
    if way.startswith("again"):
        more = values_(lambda _, v: v * (0.1 if "slow" in way else 1.0))
        return [one, more.model_copy(update={"attempt": 2})]
    change = {
        "same": lambda _, v: v,
        "slow": lambda _, v: v * 0.1,
        "fast": lambda _, v: v * 1.2,
        "wide": lambda n, v: v * (1.0 if n % 2 else 0.6),
        "negative": lambda n, v: v if n else -v,
        "zero": lambda n, v: v if n else 0.0,
    }[way]
    return [values_(change)]


def stored(results: list[Result], parts: int) -> list[Result]:
    """The same results as they are read from the columns that are kept of a run, in so many frames."""
    found: list[Result] = []
    size = -(-len(results) // parts)
    for at in range(0, len(results), size):
        some = results[at : at + size]
        lines = [one.model_dump_json().encode() + b"\n" for one in some]
        frame = packed(some, 0, array("Q", accumulate(map(len, lines))))
        assert frame is not None
        found += Columns(frame, some[0].run, b"".join(lines)).results()
    return found


def both(monkeypatch, results, topology=LAB, plan=PLAN):
    said = []
    for least in (10**9, 1):
        monkeypatch.setattr(values, "FLEET", least)
        said.append(verdict_of(topology, plan, results))
    return said


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_all_at_once_and_one_by_one_give_the_same_verdict(monkeypatch, data):
    odd = data.draw(
        st.dictionaries(st.sampled_from([m.id for m in PLAN.measurements if m.kind in KINDS]), st.sampled_from(WAYS))
    )
    results = []
    for one in results_of(PLAN):
        measurement = PLAN.measurement(one.measurement)
        metric = KINDS.get(measurement.kind, "")
        results += spoilt(one, odd.get(one.measurement, "same"), metric) if metric else [one]
    way = data.draw(st.sampled_from(["read", "stored", "in two parts", "half of each"]))
    if "two units" not in odd.values():  # the columns that are kept have none of these
        if way == "stored":
            results = stored(results, 1)
        elif way == "in two parts":
            results = stored(results, 2)
        elif way == "half of each":
            half = len(results) // 2
            results = [*stored(results[:half], 1), *results[half:]]
    one_by_one, at_once = both(monkeypatch, results)
    assert at_once.model_dump_json() == one_by_one.model_dump_json()
    assert at_once == one_by_one


@pytest.mark.parametrize(("topology", "results"), [(LAB, results_of), (REAL, real_results)])
def test_what_passes_is_not_made_before_somebody_asks(monkeypatch, topology, results):
    plan = plan_of(topology)
    one_by_one, at_once = both(monkeypatch, results(plan), topology, plan)
    assert at_once == one_by_one
    kept = {c.id: c.judgements for c in at_once.criteria if isinstance(c.judgements, Judgements)}
    assert {"pf.mtu", "tr.tcpbw"} <= set(kept)
    assert all(len(others(judged)) < len(judged) for judged in kept.values())
    bandwidth = kept["tr.tcpbw"]
    assert isinstance(bandwidth, Alike)
    assert [m.id for m in bandwidth.alike] == [j.evidence[0] for j in bandwidth if j.verdict == "pass"]
    assert bandwidth[-1] == list(bandwidth)[-1]
    assert bandwidth[1:3] == list(bandwidth)[1:3]
    assert hash(bandwidth) == hash(tuple(bandwidth))
    with pytest.raises(IndexError):
        bandwidth[len(bandwidth)]


def test_a_verdict_from_columns_is_written_and_read_as_any_other(monkeypatch):
    one_by_one, at_once = both(monkeypatch, results_of(PLAN))
    assert at_once.model_dump() == one_by_one.model_dump()
    again = VerdictDoc.model_validate_json(at_once.model_dump_json(indent=2), strict=True)
    assert again == at_once
    assert at_once == again
    changed = json.loads(at_once.model_dump_json())
    (bandwidth,) = (c for c in changed["criteria"] if c["id"] == "tr.tcpbw")
    bandwidth["judgements"][0]["value"] += 1
    other = VerdictDoc.model_validate(changed)
    assert other != at_once
    assert at_once != other


def test_a_column_with_a_number_that_is_none_passes_nothing(monkeypatch):
    """Kept columns are trusted as far as their hash goes; what is no number still passes by no order of comparing."""
    found = stored(results_of(PLAN), 1)
    monkeypatch.setattr(values, "FLEET", 1)
    case = make_case(LAB, PLAN, load_fabric("tcp10"), CRITERIA, found)
    (columns,) = case.shelf.parts
    column = columns.only("tcp_bandwidth_gbps", "Gbit/s")
    assert column is not None
    column.values[5] = float("nan")
    bandwidth = next(c for c in CRITERIA if c.id == "tr.tcpbw")
    judged = values.judge_values(case, bandwidth)
    assert not isinstance(judged, Alike)
    assert [j.verdict for j in judged].count("pass") == len(judged) - 1
