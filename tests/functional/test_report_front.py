"""Page one, the system as built, how to repeat a measurement, the last page."""

from __future__ import annotations

import json
import re
import string
from pathlib import Path

import pytest
import weasyprint

from tests.support.page import Page
from tests.support.raw_case import judged_as_it_stands
from tests.support.report_fixture import make_run, planned_on, topology
from tests.support.site import provenance, result
from validation.model import CriterionVerdict, Endpoint, Judgement, Measurement, Subject, WaiverUse
from validation.report import criteria, write_html
from validation.report.customer import NAME, adopt
from validation.report.documents import read_run
from validation.report.render import fill, view
from validation.report.repeat import _repeat, repeats
from validation.report.summary import verdict_of
from validation.report.summary_page import _line_share, front, waiver_groups
from validation.report.words import LANGUAGES, front_words

pytestmark = pytest.mark.systems

SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 4"><rect width="4" height="4" fill="#0a5"/></svg>'


def front_of(run: Path):
    documents = read_run(run)
    verdict = verdict_of(documents)
    rows = [row for family in criteria.families(verdict, documents.catalogue, documents.fabric) for row in family.rows]
    return front(documents, verdict, rows)


# --- page one --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("clean", ("4 nodes of lab (1 head, 1 client, 2 GPU servers)", "{all} of {all}", "accepts no hardware")),
        ("slow", ("over virtual links of 1 Gbit/s", "1 failed, 0 were waived", "correct what failed")),
        ("dead", ("preflight, network transport, training", "{alive} of {all}", "an incomplete one")),
        ("real", ("on 10 Gbit/s Ethernet, TCP: ", "were waived, 0 were not measured", "both sides sign")),
        ("unjudged", ("On 2026-11-21", "0 passed", "verdict.json is missing")),
    ],
)
def test_three_sentences_say_what_was_tested_what_came_out_and_what_it_means(site_runs, name, words):
    sentences = front_of(site_runs[name]).sentences
    lost, planned = planned_on(site_runs[name], "gpu2")
    for sentence, part in zip(sentences, words, strict=True):
        assert part.format(all=planned, alive=planned - lost) in sentence
        assert sentence.endswith(".")
        assert "{" not in sentence


def test_the_suspect_is_named_in_the_second_sentence(site_runs):
    assert front_of(site_runs["slow"]).sentences[1].endswith("; at fault: gpu2/fab0.")
    assert "at fault" not in front_of(site_runs["clean"]).sentences[1]


def test_figures_that_matter_stand_there_measured_or_not(site_runs):
    lab = {f.label: f for f in front_of(site_runs["slow"]).figures}
    assert list(lab) == [
        "GPU over the network / native GPU",
        "Scaling inside a node",
        "Scaling across nodes",
        "Fabric, weakest pair",
        "Fractions of a GPU, sum / whole",
        "Memory of fractions, largest error",
    ]
    ratio = lab["GPU over the network / native GPU"]
    assert (ratio.value, ratio.verdict, ratio.chip) == (None, "not-measured", False)
    fabric = lab["Fabric, weakest pair"]
    assert fabric.value == "9.81 %"  # 0.0981 of the lab link's 1 Gbit/s
    assert fabric.note == "of 1 Gbit/s declared for the lab's link; median 54.1 %"
    assert lab["Scaling inside a node"].verdict_words == "not judged"  # measured, but virtual hardware proves nothing
    real = {f.label: f for f in front_of(site_runs["real"]).figures}
    assert real["Fabric, weakest pair"].note.startswith("of 10 Gbit/s line rate")
    assert real["Scaling inside a node"].verdict == "pass"


def test_share_of_the_line_rate_leaves_out_what_goes_both_ways(site_runs):
    a, b = (Endpoint(node=node, port="p") for node in "ab")

    def judged(about: Subject, value: float) -> Judgement:
        return Judgement(
            criterion="tr.rdmabw", about=about, verdict="pass", reason_code="within-bounds", reason="", value=value
        )

    criterion = CriterionVerdict(
        id="tr.rdmabw", statement="", source="", required=True, owed=True, not_owed="",
        verdict="pass", reason_code="within-bounds", reason="",
        coverage="", judgements=(
            judged(Subject.pair(a, b, "write"), 9.5), judged(Subject.pair(b, a, "write"), 9.3),
            judged(Subject.pair(a, b, "read"), 9.6), judged(Subject.pair(a, b, "write", both_ways=True), 4.0),
        ),
    )  # fmt: skip
    value, note = _line_share(read_run(site_runs["real"]), criterion, front_words("en"))
    assert value == "93 %"
    assert "median 94 %" in note  # of the writes


