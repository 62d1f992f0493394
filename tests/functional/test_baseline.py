"""`toolkit baseline`: what accepted runs reached becomes the bounds of the next, of that site and no other."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.support.report_fixture import make_run
from tests.support.site import hardware, lab
from toolkit import acceptance, rundir
from toolkit.agreement import Agreement
from toolkit.baselines import make, measured_by, with_baseline
from toolkit.cli import cli
from toolkit.errors import UsageFault
from toolkit.exits import Exit
from validation.base.errors import ConfigError
from validation.model import VerdictDoc
from validation.model.load import read_source
from validation.report.criteria import derivations
from validation.run.baseline import LEAST_MARGIN, NAME, baseline_of, read_baseline
from validation.run.catalogue import load_criteria, read_criteria
from validation.run.names import CRITERIA
from validation.run.other_rules import judge_otherwise, rules_of
from validation.run.read import read
from validation.run.rejudge import judge_files

pytestmark = pytest.mark.computes

DAYS = [f"2026-11-2{day}T10-15-00Z-tcp10" for day in range(1, 6)]
PAIR = "tcp-latency.gpu1-fab0.gpu2-fab0"


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Five accepted runs of a site on five days; not to be changed."""
    base = tmp_path_factory.mktemp("accepted")
    return [make_run(base / run, virtual=False, waive=True, day=n + 1, run=run) for n, run in enumerate(DAYS)]


