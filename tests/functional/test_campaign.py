"""Several fabrics side by side: what the cells of a campaign say, which runs do not fit together, and its page."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.page import Page
from tests.support.rdma_case import VM_LAB
from tests.support.report_fixture import make_run
from tests.support.site import plan_of, results_of, write_run
from validation.campaign import Campaign, NotTogether, as_html, as_text, campaign_of
from validation.campaign.model import Row
from validation.campaign.sections import PARTS
from validation.model.load import ConfigError
from validation.report.claims import conformance_of
from validation.report.documents import read_run
from validation.rules.reference import packaged
from validation.run.catalogue import load_criteria

pytestmark = pytest.mark.computes

SLOW_LINK, FAST_LINK = "2026-11-21T10-15-00Z-tcp10", "2026-11-21T10-15-00Z-tcp10-2"
ROCE, TCP25 = "2026-11-23T10-15-00Z-roce40", "2026-11-24T10-15-00Z-tcp25"
REAL = "2026-11-21T10-15-00Z-tcp10-3"
OTHER = "2026-11-30T00-00-00Z-other"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Runs of one lab, and one on hardware, by their names; not to be changed."""
    base = tmp_path_factory.mktemp("runs")
    runs = {
        SLOW_LINK: make_run(base / SLOW_LINK, run=SLOW_LINK),
        FAST_LINK: make_run(base / FAST_LINK, run=FAST_LINK, lab_gbps=10.0, slow="gpu2"),
        TCP25: make_run(base / TCP25, run=TCP25, fabric="tcp25", suites=("preflight", "transport")),
        REAL: make_run(base / REAL, run=REAL, virtual=False, waive=True),
    }
    plan = plan_of(VM_LAB, ("transport",), "roce40", ROCE)
    results = [r.model_copy(update={"run": ROCE}) for r in results_of(plan)]
    return {**runs, ROCE: write_run(base / ROCE, VM_LAB, plan, results)}


@pytest.fixture
def copy(made: Mapping[str, Path], tmp_path: Path) -> Callable[..., Path]:
    """A copy of a run under another name, with its documents edited: file name -> what changes its content."""

    def copied(name: str, new: str, /, **edits: Callable[[Any], Any]) -> Path:
        path = shutil.copytree(made[name], tmp_path / new)
        for document in ("run", "plan", "verdict", "topology"):
            content = json.loads((path / f"{document}.json").read_text())
            if document != "topology":
                content["run"] = new
            edits.get(document, lambda _: None)(content)
            (path / f"{document}.json").write_text(json.dumps(content))
        lines = (path / "results.jsonl").read_text().replace(f'"run":"{name}"', f'"run":"{new}"')
        (path / "results.jsonl").write_text(lines)
        return path

    return copied


def rows(campaign: Campaign, criterion: str) -> list[Row]:
    return [row for section in campaign.sections for row in section.rows if row.criterion == criterion]


def row(campaign: Campaign, criterion: str, case: str = "") -> Row:
    (found,) = [r for r in rows(campaign, criterion) if r.case == case]
    return found


def judgements(run: Path, criterion: str) -> list[dict[str, Any]]:
    verdict = json.loads((run / "verdict.json").read_text())
    (found,) = [c for c in verdict["criteria"] if c["id"] == criterion]
    return list(found["judgements"])


# --- what stands where -----------------------------------------------------------------------------------------


def test_tcp_at_two_rates_and_soft_roce_stand_side_by_side(made):
    campaign = campaign_of([made[SLOW_LINK], made[FAST_LINK], made[ROCE]])
    assert [r.label for r in campaign.runs] == ["tcp10 on 1 Gbit/s", "tcp10 on 10 Gbit/s", "roce40 on 1 Gbit/s"]
    assert [r.run for r in campaign.runs] == [SLOW_LINK, FAST_LINK, ROCE]
    assert campaign.rehearsal
    assert campaign.runs[2].virtual == ("systemd-nspawn", "qemu, emulated")
    assert campaign.runs[2].emulated
    assert not campaign.runs[0].emulated
    found = row(campaign, "tr.tcpbw").cells
    assert [c.value for c in found] == [pytest.approx(0.985, rel=0.01), pytest.approx(0.982, rel=0.01), found[2].value]
    assert found[1].highest == pytest.approx(9.85, rel=0.01)
    writes = row(campaign, "tr.rdmabw", "write")
    assert [c.verdict for c in writes.cells] == ["not-applicable", "not-applicable", "not-measured"]
    assert [c.value is None for c in writes.cells] == [True, True, False]
    assert writes.cells[2].reason_code == "virtual"
    assert {"write, both ways", "read"} <= {r.case for r in rows(campaign, "tr.rdmabw")}
    assert campaign.headline == "3 rehearsals over 2 fabrics: " + ", ".join(
        f"{n} {o}" for o in ("failed", "incomplete", "passed") if (n := [r.outcome for r in campaign.runs].count(o))
    )