def test_page_one_names_what_keeps_a_run_incomplete(tmp_path, site_runs):
    lines = front_of(site_runs["dead"]).missing
    lost, planned = planned_on(site_runs["dead"], "gpu2")
    assert lines[0] == f"{lost} of {planned} planned measurements have no usable result."
    assert lines[1].startswith("These criteria could not be decided: pf.bom, pf.stack, ")
    assert "pf.rdmaport" not in lines[1]  # not applicable on this fabric
    assert front_of(site_runs["clean"]).missing == front_of(site_runs["slow"]).missing == ()
    hardware = make_run(tmp_path / "run", virtual=False)  # nothing waived, so much that is required is open
    assert "rm.layout" in front_of(hardware).missing[0]


def test_waivers_say_who_until_when_and_why_and_stand_together(site_runs):
    page = front_of(site_runs["real"])
    assert [w.by for w in page.waivers] == ["A. Example, 2026-11-20, until 2027-11-20"]
    assert page.waivers[0].why == "not part of this delivery"
    judged = read_run(site_runs["real"]).verdict.criteria
    assert set(page.waivers[0].ids) == {c.id for c in judged if c.verdict == "waived"}
    assert waiver_groups(verdict_of(read_run(site_runs["clean"])).waivers, front_words("en")) == ()


def test_a_waiver_without_effect_does_not_stand_on_page_one():
    use = WaiverUse(
        criterion="tr.tcpbw", subject="a", who="B. Boss, CTO", when="2026-11-20", expires="2027-01-01", why="old cable",
        covered=("a",), without_effect="",
    )  # fmt: skip
    idle = use.model_copy(update={"criterion": "tr.netlat", "covered": (), "without_effect": "nothing to waive"})
    (group,) = waiver_groups([use, idle], front_words("en"))
    assert (group.by, group.ids) == ("B. Boss, CTO, 2026-11-20, until 2027-01-01", ("tr.tcpbw",))


def test_all_languages_have_the_same_words_and_placeholders():
    def leaves(value, path=()):
        if isinstance(value, dict):
            return {k: v for key, sub in value.items() for k, v in leaves(sub, (*path, key)).items()}
        return {path: {field for _, field, _, _ in string.Formatter().parse(value) if field}}

    first = leaves(front_words("en").model_dump())
    for language in LANGUAGES:
        assert leaves(front_words(language).model_dump()) == first


@pytest.mark.parametrize("language", LANGUAGES)
def test_page_one_is_one_a4_page_even_when_it_is_full(tmp_path, language):
    run = make_run(tmp_path / "run", virtual=False, slow="gpu2", waive=True)
    document = json.loads((run / "verdict.json").read_text())
    waived = [c for c in document["criteria"] if c["verdict"] == "waived"]
    for number, waiver in enumerate(document["waivers"]):
        waiver |= {"who": f"Person {number} of a Company", "why": "why " * 60}
    for criterion in waived[:12]:
        criterion |= {"verdict": "fail", "reason_code": "below-floor"}
    document |= {"sign_off": "REJECTED", "outcome": "failed", "missing": ["facts.head"]}
    (run / "verdict.json").write_text(json.dumps(document))
    words = {key: "Wort " * 16 for key in ("customer", "site", "project", "contact")}
    (tmp_path / "logo.svg").write_text(SVG)
    (tmp_path / NAME).write_text(json.dumps({**words, "language": language, "logo": "logo.svg"}))
    adopt(tmp_path / NAME, run)
    html = fill(view(read_run(run)), printed=True)
    styles = "".join(re.findall(r"<style>.*?</style>", html, re.DOTALL))
    (header,) = re.findall(r'<header class="front[ "].*?</header>', html, re.DOTALL)
    assert header.count("<li>") >= 12
    assert header.count('class="line"') == 6  # who signs, when, and where
    page = f"<!doctype html><html><head>{styles}</head><body><main>{header}</main></body></html>"
    assert len(weasyprint.HTML(string=page).render().pages) == 1


