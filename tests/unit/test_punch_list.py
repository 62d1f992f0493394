"""punch.yml: what is refused, what a run makes of its points, and how the file is written."""

from __future__ import annotations

import datetime
import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.support.site import CRITERIA, LAB, PLAN, results_of, run_info, waiver, with_value
from toolkit.agreement import find_agreement
from toolkit.commands.handover import _today
from toolkit.handover import punch_file
from toolkit.handover.points import updated
from validation.judging.run_data import RunData
from validation.model import RunInfo, UnitPart, VerdictDoc
from validation.model.load import ConfigError
from validation.model.points import counted
from validation.rules.fabric import load_fabric
from validation.rules.punch import Point, load_points
from validation.verdict.judge import judge

IDS = [c.id for c in CRITERIA]
FEW = [c for c in CRITERIA if c.id in ("tr.tcpbw", "rm.copy")]
DAY = datetime.date(2026, 11, 21)
INFO = run_info(LAB, PLAN)
GOOD: dict[str, Any] = {
    "id": "P1", "class": "A", "text": "slow cable", "criterion": "tr.tcpbw", "owner": "A. Person", "due": "2026-12-01",
    "blocking": "true", "opened": "2026-11-01",
}  # fmt: skip


def write(path: Path, *points: dict[str, Any]) -> Path:
    """A list with a key on each line: the first point's keys are in lines 2 to 9."""
    lines = ["points:"]
    for point in points:
        lines += [f"  {'-' if n == 0 else ' '} {k}: {v}" for n, (k, v) in enumerate(point.items())]
    path.write_text("\n".join(lines) + "\n")
    return path


def point(**changes: Any) -> Point:
    said = {**GOOD, "blocking": True, **changes}
    return Point.model_validate({k: v for k, v in said.items() if v is not None})


@pytest.mark.parametrize(
    ("changes", "line", "words"),
    [
        ({"criterion": "tr.tcpbv"}, 5, "points.0.criterion: unknown criterion 'tr.tcpbv'; did you mean tr.tcpbw?"),
        ({"class": "D"}, 3, "points.0.class: unknown class 'D'; it is one of A, B, C"),
        ({"due": "2026-02-30"}, 7, "points.0.due: "),
        ({"due": "soon"}, 7, "points.0.due: a day is expected, such as 2026-12-31"),
        ({"due": "2026-10-31"}, 7, "is before the day on which it was opened (2026-11-01)"),
        ({"opened": "2026-11-29"}, 9, "2026-11-29 has not come yet"),
        ({"owner": "' '"}, 6, "points.0.owner: is blank"),
        ({"blocking": "perhaps"}, 8, "points.0.blocking: "),
        ({"blocking": "'off'"}, 8, "points.0.blocking: "),
        ({"clossed": "2026-11-03"}, 10, "points.0.clossed: unknown key"),
        ({"closed": "2026-11-03"}, 10, "nothing says why it was closed; write closed_why"),
        ({"closed_why": "done"}, 10, "the point has no day on which it was closed"),
        ({"id": "'a b'"}, 2, "points.0.id: "),
    ],
)
def test_a_bad_list_is_one_sentence_with_file_and_line(
    tmp_path: Path, changes: dict[str, Any], line: int, words: str
) -> None:
    path = write(tmp_path / "punch.yml", {**GOOD, **changes})
    with pytest.raises(ConfigError) as fault:
        load_points(path, IDS, datetime.date(2026, 11, 28))
    assert str(fault.value).startswith(f"{path}:{line}: ")
    assert words in str(fault.value)
    assert "\n" not in str(fault.value)


def test_an_id_that_is_there_twice_is_refused_with_both_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "punch.yml", GOOD, {**GOOD, "id": "p1"})
    with pytest.raises(ConfigError) as fault:
        load_points(path, IDS)
    assert str(fault.value) == f"{path}:10: points.1.id: p1 is the id of the point in line 2 already; take another"


def verdict(points: tuple[Point, ...], slow: float | None = None, waived: bool = False, topology: Any = LAB,
            plan: Any = PLAN, info: RunInfo | None = None) -> VerdictDoc:  # fmt: skip
    """Of a run in which every TCP measurement is as slow as this."""
    results = results_of(plan, lambda m: with_value(m, slow) if slow and m.kind == "tcp-bandwidth" else None)
    waivers = (waiver(who="C. Customer", when="2026-11-20", expires="2026-12-24"),) if waived else ()
    return judge(
        RunData(
            info or run_info(topology, plan), topology, plan, load_fabric("tcp10"), FEW, results, waivers, points=points
        )
    )