def test_each_cell_is_a_judgement_of_its_run_and_judges_nothing_itself(made):
    campaign = campaign_of([made[SLOW_LINK], made[FAST_LINK]])
    seen = 0
    for id_ in ("tr.netlat", "tr.tcpbw", "tn.intra", "tn.inter"):
        for one in rows(campaign, id_):
            for cell in one.cells:
                all_ = judgements(made[cell.run], id_)
                figures = [(j["value"], j["low"], j["high"]) for j in all_]
                assert (cell.value, cell.low, cell.high) in figures
                assert (cell.verdict, cell.reason) in [(j["verdict"], j["reason"]) for j in all_]
                seen += 1
    assert seen == 8


def test_the_pair_in_the_middle_is_shown_and_the_worst_decides(made):
    cell = row(campaign_of([made[SLOW_LINK], made[FAST_LINK]]), "tr.tcpbw").cells[1]
    values = sorted(j["value"] for j in judgements(made[FAST_LINK], "tr.tcpbw"))
    assert len(values) == 12
    assert (cell.lowest, cell.value, cell.highest) == (values[0], values[5], values[-1])
    assert (cell.verdict, cell.reason_code) == ("fail", "below-floor")
    assert "gpu2" in cell.deciding
    assert cell.bound


def test_one_pair_that_was_not_measured_is_not_hidden_by_those_that_pass(made, copy):
    def spoil(verdict):
        for criterion in verdict["criteria"]:
            if criterion["id"] == "tr.netlat":
                criterion["judgements"][3] |= {
                    "verdict": "not-measured", "reason_code": "missing-result", "reason": "no result",
                    "value": None, "low": None, "high": None,
                }  # fmt: skip

    campaign = campaign_of([made[FAST_LINK], copy(SLOW_LINK, OTHER, verdict=spoil)])
    cell = row(campaign, "tr.netlat").cells[1]
    assert (cell.verdict, cell.reason_code, cell.measured, cell.subjects) == ("not-measured", "missing-result", 11, 12)
    assert cell.value is not None


def test_a_rejected_value_is_no_figure(made, copy):
    def spoil(verdict):
        for criterion in verdict["criteria"]:
            if criterion["id"] == "tr.tcpbw":
                criterion |= {"verdict": "not-measured", "reason_code": "above-ceiling"}
                for judgement in criterion["judgements"]:
                    judgement |= {"verdict": "not-measured", "reason_code": "above-ceiling", "value": 400.0}

    campaign = campaign_of([made[FAST_LINK], copy(SLOW_LINK, OTHER, verdict=spoil)])
    cell = row(campaign, "tr.tcpbw").cells[1]
    assert (cell.value, cell.highest, cell.measured, cell.verdict) == (None, None, 0, "not-measured")
    assert "400 Gbit/s" not in as_html(campaign)


def test_rates_and_efficiency_stand_by_ranks_network_and_batch(made):
    campaign = campaign_of([made[SLOW_LINK], made[TCP25]])
    rates = rows(campaign, "tn.short")
    assert [r.case for r in rates] == ["1 rank on 1 node", "2 ranks on 1 node", "4 ranks on 2 nodes"]
    assert {(r.model, r.batch, r.unit) for r in rates} == {("small network of the short test", 16, "images/s")}
    assert [r.cells[0].value for r in rates] == [pytest.approx(v, rel=0.01) for v in (412, 655, 1010)]
    (inter,) = rows(campaign, "tn.inter")
    assert (inter.case, inter.batch, inter.unit) == ("4 ranks on 2 nodes", 16, "ratio")
    assert inter.cells[0].value == pytest.approx(1010 / (4 * 412), rel=0.01)
    assert inter.cells[0].reason_code == "virtual"
    for one in (*rates, inter):  # the other run's suites have no training
        assert (one.cells[1].value, one.cells[1].verdict, one.cells[1].reason_code) == (
            None,
            "not-measured",
            "not-selected",
        )


