"""The report's other formats: whole, read by others' libraries, the same every time, never greener than the run."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator
from junitparser import Error, Failure, JUnitXml, Skipped
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families

from tests.support.report_fixture import RUNS, make_run
from toolkit.cli import cli
from validation.model.load import ConfigError
from validation.report import FILES, make, write_formats
from validation.report.documents import read_run
from validation.report.json_entries import json_schema
from validation.report.openmetrics import unit_of
from validation.report.pdf import PdfUnavailable, pdf_bytes
from validation.rules.reference import packaged
from validation.run.catalogue import load_criteria

pytestmark = pytest.mark.systems

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "schema" / "report-2.json"
PLAIN = ("html", "json", "junit", "prom")


@pytest.fixture(scope="module")
def made(site_runs):
    """Run -> format -> bytes, PDF not among them."""
    return {name: make(read_run(site_runs[name]), PLAIN)[0] for name in RUNS}


# --- JSON ------------------------------------------------------------------------------------------------------


def test_published_schema_is_the_models():
    assert json.loads(SCHEMA.read_text()) == json_schema(), (
        "docs/schema/report-2.json is stale; see docs/reference/report.md"
    )


@pytest.mark.parametrize("name", RUNS)
def test_json_keeps_to_its_schema_and_holds_everything(made, site_runs, name):
    schema = json.loads(SCHEMA.read_text())
    Draft202012Validator.check_schema(schema)
    document = json.loads(made[name]["json"])
    Draft202012Validator(schema).validate(document)
    assert document["schema"] == "elastic-ai-report/2"
    assert [c["id"] for c in document["criteria"]] == [c.id for c in load_criteria()]
    lines = (site_runs[name] / "results.jsonl").read_text().split("\n")
    hashes = [json.loads(line)["provenance"]["raw"][0]["sha256"] for line in lines if line.endswith("}")]
    assert sorted(r["raw"][0]["sha256"] for r in document["results"]) == sorted(hashes)
    assert document["rehearsal"] is (name != "real")
    assert document["judged"] is not name.startswith("un")
    text = made[name]["json"].decode()
    assert "key_file" not in text
    assert '"ssh"' not in text


def test_json_judgements_lead_to_their_bounds_and_decide(made):
    document = json.loads(made["slow"]["json"])
    criterion = next(c for c in document["criteria"] if c["id"] == "tr.tcpbw")
    decisive = criterion["judgements"][criterion["decisive"]]
    assert decisive["verdict"] == "fail"
    assert document["bounds"][decisive["bound"]]["floor"] == pytest.approx(0.9405, rel=1e-3)
    assert len(document["bounds"]) < sum(len(c["judgements"]) for c in document["criteria"])
    assert document["findings"][0]["subject"] == "gpu2/fab0"
    one = next(r for r in document["results"] if r["measurement"].startswith("tcp-bandwidth"))
    assert one["samples"][0]["count"] == 12
    assert one["samples"][0]["minimum"] <= one["samples"][0]["median"] <= one["samples"][0]["maximum"]


def test_json_names_who_waived(made):
    waivers = json.loads(made["real"]["json"])["waivers"]
    assert waivers
    assert all("waived by A. Example" in w["words"] for w in waivers)


def test_json_has_a_line_for_every_claim(made):
    founding = [c.id for c in packaged().claims.values() if packaged().document(c).founding]
    for name in RUNS:
        found = json.loads(made[name]["json"])["conformance"]
        assert [c["id"] for c in found["claims"]] == founding
        assert sum(found["counts"].values()) == len(founding)
        assert found["rehearsal"] is (name != "real")
        assert name == "real" or found["counts"]["confirmed"] == found["counts"]["missed"] == 0


# --- JUnit -----------------------------------------------------------------------------------------------------


def cases(content: bytes) -> dict[str, object]:
    return {case.name: case for suite in JUnitXml.fromstring(content) for case in suite}


def kinds(case: object) -> list[type]:
    return [type(r) for r in case.result]


@pytest.mark.parametrize("name", RUNS)
def test_junit_is_read_by_others_and_only_a_pass_is_green(made, name):
    xml = JUnitXml.fromstring(made[name]["junit"])
    document = json.loads(made[name]["json"])
    found = cases(made[name]["junit"])
    for criterion in document["criteria"]:
        assert (kinds(found[criterion["id"]]) == []) is (criterion["verdict"] == "pass"), criterion["id"]
    for suite in xml:
        properties = {p.name: p.value for p in suite.properties()}
        assert properties["rehearsal"] == ("false" if name == "real" else "true")
        assert properties["sign_off"] == document["sign_off"]
        assert suite.tests == len(list(suite))
    green = sum(kinds(case) == [] for case in found.values())
    claims = document["conformance"]["counts"]["confirmed"]
    assert green == document["counts"]["pass"] + claims + (name == "real")  # the sign-off is green once accepted


def test_junit_tells_failed_from_missing_from_not_asked_for(made):
    slow, dead = cases(made["slow"]["junit"]), cases(made["dead"]["junit"])
    assert kinds(slow["tr.tcpbw"]) == [Failure]
    assert kinds(slow["tr.tcpbw head/fab0>gpu2/fab0"]) == [Failure]
    assert kinds(slow["sign-off"]) == [Failure]
    assert kinds(slow["co.gemm"]) == [Skipped]
    assert kinds(dead["tr.tcpbw"]) == [Error]
    assert kinds(dead["sign-off"]) == [Error]
    assert kinds(cases(made["clean"]["junit"])["sign-off"]) == [Skipped]  # a rehearsal accepts nothing
    assert kinds(cases(made["unjudged"]["junit"])["tr.tcpbw"]) == [Error]
    assert "No route" in dead["tr.tcpbw"].result[0].message  # with what XML cannot hold replaced


@pytest.mark.parametrize("name", RUNS)
def test_junit_has_a_case_for_each_claim_of_the_site(made, name):
    claims = {c["id"]: c for c in json.loads(made[name]["json"])["conformance"]["claims"] if c["state"] != "elsewhere"}
    suite = next(s for s in JUnitXml.fromstring(made[name]["junit"]) if s.name == "Reference architecture")
    found = {case.name: case.result[0] if case.result else None for case in suite}
    assert found.keys() == claims.keys()
    for id_, outcome in found.items():
        wanted = {"confirmed": type(None), "missed": Failure}.get(claims[id_]["state"], Skipped)
        assert type(outcome) is wanted
        assert outcome is None or claims[id_]["document"] in outcome.message


# --- OpenMetrics -----------------------------------------------------------------------------------------------


def families(content: bytes) -> dict[str, object]:
    return {f.name: f for f in openmetrics_parser.text_string_to_metric_families(content.decode())}


@pytest.mark.parametrize("name", RUNS)
def test_metrics_are_read_by_others_and_every_criterion_says_one_verdict(made, name):
    text = made[name]["prom"].decode()
    assert text.endswith("# EOF\n")
    found = families(made[name]["prom"])
    assert {f.name for f in text_string_to_metric_families(text)} == set(found)  # the older format's parser too
    document = json.loads(made[name]["json"])
    told = [s for s in found["elastic_ai_criterion_verdict"].samples if s.value == 1]
    assert {s.labels["criterion"]: s.labels["verdict"] for s in told} == {
        c["id"]: c["verdict"] for c in document["criteria"]
    }
    assert len(told) == len(document["criteria"])
    state = [s.labels["state"] for s in found["elastic_ai_sign_off"].samples if s.value == 1]
    assert state == [document["sign_off"]]
    for family in found.values():
        assert family.documentation
        for sample in family.samples:
            assert {"run", "site", "fabric", "sign_off"} <= set(sample.labels)
            assert sample.timestamp is None


def test_metrics_are_in_base_units(made):
    found = families(made["slow"]["prom"])
    family = found["elastic_ai_measured_bits_per_second"]
    assert family.unit == "bits_per_second"
    values = {s.labels["subject"]: s.value for s in family.samples if s.labels["criterion"] == "tr.tcpbw"}
    assert values["head/fab0>client1/fab0"] == pytest.approx(0.985e9, rel=0.01)
    assert values["head/fab0>gpu2/fab0"] == pytest.approx(0.098e9, rel=0.01)
    rtt = found["elastic_ai_measured_seconds"].samples[0].value
    assert 50e-6 < rtt < 80e-6
    floor = found["elastic_ai_bound_floor_bits_per_second"].samples
    assert [s.value for s in floor if s.labels["criterion"] == "tr.tcpbw"] == [pytest.approx(0.9405e9, rel=1e-3)]
    passed = {s.labels["subject"]: s.value for s in found["elastic_ai_subject_passed"].samples
              if s.labels["criterion"] == "tr.tcpbw"}  # fmt: skip
    assert passed["head/fab0>gpu2/fab0"] == 0
    assert passed["head/fab0>client1/fab0"] == 1


def test_an_unknown_unit_keeps_its_name_and_value():
    assert unit_of("steps/s") == ("steps_per_second", 1.0)
    assert unit_of("°C") == ("c", 1.0)
    assert unit_of("") == ("count", 1.0)


# --- PDF -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def printed(site_runs, tmp_path_factory):
    """Run -> PDF file."""
    out = tmp_path_factory.mktemp("pdf")
    files = {}
    for name in ("slow", "real"):
        written = write_formats(site_runs[name], ["pdf"], out / name)
        if written.left_out:
            pytest.skip(written.left_out["pdf"])
        files[name] = written.paths["pdf"]
    return files


def text_of(file: Path) -> list[str]:
    if shutil.which("pdftotext") is None:
        pytest.skip("no pdftotext here; bin/test installs it (apt install poppler-utils)")
    done = subprocess.run(["pdftotext", "-layout", str(file), "-"], check=True, capture_output=True, text=True)
    return done.stdout.split("\f")[:-1]


def test_every_page_of_a_pdf_says_what_it_is(printed):
    for name, words in (("slow", "REHEARSAL"), ("real", "ACCEPTED")):
        pages = text_of(printed[name])
        assert len(pages) > 5
        for number, page in enumerate(pages, start=1):
            assert re.search(rf"{words}, page {number} of {len(pages)}\b", page)
            assert ("not an acceptance of any hardware" in page) is (words == "REHEARSAL")
    assert "REHEARSAL" not in "".join(text_of(printed["real"]))


def test_contents_of_a_pdf_name_the_right_pages(printed):
    pages = text_of(printed["slow"])
    listed = re.findall(r"(\S[^.\n]*?)\.{5,} ?(\d+)\b", "".join(pages[:3]))
    assert len(listed) == 14
    assert sum(title.startswith("Annex ") for title, _ in listed) == 8
    for title, number in listed:
        assert re.search(rf"^ *{re.escape(title.strip())}$", pages[int(number) - 1], re.MULTILINE), title


def inflated(file: Path) -> bytes:
    """A PDF with its compressed parts readable."""
    content = file.read_bytes()
    out = [content]
    for found in re.finditer(rb"stream\r?\n(.*?)\r?\nendstream", content, re.DOTALL):
        with contextlib.suppress(zlib.error):
            out.append(zlib.decompress(found[1]))
    return b"\n".join(out)


def test_a_pdf_has_bookmarks_tags_and_a_title(printed):
    content = inflated(printed["slow"])
    for part in (b"/Outlines", b"/StructTreeRoot", b"/Title", b"/Lang"):
        assert part in content, part
    assert b"/CreationDate" not in content
    assert b"/URI" not in content  # leads nowhere outside


def test_every_criterion_and_what_failed_stands_in_the_pdf(printed):
    text = "".join(text_of(printed["slow"]))
    for criterion in load_criteria():
        assert criterion.id in text
    assert "gpu2/fab0" in text


def test_pdf_reads_no_file_and_asks_no_network(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("top-secret")
    page = f'<p>x</p><img src="{secret.as_uri()}"><link rel="attachment" href="{secret.as_uri()}">'
    try:
        content = pdf_bytes(page)
    except PdfUnavailable as why:
        pytest.skip(str(why))
    assert b"EmbeddedFile" not in content
    assert b"/Image" not in content


# --- all of them -----------------------------------------------------------------------------------------------


def test_the_same_run_gives_the_same_bytes_in_another_process(site_runs, made, printed, tmp_path):
    code = "import sys; from validation.report import write_formats; from pathlib import Path\n"
    code += "write_formats(Path(sys.argv[1]), out=Path(sys.argv[2]))"
    environment = {**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "LC_ALL": "C"}
    subprocess.run([sys.executable, "-c", code, str(site_runs["slow"]), str(tmp_path)], check=True, env=environment)
    for name in PLAIN:
        assert (tmp_path / FILES[name]).read_bytes() == made["slow"][name], name
    assert (tmp_path / "report.pdf").read_bytes() == printed["slow"].read_bytes()


def test_without_pdf_libraries_everything_else_is_written(site_runs, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "weasyprint", None)
    written = write_formats(site_runs["clean"], out=tmp_path / "out")
    assert set(written.paths) == {"html", "json", "junit", "prom"}
    assert "\n" not in written.left_out["pdf"]
    assert "WeasyPrint is not installed" in written.left_out["pdf"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(FILES[name] for name in PLAIN)


def test_a_layout_that_fails_leaves_out_the_pdf_only(site_runs, tmp_path, monkeypatch):
    def fall(*_: object, **__: object) -> None:
        raise AssertionError("boom\nmore")

    weasyprint = pytest.importorskip("weasyprint")
    monkeypatch.setattr(weasyprint.HTML, "write_pdf", fall)
    written = write_formats(site_runs["clean"], ["html", "pdf"], tmp_path)
    assert written.left_out == {
        "pdf": "PDF left out: WeasyPrint fails on this report (AssertionError: boom); print report.html"
    }
    assert (tmp_path / "report.html").exists()


def toolkit(*arguments: str):
    return CliRunner().invoke(cli, ["report", *arguments])


def test_command_writes_what_is_asked_where_it_is_asked(tmp_path):
    run = make_run(tmp_path / "run")
    done = toolkit(str(run), "--format", "json, prom", "--out", str(tmp_path / "new" / "place"), "--json")
    assert done.exit_code == 0, done.output
    files = json.loads(done.stdout)["files"]
    assert [Path(path).name for path in files.values()] == ["report.json", "metrics.prom"]
    assert all(Path(path).is_file() for path in files.values())
    assert not [name for name in FILES.values() if (run / name).exists()]


def test_command_refuses_what_it_cannot_do(tmp_path, monkeypatch):
    run = make_run(tmp_path / "run")
    done = toolkit(str(run), "--format", "html,docx")
    assert done.exit_code == 2
    assert "docx: no such format; there are: html, pdf, json, junit, prom" in done.output
    assert toolkit(str(run), "--format", " , ").exit_code == 2
    (tmp_path / "file").write_text("")
    done = toolkit(str(run), "--format", "json", "--out", str(tmp_path / "file" / "x"))
    assert done.exit_code == 2
    assert "cannot be made" in done.output
    monkeypatch.setitem(sys.modules, "weasyprint", None)
    done = toolkit(str(run), "--format", "pdf,json")  # asked for by name: the others are written, but it is an error
    assert done.exit_code == 2
    assert "PDF left out" in done.stderr
    assert (run / "report.json").exists()
    assert toolkit(str(run)).exit_code == 0  # everything that can be made here


def test_nothing_is_written_into_a_signed_run(tmp_path):
    run = make_run(tmp_path / "run")
    (run / "signatures").mkdir()
    (run / "signatures" / "01-someone.txt.sig").write_text("x")
    before = sorted(run.iterdir())
    why = {(): "report.json: was not made before the run was signed"}
    for place in ((), ("--out", str(run)), ("--out", str(run / "sub"))):
        done = toolkit(str(run), "--format", "json", *place)
        assert done.exit_code == 2
        assert why.get(place, f"{run}: is signed, so nothing in it may change") in done.output
        assert "--out" in done.output
    assert sorted(run.iterdir()) == before
    assert toolkit(str(run), "--format", "json", "--out", str(tmp_path / "else")).exit_code == 0


def test_a_damaged_run_leaves_no_format_behind(tmp_path):
    run = make_run(tmp_path / "run")
    (run / "plan.json").write_text("{")
    with pytest.raises(ConfigError, match=r"plan\.json:1: not valid JSON"):
        write_formats(run, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