def test_a_run_closes_what_passes_and_keeps_the_rest_with_the_reason() -> None:
    some = (point(), point(id="P2", node="gpu1"), point(id="P3", criterion=None, blocking=False),
            point(id="P4", criterion="rm.copy", blocking=False))  # fmt: skip
    good = {one.id: one for one in verdict(some).points}
    assert [good[id_].state for id_ in ("P1", "P2", "P3", "P4")] == ["closed", "closed", "open", "open"]
    assert good["P1"].closed_by == PLAN.run
    assert "tr.tcpbw passes" in good["P1"].why
    assert good["P3"].why == "no criterion measures it, so a person closes it"
    assert "this run judged nothing" in good["P4"].why
    bad = {one.id: one for one in verdict(some, slow=0.1).points}
    assert (bad["P1"].state, bad["P1"].closed_by) == ("open", None)
    assert bad["P1"].why.startswith("tr.tcpbw fails (")
    assert "waived, not passed" in verdict(some, slow=0.1, waived=True).points[0].why


def test_a_run_from_before_a_point_was_found_closes_it_not() -> None:
    late = (point(opened="2026-12-01", due="2026-12-31"), point(id="P2", opened_by="run-2"))
    states = {one.id: one for one in verdict(late).points}
    assert [one.state for one in states.values()] == ["open", "open"]
    assert states["P1"].why == f"this run is of {DAY}, and the point was opened on 2026-12-01"
    assert states["P2"].why == "this run is older than run-2, which found it"


@pytest.mark.parametrize("what", ["folder", "link"])
def test_a_list_that_cannot_be_read_is_refused_and_not_passed_over(tmp_path: Path, what: str) -> None:
    path = tmp_path / "punch.yml"
    path.mkdir() if what == "folder" else path.symlink_to("/nonexistent")
    with pytest.raises(ConfigError, match=r"punch\.yml: (is a directory|no such file)"):
        find_agreement(None, None, CRITERIA, tmp_path)
    with pytest.raises(ConfigError, match=r"punch\.yml: (is a directory|no such file)"):
        punch_file.points_of(path, IDS)


def test_a_closed_point_that_fails_again_is_open() -> None:
    done = point(closed="2026-11-10", closed_by="run-a", closed_why="passes")
    assert verdict((done,)).points[0].state == "closed"
    (again,) = verdict((done,), slow=0.1).points
    assert (again.state, again.reopened, again.closed_by) == ("open", True, None)
    assert "was closed on 2026-11-10: passes; and now: tr.tcpbw fails" in again.why


def test_an_open_blocking_point_withholds_the_acceptance_and_the_headline_names_it() -> None:
    assert verdict(()).outcome == "passed"
    held = verdict((point(id="P7", criterion=None),))
    assert (held.outcome, held.headline.split(" (")[0]) == (
        "incomplete", "incomplete: 1 blocking point of the punch list is open: P7")  # fmt: skip
    assert verdict((point(id="P7", criterion=None, blocking=False),)).outcome == "passed"


UNIT = INFO.model_copy(
    update={"unit": "rack1", "part": UnitPart(elsewhere=("gpu8", "gpu9"), within=("rack1",), apart=("rack2",))}
)


@pytest.mark.parametrize(
    ("where", "outcome"),
    [
        ({"node": "gpu8"}, "passed"),  # of another unit
        ({"unit": "rack2"}, "passed"),
        ({"node": "gpu8/fab0"}, "passed"),  # a subject as the verdict names it
        ({"node": "gpu8/fab0>gpu9/fab0"}, "passed"),
        ({"node": "gpu1/fab0>gpu8/fab0"}, "incomplete"),  # between this unit and another
        ({"node": "gpu1", "criterion": None}, "incomplete"),  # of its own
        ({"unit": "rack1", "criterion": None}, "incomplete"),
        ({}, "incomplete"),  # of the whole site, of which this run proves a part
        ({"unit": "row1"}, "incomplete"),  # of more than this unit
        ({"node": "gpu1"}, "passed"),  # closed by the run
        ({"unit": "rack1"}, "passed"),
    ],
)
def test_a_units_run_is_kept_back_by_its_own_points_and_by_the_sites_alone(where: dict[str, Any], outcome: str) -> None:
    held = verdict((point(id="P7", **where),), info=UNIT)
    assert held.outcome == outcome
    (state,) = held.points
    others = ({"unit": "rack2"}, *({"node": name} for name in ("gpu8", "gpu8/fab0", "gpu8/fab0>gpu9/fab0")))
    assert state.elsewhere == (where in others)
    if state.elsewhere:
        assert (state.state, state.why.split(",")[0]) == ("open", "it is of another unit than this run")
        assert "of other units" in counted(held.points)
    old = UNIT.model_copy(update={"part": None})  # of a release that did not keep it
    assert verdict((point(id="P7", node="gpu8"),), info=old).outcome == "incomplete"


def test_what_a_unit_finds_is_the_units_and_no_other_unit_closes_it_or_hides_its_own_behind_it() -> None:
    made = updated((), verdict((), slow=0.1, info=UNIT), UNIT, "A. Person", None)
    assert made is not None
    assert [(p.node, p.unit) for p in made.new] == [(None, "rack1")]
    other = UNIT.model_copy(
        update={"unit": "rack2", "part": UnitPart(elsewhere=(), within=("rack2",), apart=("rack1",))}
    )
    passed = updated(made.points, verdict(made.points, info=other), other, None, None)
    assert passed is not None
    assert (passed.points, passed.closed) == (made.points, ())
    worse = updated(made.points, verdict(made.points, slow=0.1, info=other), other, "B", None)
    assert worse is not None
    assert [(p.id, p.unit) for p in worse.new] == [("P2", "rack2")]
    whole = updated(worse.points, verdict(worse.points), INFO, None, None)
    assert whole is not None
    assert [p.id for p in whole.closed] == ["P1", "P2"]