# --- as built, method, last page -------------------------------------------------------------------------------


def edit_facts(run: Path, node: str, **facts: object) -> None:
    lines = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    for line in lines:
        if line["measurement"] == f"facts.{node}":
            line["facts"] |= facts
    (run / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run / "verdict.json").write_text(judged_as_it_stands(run).model_dump_json())


def test_bill_of_materials_shows_declared_against_found_and_marks_what_differs(tmp_path):
    run = make_run(tmp_path / "run", virtual=False)
    edit_facts(
        run,
        "gpu2",
        nic_model="ConnectX-4",
        docker="19.03",
        fabric_ports=[{"interface": "fab0", "operstate": "up", "mtu": 9000}],
    )
    text = write_html(run).read_text()
    assert '<td><span class="odd">ConnectX-4</span></td><td>NO</td><td>gpu2</td>' in text
    assert "<td>ConnectX-5</td><td>yes</td><td>head, client1, gpu1</td>" in text
    assert '<td><span class="odd">19.03</span></td><td>NO</td><td>gpu2</td>' in text
    assert '<th scope="row">GPU model</th><td>none</td><td>none</td><td>yes</td>' in text
    assert "not confirmed" in text  # the rate of ports that say none


def test_odd_node_is_marked_within_its_group_only(tmp_path):
    run = make_run(tmp_path / "run")
    document = json.loads((run / "topology.json").read_text())
    for node in document["nodes"]:
        node["groups"] = ["gpu_servers"] if node["name"] != "client1" else ["clients"]
    (run / "topology.json").write_text(json.dumps(document))
    edit_facts(run, "gpu2", kernel="5.10.0")
    edit_facts(run, "client1", kernel="6.12.0")
    text = write_html(run).read_text()
    assert '5.10.0</td><td>gpu2 <span class="odd">gpu2</span></td>' in text
    assert "6.12.0</td><td>client1</td>" in text  # another group: different, and not odd


def test_each_kind_has_a_command_to_repeat(site_runs):
    documents = read_run(site_runs["clean"])
    found = {r.tool: r for r in reversed(repeats(documents))}  # the first of each
    assert set(found) == {
        "facts 0.1.0",
        "probes 0.1.0",
        "ping 20221126",
        "iperf3 3.12",
        "sockperf 3.7",
        "mpirun + horovod 4.1.4 + 0.28.1",
        "torch 1.13.1",
    }
    iperf = found["iperf3 3.12"]
    assert iperf.server == "iperf3 -s -p 5201"
    assert iperf.other != iperf.node
    assert iperf.command.startswith("iperf3 -c 10.78.0.")
    assert found["facts 0.1.0"].command.endswith('/python -m validation.probes facts \'{"interfaces": ["fab0"]}\'')
    assert repeats(read_run(site_runs["unjudged"]))  # from what there is


def test_command_to_repeat_names_the_other_end_and_no_folder_that_is_gone():
    measurement = Measurement(
        id="m", suite="transport", kind="rdma-bandwidth", nodes=("a", "b"), criteria=(), estimated_s=1, timeout_s=1,
        endpoints=({"node": "a", "port": "p"}, {"node": "b", "port": "p"}),
    )  # fmt: skip
    command = ("ib_write_bw", "-d", "mlx5_0", "--out_json", "--out_json_file=/tmp/elastic-ai-x/report.json", "10.0.0.2")
    measured = result(measurement, provenance=provenance(("a",), tool="ib_write_bw", command=command))
    repeat = _repeat(topology(), measurement, measured, 1)
    assert (repeat.other, repeat.server) == ("b", "ib_write_bw -d mlx5_0")
    assert repeat.command == "ib_write_bw -d mlx5_0 --out_json --out_json_file=/tmp/report.json 10.0.0.2"


@pytest.mark.parametrize(
    ("name", "namespace"), [("clean", "rehearsal"), ("real", "acceptance"), ("unjudged", "incomplete")]
)
def test_last_page_tells_how_to_check_without_the_toolkit(site_runs, name, namespace):
    text = Page(write_html(site_runs[name], site_runs[name].parent / f"{name}.html").read_text()).text
    assert "sha256sum --quiet -c MANIFEST.sha256" in text
    assert f"ssh-keygen -Y verify -f ../allowed_signers -I NAME -n elastic-ai-{namespace} -s" in text