@pytest.fixture(scope="module")
def baseline(accepted: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("baseline") / NAME
    path.write_text(make(accepted).text)
    return path


@pytest.fixture
def later(tmp_path: Path) -> Callable[..., Path]:
    """A run of the same site, later."""

    def run(name: str = "2026-12-01T09-00-00Z-tcp10", **changes: Any) -> Path:
        return make_run(tmp_path / "later" / name, run=name, **{"virtual": False, "waive": True, "day": 9, **changes})

    return run


def by(run: Path, baseline: Path) -> VerdictDoc:
    return judge_otherwise(run, rules_of(run, baseline, None))[0]


def test_an_unchanged_site_is_within_its_baseline(accepted, baseline, later):
    verdict = by(later(), baseline)
    mine = [c for c in verdict.criteria if c.id.startswith("bl.")]
    assert {c.id for c in mine} >= {"bl.trnetlat", "bl.trtcpbw"}
    assert {c.verdict for c in mine} == {"pass"}
    assert (verdict.sign_off, verdict.outcome) == ("ACCEPTED", "passed")
    assert [c.owed for c in mine] == [False] * len(mine)


def test_what_drifted_fails_by_its_own_past_though_it_passes_its_criterion(baseline, later):
    run = later(drift={PAIR: 1.4})
    own = judge_files(run)
    assert (own.sign_off, {c.verdict for c in own.criteria if c.id == "tr.netlat"}) == ("ACCEPTED", {"pass"})
    verdict = by(run, baseline)
    assert verdict.outcome == "failed"
    (criterion,) = [c for c in verdict.criteria if c.verdict == "fail"]
    assert criterion.id == "bl.trnetlat"
    (judged,) = [j for j in criterion.judgements if j.verdict == "fail"]
    assert judged.subject == "gpu1/fab0>gpu2/fab0"
    assert "differ by" in judged.bound.derivation[0]
    assert [f.subject for f in verdict.findings] == ["gpu1/fab0>gpu2/fab0"]
    assert "toolkit compare" in verdict.findings[0].remedy


def test_a_report_derives_a_baseline_once_and_draws_each_value_over_its_own_bound(baseline, later):
    verdict = by(later(drift={PAIR: 1.4}), baseline)
    (latency,) = [d for d in derivations(verdict) if d.criterion.id == "bl.trnetlat"]
    assert latency.name == "Bound of bl.trnetlat"
    text = str(latency.strip)
    assert "maximum 1" in text
    assert "of its own bound" in text
    assert len(re.findall("<circle", text)) == 11  # and one that failed, a cross
    assert latency.failing == ("gpu1/fab0>gpu2/fab0",)
    (own,) = [d for d in derivations(verdict) if d.criterion.id == "tr.netlat"]
    assert "of its own bound" not in str(own.strip)


def test_each_subject_has_its_own_bound_by_what_runs_differ_by(accepted, baseline):
    document = yaml.safe_load(baseline.read_text())
    (entry,) = [e for e in document["criteria"] if e["id"] == "bl.trnetlat"]
    levels = entry["bound"]["since"]["levels"]
    assert len(levels) == 12 == len({level["bound"] for level in levels})
    verdicts = [acceptance.standing(run) for run in accepted]
    for level in levels:
        values = [
            j.value for v in verdicts for c in v.criteria for j in c.judgements
            if c.id == "tr.netlat" and j.subject == level["subject"]
        ]  # fmt: skip
        assert level["value"] == pytest.approx(sum(values) / 5, rel=1e-5)
        assert max(values) < level["bound"] < 1.3 * level["value"]
    assert 0.01 < entry["bound"]["since"]["spread"] < 0.03  # the runs are made with 2 %
    (rate,) = [e for e in document["criteria"] if e["id"] == "bl.trtcpbw"]
    for level in rate["bound"]["since"]["levels"]:  # runs differ by less than what is called small
        assert level["bound"] == pytest.approx((1 - LEAST_MARGIN) * level["value"], rel=1e-4)


def test_two_runs_of_twelve_pairs_are_enough_and_the_bound_is_wider(accepted):
    two, five = ({e["id"]: e for e in yaml.safe_load(make(accepted[:n]).text)["criteria"]} for n in (2, 5))
    margins = [
        [level["bound"] / level["value"] for level in found["bl.trnetlat"]["bound"]["since"]["levels"]]
        for found in (two, five)
    ]
    assert min(margins[0]) > max(margins[1]) > 1 + LEAST_MARGIN


def test_one_job_in_two_runs_shows_nothing_and_is_left_out(accepted):
    made = make(accepted[:2])
    assert "do not show what runs differ by" in made.left_out["tn.inter"]
    assert "bl.tninter" not in made.text
    assert "bl.tninter" in make(accepted).text


def test_a_pair_that_is_new_has_no_bound_and_one_that_was_lost_withholds_nothing_twice(baseline, later):
    document = yaml.safe_load(baseline.read_text())
    for entry in document["criteria"]:
        entry["bound"]["since"]["levels"] = [
            level for level in entry["bound"]["since"]["levels"] if "gpu1/fab0>gpu2/fab0" not in level["subject"]
        ]
    fewer = later().parent / "fewer.yml"
    fewer.write_text(yaml.safe_dump(document))
    verdict = by(later("2026-12-02T09-00-00Z-tcp10"), fewer)
    (new,) = [j for c in verdict.criteria if c.id == "bl.trnetlat" for j in c.judgements if j.verdict == "not-measured"]
    assert (new.subject, new.reason_code) == ("gpu1/fab0>gpu2/fab0", "no-bound")
    assert verdict.outcome == "passed"
    dead = by(later("2026-12-03T09-00-00Z-tcp10", dead="gpu2"), baseline)
    assert dead.outcome == "incomplete"
    (criterion,) = [c for c in dead.criteria if c.id == "bl.trnetlat"]
    assert {j.verdict for j in criterion.judgements} == {"pass", "not-measured"}
    assert all(j.reason for j in criterion.judgements)


def test_what_the_profile_leaves_out_withholds_nothing_by_its_baseline(baseline, later):
    run = later()
    lines = (run / "results.jsonl").read_text().splitlines(keepends=True)
    kept = [line for line in lines if not json.loads(line)["measurement"].startswith("training")]
    assert len(kept) < len(lines)
    (run / "results.jsonl").write_text("".join(kept))
    owed = ["pf.bom", "tr.tcpbw", "tr.netlat"]
    rest = [c.id for c in read(run).criteria if c.id not in owed]
    profile = {"name": "ours", "title": "Network", "delivery": "network", "test": "quick", "suites": ["transport"]}
    profile |= {"owed": owed, "left_out": [{"criteria": rest, "why": "not part of this delivery"}]}
    path = run.parent / "ours.yml"
    path.write_text(yaml.safe_dump(profile))
    without = judge_otherwise(run, rules_of(run, None, str(path)))[0]
    held = judge_otherwise(run, rules_of(run, baseline, str(path)))[0]
    assert without.outcome == held.outcome == "passed"
    (criterion,) = [c for c in held.criteria if c.id == "bl.tninter"]
    assert criterion.verdict == "not-measured"


def test_an_interval_that_holds_the_bound_is_a_remark_and_no_failure(baseline, later):
    run = later(day=0)
    verdict = judge_files(run)
    (judged,) = [
        j for c in verdict.criteria if c.id == "tr.netlat" for j in c.judgements if j.subject == "gpu1/fab0>gpu2/fab0"
    ]
    document = yaml.safe_load(baseline.read_text())
    for entry in document["criteria"]:
        for level in entry["bound"]["since"]["levels"]:
            if entry["id"] == "bl.trnetlat" and level["subject"] == judged.subject:
                level["bound"] = judged.value
    near = run.parent / "near.yml"
    near.write_text(yaml.safe_dump(document))
    (found,) = [
        j for c in by(run, near).criteria if c.id == "bl.trnetlat" for j in c.judgements if j.subject == judged.subject
    ]
    assert (found.verdict, found.reason_code) == ("pass", "remarked")
    assert found.reason.startswith("no drift shown: ")


def test_rehearsals_become_the_bounds_of_that_lab_and_are_called_so(tmp_path):
    runs = [make_run(tmp_path / run, day=n + 1, run=run) for n, run in enumerate(DAYS[:3])]
    made = make(runs)
    assert (made.of.rehearsal, made.of.lab_gbps) == (True, 1.0)
    assert "of which nothing is an acceptance" in made.text
    path = tmp_path / NAME
    path.write_text(made.text)
    verdict = by(make_run(tmp_path / "2026-12-01T09-00-00Z-tcp10", day=8, run="2026-12-01T09-00-00Z-tcp10"), path)
    assert (verdict.sign_off, verdict.outcome) == ("REHEARSAL", "passed")
    assert all("rehearsals (no acceptance)" in c.statement for c in verdict.criteria if c.id.startswith("bl."))
    real = make_run(tmp_path / "real", virtual=False, waive=True)
    with pytest.raises(ConfigError, match="is of rehearsals on virtual nodes, which these nodes are not"):
        rules_of(real, path, None)
    faster = make_run(tmp_path / "faster", lab_gbps=10.0)
    with pytest.raises(ConfigError, match="of a lab with links of 1 Gbit/s, and this one's have 10"):
        rules_of(faster, path, None)


# --- what becomes no bound -------------------------------------------------------------------------------------


def command(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["baseline", *map(str, arguments)])


def test_only_runs_that_were_accepted_become_bounds(accepted, tmp_path):
    slow = make_run(tmp_path / "slow", slow="gpu2", virtual=False, waive=True, run="2026-11-29T10-15-00Z-tcp10")
    made = command(accepted[0], slow)
    assert made.exit_code == Exit.USAGE
    assert "is REJECTED, failed: only accepted runs" in made.output
    bare = make_run(tmp_path / "bare", virtual=False, run="2026-11-30T10-15-00Z-tcp10")
    assert "is INCOMPLETE" in command(accepted[0], bare).output
    lost = make_run(tmp_path / "lost", slow="gpu2", run="2026-11-28T10-15-00Z-tcp10")
    assert "is REHEARSAL, failed" in command(lost, lost).output or "is there twice" in command(lost, lost).output


def test_runs_that_do_not_belong_together_are_refused(accepted, tmp_path):
    assert "one run does not show" in command(accepted[0]).output
    assert "is there twice" in command(accepted[0], accepted[0]).output
    rehearsal = make_run(tmp_path / "r", run="2026-11-29T10-15-00Z-tcp10")
    assert "do not belong together: sign-off ACCEPTED and REHEARSAL" in command(accepted[0], rehearsal).output
    other = make_run(tmp_path / "o", virtual=False, waive=True, site="other", run="2026-11-30T10-15-00Z-tcp10")
    assert "do not belong together: site" in command(accepted[0], other).output
    one, two = (make_run(tmp_path / f"{g}", lab_gbps=g, run=f"2026-11-2{g:g}T10-15-00Z-tcp10") for g in (1.0, 2.0))
    assert "lab link 1 Gbit/s and 2 Gbit/s" in command(one, two).output


def test_a_verdict_that_does_not_follow_becomes_no_bound(accepted, tmp_path):
    forged = shutil.copytree(accepted[0], tmp_path / accepted[0].name)
    document = json.loads((forged / "verdict.json").read_text())
    (forged / "verdict.json").write_text(json.dumps(document | {"headline": "fine"}))
    made = command(forged, accepted[1])
    assert made.exit_code == Exit.USAGE
    assert "is not what judging the results gives" in made.output
    (forged / "verdict.json").unlink()
    assert "was not judged" in command(forged, accepted[1]).output


def test_the_command_writes_the_file_and_nothing_into_the_runs(accepted, tmp_path):
    def state() -> dict[str, str]:
        files = [p for run in accepted for p in run.rglob("*") if p.is_file()]
        return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}

    before = state()
    out = tmp_path / "site" / NAME
    out.parent.mkdir()
    made = command(*accepted, "--out", out)
    assert (made.exit_code, made.stdout) == (0, f"{out}\n")
    assert "by 5 accepted runs" in made.stderr
    assert state() == before
    assert command(*reversed(accepted)).stdout == out.read_text() == make(accepted).text
    assert read_baseline(read_source(out)).runs == tuple(DAYS)
    load_criteria((*read_criteria(), read_source(out)))


