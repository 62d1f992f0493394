"""The report: complete, self-contained, well formed, escaped, and not to be prettified."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.page import Page
from tests.support.report_fixture import PAIRS, RUNS, make_run, planned_on
from tests.support.site import FACTS, hardware, healthy, plan_of, write_run
from validation.model.load import ConfigError
from validation.report import write_html
from validation.report.documents import read_run
from validation.report.json_entries import ReportDoc
from validation.report.json_report import report_json
from validation.report.numbers import typeset
from validation.report.svg.colour import contrast
from validation.report.system import system
from validation.run.catalogue import load_criteria

TIMES = "\u00d7"


@pytest.fixture(scope="module")
def reports(site_runs):
    """Text of the report of each kind of run."""
    return {name: write_html(site_runs[name]).read_text() for name in RUNS}


@pytest.fixture(scope="module")
def pages(reports):
    return {name: Page(text) for name, text in reports.items()}


@pytest.mark.parametrize("name", RUNS)
def test_is_well_formed_and_whole(pages, name):
    pages[name].whole()


@pytest.mark.parametrize("name", RUNS)
def test_references_nothing_outside(reports, name):
    text = reports[name].replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert text.count("<script") == text.count("<script>") == 1  # the report's own, allowed by its hash
    assert "@import" not in text
    assert not re.search(r"""["'(]\s*(https?:)?//""", text)
    for target in re.findall(r"url\(([^)]*)\)", text):
        assert target.startswith("#"), target


@pytest.mark.parametrize("name", RUNS)
def test_headings_stand_in_order_and_tables_are_labelled(pages, name):
    levels = [int(tag[1]) for tag, _ in pages[name].tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels)), levels
    assert len(pages[name].every("table")) == len(pages[name].every("caption"))
    assert all("scope" in th for th in pages[name].every("th"))
    for svg in pages[name].every("svg"):
        assert all(label in pages[name].ids for label in svg["aria-labelledby"].split())


@pytest.mark.parametrize("name", RUNS)
def test_every_criterion_stands_in_the_table(pages, name):
    for criterion in load_criteria():
        assert f"c-{criterion.id}" in pages[name].ids


def test_rehearsal_is_marked_and_real_hardware_is_not(reports, pages):
    for name in ("clean", "slow", "dead", "unjudged"):
        assert 'class="mark"' in reports[name]
        assert 'class="edge"' in reports[name]  # repeated on each printed page
        assert "REHEARSAL, not an acceptance" in reports[name]
    assert "REHEARSAL" not in pages["real"].text
    assert "ACCEPTED" in pages["real"].text
    assert 'class="edge' not in reports["real"]


def test_failing_run_names_the_suspect_before_the_details(pages):
    text = pages["slow"].text
    assert re.search(r"FAILED: \d+ of \d+ criteria judged, 1 failed", text)
    assert text.index("Port gpu2/fab0") < text.index("Failed criteria") < text.index("Criterion and source")
    assert "What to do" not in text  # the words before a remedy come from the style sheet
    assert "Check the port's negotiated rate, cable and transceiver" in text
    assert "Outside the bound: head/fab0 → gpu2/fab0" in text
    assert "Suspect: gpu2/fab0." in text


def test_a_finding_says_how_sure_it_is_and_its_cause(tmp_path):
    run = make_run(tmp_path / "run", slow="gpu2")
    document = json.loads((run / "verdict.json").read_text())
    document["findings"][0] |= {"cause": "PCI Express <x4>", "confidence": 0.94}
    (run / "verdict.json").write_text(json.dumps(document))
    text = write_html(run).read_text()
    assert '<p class="cause">PCI Express &lt;x4&gt;</p>' in text
    assert "Confidence that it is this part: 94" in text
    document["findings"][0] |= {"cause": "", "confidence": None}
    (run / "verdict.json").write_text(json.dumps(document))
    text = write_html(run).read_text()
    assert '<p class="cause">' not in text
    assert "Confidence that" not in text


def test_clean_run_has_no_finding(pages):
    assert "No judged criterion failed." in pages["clean"].text
    assert "Marked as suspect" not in pages["clean"].text
    assert "Every planned measurement has a usable result." in pages["clean"].text


def test_what_the_pairs_of_ports_cover_is_said_with_what_may_escape(pages):
    text = pages["clean"].text
    assert "fabric ports, all pairs: 4 of 4 ports, 6 of 6 pairs of ports." in text
    assert "chance that a single bad link escapes: 0 % between a port and its leaf switch" in " ".join(text.split())


