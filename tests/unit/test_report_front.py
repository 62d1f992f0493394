"""Page one, the system as built, how to repeat, the customer's words and a partner's templates."""

from __future__ import annotations

import json
import re
import shutil
import string
from pathlib import Path

import pytest
import weasyprint
from click.testing import CliRunner
from report_fixture import make_run, topology
from test_report import Page

from toolkit.cli import cli
from toolkit.customer_words import find_words
from validation.fabric import load_fabric
from validation.load import ConfigError
from validation.model import CriterionVerdict, Judgement, Measurement, Provenance, Result
from validation.rejudge import judge_files
from validation.report import criteria, write_html
from validation.report.customer import FILES, LOGO_MAX_BYTES, NAME, adopt, load_customer
from validation.report.documents import read_run
from validation.report.front import _line_share, front, waiver_groups
from validation.report.partner import partner_blocks
from validation.report.render import fill, view
from validation.report.repeat import _repeat, repeats
from validation.report.summary import verdict_of
from validation.report.words import LANGUAGES, front_words

RUNS = {
    "clean": {},
    "slow": {"slow": "gpu2"},
    "dead": {"dead": "gpu2"},
    "real": {"virtual": False, "waive": True},
    "unjudged": {"judged": False, "cut_after": 20},
}
SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 4"><rect width="4" height="4" fill="#0a5"/></svg>'
PNG = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89"
    b"\x00\x00\x00\rIDATx\x9cc\xf8\xcf\xc0\xf0\x1f\x00\x05\x00\x01\xff\x89\x99=\x1d\x00\x00\x00\x00IEND\xaeB`\x82"
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    base = tmp_path_factory.mktemp("runs")
    return {name: make_run(base / name, **how) for name, how in RUNS.items()}


def front_of(run: Path):
    documents = read_run(run)
    verdict = verdict_of(documents)
    rows = [row for family in criteria.families(verdict, documents.catalogue) for row in family.rows]
    return front(documents, verdict, rows)


# --- page one --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("clean", ("4 nodes of lab (1 head, 1 client, 2 GPU servers)", "43 of 43", "accepts no hardware")),
        ("slow", ("over virtual links of 1 Gbit/s", "1 failed, 0 were waived", "correct what failed")),
        ("dead", ("preflight, network transport, training", "23 of 43", "an incomplete one")),
        ("real", ("on 10 Gbit/s Ethernet, TCP: ", "27 were waived, 0 were not measured", "both sides sign")),
        ("unjudged", ("On 2026-11-21", "0 passed", "verdict.json is missing")),
    ],
)
def test_three_sentences_say_what_was_tested_what_came_out_and_what_it_means(runs, name, words):
    sentences = front_of(runs[name]).sentences
    for sentence, part in zip(sentences, words, strict=True):
        assert part in sentence
        assert sentence.endswith(".")
        assert "{" not in sentence


def test_the_guilty_is_named_in_the_second_sentence(runs):
    assert front_of(runs["slow"]).sentences[1].endswith("; at fault: gpu2/fab0.")
    assert "at fault" not in front_of(runs["clean"]).sentences[1]


def test_figures_that_matter_stand_there_measured_or_not(runs):
    lab = {f.label: f for f in front_of(runs["slow"]).figures}
    assert list(lab) == [
        "GPU over the network / native GPU",
        "Scaling inside a node",
        "Scaling across nodes",
        "Fabric, weakest pair",
        "Fractions of a GPU, sum / whole",
    ]
    ratio = lab["GPU over the network / native GPU"]
    assert (ratio.value, ratio.verdict, ratio.chip) == (None, "not-measured", False)
    fabric = lab["Fabric, weakest pair"]
    assert fabric.value == "9.81 %"  # 0.0981 of the lab link's 1 Gbit/s
    assert fabric.note == "of 1 Gbit/s declared for the lab's link; median 54.1 %"
    assert lab["Scaling inside a node"].verdict_words == "not judged"  # measured, but virtual hardware proves nothing
    real = {f.label: f for f in front_of(runs["real"]).figures}
    assert real["Fabric, weakest pair"].note.startswith("of 10 Gbit/s line rate")
    assert real["Scaling inside a node"].verdict == "pass"


