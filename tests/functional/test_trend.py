"""`toolkit trend`: many runs of a site; what drifted is found and named, and an unchanged site raises no alarm."""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.support.page import Page
from tests.support.report_fixture import make_run
from toolkit import trends
from toolkit.cli import cli
from toolkit.exits import Exit
from validation.run.catalogue import load_criteria
from validation.trend import Trend, as_html, as_text, trend_of
from validation.trend.gather import LEAST_SLOPE, LEVEL, _drifts, _mann_kendall, _spread, _steps, _Value
from validation.trend.model import NotOneSeries

pytestmark = pytest.mark.computes

DAYS = [f"2026-11-{day:02d}T10-15-00Z-tcp10" for day in range(11, 20)]
NEWEST = "2026-11-20T10-15-00Z-tcp10"
PAIR = "tcp-latency.gpu1-fab0.gpu2-fab0"
SUITES = ("preflight", "transport")


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nine runs of an unchanged site; not to be changed."""
    base = tmp_path_factory.mktemp("runs")
    for n, run in enumerate(DAYS):
        make_run(base / run, virtual=False, day=n + 1, run=run, suites=SUITES)
    return base


@pytest.fixture
def runs_dir(week: Path, tmp_path: Path) -> Path:
    """The last three of them, to be changed."""
    for run in DAYS[-3:]:
        shutil.copytree(week / run, tmp_path / "runs" / run)
    return tmp_path / "runs"


def add(runs_dir: Path, run: str = NEWEST, **changes: object) -> Path:
    return make_run(runs_dir / run, **{"virtual": False, "day": 30, "run": run, "suites": SUITES, **changes})


def trend(runs_dir: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["trend", *arguments, "--runs-dir", str(runs_dir), "--format", "html,json"])


def state(folder: Path) -> dict[str, str]:
    files = sorted(p for p in folder.rglob("*") if p.is_file() and "-trend" not in str(p))
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_an_unchanged_site_has_no_drift_and_the_runs_stay_as_they_are(week):
    before = state(week)
    made = trend(week)
    assert made.exit_code == 0, made.output
    folder = week / f"{DAYS[-1]}-trend"
    assert made.stdout.splitlines() == [str(folder / "trend.html"), str(folder / "trend.json")]
    assert state(week) == before
    found = Trend.model_validate_json((folder / "trend.json").read_text())
    assert [r.run for r in found.runs] == DAYS
    assert [round(r.day) for r in found.runs] == list(range(9))
    assert (found.drifts, found.notes) == ((), ())
    assert {q.criterion for q in found.quantities} >= {"tr.tcpbw", "tr.netlat"}
    (latency,) = [q for q in found.quantities if q.criterion == "tr.netlat"]
    assert len(latency.lines) == 12
    assert 0.01 < latency.spread < 0.03  # the runs are made with 2 %
    assert found.tested == 2 * sum(len(q.lines) for q in found.quantities)
    first = (folder / "trend.html").read_bytes()
    assert trend(week).exit_code == 0
    assert (folder / "trend.html").read_bytes() == first
    shutil.rmtree(folder)


def test_a_step_of_one_pair_is_named_though_it_still_passes(runs_dir):
    add(runs_dir, drift={PAIR: 1.4})
    made = trend(runs_dir)
    assert made.exit_code == Exit.FAILED
    found = Trend.model_validate_json((runs_dir / f"{NEWEST}-trend" / "trend.json").read_text())
    assert {(d.criterion, d.subject, d.kind, d.worse) for d in found.drifts} == {
        ("tr.netlat", "gpu1/fab0>gpu2/fab0", "step", True)
    }
    (drift,) = found.drifts
    assert 0.3 < drift.change < 0.5
    assert drift.p < LEVEL
    assert "1 of its figures drifted for the worse" in made.stderr
    assert re.search(r"worse +tr\.netlat +gpu1/fab0>gpu2/fab0", made.stderr)


LEVELS = {
    "head>gpu2": (48.6745, 38.963, 54.7915),
    "client1>gpu1": (51.1255, 26.4485, 42.683),
    "gpu2>head": (24.1255, 23.7955, 24.031),
    "gpu1>client1": (23.83, 23.855, 24.311),
    "head>gpu1": (24.4485, 23.785, 62.588),
    "gpu2>client1": (24.331, 23.79, 38.828),
    "gpu1>head": (24.361, 27.435, 24.406),
    "client1>gpu2": (24.416, 23.73, 24.206),
    "head>client1": (49.8385, 50.384, 70.7545),
    "gpu1>gpu2": (49.999, 53.1485, 38.5165),
    "client1>head": (53.4795, 52.81, 46.6695),
    "gpu2>gpu1": (40.5125, 41.1185, 53.795),
}
"""Round trips, us, of three validations of an unchanged lab, one after the other, beside other work: 24 where both ends
had one processor, and more where each had its own."""


def series_of(levels: dict[str, tuple[float, ...]]) -> dict[str, list[_Value | None]]:
    return {pair: [_Value(value, True) for value in values] for pair, values in levels.items()}


def test_figures_with_several_levels_raise_no_alarm_by_another_one_and_a_fault_does():
    """What a pair's level is changes from run to run; few earlier runs do not show it, all equals of the newest do."""
    rtt = next(c for c in load_criteria() if c.id == "tr.netlat")

    def worse(levels: dict[str, tuple[float, ...]]) -> set[str]:
        series = series_of(levels)
        return {d.subject for d in _drifts(_steps(rtt, series, _spread(series)))}

    assert worse(LEVELS) == set()
    slow = {pair: (a, b, 10 * c if pair.endswith(">gpu2") else c) for pair, (a, b, c) in LEVELS.items()}
    assert worse(slow) == {"head>gpu2", "client1>gpu2", "gpu1>gpu2"}