def test_a_run_without_a_list_writes_what_it_always_wrote() -> None:
    bare = verdict(())
    assert "points" not in json.loads(bare.model_dump_json())
    assert "points" not in json.loads("".join(bare.written()))
    listed = verdict((point(),))
    assert json.loads("".join(listed.written())) == json.loads(listed.model_dump_json())
    assert VerdictDoc.model_validate_json("".join(listed.written())) == listed


def test_points_are_made_of_failed_and_waived_criteria_once() -> None:
    made = updated((), verdict((), slow=0.1), INFO, "A. Person", None)
    assert made is not None
    (new,) = made.new
    assert (new.id, new.grade, new.blocking, new.criterion, new.opened_by) == ("P1", "A", True, "tr.tcpbw", PLAN.run)
    assert new.due == DAY + datetime.timedelta(days=30)
    assert updated((), verdict((), slow=0.1), INFO, None, None) is None, "nobody is named who is to do it"
    again = updated(made.points, verdict(made.points, slow=0.1), INFO, None, None)
    assert again is not None
    assert (again.new, again.points) == ((), made.points)
    waived = updated((), verdict((), slow=0.1, waived=True), INFO, None, None)
    assert waived is not None
    (one,) = waived.new
    assert (one.grade, one.blocking, one.owner, str(one.due)) == ("B", False, "C. Customer", "2026-12-24")
    closed = updated(made.points, verdict(made.points), INFO, None, None)
    assert closed is not None
    assert [(p.closed, p.closed_by) for p in closed.points] == [(DAY, PLAN.run)]


@pytest.mark.parametrize("indent", ["", "  ", "    "])
def test_the_file_keeps_what_people_wrote(tmp_path: Path, indent: str) -> None:
    path = tmp_path / "punch.yml"
    points = (
        "- id: P1  # the first\n  class: A\n  text: 'slow: cable'\n"
        "  criterion: tr.tcpbw\n  owner: A. Person\n  due: 2026-12-01\n"
        "  blocking: true\n  opened: 2026-11-01\n# by hand\n"
        "- id: P2\n  class: C\n  text: label\n  owner: B\n  due: 2026-12-01\n  blocking: false\n"
        "  opened: 2026-11-02\n"
    )
    path.write_text("---\n# ours\npoints:\n" + textwrap.indent(points, indent))
    first, second = load_points(path, IDS)
    done = first.model_copy(update={"closed": DAY, "closed_by": "run-b", "closed_why": "passes: 6 judgements"})
    third = point(id="P3", text="new: one", node="gpu1")
    punch_file.write(path, (done, second, third))
    assert load_points(path, IDS) == (done, second, third)
    text = path.read_text()
    assert "id: P1  # the first\n" in text
    assert f"{indent}# by hand\n{indent}- id: P2\n" in text
    assert text.index("closed_why") < text.index("# by hand")
    punch_file.write(path, (first, second, third))
    assert load_points(path, IDS) == (first, second, third)
    assert "# by hand" in path.read_text()


def test_a_list_on_one_line_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "punch.yml"
    path.write_text(json.dumps({"points": [{**GOOD, "blocking": True}]}))
    (first,) = load_points(path, IDS)
    punch_file.write(path, (first, point(id="P2")))
    assert [p.id for p in load_points(path, IDS)] == ["P1", "P2"]
    none = tmp_path / "none.yml"
    punch_file.write(none, (first,))
    assert load_points(none, IDS) == (first,)


@pytest.mark.parametrize(
    ("hours", "now", "latest"),
    [
        (-6, "2026-11-29T02:00", "2026-11-29"),  # in the evening of the 28th, a run is of the 29th
        (9, "2026-11-28T23:00", "2026-11-29"),  # in the morning of the 29th, a person writes the 29th
        (0, "2026-11-28T23:00", "2026-11-28"),
    ],
)
def test_a_point_is_dated_as_runs_are_and_no_day_of_either_clock_has_yet_to_come(
    monkeypatch: pytest.MonkeyPatch, hours: int, now: str, latest: str
) -> None:
    here = datetime.timezone(datetime.timedelta(hours=hours))

    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return cls.fromisoformat(f"{now}+00:00").astimezone(tz or here)

        def astimezone(self, tz: datetime.tzinfo | None = None) -> Any:
            return super().astimezone(tz or here)

    monkeypatch.setattr(punch_file, "datetime", Clock)
    monkeypatch.setattr("toolkit.commands.handover.datetime", Clock)
    assert punch_file.latest_day().isoformat() == latest
    assert _today().isoformat() == now[:10], "as the day of a run"