def test_remote_ratios_stand_by_network_batch_and_number_format_as_they_come(made, copy):
    def jobs(plan):
        for measurement, (model, batch, precision) in zip(
            [m for m in plan["measurements"] if m["kind"] == "training-short"],
            (("resnet50", 32, "fp32"), ("resnet50", 256, "fp32"), ("resnet50", 32, "fp16")),
            strict=True,
        ):
            measurement["params"] |= {"model": model, "batch": batch, "precision": precision}
            del measurement["params"]["ranks"]

    def ratios(verdict):
        example = next(c for c in verdict["criteria"] if c["id"] == "tn.inter")["judgements"][0]
        for criterion in verdict["criteria"]:
            if criterion["id"] == "rm.ratio":
                criterion["judgements"] = [
                    {**example, "criterion": "rm.ratio", "value": value, "low": value - 0.01, "high": value + 0.01,
                     "evidence": [f"training-short.{label}"]}
                    for label, value in (("1", 0.91), ("intra", 0.97), ("inter", 0.88))
                ]  # fmt: skip

    remote = copy(SLOW_LINK, OTHER, plan=jobs, verdict=ratios)
    campaign = campaign_of([made[FAST_LINK], remote])
    found = {(r.model, r.batch): r.cells for r in rows(campaign, "rm.ratio")}
    assert {key: cells[1].value for key, cells in found.items()} == {
        ("resnet50", 32): 0.91, ("resnet50", 256): 0.97, ("resnet50, fp16", 32): 0.88,
    }  # fmt: skip
    assert {cells[0].verdict for cells in found.values()} == {"not-measured"}
    text = as_html(campaign)
    assert "resnet50, batch 256" in text
    assert "97 %" in text


def test_where_nothing_was_measured_the_page_says_so_and_why(made):
    campaign = campaign_of([made[SLOW_LINK], made[ROCE]])
    (ratio,) = rows(campaign, "rm.ratio")
    assert {(c.value, c.verdict, c.reason_code) for c in ratio.cells} == {(None, "not-measured", "not-selected")}
    part = as_html(campaign).partition('id="remote"')[2]
    assert part.count("not measured: not selected") == 2 * len(PARTS[3].criteria)


def test_claims_stand_beside_as_each_run_leaves_them(made):
    campaign = campaign_of([made[SLOW_LINK], made[ROCE]])
    claims = {p.claim: p for section in campaign.sections for p in section.published}
    known = packaged().claims
    beside = {id_ for part in PARTS for id_, _ in part.criteria}
    assert {id_ for id_, p in claims.items() if p.founding} == {
        id_ for id_, c in known.items() if c.confirmed_by is not None and c.confirmed_by.criterion in beside
    }
    for column, name in enumerate((SLOW_LINK, ROCE)):
        documents = read_run(made[name])
        lines = {line.id: line for line in conformance_of(documents, documents.verdict).claims}
        for id_, claim in claims.items():
            held = claim.held[column]
            assert (held is None) == (not claim.founding)
            if held is not None:
                assert (held.state, held.reason, held.value) == (lines[id_].state, lines[id_].reason, lines[id_].value)
    assert claims["vmware.roce"].value == known["vmware.roce"].value
    page = Page(as_html(campaign)).text
    assert "A rehearsal confirms no claim" in page
    assert known["vmware.roce"].printed in page


def test_a_ratio_of_others_is_shown_and_nothing_is_held_against_it(made):
    campaign = campaign_of([made[SLOW_LINK], made[ROCE]])
    others = [p for p in campaign.sections[3].published if not p.founding]
    assert [p.value for p in others] == [c.value for c in packaged().claims.values() if c.id.startswith("others.ratio")]
    assert len(others) > 2
    assert as_html(campaign).count("a figure of others; nothing is held against it") == 2 * len(others)


def test_every_criterion_on_the_page_is_in_the_catalogue():
    known = {c.id for c in load_criteria()}
    assert {id_ for part in PARTS for id_, _ in part.criteria} <= known


def test_two_runs_of_one_plan_are_two_columns_with_heads_of_their_own(made, copy):
    again = copy(SLOW_LINK, OTHER)
    labels = [r.label for r in campaign_of([made[SLOW_LINK], again]).runs]
    assert labels == ["tcp10 on 1 Gbit/s (run 1)", "tcp10 on 1 Gbit/s (run 2)"]


def test_other_suites_releases_and_an_unjudged_run_are_said(made, copy):
    other = copy(TCP25, "2026-11-30T00-00-00Z-tcp25", run=lambda info: info.update(toolkit_version="9.9"))
    (other / "verdict.json").unlink()
    campaign = campaign_of([made[SLOW_LINK], other])
    notes = " ".join(campaign.notes)
    assert "2026-11-30T00-00-00Z-tcp25 was not judged" in notes
    assert "tcp25 on 1 Gbit/s: 9.9" in notes
    assert "different suites" in notes
    assert row(campaign, "tr.netlat").cells[1].verdict == "not-measured"
    assert as_text(campaign).count("note: ") == 3


# --- what does not fit -----------------------------------------------------------------------------------------


def elsewhere(info: Any) -> None:
    info["site"] = "basement"


def gpu9(topology: Any) -> None:
    topology["nodes"][3]["name"] = "gpu9"


def regrouped(topology: Any) -> None:
    topology["nodes"][1]["groups"] = ["gpu_servers"]


def a100(topology: Any) -> None:
    topology["nodes"][3]["bom"]["gpu_model"] = "A100"