def test_what_got_better_is_told_and_is_no_alarm(runs_dir):
    add(runs_dir, drift={PAIR: 0.6})
    made = trend(runs_dir, "--json")
    document = json.loads(made.stdout)
    assert made.exit_code == 0
    assert [(d["subject"], d["worse"]) for d in document["drifts"]] == [("gpu1/fab0>gpu2/fab0", False)]


def test_what_creeps_is_found_by_its_slope_where_no_step_shows_it(tmp_path):
    runs = [f"2026-10-{day:02d}T10-15-00Z-tcp10" for day in range(1, 15)]
    for n, run in enumerate(runs):
        add(tmp_path, run, day=n + 1, drift={PAIR: 1 + 0.02 * n})
    found = trends.make([], ("json",), tmp_path / "out", tmp_path).trend
    kinds = {d.kind for d in found.worse}
    assert {(d.criterion, d.subject) for d in found.worse} == {("tr.netlat", "gpu1/fab0>gpu2/fab0")}
    assert "slope" in kinds
    slope = next(d for d in found.worse if d.kind == "slope")
    assert slope.change == pytest.approx(0.26, abs=0.06)


def test_a_failed_night_is_no_scatter_of_those_before(runs_dir):
    add(runs_dir, "2026-11-20T08-15-00Z-tcp10", slow="gpu2")
    add(runs_dir, drift={"tcp-bandwidth.gpu1-fab0.gpu2-fab0": 0.965})
    found = trends.make([], ("json",), None, runs_dir).trend
    assert [r.outcome for r in found.runs].count("failed") == 1
    (rate,) = [q for q in found.quantities if q.criterion == "tr.tcpbw"]
    assert rate.spread < 0.01
    assert [(d.criterion, d.subject) for d in found.worse] == [("tr.tcpbw", "gpu1/fab0>gpu2/fab0")]


def test_runs_that_cannot_be_used_are_told_or_refused(runs_dir):
    (runs_dir / DAYS[-3] / "plan.json").write_text("{")
    (runs_dir / DAYS[-2] / "verdict.json").unlink()
    add(runs_dir)
    made = trend(runs_dir)
    assert made.exit_code == 0, made.output
    assert made.stderr.count("note: Left out: ") == 2
    assert "plan.json:1" in made.stderr
    assert "was not judged" in made.stderr
    refused = trend(runs_dir, DAYS[-3], DAYS[-1])
    assert (refused.exit_code, "plan.json:1" in refused.output) == (Exit.USAGE, True)


def test_runs_of_other_sites_fabrics_and_labs_are_no_part_of_it(runs_dir):
    add(runs_dir)
    lab = add(runs_dir, "2026-11-01T10-15-00Z-tcp10", virtual=True)
    other = add(runs_dir, "2026-11-02T10-15-00Z-tcp10", site="elsewhere")
    found = trends.make([], ("json",), None, runs_dir).trend
    assert [r.run for r in found.runs] == [*DAYS[-3:], NEWEST]
    assert not found.rehearsal
    for run, what in ((lab, "a rehearsal differs"), (other, "site differs")):
        refused = trend(runs_dir, DAYS[-1], run.name)
        assert refused.exit_code == Exit.USAGE
        assert what in refused.output
    assert "is there twice" in trend(runs_dir, NEWEST, NEWEST).output
    with pytest.raises(NotOneSeries, match="two runs of a site or more"):
        trend_of([])


def test_the_folder_of_a_trend_is_no_run_and_none_are_said_so(runs_dir, tmp_path):
    add(runs_dir)
    assert trend(runs_dir).exit_code == 0
    assert trend(runs_dir).exit_code == 0
    (tmp_path / "none").mkdir()
    assert "no judged run here" in trend(tmp_path / "none").output
    assert trend(tmp_path / "none").exit_code == Exit.USAGE
    assert "a trend is html, pdf, json" in CliRunner().invoke(cli, ["trend", "--format", "junit"]).output


def test_the_page_is_one_well_formed_file_with_a_chart_of_each_quantity(runs_dir):
    add(runs_dir, drift={PAIR: 1.4})
    found = trends.make([], ("json",), None, runs_dir).trend
    text = as_html(found)
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    assert "<script" not in text
    assert not re.search(r"""["'(]\s*(https?:)?//""", text.replace('xmlns="http://www.w3.org/2000/svg"', ""))
    assert text.count("<figure>") == len(found.quantities)
    assert text.count('class="c-worse"') == len(found.worse) == 1
    assert "11-19" in text
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    assert len(page.every("table")) == len(page.every("caption"))
    assert "REHEARSAL" not in text


def test_a_trend_of_rehearsals_says_so_everywhere(tmp_path):
    for n, run in enumerate(DAYS[:2]):
        add(tmp_path, run, virtual=True, day=n + 1)
    found = trends.make([], ("json",), None, tmp_path).trend
    assert found.rehearsal
    assert 'class="mark"' in as_html(found)
    assert as_text(found).startswith("REHEARSAL on virtual parts: nothing here is an acceptance.")
    assert any(f"from {LEAST_SLOPE} runs on; here are 2" in note for note in found.notes)


def test_order_is_tested_as_by_the_tables_and_chance_is_no_order():
    assert _mann_kendall([1.0] * 9) == 1.0
    # Gilbert (1987), table A18: of 10 values a score of 21 or more has a chance of 0.036 on one side
    values = [1.0, 2.0, 3.0, 5.0, 8.0, 4.0, 7.0, 6.0, 10.0, 9.0]
    assert _mann_kendall(values) < 0.005
    draw = random.Random(2)
    found = sum(_mann_kendall([draw.random() for _ in range(12)]) < 0.05 for _ in range(400))
    assert 8 <= found <= 32  # 20 are expected
