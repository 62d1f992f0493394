"""Which files of the tree are pages of the site, and where; what is made of a link on the way there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import yaml

from tools.docsite import commands, links, rules, schemas

ROOT = Path(__file__).resolve().parents[2]
#: Pages from outside docs/ -> their place on the site. `*` is the same in both.
MORE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CHANGELOG.md": "project/changelog.md",
    "benchmarks/README.md": "measurements/benchmarks.md",
    "roles/*/README.md": "reference/roles/*.md",
}
#: Pages with links that the tests look at, but that are no part of the site.
ALSO = ("changelog.d/README.md", "tests/data/README.md", "examples/README.md")
NOT_A_PAGE = {".md"}


def _place(path: str) -> str:
    """The place on the site of a page below docs/."""
    inside = PurePosixPath(path).relative_to("docs")
    return str(inside.with_name("index.md") if inside.name == "README.md" else inside)


def pages() -> dict[str, str]:
    """Path of each page in the tree -> its place on the site."""
    found = {str(p.relative_to(ROOT)): "" for p in sorted((ROOT / "docs").rglob("*.md"))}
    places = {path: _place(path) for path in found}
    for pattern, place in MORE.items():
        for path in sorted(ROOT.glob(pattern)):
            name = str(path.relative_to(ROOT))
            places[name] = place.replace("*", path.parent.name)
    return places


def made() -> dict[str, str]:
    """Place on the site -> text, of the pages that are made from code when the site is built."""
    roles = {place: name for name, place in pages().items() if name.startswith("roles/")}
    rows = [
        f"| [{PurePosixPath(place).stem}]({PurePosixPath(place).name}) | {_summary(name)} |"
        for place, name in roles.items()
    ]
    index = "\n".join(
        ["# Roles", "", "What each role does and every variable that it takes, from its `meta/argument_specs.yml`.", "",
         "| Role | What it does |", "|---|---|", *rows, ""]
    )  # fmt: skip
    return {
        "reference/roles/index.md": index,
        **commands.pages(),
        **rules.pages(),
        **schemas.pages(ROOT / "docs/schema"),
    }


def _summary(name: str) -> str:
    """What a role does, in a line."""
    spec = yaml.safe_load((ROOT / name).with_name("meta").joinpath("argument_specs.yml").read_text(encoding="utf-8"))
    return str(spec["argument_specs"]["main"]["short_description"]).replace("|", "\\|")


def read(places: Mapping[str, str]) -> dict[str, str]:
    """Path -> text."""
    return {path: (ROOT / path).read_text(encoding="utf-8") for path in places}


def moved(path: str, text: str, places: Mapping[str, str]) -> str:
    """A page as it stands on the site: links between pages follow them, and what is in the tree alone is named."""
    here = PurePosixPath(places[path]).parent

    def change(link: links.Link) -> str | None:
        if links.outside(link.target):
            return None
        file, anchor = links.target_of(path, link.target)
        place = places.get(file) or places.get(f"{file}/README.md")
        if place is None and file.startswith("docs/") and (ROOT / file).is_file():
            place = file.removeprefix("docs/")
        if place is None:  # only who has the tree can open it
            return f"{link.text} (`{file}`)" if link.text.strip("`/") != file.strip("/") else f"`{file}`"
        target = os.path.relpath(place, here) + (f"#{anchor}" if anchor else "")
        return f"{'!' if link.image else ''}[{link.text}]({target})"

    return links.rewritten(text, change)


def linked(place: str, text: str, places: Mapping[str, str]) -> str:
    """A page that is made from code: the pages that help and messages mention by their paths are links."""

    def change(path: str) -> str | None:
        target = places.get(path)
        if target is None:
            return None
        return f"[{PurePosixPath(path).stem}]({os.path.relpath(target, PurePosixPath(place).parent)})"

    return links.mentioned(text, change)


def collect(folder: Path) -> list[str]:
    """Write all pages, and the files that they show, into a folder; the places of those made from code."""
    places = pages()
    texts = read(places)
    new = made()
    if twice := sorted(set(new).intersection(places.values())):
        raise ValueError(f"{twice[0]} is a page of docs/ and one that is made from code; rename one of them")
    for path, place in places.items():
        _write(folder / place, moved(path, texts[path], places))
    for place, text in new.items():
        _write(folder / place, linked(place, text, places))
    for file in sorted((ROOT / "docs").rglob("*")):
        if file.is_file() and file.suffix not in NOT_A_PAGE:
            (folder / file.relative_to(ROOT / "docs")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, folder / file.relative_to(ROOT / "docs"))
    return sorted(new)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