def test_incomplete_run_names_what_is_missing_and_why(pages, site_runs):
    text = pages["dead"].text
    assert re.search(r"INCOMPLETE: \d+ of \d+ criteria judged, none failed", text)
    lost, planned = planned_on(site_runs["dead"], "gpu2")
    assert f"{lost} of {planned} planned measurements have no usable result" in text
    assert "tcp-bandwidth.gpu2-fab0.head-fab0" in text
    assert "No route to host" in text
    assert "No facts were collected from: gpu2." in text
    assert "6 of 12 planned pairs measured" in text
    assert "9 000 bytes client1/fab0 → gpu1/fab0 all 6 equal" in text
    assert "None" not in text


def test_run_without_verdict_is_incomplete_and_nothing_passes(pages, site_runs):
    text = pages["unjudged"].text
    assert "INCOMPLETE" in text
    assert "verdict.json is missing" in text
    planned = planned_on(site_runs["unjudged"], "gpu2")[1]
    assert f"{RUNS['unjudged']['cut_after']} of {planned} planned measurements have a usable result" in text
    assert f"0 of {len(load_criteria())} criteria passed" in text
    assert "training-short.inter" in text
    assert 'v-pass"' not in " ".join(attributes.get("class", "") for _, attributes in pages["unjudged"].tags)
    assert "ACCEPTED" not in text


def test_torn_line_is_said(pages):
    assert re.search(r"results\.jsonl", pages["unjudged"].text)
    assert "toolkit validate --resume 2026-11-21T10-15-00Z-tcp10" in pages["unjudged"].text


def test_bounds_show_derivation_and_the_fabrics_own_beside_the_labs(pages):
    text = pages["clean"].text
    assert f"ceiling = 1 {TIMES} (9000-52)/(9000+38) = 0.99 Gbit/s" in text
    assert f"floor = 0.95 {TIMES} 0.99 = 0.9405 Gbit/s" in text
    assert "floor 9 Gbit/s, ceiling 9.9 Gbit/s" in text  # nominal
    assert "Lab link, declared rate 1 Gbit/s" in text


def test_training_efficiency_follows_the_formula(pages):
    assert f"654.9 / (2 {TIMES} 411.9) = 79.5 %" in pages["clean"].text
    assert f"1 010 / (4 {TIMES} 411.9) = 61.3 %" in pages["clean"].text


def test_differences_between_nodes_are_shown(pages):
    text = pages["clean"].text
    assert re.search(r"Open MPI 4\.1\.4 head, gpu1, gpu2 none client1", text)


def test_provenance_holds_command_hash_and_state_of_each_log(tmp_path):
    run = make_run(tmp_path / "run")
    changed = run / "raw" / "facts.head" / "head.out"
    changed.write_text("tampered\n")
    (run / "raw" / "facts.gpu1" / "gpu1.out").unlink()
    page = Page(write_html(run).read_text())
    results = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    for result in results:
        assert f"m-{result['measurement']}" in page.ids
        assert result["provenance"]["raw"][0]["sha256"] in page.text
    assert page.text.count("CHANGED since it was recorded") == 1
    assert page.text.count("FILE MISSING") == 1
    assert (
        len(re.findall(r"unchanged [0-9a-f]{64}", page.text)) == sum(len(r["provenance"]["raw"]) for r in results) - 2
    )
    assert "iperf3 -c 10.78.0" in page.text


def test_hostile_text_is_escaped(tmp_path):
    evil = "</style><script>alert(1)</script><img src=x onerror=alert(1)> \" ' & {{ 7*7 }}"
    run = make_run(tmp_path / "run", dead="gpu2", error=evil)
    for name, key in (("run", "site"), ("topology", "site")):
        document = json.loads((run / f"{name}.json").read_text())
        document[key] = evil
        (run / f"{name}.json").write_text(json.dumps(document))
    topology = (run / "topology.json").read_text().replace('"client1"', '"c<b>\\"1"')
    (run / "topology.json").write_text(topology)
    text = write_html(run).read_text()
    page = Page(text)
    assert text.count("<script") == 1  # the report's own
    assert "alert(1)" not in text[text.index("<script") :]
    assert "<img" not in text
    assert "49" not in re.findall(r"onerror=alert\(1\)&gt; [^<]{0,60}", text)[0]
    assert evil in " ".join(page.words)
    assert not [attributes for _, attributes in page.tags if any(k.startswith("on") for k in attributes)]
    assert text.count("</style>") == 1


def test_writes_where_it_is_told_and_leaves_no_part_behind(tmp_path):
    run = make_run(tmp_path / "run")
    out = tmp_path / "elsewhere.html"
    assert write_html(run, out) == out
    assert out.read_text().startswith("<!doctype html>")
    assert not (run / "report.html").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["elsewhere.html", "run"]


