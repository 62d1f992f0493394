"""The customer's words (report.yml), a logo, and a partner's templates."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.page import Page
from tests.support.report_fixture import make_run, topology
from toolkit.cli import cli
from toolkit.report_branding import find_branding
from validation.model.load import ConfigError
from validation.report import write_html
from validation.report.customer import FILES, LOGO_MAX_BYTES, NAME, adopt, load_customer
from validation.report.documents import read_run
from validation.report.partner import partner_blocks
from validation.report.summary import verdict_of
from validation.rules.fabric import load_fabric

pytestmark = pytest.mark.systems

SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 4"><rect width="4" height="4" fill="#0a5"/></svg>'
PNG = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89"
    b"\x00\x00\x00\rIDATx\x9cc\xf8\xcf\xc0\xf0\x1f\x00\x05\x00\x01\xff\x89\x99=\x1d\x00\x00\x00\x00IEND\xaeB`\x82"
)


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
    assert '<header class="front' in text
    assert 'lang="de"' in text
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
    "logo runs a script": ("logo: l.svg\n", {"l__svg": SCRIPT}, "contains <script>"),
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
    assert find_branding(None, tmp_path / "site", *what) is None
    beside = write_words(tmp_path / "site", "customer: X\n")
    hosts.write_text("all: {}\n")
    assert find_branding(None, tmp_path / "site", *what) == find_branding(None, hosts, *what) == beside
    named = write_words(tmp_path / "other", "customer: Y\n")
    assert find_branding(named, hosts, *what) == named
    named.write_text("custommer: Y\n")
    with pytest.raises(ConfigError, match="unknown key"):
        find_branding(named, hosts, *what)
    with pytest.raises(ConfigError, match=r"words/ours/_intro\.html:2: 'nodez' is undefined"):
        find_branding(partner(tmp_path, _intro="\n{{ nodez }}"), hosts, *what)  # before anything is measured
    with pytest.raises(ConfigError, match="no such file"):
        find_branding(tmp_path / "none.yml", hosts, *what)


def test_report_takes_words_and_refuses_them_once_somebody_has_signed(tmp_path, site_runs):
    run = shutil.copytree(site_runs["clean"], tmp_path / "run")
    words = str(write_words(tmp_path / "words", "customer: Newcomer\n"))
    done = CliRunner().invoke(cli, ["report", str(run), "--format", "html", "--branding", words])
    assert done.exit_code == 0
    assert "Newcomer" in (run / "report.html").read_text()
    (run / "signatures").mkdir()
    (run / "signatures" / "01-x.txt.sig").write_text("signed")
    done = CliRunner().invoke(cli, ["report", str(run), "--format", "html", "--branding", words])
    assert done.exit_code == 2
    assert "is signed, so nothing in it may change" in done.output


def test_words_of_an_old_run_are_changed_by_report(tmp_path):
    done = CliRunner().invoke(cli, ["validate", "--resume", "x", "--branding", str(tmp_path / NAME)])
    assert done.exit_code == 2
    assert "toolkit report RUN --branding FILE" in done.output


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
    assert "criteria judged, 1 failed." in page.text


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
def test_template_that_cannot_be_used_is_one_line_with_file_and_line(tmp_path, site_runs, name):
    template, text, said = BAD_TEMPLATES[name]
    run = shutil.copytree(site_runs["clean"], tmp_path / "run")

    def use() -> None:
        adopt(partner(tmp_path, **{template: text}), run)
        documents = read_run(run)
        partner_blocks(documents, verdict_of(documents))

    with pytest.raises(ConfigError, match=said) as caught:
        use()
    assert "\n" not in str(caught.value)


def test_template_error_leaves_no_report(tmp_path, site_runs):
    run = shutil.copytree(site_runs["clean"], tmp_path / "run")
    adopt(partner(tmp_path, _intro="{{ nodez }}"), run)
    with pytest.raises(ConfigError, match=r"^report-files/templates/_intro\.html:1: 'nodez' is undefined"):
        write_html(run)
    assert not (run / "report.html").exists()


def test_packaged_words_load_and_an_empty_file_is_refused(tmp_path):
    assert load_customer(write_words(tmp_path / "a", "customer: X\n")).language == "en"
    with pytest.raises(ConfigError, match="nothing is in this file; write its keys, or remove it"):
        load_customer(write_words(tmp_path / "b", ""))