def test_share_of_the_line_rate_leaves_out_what_goes_both_ways(runs):
    def judged(subject: str, value: float) -> Judgement:
        return Judgement(
            criterion="tr.rdmabw", subject=subject, verdict="pass", reason_code="within-bounds", reason="", value=value
        )

    criterion = CriterionVerdict(
        id="tr.rdmabw", statement="", source="", required=True, verdict="pass", reason_code="within-bounds", reason="",
        coverage="", judgements=(
            judged("a/p>b/p (write)", 9.5), judged("b/p>a/p (write)", 9.3), judged("a/p>b/p (read)", 9.6),
            judged("a/p>b/p (write, both ways)", 4.0),
        ),
    )  # fmt: skip
    value, note = _line_share(read_run(runs["real"]), criterion, front_words("en"))
    assert value == "93 %"
    assert "median 94 %" in note  # of the writes


def test_page_one_names_what_keeps_a_run_incomplete(tmp_path, runs):
    lines = front_of(runs["dead"]).missing
    assert lines[0] == "20 of 43 planned measurements have no usable result."
    assert lines[1].startswith("These criteria could not be decided: pf.bom, pf.stack, ")
    assert "pf.rdmaport" not in lines[1]  # not applicable on this fabric
    assert front_of(runs["clean"]).missing == front_of(runs["slow"]).missing == ()
    hardware = make_run(tmp_path / "run", virtual=False)  # nothing waived, so much that is required is open
    assert "tr.h2d" in front_of(hardware).missing[0]


def test_waivers_say_who_until_when_and_why_and_stand_together(runs):
    page = front_of(runs["real"])
    assert [w.by for w in page.waivers] == ["A. Example, until 2027-11-20"]
    assert page.waivers[0].why == "not part of this delivery"
    assert len(page.waivers[0].ids) == 27
    assert waiver_groups(verdict_of(read_run(runs["clean"])).criteria, front_words("en")) == ()


def test_waiver_of_one_subject_is_named_without_what_it_was():
    words = "waived by B. Boss, CTO on 2026-11-20 until 2027-01-01: old cable (was fail: below: the floor)"
    judgement = Judgement(criterion="tr.tcpbw", subject="a", verdict="waived", reason_code="waived", reason=words)
    criterion = CriterionVerdict(
        id="tr.tcpbw", statement="", source="", required=True, verdict="waived", reason_code="waived", reason="1 of 2",
        coverage="", judgements=(judgement,),
    )  # fmt: skip
    (group,) = waiver_groups([criterion], front_words("en"))
    assert (group.by, group.why, group.ids) == ("B. Boss, CTO, until 2027-01-01", "old cable", ("tr.tcpbw",))


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
    for number, criterion in enumerate(waived):
        criterion["reason"] = f"waived by Person {number} of a Company on 2026-11-20 until 2027-11-20: {'why ' * 60}"
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
    (header,) = re.findall(r'<header class="front".*?</header>', html, re.DOTALL)
    assert header.count("<li>") >= 12
    page = f"<!doctype html><html><head>{styles}</head><body><main>{header}</main></body></html>"
    assert len(weasyprint.HTML(string=page).render().pages) == 1


# --- as built, method, last page -------------------------------------------------------------------------------


def edit_facts(run: Path, node: str, **facts: object) -> None:
    lines = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    for line in lines:
        if line["measurement"] == f"facts.{node}":
            line["facts"] |= facts
    (run / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run / "verdict.json").write_text(judge_files(run).model_dump_json())


def test_bill_of_materials_shows_declared_against_found_and_marks_what_differs(tmp_path):
    run = make_run(tmp_path / "run", virtual=False)
    edit_facts(run, "gpu2", nic_model="ConnectX-4", docker="19.03")
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


def test_each_kind_has_a_command_to_repeat(runs):
    documents = read_run(runs["clean"])
    found = {r.tool: r for r in repeats(documents)}
    assert set(found) == {
        "facts 0.1.0",
        "ping 20221126",
        "iperf3 3.12",
        "sockperf 3.7",
        "mpirun + horovod 4.1.4 + 0.28.1",
    }
    iperf = found["iperf3 3.12"]
    assert iperf.server == "iperf3 -s -p 5201"
    assert iperf.other != iperf.node
    assert iperf.command.startswith("iperf3 -c 10.78.0.")
    assert found["facts 0.1.0"].command.endswith("/python -m validation.probes facts --interface fab0")
    assert repeats(read_run(runs["unjudged"]))  # from what there is


