"""Reports of fleets: answered from columns as from the judgements one by one, without making these many times."""

from __future__ import annotations

import json
import os
from array import array
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.report_fixture import RUNS
from tests.support.report_large import make_large_run
from validation.judging import values
from validation.model import Bound, Judgement, Subject
from validation.model.judgement_columns import Alike, Passed, Things
from validation.report import judgement_columns, make
from validation.report.criteria import decisive, worst
from validation.report.documents import read_run
from validation.report.json_entries import CriterionEntry, ReportDoc, ResultEntry
from validation.report.json_report import report_json

ORDER = {"fail": 0, "not-measured": 1, "waived": 2, "pass": 3, "not-applicable": 4}
FLOOR = Bound(metric="m", unit="GB/s", floor=1.0, source="test")
MOST = Bound(metric="m", unit="us", maximum=9.0, source="test")
ODD = st.builds(
    lambda verdict, value, bound, samples: {
        "verdict": verdict, "value": value, "low": value, "bound": bound, "samples": samples,
        "reason_code": "within-bounds", "reason": "odd",
    },
    st.sampled_from(sorted(ORDER)), st.none() | st.sampled_from([0.5, 2.0, 7.0]),
    st.none() | st.sampled_from([FLOOR, MOST]), st.integers(0, 3),
)  # fmt: skip


@st.composite
def alike(draw):
    size = draw(st.integers(0, 6))
    numbers = array("d", draw(st.lists(st.sampled_from([1.0, 2.0, 3.5]), min_size=size, max_size=size)))
    samples = array("I", draw(st.lists(st.integers(0, 4), min_size=size, max_size=size)))
    things = Things([f"k.{at % 4}" for at in range(size)], lambda at: Subject.node(f"n{at}"))
    odd = draw(st.dictionaries(st.integers(0, size - 1), ODD)) if size else {}
    judged = {
        at: Judgement(criterion="c", about=Subject.node(f"n{at}"), evidence=(f"k.{at % 4}", "k.9"), **fields)
        for at, fields in odd.items()
    }
    bound = draw(st.sampled_from([FLOOR, MOST]))
    return Alike("c", bound, things, Passed(bytearray(size), numbers, numbers, numbers, samples), judged)


@given(alike(), st.integers(0, 7))
def test_every_answer_is_that_of_the_judgements_one_by_one(columns, most):
    one_by_one = tuple(columns)
    assert list(judgement_columns.values(columns)) == [j.value for j in one_by_one if j.value is not None]
    assert (
        judgement_columns.verdicts(columns)
        == Counter(j.verdict for j in one_by_one)
        == judgement_columns.verdicts(one_by_one)
    )
    assert judgement_columns.bounds(columns) == {j.bound for j in one_by_one if j.bound is not None}
    valued = [j for j in one_by_one if j.value is not None]
    assert (
        judgement_columns.units(columns)
        == {j.bound.unit for j in valued if j.bound is not None}
        == judgement_columns.units(one_by_one)
    )
    assert (
        judgement_columns.samples(columns)
        == {j.samples for j in one_by_one if j.low is not None}
        == judgement_columns.samples(one_by_one)
    )
    assert judgement_columns.evidence(columns) == tuple(dict.fromkeys(id_ for j in one_by_one for id_ in j.evidence))
    assert worst(columns) == worst(one_by_one)
    assert decisive(columns) == decisive(one_by_one)
    rank = lambda j: ORDER[j.verdict]  # noqa: E731
    assert judgement_columns.foremost(columns, most, rank) == tuple(sorted(one_by_one, key=rank)[:most])


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """A run of 12 nodes, judged and written as one of many nodes is."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(values, "FLEET", 1)
        patched.setattr("validation.model.judgement_columns.PACKED", 1)
        return make_large_run(tmp_path_factory.mktemp("fleet") / "run", 12, 6)


@pytest.mark.parametrize("kind", ["html", "json"])
def test_a_report_makes_what_passed_at_most_twice(monkeypatch, fleet, kind):
    """Each of a fleet's judgements that pass takes microseconds to make, and there are hundreds of thousands."""
    documents = read_run(fleet)
    whole = Alike._made
    made: Counter[tuple[str, int]] = Counter()

    def counted(self, at):
        made[self.criterion, at] += 1
        return whole(self, at)

    monkeypatch.setattr(Alike, "_made", counted)
    content = make(documents, [kind])[0][kind]
    ours = {key: count for key, count in made.items() if key[0].startswith("gn.")}
    assert len(ours) == 6 * 12 - 2  # metrics of nodes, without those of the slow node and the one that has no result
    # shown in the annex and in the chart of its bound; of each criterion the least and the greatest may decide, too
    assert sorted(ours.values())[-13] <= 2
    assert b"gpu0005" in content


def test_columns_and_judgements_one_by_one_give_the_same_report(fleet):
    documents = read_run(fleet)
    assert any(isinstance(c.judgements, Alike) for c in documents.verdict.criteria)
    found = make(documents, ["html", "json", "junit", "prom"])[0]
    for criterion in documents.verdict.criteria:
        vars(criterion)["judgements"] = tuple(criterion.judgements)
    assert make(documents, ["html", "json", "junit", "prom"])[0] == found


@pytest.mark.parametrize("name", RUNS)
def test_every_line_of_report_json_is_as_its_model_writes_it(site_runs, name):
    text = report_json(read_run(site_runs[name])).decode()
    document = ReportDoc.model_validate_json(text)
    lines = text.split("\n")
    for key, form in (("criteria", CriterionEntry), ("results", ResultEntry)):
        items = getattr(document, key)
        begin = lines.index(f'"{key}": [') + 1 if items else 0
        for line in lines[begin : begin + len(items)]:
            assert form.model_validate_json(line.removesuffix(",")).model_dump_json() == line.removesuffix(",")
    assert json.loads(text).keys() == json.loads(document.model_dump_json(by_alias=True)).keys()


def test_a_log_that_is_none_of_the_run_is_missing(tmp_path):
    """Whatever lies there: it is judged so, too."""
    run = make_large_run(tmp_path / "run", 2, 5)
    logs = [r.provenance.raw[0].path for r in read_run(run).results][:6]
    out = tmp_path / "out"
    out.mkdir()
    places = [run / log for log in logs]
    for place in places[:3]:
        place.rename(out / place.name)
    places[0].symlink_to(out / places[0].name)  # a link out of the run
    places[1].parent.rmdir()
    places[1].parent.symlink_to(out)  # its folder is one
    os.mkfifo(places[2])  # nobody writes into it
    places[3].rename(places[3].with_name("elsewhere"))
    places[3].symlink_to("elsewhere")  # a link to another file of the run
    places[4].write_text("other\n")
    found = read_run(run).raw
    assert [found[log] for log in logs] == ["missing", "missing", "missing", "intact", "changed", "intact"]