def test_result_that_is_in_no_plan_counts_nowhere_and_is_said(tmp_path):
    run = make_run(tmp_path / "run", judged=False)
    lines = (run / "results.jsonl").read_text().splitlines()
    last = next(line for line in lines if '"training-short.inter"' in line)
    lines.append(last.replace("training-short.inter", "training-short.other"))
    (run / "results.jsonl").write_text("".join(line + "\n" for line in lines))
    page = Page(write_html(run).read_text())
    assert "results that are in no plan were ignored: training-short.other" in page.text
    assert "m-training-short.other" not in page.ids


def test_last_of_several_results_counts_and_all_are_shown(tmp_path):
    run = make_run(tmp_path / "run", judged=False)
    lines = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    again = json.loads(json.dumps(lines[-1]))
    lines[-1] |= {"status": "timeout", "error": "took too long", "samples": []}
    (run / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*lines, again]))
    page = Page(write_html(run).read_text())
    planned = planned_on(run, "gpu2")[1]
    assert f"{planned} of {planned} planned measurements have a usable result" in page.text
    assert "took too long" in page.text
    assert page.text.count("superseded by a later attempt") == 1
    assert "1 010" in page.text


def test_facts_that_show_virtual_parts_make_it_a_rehearsal_whatever_the_inventory_says(tmp_path):
    run = make_run(tmp_path / "run", virtual=False, waive=True)
    text = (run / "results.jsonl").read_text()
    (run / "results.jsonl").write_text(text.replace('"virt":"none"', '"virt":"systemd-nspawn"', 1))
    with pytest.raises(ConfigError, match="only a REHEARSAL"):
        write_html(run)
    (run / "verdict.json").unlink()
    assert 'class="mark"' in write_html(run).read_text()


def test_link_finding_outlines_both_directions(tmp_path):
    run = make_run(tmp_path / "run", slow="gpu2")
    document = json.loads((run / "verdict.json").read_text())
    ends = [{"node": "gpu1", "port": "fab0"}, {"node": "gpu2", "port": "fab0"}]
    document["findings"][0] |= {"kind": "link", "about": {"kind": "pair", "ends": ends, "both_ways": True}}
    (run / "verdict.json").write_text(json.dumps(document))
    page = Page(write_html(run).read_text())
    assert "Link gpu1/fab0 ↔ gpu2/fab0" in page.text
    assert "Suspect: gpu1/fab0 to gpu2/fab0, gpu2/fab0 to gpu1/fab0." in page.text


def test_same_run_same_report(tmp_path):
    run = make_run(tmp_path / "run")
    assert write_html(run, tmp_path / "a").read_bytes() == write_html(run, tmp_path / "b").read_bytes()


