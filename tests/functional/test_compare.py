"""`toolkit compare`: what an upgrade changed, whether it is beyond noise, and what cannot be compared."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.page import Page
from tests.support.raw_case import judged_as_it_stands
from tests.support.site import FACTS
from toolkit.cli import cli
from toolkit.exits import Exit
from validation.compare import Comparison, NotComparable, as_html, as_text, compare
from validation.compare.noise import ALPHA, LEAST, SMALL, shift_of_intervals
from validation.model.load import ConfigError
from validation.run.catalogue import load_criteria

pytestmark = pytest.mark.computes

AFTER = "2026-12-01T09-00-00Z-tcp10"


@pytest.fixture
def runs(site_runs, tmp_path) -> Callable[..., Path]:
    """A copy of a run under another name, with its results edited and judged again."""

    def copy(name: str = "clean", run: str = AFTER, edit: Callable[[dict], None] | None = None) -> Path:
        path = shutil.copytree(site_runs[name], tmp_path / run)
        for document in ("run", "plan", "verdict"):
            text = json.loads((path / f"{document}.json").read_text())
            (path / f"{document}.json").write_text(json.dumps(text | {"run": run}))
        lines = [json.loads(line) | {"run": run} for line in (path / "results.jsonl").read_text().split("\n")[:-1]]
        for line in lines if edit else ():
            edit(line)
        (path / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        if edit:
            (path / "verdict.json").write_text(judged_as_it_stands(path).model_dump_json())
        return path

    return copy


def scale(kind: str, factor: float) -> Callable[[dict], None]:
    def edit(line: dict) -> None:
        if line["measurement"].startswith(kind):
            line["samples"] = [s | {"value": s["value"] * factor} for s in line["samples"]]

    return edit


def of(found: Comparison, id_: str):
    return next(c for c in found.criteria if c.id == id_)


def test_the_same_results_are_the_same(site_runs, runs):
    found = compare(site_runs["clean"], runs())
    assert found.exit_code == 0
    assert {c.verdict for c in found.criteria} == {"same"}
    assert {f.verdict for f in found.figures} == {"same"}
    assert len(found.figures) > 30
    assert found.headline == "no criterion got worse; 0 differences in the stack"
    assert (found.stack, found.rules, found.notes) == ((), (), ())


def jittered(kind: str, between: float, within: float, seed: int, slow: str = "", factor: float = 1.0):
    """Latencies or rates of a site on another day: each measurement has a level of its own, and samples around it."""
    draw = random.Random(seed)

    def edit(line: dict) -> None:
        if line["measurement"].startswith(kind):
            level = (1 + draw.gauss(0, between)) * (factor if slow and slow in line["measurement"] else 1)
            line["samples"] = [s | {"value": s["value"] * level * (1 + draw.gauss(0, within))} for s in line["samples"]]

    return edit


@pytest.mark.parametrize("seed", range(6))
def test_another_run_of_an_unchanged_site_raises_no_alarm(site_runs, runs, seed):
    """Of twelve latencies one or another is beyond what its samples show, each time somebody looks."""
    after = runs(edit=jittered("tcp-latency", 0.03, 0.03, seed))
    found = compare(site_runs["clean"], after)
    alone = [f for f in found.figures if f.criterion == "tr.netlat" and f.change and abs(f.change) >= SMALL]
    assert any(not f.change_low <= 0 <= f.change_high for f in alone), "no figure to be taken for a change"
    assert (found.exit_code, found.worse) == (0, ())
    assert {f.verdict for f in found.figures} == {"same"}
    assert found.tested >= 12


def test_one_slow_pair_among_those_that_only_differ_by_runs_is_found(site_runs, runs):
    edit = jittered("tcp-latency", 0.01, 0.01, 1, slow="gpu1-fab0.gpu2-fab0", factor=1.3)
    found = compare(site_runs["clean"], runs(edit=edit))
    worse = [f for f in found.figures if f.verdict == "worse"]
    assert {f.criterion for f in worse} == {"tr.netlat"}
    assert all("gpu1/fab0" in f.subject and "gpu2/fab0" in f.subject for f in worse)
    assert found.exit_code == 1
    assert all(f.p < ALPHA and 0 < f.between < 0.05 for f in worse)


def test_half_of_the_equals_may_be_slower_without_passing_for_noise(site_runs, runs):
    edit = jittered("tcp-latency", 0.005, 0.01, 1, slow="gpu2", factor=1.15)
    found = compare(site_runs["clean"], runs(edit=edit))
    worse = [f.subject for f in found.figures if f.verdict == "worse"]
    latencies = [f.subject for f in found.figures if f.criterion == "tr.netlat"]
    assert worse
    assert worse == [s for s in latencies if "gpu2" in s]


def test_figures_of_a_baseline_are_not_asked_after_twice(site_runs, runs):
    both = []
    for name in ("2026-12-05T09-00-00Z-tcp10", "2026-12-06T09-00-00Z-tcp10"):
        run = runs(run=name)
        levels = [
            {"subject": j["subject"], "value": j["value"], "bound": 2 * j["value"], "runs": 3}
            for j in ({**j, "subject": "gpu1/fab0>gpu2/fab0"} for j in _judgements(run, "tr.netlat")[:1])
        ]
        since = {"of": "tr.netlat", "spread": 0.02, "levels": levels}
        entry = next(c for c in load_criteria() if c.id == "tr.netlat").model_dump(mode="json", exclude_none=True)
        entry |= {"id": "bl.trnetlat", "method": "baseline", "required": False, "rehearsal": {"judge": "same"}}
        entry["bound"] = {"kind": "baseline", "words": "as before", "since": since}
        (run / "criteria" / "baseline.yml").write_text(json.dumps({"criteria": [entry]}))
        (run / "verdict.json").write_text(judged_as_it_stands(run).model_dump_json())
        both.append(run)
    assert _judgements(both[0], "bl.trnetlat")
    found = compare(*both)
    assert of(found, "bl.trnetlat").verdict == "same"
    assert {f.criterion for f in found.figures} >= {"tr.netlat"}
    assert "bl.trnetlat" not in {f.criterion for f in found.figures}


def _judgements(run: Path, id_: str) -> list[dict]:
    verdict = json.loads((run / "verdict.json").read_text())
    return [j for c in verdict["criteria"] if c["id"] == id_ for j in c["judgements"]]


def test_a_run_against_itself_has_nothing_to_report(site_runs):
    found = compare(site_runs["clean"], site_runs["clean"])
    assert (found.exit_code, {f.verdict for f in found.figures}) == (0, {"same"})
    assert found.notes == (f"Before and after are the same run, {found.a.run}: nothing can differ.",)


def test_a_criterion_that_fails_now_is_worse_and_back_again_better(site_runs, runs):
    slow = runs("slow")
    there, back = compare(site_runs["clean"], slow), compare(slow, site_runs["clean"])
    assert [c.id for c in there.worse] == ["tr.tcpbw"]
    assert len(of(there, "tr.tcpbw").new_failures) == 6
    assert there.exit_code == 1
    assert [f.subject for f in there.findings] == ["gpu2/fab0"]
    worse = [f for f in there.figures if f.verdict == "worse"]
    assert len(worse) == 6
    assert all("gpu2" in f.subject and f.change == pytest.approx(-0.9, abs=0.01) for f in worse)
    assert back.exit_code == 0
    assert of(back, "tr.tcpbw").verdict == "better"
    assert [c.id for c in back.criteria if c.verdict == "better"] == ["tr.tcpbw"]


def test_slower_beyond_noise_is_worse_though_it_still_passes(site_runs, runs):
    after = runs(edit=scale("tcp-bandwidth", 0.965))
    found = compare(site_runs["clean"], after)
    criterion = of(found, "tr.tcpbw")
    assert (criterion.old, criterion.new, criterion.verdict) == ("pass", "pass", "worse")
    assert "12 of 12 figures worse beyond noise" in criterion.why
    assert found.exit_code == 1
    figure = next(f for f in found.figures if f.criterion == "tr.tcpbw")
    assert figure.change_low < figure.change < figure.change_high < 0


@pytest.mark.parametrize("factor", [1 - SMALL / 2, 1.004])
def test_a_change_that_runs_differ_by_anyway_is_small(site_runs, runs, factor):
    found = compare(site_runs["clean"], runs(edit=scale("tcp-bandwidth.head", factor)))
    assert found.exit_code == 0
    assert {f.noise for f in found.figures if f.change} == {"small"}


def test_lower_is_better_for_a_round_trip(site_runs, runs):
    found = compare(site_runs["clean"], runs(edit=scale("tcp-latency", 0.8)))
    assert of(found, "tr.netlat").verdict == "better"
    assert found.exit_code == 0
    found = compare(site_runs["clean"], runs(run="2026-12-02T09-00-00Z-tcp10", edit=scale("tcp-latency", 1.2)))
    assert of(found, "tr.netlat").verdict == "worse"


def test_scaling_is_compared_by_its_intervals(site_runs, runs):
    def edit(line: dict) -> None:
        if line["measurement"] == "training-short.inter":
            line["samples"] = [s | {"value": s["value"] * 0.8} for s in line["samples"]]

    found = compare(site_runs["real"], runs("real", edit=edit))
    (figure,) = [f for f in found.figures if f.criterion == "tn.inter"]
    assert figure.change == pytest.approx(-0.2, abs=0.001)
    assert figure.change_low < -0.2 < figure.change_high < -0.19
    assert (figure.noise, figure.verdict) == ("beyond", "worse")


def test_a_figure_without_an_interval_of_its_own_is_not_called_beyond_noise():
    """As the spread of a job: one figure, of which one run does not say how far it varies."""
    shift = shift_of_intervals((0.035, 0.035, 0.035), (0.046, 0.046, 0.046))
    assert (shift.noise, shift.low, shift.high) == ("unknown", None, None)
    assert shift.change == pytest.approx(0.314, abs=0.001)


def test_what_a_rehearsal_cannot_prove_is_no_decline(site_runs, runs):
    found = compare(site_runs["clean"], runs(edit=scale("training-short.inter", 0.5)))
    (figure,) = [f for f in found.figures if f.criterion == "tn.inter"]
    assert (figure.noise, figure.verdict) == ("beyond", "changed")
    assert found.exit_code == 0


def test_one_sample_each_is_no_proof_though_its_interval_is_a_point(site_runs, runs):
    def edit(line: dict) -> None:
        if line["measurement"].startswith("tcp-bandwidth"):
            line["samples"] = [s | {"value": s["value"] * 0.96} for s in line["samples"][:1]]

    after = runs(edit=edit)
    document = json.loads((after / "verdict.json").read_text())
    for criterion in document["criteria"]:
        if criterion["id"] == "tr.tcpbw":
            criterion |= {"verdict": "pass", "reason_code": "within-bounds"}
            for judgement in criterion["judgements"]:
                judgement |= {"verdict": "pass", "reason_code": "within-bounds", "samples": 1}
                judgement |= {"value": 0.94, "low": 0.94, "high": 0.94}
    (after / "verdict.json").write_text(json.dumps(document))
    figures = [f for f in compare(site_runs["clean"], after).figures if f.criterion == "tr.tcpbw"]
    assert {(f.noise, f.verdict) for f in figures} == {("unknown", "changed")}


def test_what_is_exact_has_no_noise(site_runs, runs):
    def edit(line: dict) -> None:
        if line["measurement"] == "path-mtu.gpu1-fab0.gpu2-fab0":
            line["samples"] = [s | {"value": 1500.0} for s in line["samples"]]

    found = compare(site_runs["clean"], runs(edit=edit))
    (figure,) = [f for f in found.figures if f.criterion == "pf.mtu" and f.verdict != "same"]
    assert (figure.new, figure.noise) == (1500, "beyond")
    assert of(found, "pf.mtu").verdict == "worse"


def test_too_few_samples_say_nothing_and_are_not_worse(site_runs, runs):
    def edit(line: dict) -> None:
        if line["measurement"].startswith("training-short"):
            line["samples"] = []
        if line["measurement"].startswith("tcp-latency"):
            line["samples"] = [s | {"value": s["value"] * 2} for s in line["samples"]][: LEAST - 1]

    found = compare(site_runs["clean"], runs(edit=edit))
    figures = [f for f in found.figures if f.criterion == "tr.netlat"]
    assert all((f.noise, f.verdict) == ("unknown", "changed") for f in figures)


def test_a_pass_that_is_no_longer_measured_is_worse(site_runs, runs):
    found = compare(site_runs["clean"], runs("dead"))
    assert {"pf.bom", "pf.stack", "pf.mtu", "tr.tcpbw"} <= {c.id for c in found.worse}
    assert of(found, "tr.tcpbw").why == "was pass, is not-measured"
    assert any("nothing is known of the stack of gpu2" in note for note in found.notes)


def test_what_was_upgraded_is_named_with_its_nodes(site_runs, runs):
    def edit(line: dict) -> None:
        if line["measurement"].startswith("facts."):
            line["facts"] |= {"kernel": "6.12.0", "clock_offset_s": 0.5}
        if line["measurement"] == "facts.gpu1":
            line["facts"] |= {"docker": "26.1"}

    after = runs(edit=edit)
    info = json.loads((after / "run.json").read_text())
    (after / "run.json").write_text(json.dumps(info | {"toolkit_version": "0.2.0"}))
    rows = {d.what: d for d in compare(site_runs["clean"], after).stack}
    assert rows["Kernel"].old == "6.1.0-28-amd64"
    assert rows["Kernel"].nodes == ("head", "client1", "gpu1", "gpu2")
    assert (rows["Docker"].old, rows["Docker"].new, rows["Docker"].nodes) == (FACTS["docker"], "26.1", ("gpu1",))
    assert (rows["This toolkit"].old, rows["This toolkit"].new) == ("0.1.0", "0.2.0")
    assert set(rows) == {"Kernel", "Docker", "This toolkit"}  # a clock's offset is no upgrade


def test_other_rules_are_named(site_runs, runs):
    after = runs()
    text = (after / "fabric.yml").read_text()
    (after / "fabric.yml").write_text(text.replace("title: 10 Gbit/s Ethernet, TCP", "title: Ours"))
    path = after / "criteria" / "40-training.yml"
    words = 'words: ">= {value} ({claim:whitepaper.intra-k}'
    path.write_text(path.read_text().replace(f"value: 0.95, {words}", f"value: 0.5, {words}"))
    rows = {d.what: d for d in compare(site_runs["clean"], after).rules}
    assert rows["fabric profile: title"].new == "Ours"
    assert rows["criterion tn.intra"].new == ">= 0.5 (~97 % stated for ResNet-50 on GPUs), required"


def test_new_nodes_and_those_that_are_gone(site_runs, runs):
    after = runs()
    for name in ("topology.json", "plan.json", "results.jsonl"):
        text = (after / name).read_text()
        (after / name).write_text(text.replace("gpu2", "gpu3"))
    (after / "verdict.json").write_text(judged_as_it_stands(after).model_dump_json())
    found = compare(site_runs["clean"], after)
    assert (found.nodes_gone, found.nodes_new) == (("gpu2",), ("gpu3",))
    assert "tr.tcpbw: gpu1/fab0>gpu2/fab0" in found.subjects_gone
    assert "tr.tcpbw: gpu1/fab0>gpu3/fab0" in found.subjects_new


def test_a_waiver_is_no_improvement(site_runs, runs):
    after = runs("slow")
    document = json.loads((after / "verdict.json").read_text())
    for criterion in document["criteria"]:
        if criterion["verdict"] == "fail":
            criterion |= {"verdict": "waived", "reason_code": "waived", "reason": "waived by X"}
            for judgement in criterion["judgements"]:
                if judgement["verdict"] == "fail":
                    judgement |= {"verdict": "waived", "reason_code": "waived"}
    (after / "verdict.json").write_text(json.dumps(document))
    assert of(compare(site_runs["slow"], after), "tr.tcpbw").verdict == "changed"
    assert of(compare(site_runs["clean"], after), "tr.tcpbw").verdict == "worse"


def test_a_run_that_was_not_judged_has_passed_nothing(site_runs, runs):
    after = runs()
    (after / "verdict.json").unlink()
    found = compare(site_runs["clean"], after)
    assert found.exit_code == 1
    assert any("was not judged" in note for note in found.notes)


# --- what cannot be compared -----------------------------------------------------------------------------------


def _edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_fabrics_rehearsals_and_labs_that_differ_are_refused(site_runs, runs):
    with pytest.raises(NotComparable, match="one is a rehearsal on virtual parts, the other ran on hardware"):
        compare(site_runs["clean"], site_runs["real"])
    other = runs()
    (other / "fabric.yml").write_text((other / "fabric.yml").read_text().replace("name: tcp10", "name: tcp25"))
    with pytest.raises(NotComparable, match="fabric tcp10 against tcp25; compare runs of the same fabric profile"):
        compare(site_runs["clean"], other)
    faster = runs(run="2026-12-03T09-00-00Z-tcp10")
    _edit(faster / "topology.json", lab_link={"rate_gbps": 2.0, "rtt_max_us": 1000})
    with pytest.raises(NotComparable, match="lab links of 1 Gbit/s against 2 Gbit/s"):
        compare(site_runs["clean"], faster)
    with pytest.raises(ConfigError, match="is not a run directory"):
        compare(site_runs["clean"], other / "none")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("clean", "clean"), 0, "no criterion got worse; 0 differences in the stack"),
        (("clean", "real"), 2, "not comparable"),
        (("clean", "none"), 2, "no such run"),
        (("clean", "slow"), 1, "worse: tr.tcpbw"),
        (("slow", "clean"), 0, "no criterion got worse; better: tr.tcpbw"),
        (("clean", "slow", "--format", "pdf"), 2, "'pdf' is not one of"),
    ],
)
def test_command_line_ends_with_its_exit_code(site_runs, arguments, code, said):
    (runs_dir,) = {site_runs[name].parent for name in ("clean", "slow", "real")}
    done = CliRunner().invoke(cli, ["compare", *arguments, "--runs-dir", str(runs_dir)])
    assert done.exit_code == code
    assert said in done.output


def test_damaged_run_is_one_line(site_runs, runs):
    after = runs()
    (after / "plan.json").write_text("{")
    done = CliRunner().invoke(cli, ["compare", str(site_runs["clean"]), str(after)])
    assert done.exit_code == Exit.USAGE
    assert "plan.json:1" in done.output


# --- how it is shown -------------------------------------------------------------------------------------------


def test_json_has_its_schema_and_comes_back(site_runs, runs, tmp_path):
    out = tmp_path / "out.json"
    done = CliRunner().invoke(
        cli, ["compare", str(site_runs["clean"]), str(runs("slow")), "--format", "json", "--out", str(out)]
    )
    assert done.exit_code == 1
    document = json.loads(out.read_text())
    assert document["schema"] == "elastic-ai-compare/1"
    assert Comparison.model_validate(document) == compare(site_runs["clean"], tmp_path / AFTER)


def test_text_says_rehearsal_first_and_what_to_do(site_runs, runs):
    text = as_text(compare(site_runs["clean"], runs("slow")))
    assert text.startswith("REHEARSAL on virtual parts: nothing here is an acceptance.\nworse: tr.tcpbw")
    assert "what to do: Check the port's negotiated rate" in text
    assert re.search(r"tr\.tcpbw +worse +pass -> fail", text)


def test_html_is_one_well_formed_file_that_shows_every_criterion(site_runs, runs):
    text = as_html(compare(site_runs["clean"], runs("slow")))
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    assert "<script" not in text
    assert not re.search(r"""["'(]\s*(https?:)?//""", text)
    for reference in page.references:
        assert reference in ("data:,", "#criteria") or reference[1:] in page.ids
    assert sum(i.startswith("c-") for i in page.ids) == len(load_criteria())
    assert 'class="mark"' in text
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    assert len(page.every("table")) == len(page.every("caption"))
    assert as_html(compare(site_runs["clean"], site_runs["clean"].parent / "slow")).count("▼") == text.count("▼")


def test_html_escapes_what_runs_bring_along(site_runs, runs):
    evil = "<script>alert(1)</script>"

    def edit(line: dict) -> None:
        if line["measurement"] == "facts.gpu1":
            line["facts"] |= {"docker": evil}

    text = as_html(compare(site_runs["clean"], runs(edit=edit)))
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text