# --- validate takes it -----------------------------------------------------------------------------------------


def test_a_baseline_beside_the_inventory_is_found_and_an_unfit_one_told(baseline, tmp_path, capsys):
    inventory = tmp_path / "hosts.yml"
    topology = hardware(site="lab")
    assert with_baseline(read_criteria(), None, inventory, topology, "tcp10") == read_criteria()
    shutil.copy(baseline, tmp_path / NAME)
    found = with_baseline(read_criteria(), None, inventory, topology, "tcp10")
    assert [s.path.name for s in found][-1] == NAME
    criteria = load_criteria(found)
    assert measured_by(criteria) == load_criteria()
    assert capsys.readouterr().err == ""
    assert with_baseline(read_criteria(), None, inventory, topology, "roce40") == read_criteria()
    assert "left out: is of fabric tcp10, not of roce40" in capsys.readouterr().err
    with pytest.raises(UsageFault, match="is of hardware, which these nodes are not"):
        with_baseline(read_criteria(), tmp_path / NAME, inventory, lab(site="lab"), "tcp10")
    with pytest.raises(UsageFault, match="is of site lab, not of elsewhere"):
        with_baseline(read_criteria(), tmp_path / NAME, inventory, hardware(site="elsewhere"), "tcp10")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("criteria: []\n", f"{NAME}:1"),
        (None, "no such file"),
        ("criteria:\n  - {id: bl.x}\n", f"{NAME}:2"),
    ],
)
def test_a_damaged_baseline_is_one_line_before_anything_is_measured(tmp_path, text, said):
    path = tmp_path / NAME
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as fault:
        with_baseline(read_criteria(), path, tmp_path, hardware(), "tcp10")
    assert said in str(fault.value)
    assert "\n" not in str(fault.value)


def test_a_run_that_has_a_baseline_keeps_it_when_it_is_judged_anew(baseline, later):
    run = later(drift={PAIR: 1.4})
    info = read(run).info
    shutil.copy(baseline, run / CRITERIA / NAME)
    rundir.renew(run, info, (), "the baseline")
    assert acceptance.judge_run(run).outcome == "failed"
    again = acceptance.rejudge(run, Agreement(None, "", (), {}))
    assert again.outcome == "failed"
    kept = yaml.safe_load((run / CRITERIA / NAME).read_text())
    assert kept == yaml.safe_load(baseline.read_text()), "what is read of it; its comments stay with the site"


def test_an_ordinary_file_of_criteria_is_no_baseline(tmp_path):
    with pytest.raises(ConfigError, match="is no baseline"):
        read_baseline(read_criteria()[0])


def test_without_runs_there_is_no_baseline():
    with pytest.raises(ConfigError, match="one run does not show"):
        baseline_of([])