def test_command_to_repeat_names_the_other_end_and_no_folder_that_is_gone():
    measurement = Measurement(
        id="m", suite="transport", kind="rdma-bandwidth", nodes=("a", "b"), criteria=(), estimated_s=1, timeout_s=1,
        endpoints=({"node": "a", "port": "p"}, {"node": "b", "port": "p"}),
    )  # fmt: skip
    command = ("ib_write_bw", "-d", "mlx5_0", "--out_json", "--out_json_file=/tmp/elastic-ai-x/report.json", "10.0.0.2")
    provenance = Provenance(
        nodes=("a",), tool="ib_write_bw", tool_version="6", command=command, started="", ended="", duration_s=1
    )
    repeat = _repeat(topology(), measurement, Result(measurement="m", status="ok", provenance=provenance), 1)
    assert (repeat.other, repeat.server) == ("b", "ib_write_bw -d mlx5_0")
    assert repeat.command == "ib_write_bw -d mlx5_0 --out_json --out_json_file=/tmp/report.json 10.0.0.2"


@pytest.mark.parametrize(
    ("name", "namespace"), [("clean", "rehearsal"), ("real", "acceptance"), ("unjudged", "incomplete")]
)
def test_last_page_tells_how_to_check_without_the_toolkit(runs, name, namespace):
    text = Page(write_html(runs[name], runs[name].parent / f"{name}.html").read_text()).text
    assert "sha256sum --quiet -c MANIFEST.sha256" in text
    assert f"ssh-keygen -Y verify -f allowed_signers -I NAME -n elastic-ai-{namespace} -s" in text


# --- the customer's words --------------------------------------------------------------------------------------


def write_words(folder: Path, text: str, **files: str | bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NAME).write_text(text)
    for name, content in files.items():
        path = folder / name.replace("__", ".")
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / NAME


def test_words_stand_on_page_one_and_travel_with_the_run(tmp_path):
    run = make_run(tmp_path / "run")
    path = write_words(
        tmp_path / "words", "customer: Müller & <Söhne>\nsite: Halle 2\nlogo: l.svg\nlanguage: de\n", l__svg=SVG
    )
    adopt(path, run)
    shutil.rmtree(path.parent)
    text = write_html(run).read_text()
    assert "Müller &amp; &lt;Söhne&gt;: 10 Gbit/s Ethernet, TCP</h1>" in text
    assert "<dd>Halle 2 (lab)</dd>" in text
    assert '<header class="front" lang="de">' in text
    assert "Knoten von Halle 2" in text
    assert 'src="data:image/svg+xml;base64,' in text
    moved = run.rename(tmp_path / "elsewhere")
    assert write_html(moved, tmp_path / "again.html").read_text() == text


def test_words_can_be_replaced_and_leave_nothing_behind(tmp_path):
    run = make_run(tmp_path / "run")
    adopt(write_words(tmp_path / "a", "customer: First\nlogo: l.png\n", l__png=PNG), run)
    assert 'src="data:image/png;base64,' in write_html(run).read_text()
    adopt(write_words(tmp_path / "b", "customer: Second\n"), run)
    assert not (run / FILES).exists()
    text = write_html(run).read_text()
    assert "Second" in text
    assert "First" not in text
    assert "data:image" not in text
    adopt(run / NAME, run)  # onto itself: nothing to do
    assert write_html(run).read_text() == text


