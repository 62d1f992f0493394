"""What is judged from columns, for all measurements of a criterion at once, is what is judged one by one."""

from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.report_large import large, made, planned
from tests.support.site import (
    CRITERIA,
    LAB,
    PLAN,
    REAL,
    busy,
    plan_of,
    real_results,
    results_of,
    run_info,
    verdict_of,
)
from toolkit.rundir import write_document
from validation.judging import values
from validation.judging.case import make_case
from validation.judging.run_data import RunData
from validation.model import LeftOut, Result, Sample, VerdictDoc
from validation.model import judgement_columns as packing
from validation.model import verdict as documents
from validation.model.judgement import Judgements, others
from validation.model.judgement_columns import Alike
from validation.model.load import ConfigError, load_json
from validation.model.sample_columns import Columns, in_columns
from validation.rules.criterion import Criterion
from validation.rules.fabric import load_fabric
from validation.verdict.judge import judge
from validation.verdict.waivers import unmeasured_nodes

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
    """The same results as they are read from the columns that are kept of a run, in so many parts."""
    found: list[Result] = []
    size = -(-len(results) // parts)
    for at in range(0, len(results), size):
        some = results[at : at + size]
        lines = [one.model_dump_json().encode() + b"\n" for one in some]
        columns = in_columns(some, some[0].run, b"".join(lines), list(accumulate(map(len, lines))))
        assert columns is not None
        found += columns.results()
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
    assert bandwidth[-1] == list(bandwidth)[-1]
    assert bandwidth[1:3] == list(bandwidth)[1:3]
    assert hash(bandwidth) == hash(tuple(bandwidth))
    with pytest.raises(IndexError):
        bandwidth[len(bandwidth)]


def fleet(monkeypatch, least=1):
    """A verdict as of a fleet: judged from columns where `least` measurements serve a criterion, and written so."""
    monkeypatch.setattr(values, "FLEET", least)
    monkeypatch.setattr(packing, "PACKED", 1)
    topology = large(8)
    plan = planned(topology, 4, each=2)
    results = [
        made(Path(), m, at, ("gpu0001",), raw=False)
        for at, m in enumerate(plan.measurements)
        if m.id not in ("memory-bandwidth.002.gpu0000", "memory-bandwidth.002.gpu0007")
    ]
    criteria = (*CRITERIA, *(generated(f"gn.m{n:03d}", f"metric_{n:03d}") for n in range(4)))
    return judge(RunData(run_info(topology, plan), topology, plan, load_fabric("tcp10"), criteria, results))


def generated(id_, metric):
    about = {"suite": "compute", "scope": "node", "direction": "higher", "kind": "memory-bandwidth", "required": False}
    bound = {"kind": "minimum", "value": 100.0, "words": "at least 100 GB/s"}
    words = {"statement": "Generated", "source": "generated", "unit": "GB/s"}
    return Criterion.model_validate({"id": id_, "metric": metric, "bound": bound, **about, **words})


def test_a_verdict_of_a_fleet_is_written_as_columns_and_read_as_any_other(monkeypatch):
    verdict, one_by_one = fleet(monkeypatch), fleet(monkeypatch, 10**9)
    text = verdict.model_dump_json(indent=2)
    written = {c["id"]: c for c in json.loads(text)["criteria"]}
    assert [j["about"]["ends"][0]["node"] for j in written["gn.m000"]["judgements"]] == ["gpu0001"]
    assert written["gn.m000"]["passed"]["told"] == [1]
    assert written["gn.m002"]["passed"]["told"] == [0, 7]
    assert "passed" not in written["tr.tcpbw"]  # of pairs
    assert [len(table["nodes"]) for table in json.loads(text)["served"]] == [8, 8]
    again = VerdictDoc.model_validate_json(text, strict=True)
    assert again == verdict == one_by_one == again
    assert again.model_dump_json(indent=2) == text
    assert again.model_dump() == one_by_one.model_dump()
    told = one_by_one.model_dump_json(indent=2)
    assert "passed" not in json.loads(told)["criteria"][-1]
    assert "served" not in json.loads(told)
    assert VerdictDoc.model_validate_json(told, strict=True) == again


def test_anybody_reads_what_passed_from_plain_lists(monkeypatch):
    """verdict.json holds no packed numbers at any size: a JSON reader alone gives node, measurement and value."""
    verdict = fleet(monkeypatch)
    document = json.loads(verdict.model_dump_json())
    seen = 0
    for criterion, judged in zip(document["criteria"], verdict.criteria, strict=True):
        if not (passed := criterion.get("passed")):
            continue
        table = document["served"][passed["served"]]
        rows = zip(table["nodes"], table["evidence"], passed["value"], strict=True)
        every = enumerate(judged.judgements)
        assert [row for row in rows if row[2] is not None] == [
            (j.about.ends[0].node, j.evidence[0], j.value) for at, j in every if at not in passed["told"]
        ]
        assert [at for at, value in enumerate(passed["value"]) if value is None] == passed["told"]
        seen += 1
    assert seen >= 4


@pytest.mark.parametrize("at_a_time", [2, 7, 1000])
@pytest.mark.parametrize("least", [1, 10**9])
def test_a_verdict_is_written_part_by_part_as_it_is_written_whole(monkeypatch, tmp_path, least, at_a_time):
    monkeypatch.setattr(documents, "_JUDGED", at_a_time)
    verdict = fleet(monkeypatch, least)
    verdict = verdict.model_copy(update={"left_out": (LeftOut(why='\n  "criteria": []'),)})  # with criteria: []
    parts = list(verdict.written())
    assert "".join(parts) == verdict.model_dump_json(indent=2) + "\n"
    longest = max(len(c.model_dump_json(indent=4)) for c in verdict.criteria)
    assert max(map(len, parts)) < (longest if at_a_time > 2 else longest / 2)
    write_document(tmp_path / "verdict.json", verdict)
    assert (tmp_path / "verdict.json").read_text() == "".join(parts)
    assert load_json(tmp_path / "verdict.json", VerdictDoc) == verdict
    none = verdict.model_copy(update={"criteria": ()})
    assert "".join(none.written()) == none.model_dump_json(indent=2) + "\n"


def test_a_document_that_cannot_be_made_leaves_nothing(monkeypatch, tmp_path):
    (tmp_path / "verdict.json").write_text("before")
    verdict = fleet(monkeypatch)
    broken = verdict.model_copy(update={"criteria": (*verdict.criteria, None)})
    with pytest.raises(AttributeError):
        write_document(tmp_path / "verdict.json", broken)
    assert [path.name for path in tmp_path.iterdir()] == ["verdict.json"]
    assert (tmp_path / "verdict.json").read_text() == "before"


def test_a_repeated_key_far_behind_is_found(monkeypatch, tmp_path):
    verdict = fleet(monkeypatch)
    text = "".join(verdict.written())
    at = text.rindex('"verdict": ')
    (tmp_path / "verdict.json").write_text(f'{text[:at]}"verdict": "pass",\n      {text[at:]}')
    with pytest.raises(ConfigError, match="duplicate key: verdict"):
        load_json(tmp_path / "verdict.json", VerdictDoc)


def test_facts_of_a_line_are_kept_without_the_rest_of_it():
    """A fleet's ports and losses ask for them: whole lines took a fifth of the memory of judging."""
    one = stored(results_of(PLAN), 1)[0]
    assert one.facts == results_of(PLAN)[0].facts
    assert "provenance" not in vars(one)
    assert one.stored is not None
    assert one.provenance == results_of(PLAN)[0].provenance  # the rest of it is read when it is asked for


def test_plain_facts_come_from_the_columns(monkeypatch):
    """Lines are read for facts of other forms alone: half of those of a fleet were read for a count of link changes."""
    results = results_of(PLAN)
    rich = {"carrier_changes": 2, "source": "10.0.0.1", "load": 0.5, "words": ["a"], "of": {"x": 1.0}, "none": None}
    plain = [at for at, one in enumerate(results) if isinstance(one.facts, dict)]
    results[plain[0]] = results[plain[0]].model_copy(update={"facts": rich})
    kept = stored(results, 2)
    monkeypatch.setattr(Columns, "text", None)
    assert [one.plain for one in kept] == [one.plain for one in results]
    assert kept[plain[0]].plain == rich
    assert any(one.plain for one in results)
    assert not all(isinstance(one.facts, dict) for one in results)
    verdict_of(LAB, PLAN, [one for one in stored(results, 1) if one.measurement.startswith(("tcp-", "path-mtu"))])


def test_another_number_in_the_columns_is_another_verdict(monkeypatch):
    verdict = fleet(monkeypatch)
    for column in ("value", "low", "high"):
        document = json.loads(verdict.model_dump_json())
        passed = next(c for c in document["criteria"] if c["id"] == "gn.m001")["passed"]
        passed[column][3] += 1e-9
        other = VerdictDoc.model_validate_json(json.dumps(document), strict=True)
        assert other != verdict
        assert verdict != other
        assert fleet(monkeypatch, 10**9) != other


@pytest.mark.parametrize("lost", [2, 3])
def test_waivers_count_what_passed_from_columns(monkeypatch, lost):
    """A node of which half was lost is measured enough for a waiver, one of which more was lost is not."""
    plan = planned(large(8), 5, each=1, alone=True)
    gone = [m for m in plan.measurements if m.nodes == ("gpu0003",)][:lost]
    results = [made(Path(), m, at, (), raw=False) for at, m in enumerate(plan.measurements) if m not in gone]
    criteria = [generated(f"gn.m{n:03d}", f"metric_{n:03d}") for n in range(5)]
    said = []
    for least in (1, 10**9):
        monkeypatch.setattr(values, "FLEET", least)
        case = make_case(large(8), plan, load_fabric("tcp10"), criteria, results)
        said.append(unmeasured_nodes(case, {c.id: values.judge_values(case, c) for c in criteria}))
    assert said[0] == said[1]
    assert list(said[0]) == (["gpu0003"] if lost == 3 else [])


DAMAGED = {
    "no such table": lambda d, p: p.update(served=7),
    "negative table": lambda d, p: p.update(served=-1),
    "no tables": lambda d, p: d.pop("served"),
    "one node less": lambda d, p: d["served"][0]["nodes"].pop(),
    "one node and measurement less": lambda d, p: [d["served"][0][k].pop() for k in ("nodes", "evidence")],
    "a column that is cut": lambda d, p: p["value"].pop(),
    "base64": lambda d, p: p.update(value="AAAA"),
    "text": lambda d, p: p["value"].__setitem__(0, "120.0"),
    "a truth": lambda d, p: p["value"].__setitem__(0, True),
    "empty": lambda d, p: p.update(value=[]),
    "infinite": lambda d, p: p["value"].__setitem__(0, float("inf")),
    "no number": lambda d, p: p["low"].__setitem__(2, float("nan")),
    "null that is not told": lambda d, p: p["low"].__setitem__(2, None),
    "a number that is told": lambda d, p: p["high"].__setitem__(1, 120.0),
    "told elsewhere": lambda d, p: p.update(told=[8]),
    "told before": lambda d, p: p.update(told=[-1]),
    "told twice": lambda d, p: p.update(told=[1, 1]),
    "one more told": lambda d, p: p.update(told=[1, 2]),
    "negative samples": lambda d, p: p.update(samples=-1),
    "very many samples": lambda d, p: p.update(samples=2**40),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_columns_that_do_not_fit_are_refused(monkeypatch, tmp_path, damage):
    document = json.loads(fleet(monkeypatch).model_dump_json())
    DAMAGED[damage](document, next(c for c in document["criteria"] if c["id"] == "gn.m000")["passed"])
    path = tmp_path / "verdict.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigError) as error:
        load_json(path, VerdictDoc)
    assert "\n" not in str(error.value)


def test_a_column_with_a_number_that_is_none_passes_nothing(monkeypatch):
    """Kept columns are trusted as far as their hash goes; what is no number still passes by no order of comparing."""
    found = stored(results_of(PLAN), 1)
    monkeypatch.setattr(values, "FLEET", 1)
    case = make_case(LAB, PLAN, load_fabric("tcp10"), CRITERIA, found)
    (columns,) = case.columns.parts
    column = columns.only("tcp_bandwidth_gbps", "Gbit/s")
    assert column is not None
    column.values[5] = float("nan")
    bandwidth = next(c for c in CRITERIA if c.id == "tr.tcpbw")
    judged = values.judge_values(case, bandwidth)
    assert not isinstance(judged, Alike)
    assert [j.verdict for j in judged].count("pass") == len(judged) - 1