def _edit(folder: Path, name: str, **changes: object) -> None:
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def _truncate(run: Path) -> None:
    text = (run / "verdict.json").read_text()
    (run / "verdict.json").write_text(text[: len(text) // 2])


def _vacuous(run: Path) -> None:
    document = json.loads((run / "verdict.json").read_text())
    for criterion in document["criteria"]:
        if criterion["verdict"] != "pass":
            criterion["verdict"], criterion["reason_code"] = "pass", "within-bounds"
    (run / "verdict.json").write_text(json.dumps(document))


DAMAGE = {
    "no run.json": (lambda run: (run / "run.json").unlink(), "run.json"),
    "no plan.json": (lambda run: (run / "plan.json").unlink(), "plan.json"),
    "no fabric.yml": (lambda run: (run / "fabric.yml").unlink(), "fabric.yml"),
    "no results though judged": (lambda run: (run / "results.jsonl").unlink(), "results.jsonl"),
    "verdict cut in the middle": (_truncate, "verdict.json"),
    "plan of another run": (lambda run: _edit(run, "plan.json", run="other"), "plan.json: run"),
    "verdict of another run": (lambda run: _edit(run, "verdict.json", run="other"), "verdict.json: run"),
    "verdict of another plan": (lambda run: _edit(run, "verdict.json", planned=3), "verdict.json: planned"),
    "virtual but accepted": (lambda run: _edit(run, "verdict.json", sign_off="ACCEPTED"), "only a REHEARSAL"),
    "passes without samples": (_vacuous, "no passing judgement"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_run_is_one_clear_line(tmp_path, name):
    run = make_run(tmp_path / "run")
    damage, words = DAMAGE[name]
    damage(run)
    with pytest.raises(ConfigError) as caught:
        write_html(run)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (run / "report.html").exists()


def test_accepted_with_a_required_criterion_open_is_refused(tmp_path):
    run = make_run(tmp_path / "run", virtual=False)
    _edit(run, "verdict.json", sign_off="ACCEPTED")
    with pytest.raises(ConfigError, match=r"sign_off: is ACCEPTED, but .*, which is owed, is not-measured"):
        write_html(run)


def test_what_is_no_run_directory_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="not a run directory"):
        write_html(tmp_path / "none")
    run = make_run(tmp_path / "run")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_html(run, tmp_path / "no" / "such" / "folder.html")


def test_words_of_the_style_sheet_reach_aa_contrast(reports):
    light, dark = reports["clean"].split("prefers-color-scheme: dark", 1)
    for scheme in (light, dark.partition("@media")[0]):
        found = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{3,6})\b", scheme))
        words = [found[name] for name in ("ink", "muted", "link", "fail", "waived", "none", "sort")]
        words += re.findall(r"--pass: (#[0-9a-f]{6})", scheme)  # and what it is in a rehearsal
        assert len(words) == 9
        for ground in ("paper", "soft", "finding", "open-wash", "here"):
            paper = found[ground] if len(found[ground]) == 7 else "#" + "".join(2 * c for c in found[ground][1:])
            assert [w for w in words[:7] if contrast(w, paper) < (4.5 if w != found["sort"] else 3)] == [], ground
            assert [w for w in words[7:] if contrast(w, paper) < 4.5] == [], ground
        for state in ("accepted", "rejected", "open"):
            assert contrast(found[state], found[f"{state}-wash"]) >= 4.5


def test_every_pair_stands_in_a_matrix_cell(reports):
    for source, destination in PAIRS:
        assert reports["clean"].count(f"<title>{source} to {destination}: ") == 2


def test_page_one_and_annex_say_which_claims_are_confirmed(reports, site_runs):
    for name in RUNS:
        found = ReportDoc.model_validate_json(report_json(read_run(site_runs[name]))).conformance
        text = unescape(re.sub(r"<[^>]+>", "", reports[name]))
        assert found.sentence in text
        front = text[: text.index("Site and attention")]
        assert f"{found.counts['confirmed']} of {found.here} confirmed" in front
        assert f"{found.counts['not-measured']} not measured here" in front
        assert ("a rehearsal confirms none" in front) is found.rehearsal
        assert found.rehearsal is (name != "real")
        words = (
            "confirms no claim. " if found.rehearsal else f"{found.here} claims of the reference architecture concern"
        )
        assert words in found.sentence
        for line in found.claims:
            assert line.id in text
            assert (f'id="claim-{line.id}"' in reports[name]) is (line.state != "elsewhere")
            assert line.published is None or typeset(line.published) in text


def test_the_claims_of_a_report_are_those_that_the_run_began_with(tmp_path):
    run = make_run(tmp_path / "run", virtual=False)
    path = run / "reference" / "blog.yml"
    path.write_text(path.read_text().replace("id: blog.isolation", "id: blog.apart"))
    ids = [line.id for line in ReportDoc.model_validate_json(report_json(read_run(run))).conformance.claims]
    assert "blog.apart" in ids
    assert "blog.isolation" not in ids


def test_an_operating_system_that_is_only_shown_stands_there_as_a_stand_in(tmp_path):
    """Among what was found and beside what was declared: neither is a claim about that system."""
    documents = read_run(make_run(tmp_path / "run"))
    nodes = tuple(n.model_copy(update={"os_stand_in": "debian 13"}) for n in documents.topology.nodes)
    shown = system(replace(documents, topology=documents.topology.model_copy(update={"nodes": nodes})))
    words = "debian 12 (stand-in over debian 13)"
    assert [value.value for fact in shown.facts if fact.name == "Operating system" for value in fact.values] == [words]
    assert [part.found for part in shown.stack if part.part == "Operating system"] == [words]
    assert words not in str(system(documents))


def test_facts_stand_there_in_words(tmp_path):
    """What only the judge reads is left out: no reader can do anything with a record of the program."""
    topology = hardware(("gpu1",))
    planned = plan_of(topology, ("preflight",))
    facts = {
        "driver_libraries": {"files": [], "loaded": []},
        "library_env": {"settings": [], "unread": ""},
        "runc": "1.3",
    }
    found = [healthy(m, facts=FACTS | facts) for m in planned.measurements]
    run = write_run(tmp_path / "run", topology, planned, found)
    shown = {fact.name: fact.values[0].value for fact in system(read_run(run)).facts}
    assert shown["runc"] == "1.3"
    assert [name for name, value in shown.items() if "=" in value or "_" in name] == []