def longer(plan: Any) -> None:
    next(m for m in plan["measurements"] if m["kind"] == "tcp-bandwidth")["params"]["seconds"] = 30


def shorter(plan: Any) -> None:
    plan["suites"] = ["preflight", "transport"]


@pytest.mark.parametrize(
    ("first", "base", "edits", "words"),
    [
        (FAST_LINK, SLOW_LINK, {"run": elsewhere}, "site lab against basement"),
        (FAST_LINK, SLOW_LINK, {"topology": gpu9}, "only the first has gpu2; only the second has gpu9"),
        (FAST_LINK, SLOW_LINK, {"topology": regrouped}, "the groups of client1 is clients against gpu_servers"),
        (REAL, REAL, {"topology": a100}, "bom.gpu_model of gpu2 is not declared against A100"),
        (SLOW_LINK, SLOW_LINK, {"plan": longer}, "seconds is 2 against 30"),
        (
            SLOW_LINK,
            SLOW_LINK,
            {"plan": shorter},
            "their plans differ: suites preflight, transport, training against preflight, transport",
        ),
    ],
    ids=["site", "nodes", "groups", "gpus", "plan", "suites"],
)
def test_what_does_not_fit_names_the_two_runs_and_what_differs(made, copy, first, base, edits, words):
    other = copy(base, OTHER, **edits)
    with pytest.raises(NotTogether) as refused:
        campaign_of([made[TCP25], made[first], other] if first != REAL else [made[first], other])
    said = str(refused.value)
    assert said.startswith((f"{first} and {OTHER} do not fit", f"{TCP25} and {OTHER} do not fit"))
    assert words in said
    assert "\n" not in said


def test_a_rehearsal_never_stands_beside_hardware(made):
    with pytest.raises(NotTogether, match=f"{SLOW_LINK} and {REAL} .*is a rehearsal on virtual parts.*ran on hardware"):
        campaign_of([made[SLOW_LINK], made[REAL]])


def test_profiles_of_one_name_that_judge_otherwise_do_not_fit(made, copy):
    other = copy(SLOW_LINK, OTHER)
    text = (other / "fabric.yml").read_text()
    (other / "fabric.yml").write_text(text.replace("mtu: 9000", "mtu: 1500", 1))
    with pytest.raises(NotTogether, match="two profiles are called tcp10: mtu is 9000 against 1500"):
        campaign_of([made[SLOW_LINK], other])


def test_words_of_a_profile_keep_no_runs_apart(made, copy):
    other = copy(SLOW_LINK, OTHER)
    text = (other / "fabric.yml").read_text()
    assert "title: " in text
    (other / "fabric.yml").write_text(text.replace("title: ", "title: Our ", 1))
    assert len(campaign_of([made[SLOW_LINK], other]).runs) == 2


def test_a_broken_run_is_one_line_with_file_and_line(made, copy):
    broken = copy(SLOW_LINK, OTHER)
    (broken / "plan.json").write_text('{\n"run": ')
    with pytest.raises(ConfigError, match=r"plan\.json:\d+: "):
        campaign_of([made[FAST_LINK], broken])


# --- the page --------------------------------------------------------------------------------------------------


def test_the_page_is_one_whole_file_and_says_rehearsal(made):
    campaign = campaign_of([made[SLOW_LINK], made[FAST_LINK], made[ROCE]])
    text = as_html(campaign)
    page = Page(text)
    page.whole()
    assert "<script" not in text
    assert 'class="mark"' in text
    assert "links shaped to" in page.text
    assert "processors are emulated" in page.text
    assert text.count("<br>rehearsal</th>") == 3 * len(campaign.sections)
    assert len(page.every("table")) == len(page.every("caption"))
    for run in campaign.runs:
        assert run.run in page.text


def test_runs_on_hardware_bear_no_mark_of_a_rehearsal(made, copy):
    text = as_html(campaign_of([made[REAL], copy(REAL, OTHER)]))
    assert 'class="mark"' not in text
    assert "rehearsal" not in Page(text).text.lower()


def test_the_page_escapes_what_runs_bring_along(made, copy):
    def evil(verdict):
        verdict["headline"] = "<script>alert(1)</script>"

    text = as_html(campaign_of([made[FAST_LINK], copy(SLOW_LINK, OTHER, verdict=evil)]))
    assert "<script" not in text
    assert "&lt;script" in text


def test_text_has_a_column_for_each_run_and_rehearsal_first(made):
    lines = as_text(campaign_of([made[SLOW_LINK], made[FAST_LINK]])).splitlines()
    assert lines[0].startswith("REHEARSAL")
    (bandwidth,) = [line for line in lines if line.startswith("TCP bandwidth")]
    assert "(fail)" in bandwidth
    assert bandwidth.count("Gbit/s") == 2