SCRIPT = SVG.replace("<rect", "<script>alert(1)</script><rect")
BAD_WORDS = {
    "unknown key": ("custommer: X\n", {}, ":1: custommer: unknown key"),
    "unknown language": ("customer: X\nlanguage: fr\n", {}, ":2: language: "),
    "too long": (f"customer: {'x' * 81}\n", {}, ":1: customer: "),
    "control character": ('site: "a\\nb"\n', {}, ":1: site: "),
    "logo is missing": ("customer: X\nlogo: no.png\n", {}, ":2: logo: no.png: No such file"),
    "logo is too large": ("logo: l.png\n", {"l__png": PNG + b"0" * LOGO_MAX_BYTES}, ":1: logo: l.png: larger than 256"),
    "logo is no picture": ("logo: l.png\n", {"l__png": "hello"}, "neither PNG nor SVG"),
    "logo is HTML": ("logo: l.svg\n", {"l__svg": "<html/>"}, "neither PNG nor SVG"),
    "logo is huge": ("logo: l.png\n", {"l__png": PNG[:16] + b"\xff" * 8 + PNG[24:]}, "not a PNG of at most"),
    "logo runs a script": ("logo: l.svg\n", {"l__svg": SCRIPT}, "holds <script>"),
    "logo has a handler": ("logo: l.svg\n", {"l__svg": SVG.replace("<rect", '<rect onclick="x()"')}, "onclick"),
    "logo fetches": ("logo: l.svg\n", {"l__svg": SVG.replace("#0a5", "url(http://x/y)")}, "runs or fetches"),
    "logo has entities": ("logo: l.svg\n", {"l__svg": "<!DOCTYPE svg>" + SVG}, "DOCTYPE"),
    "no templates": ("templates: none\n", {}, ":1: templates: none: no such folder"),
}


@pytest.mark.parametrize("name", BAD_WORDS)
def test_bad_words_are_one_line_with_file_and_line(tmp_path, name):
    text, files, said = BAD_WORDS[name]
    path = write_words(tmp_path / "words", text, **files)
    run = tmp_path / "run"
    run.mkdir()
    with pytest.raises(ConfigError) as caught:
        adopt(path, run)
    assert str(caught.value).startswith(f"{path}:")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(run.iterdir()) == []


def test_words_are_found_beside_the_inventory_or_named(tmp_path):
    hosts = tmp_path / "site" / "hosts.yml"
    what = (load_fabric("tcp10"), topology())
    assert find_words(None, tmp_path / "site", *what) is None
    beside = write_words(tmp_path / "site", "customer: X\n")
    hosts.write_text("all: {}\n")
    assert find_words(None, tmp_path / "site", *what) == find_words(None, hosts, *what) == beside
    named = write_words(tmp_path / "other", "customer: Y\n")
    assert find_words(named, hosts, *what) == named
    named.write_text("custommer: Y\n")
    with pytest.raises(ConfigError, match="unknown key"):
        find_words(named, hosts, *what)
    with pytest.raises(ConfigError, match=r"words/ours/_intro\.html:2: 'nodez' is undefined"):
        find_words(partner(tmp_path, _intro="\n{{ nodez }}"), hosts, *what)  # before anything is measured
    with pytest.raises(ConfigError, match="no such file"):
        find_words(tmp_path / "none.yml", hosts, *what)


def test_report_takes_words_and_refuses_them_once_somebody_has_signed(tmp_path, runs):
    run = shutil.copytree(runs["clean"], tmp_path / "run")
    words = str(write_words(tmp_path / "words", "customer: Newcomer\n"))
    done = CliRunner().invoke(cli, ["report", str(run), "--format", "html", "--words", words])
    assert done.exit_code == 0
    assert "Newcomer" in (run / "report.html").read_text()
    (run / "signatures").mkdir()
    (run / "signatures" / "01-x.txt.sig").write_text("signed")
    done = CliRunner().invoke(cli, ["report", str(run), "--format", "html", "--words", words])
    assert done.exit_code == 2
    assert "is signed, so nothing in it may change" in done.output


def test_words_of_an_old_run_are_changed_by_report(tmp_path):
    done = CliRunner().invoke(cli, ["validate", "--resume", "x", "--words", str(tmp_path / NAME)])
    assert done.exit_code == 2
    assert "toolkit report RUN --words FILE" in done.output


# --- a partner's templates -------------------------------------------------------------------------------------


def partner(tmp_path: Path, **templates: str) -> Path:
    folder = tmp_path / "words" / "ours"
    folder.mkdir(parents=True)
    for name, text in templates.items():
        (folder / f"{name}.html").write_text(text)
    return write_words(tmp_path / "words", "customer: ACME\ntemplates: ours\n")


