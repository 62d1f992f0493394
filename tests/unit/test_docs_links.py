"""The links of the documentation: those of the tree hold, and each kind of fault is found."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tools.docsite import links, navigation, sources
from tools.docsite.__main__ import check
from tools.docsite.links import Link

ROOT = Path(__file__).parents[2]


def test_every_link_and_anchor_of_the_tree_leads_somewhere() -> None:
    assert check() == []


def test_every_page_that_a_file_mentions_is_there() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    gone = []
    for name in tracked:
        path = ROOT / name
        if not name or path == Path(__file__) or path.is_symlink() or not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        mentioned = set(re.findall(r"(?<![\w/.-])docs/[\w/-]+\.(?:md|json)\b", text))
        gone += [f"{name}: {page}" for page in sorted(mentioned) if not (ROOT / page).is_file()]
    assert gone == []


PAGES = {
    "docs/a.md": '# A\n\n## One thing\n\n## One thing\n\n### `co.x`: what *it* is\n\n<a id="by-hand"></a>\n',
    "README.md": "",
}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[a](docs/a.md)", ""),
        (
            "[a](docs/a.md#one-thing) [b](docs/a.md#one-thing-1) [c](docs/a.md#cox-what-it-is) [](docs/a.md#by-hand)",
            "",
        ),
        ("a\n\nb [a](docs/b.md)", "README.md:3: docs/b.md leads to nothing"),
        ("[a](docs/a.md#another)", "README.md:1: docs/a.md#another: docs/a.md has no heading #another"),
        ("[a](#here)", "README.md:1: #here: README.md has no heading #here"),
        ("[two\nlines](../../x.md)", "README.md:1: ../../x.md leads to nothing"),
        ("[![picture](docs/no.png)](docs/a.md)", "README.md:1: docs/no.png leads to nothing"),
        ("![picture](docs/no.png)", "README.md:1: docs/no.png leads to nothing"),
        ("[`code`](docs/b.md)", "README.md:1: docs/b.md leads to nothing"),
        ("`[a](docs/b.md)` and ``[`a`](docs/b.md)``", ""),
        ("```\n[a](docs/b.md)\n```", ""),
        ("words\n\n    [a](docs/b.md)\n\n    [a](docs/b.md)\n", ""),
        ("```\n[a](docs/b.md)\n```\n[a](docs/c.md)", "README.md:4: docs/c.md leads to nothing"),
        ("[a](https://docs.nvidia.com/x#y) [b](mailto:a@example.net)", ""),
        ("[a](http:/example.net)", "http:/example.net: nothing is no name of a host"),
        ("[a](https://exa_mple.net/)", "is no name of a host"),
        ("[a](https://localhost:99999/)", "Port out of range"),
        ("[a](htps://example.net/)", "the scheme htps is neither"),
        ("[a](//example.net/)", "that is missing is neither"),
        ("[a](mailto:nobody)", "no address of e-mail"),
    ],
)
def test_a_fault_of_a_link_is_named_with_its_place(text: str, fault: str) -> None:
    pages = {**PAGES, "README.md": text}
    found = list(links.faults(pages, lambda path: path in pages))
    assert len(found) == bool(fault)
    assert all(fault in each for each in found)


def test_links_follow_their_pages_to_the_site_and_what_is_in_the_tree_alone_is_named() -> None:
    places = {
        "docs/how-to/a.md": "how-to/a.md",
        "README.md": "index.md",
        "roles/base/README.md": "reference/roles/base.md",
    }
    text = (
        "[home](../../README.md#start) [base](../../roles/base/README.md)\n"
        "[role](../../roles/base) [all](../../stacks)\n"
        "[stacks/](../../stacks) [x](https://example.net/a) `[home](../../README.md)` ![p](../sample/front.png)"
    )
    assert sources.moved("docs/how-to/a.md", text, places) == (
        "[home](../index.md#start) [base](../reference/roles/base.md)\n"
        "[role](../reference/roles/base.md) all (`stacks`)\n"
        "`stacks` [x](https://example.net/a) `[home](../../README.md)` ![p](../sample/front.png)"
    )


def test_a_page_that_help_or_a_remedy_mentions_is_a_link_on_the_site() -> None:
    text = "see (docs/how-to/pool.md), `docs/how-to/pool.md` and docs/how-to/none.md\n\n```\ndocs/how-to/pool.md\n```\n"
    assert sources.linked("reference/a.md", text, {"docs/how-to/pool.md": "how-to/pool.md"}) == (
        "see ([pool](../how-to/pool.md)), `docs/how-to/pool.md` and docs/how-to/none.md\n\n"
        "```\ndocs/how-to/pool.md\n```\n"
    )


def test_a_link_inside_the_words_of_another_is_found_too() -> None:
    assert list(links.links("[![p](a.png)](b.md)")) == [
        Link(1, "![p](a.png)", "b.md", False),
        Link(1, "p", "a.png", True),
    ]


def test_the_configuration_is_one_that_each_builder_takes_and_asks_for_nothing_outside() -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))  # no tags that a linter cannot read
    assert config["plugins"] == ["search", "offline"]
    assert config["theme"]["name"] == "material"
    assert config["theme"]["font"] is False
    assert config["use_directory_urls"] is False
    (shim,) = config["extra"]["polyfills"]  # a name with iframe-worker in it keeps builders from adding an address
    assert "iframe-worker" in shim
    for name in (shim, *config["extra_css"]):
        assert (ROOT / "docs" / name).is_file()
    assert "Permission is hereby granted" in (ROOT / "docs/assets/iframe-worker.LICENSE.txt").read_text("utf-8")
    assert not re.search(r"https?://", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def test_a_page_without_a_place_in_the_navigation_and_a_place_without_a_page_are_named(tmp_path: Path) -> None:
    for name in ("index.md", "all/index.md", "all/b.md", "all/a.md", "lost.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("# x\n")
    text = "site_name: x\nnav:\n  - Home: index.md\n  - Gone: gone.md\n  - All: all/*\n"
    whole, faults = navigation.config(text, tmp_path)
    assert whole.endswith("  - All:\n      - all/index.md\n      - all/a.md\n      - all/b.md\n")
    assert faults == [
        "mkdocs.yml: nav: gone.md is no page; correct the entry",
        "mkdocs.yml: nav: lost.md has no entry; add one",
    ]
