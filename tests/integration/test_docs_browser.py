"""The documentation site in a real browser, from files, without internet: it asks for nothing outside, search finds."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.browser import NEEDS_CHROMIUM, Browser, requests
from tools.docsite import outside

ROOT = Path(__file__).parents[2]
pytestmark = [
    NEEDS_CHROMIUM,
    pytest.mark.skipif(sys.version_info < (3, 11), reason="the site's builder needs Python 3.11"),
]
#: Words in the search, opened as a reader opens it; what it found.
SEARCH = """(async () => {
  document.querySelector('.md-search__button').click();
  for (let n = 0; n < 600; n++) {
    const root = [...document.querySelectorAll('*')].map(e => e.shadowRoot).find(Boolean);
    const field = root && root.querySelector('input');
    if (field) {
      if (field.value !== WORDS) {
        field.value = WORDS;
        field.dispatchEvent(new Event('input', {bubbles: true, composed: true}));
      }
      const found = [...root.querySelectorAll('ol a')].map(a => [a.innerText, a.getAttribute('href')]);
      if (found.length) return found;
    }
    await new Promise(done => setTimeout(done, 100));
  }
  return [];
})()"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as bin/docs builds it, in a folder with a space in its name, that nobody may write to."""
    out = tmp_path_factory.mktemp("site") / "file share"
    subprocess.run([sys.executable, "-m", "tools.docsite", "--out", str(out)], cwd=ROOT, check=True, timeout=600)
    return out


def test_no_page_loads_anything_from_outside_and_every_address_is_relative(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 100
    assert outside.faults(site) == []
    for path in pages:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"<(?:script|link|img|a)\b[^>]*(?:src|href)=\"/", text), path


def test_every_command_criterion_fabric_profile_role_and_document_has_its_place(site: Path) -> None:
    from toolkit.cli import cli
    from tools.docsite import commands
    from validation.kinds import KINDS
    from validation.rules.fabric import fabric_names
    from validation.rules.profile import profile_names
    from validation.rules.reference import packaged
    from validation.run.catalogue import load_criteria

    def ids(page: str) -> set[str]:
        return set(re.findall(r"\bid=\"([^\"]+)\"", (site / "reference" / page).read_text(encoding="utf-8")))

    assert {c.id for c in load_criteria()} <= ids("criteria.html")
    assert set(fabric_names()) <= ids("fabrics.html")
    assert set(profile_names()) <= ids("profiles.html")
    assert set(KINDS) <= ids("measured.html")
    schemas = {path.stem for path in (ROOT / "docs/schema").rglob("*.json")}
    assert schemas <= ids("documents.html") | ids("answer-keys.html")
    claims = (site / "reference/claims.html").read_text(encoding="utf-8")
    assert all(f"<code>{claim}</code>" in claims for claim in packaged().claims)
    roles = {path.parents[1].name for path in ROOT.glob("roles/*/meta/argument_specs.yml")}
    assert roles <= {path.stem for path in (site / "reference/roles").glob("*.html")}
    leaves = [context for context in commands.walk(cli, "toolkit")][1:]
    assert len(leaves) > 40
    for context in leaves:
        page = site / "reference/commands" / f"{context.command_path.split(' ')[1]}.html"
        text = page.read_text(encoding="utf-8")
        assert context.command_path in text
        for param in context.command.params:
            assert param.param_type_name != "option" or param.opts[0] in text, (context.command_path, param.opts)


@pytest.mark.parametrize("page", ["index.html", "reference/commands/validate.html", "tutorial/first-hour.html"])
def test_a_page_asks_for_its_own_files_alone_and_fits_a_phone(browser: Browser, site: Path, page: str) -> None:
    events = browser.open(site / page, 390)
    asked = [url for url in requests(events) if not url.startswith("data:")]
    assert len(asked) > 3
    assert [url for url in asked if not url.startswith(site.as_uri())] == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390, "scrolls sideways"


@pytest.mark.parametrize(("words", "page"), [("incast", "reference/criteria.html"), ("teardown", "how-to/")])
def test_search_finds_from_files_without_internet(browser: Browser, site: Path, words: str, page: str) -> None:
    browser.open(site / "index.html", 1280)
    found = browser.evaluate(SEARCH.replace("WORDS", f"'{words}'"))
    assert any(page in href for _, href in found), found
    outside_asked = [url for url in requests(browser.events) if url.startswith(("http:", "https:"))]
    assert outside_asked == []