def test_partner_adds_words_and_changes_no_verdict(tmp_path):
    run = make_run(tmp_path / "run", slow="gpu2")
    plain = Page(write_html(run).read_text())
    adopt(
        partner(
            tmp_path,
            _head='<p class="ours">Partner &amp; Co</p><h1>{{ customer.customer }}: {{ info.run }}</h1>',
            _intro="<p>{% for n in nodes %}{{ n.name }} {% endfor %}</p>",
            _closing='<p>Yours, <a href="mailto:a@example.com">Partner</a>; {{ sign_off }}</p>',
        ),
        run,
    )
    page = Page(write_html(run).read_text())
    assert "Partner & Co ACME: 2026-11-21T10-15-00Z-tcp10" in page.text
    assert "head client1 gpu1 gpu2" in page.text
    assert "Yours, Partner ; REHEARSAL" in page.text
    assert "_closing.html, _head.html, _intro.html come from a partner's template" in page.text
    assert set(plain.ids) == set(page.ids)
    assert "Outcome: FAILED" in page.text


BAD_TEMPLATES = {
    "syntax": ("_intro", "<p>\n{% if %}</p>", r"_intro\.html:2: Expected an expression"),
    "unknown name": ("_intro", "<p>\n\n{{ nodez }}</p>", r"_intro\.html:3: 'nodez' is undefined"),
    "way out of the sandbox": ("_intro", "{{ ''.__class__.__mro__ }}", r"_intro\.html:1: .*unsafe"),
    "division": ("_intro", "a\n{{ 1 / 0 }}", r"_intro\.html:2: ZeroDivisionError"),
    "endless": ("_intro", "{% for a in range(9) %}{% endfor %}", r"_intro\.html:1: 'range' is undefined"),
    "long string": ("_intro", "{{ 'a' * 99 }}", r"_intro\.html:1: \* is for small numbers"),
    "script": ("_intro", "<script>1</script>", r"_intro\.html:1: <script> is not allowed"),
    "style": ("_intro", "<style>.mark{display:none}</style>", r"<style> is not allowed"),
    "style attribute": ("_intro", '<p style="x">a</p>', r"the attribute style"),
    "hides the rest": ("_intro", "<div hidden>", r"the attribute hidden"),
    "comments out the rest": ("_intro", "<p>a</p><!-- x -->", r"HTML comments"),
    "swallows the rest": ("_intro", "<div><p>a</p>", r"<div> is never closed"),
    "ends inside a tag": ("_intro", '<p>a</p><a href="', r"ends inside a tag"),
    "closes ours": ("_intro", "</section><p>a</p>", r"</section> closes nothing"),
    "another verdict": ("_intro", '<p class="word">ACCEPTED</p>', r"class 'word' states a verdict"),
    "loads a picture": ("_intro", '<img src="https://example.com/x.png" alt="">', r"leads out of the file"),
    "second heading": ("_intro", "<h1>a</h1>", r"<h1> is not allowed"),
    "no heading": ("_head", "<p>a</p>", r"has 0 <h1>"),
    "verdict's own": ("_criteria", "<p>a</p>", r"_criteria\.html cannot be overridden; there are: _head\.html"),
}


@pytest.mark.parametrize("name", BAD_TEMPLATES)
def test_template_that_cannot_be_used_is_one_line_with_file_and_line(tmp_path, runs, name):
    template, text, said = BAD_TEMPLATES[name]
    run = shutil.copytree(runs["clean"], tmp_path / "run")

    def use() -> None:
        adopt(partner(tmp_path, **{template: text}), run)
        documents = read_run(run)
        partner_blocks(documents, verdict_of(documents))

    with pytest.raises(ConfigError, match=said) as caught:
        use()
    assert "\n" not in str(caught.value)


def test_template_error_leaves_no_report(tmp_path, runs):
    run = shutil.copytree(runs["clean"], tmp_path / "run")
    adopt(partner(tmp_path, _intro="{{ nodez }}"), run)
    with pytest.raises(ConfigError, match=r"^report-files/templates/_intro\.html:1: 'nodez' is undefined"):
        write_html(run)
    assert not (run / "report.html").exists()


def test_packaged_words_load_and_an_empty_file_is_refused(tmp_path):
    assert load_customer(write_words(tmp_path / "a", "customer: X\n")).language == "en"
    with pytest.raises(ConfigError, match="a mapping of keys is expected"):
        load_customer(write_words(tmp_path / "b", ""))
