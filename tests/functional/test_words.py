"""The words that CONTRIBUTING.md lists as not used: no page, help text, message of a template or exit code has one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from toolkit import exits
from toolkit.cli import cli

pytestmark = pytest.mark.computes

ROOT = Path(__file__).parents[2]
#: Records are as they were written; a sample is a report, whose words are those of code and templates.
RECORDS = {"sample", "measurements"}
TEMPLATES = ("report", "compare", "campaign", "trend")


@cache
def unused() -> dict[str, str]:
    """Words that are not used -> what to write instead."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = re.search(r"^```not-used\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found, "the list"
    rows = [[part.strip() for part in line.split("|")] for line in found[1].splitlines()]
    assert all(len(row) == 2 and all(row) for row in rows), "words | what to write instead"
    return {words.lower(): instead for words, instead in rows}


@cache
def _pattern() -> re.Pattern[str]:
    words = "|".join(re.escape(words).replace(r"\ ", r"\s+") for words in unused())
    return re.compile(rf"(?<![\w-])({words})(?![\w-])", re.IGNORECASE)


def found(text: str) -> list[str]:
    """Each use in a text, with its line and what to write instead."""
    return [
        f"line {text.count(chr(10), 0, m.start()) + 1}: '{m[0]}': write '{unused()[' '.join(m[0].lower().split())]}'"
        for m in _pattern().finditer(text)
    ]


def prose(page: str) -> str:
    """A page without code, addresses of links and the list itself; its lines keep their numbers."""

    def blank(match: re.Match[str]) -> str:
        return "\n" * match[0].count("\n")

    page = re.sub(r"^```.*?^```", blank, page, flags=re.MULTILINE | re.DOTALL)
    page = re.sub(r"^(?: {4}|\t).*$(?<!\*\*)", _code_or_list, page, flags=re.MULTILINE)
    page = re.sub(r"`[^`]*`", blank, page)
    return re.sub(r"\]\([^)]*\)", "]", page)


def _code_or_list(line: re.Match[str]) -> str:
    """An indented line is code unless it goes on with an item of a list, which starts with words."""
    return "" if re.match(r" {4}(?:\S*[=/{$]|toolkit |python|ansible|bin/|\. )", line[0]) else line[0]


def pages() -> list[Path]:
    """README, the project's pages and the docs."""
    own = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
    own += sorted(ROOT.glob("changelog.d/*.md"))
    return own + [path for path in sorted(ROOT.glob("docs/**/*.md")) if not RECORDS & {*path.parts}]


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Every command with its whole name."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name)
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None:
                yield from commands(found, f"{name} {child}")


def help_of(command: click.Command, name: str) -> str:
    """The description of a command, of its options, and its exit codes."""
    texts = [command.help or "", command.short_help or "", command.epilog or ""]
    texts += [option.help or "" for option in command.params if isinstance(option, click.Option)]
    return "\n".join(texts)


def test_the_list_is_long_enough_and_finds_what_it_names() -> None:
    assert len(unused()) >= 30
    for words in unused():
        assert found(f"Before {words} after."), words
    assert found("It\nsays\nso.") == ["line 2: 'says\nso': write 'reports this'"]
    assert found("a stand-in, a stand-in's, shell, other, thistle") == []
    assert found(prose("`who may` [x](told.md)\n\n```\ntold\n```\n")) == []
    assert found(prose("one\n\n```\ncode\n```\nhe is told\n")) == [
        "line 6: 'he': write 'the user'",
        "line 6: 'told': write 'reported, printed, notified'",
    ]


@pytest.mark.parametrize("page", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_page_has_a_word_that_is_not_used(page: Path) -> None:
    assert found(prose(page.read_text(encoding="utf-8"))) == []


def test_no_help_text_has_a_word_that_is_not_used() -> None:
    texts = {name: found(help_of(command, name)) for name, command in commands(cli, "toolkit")}
    assert len(texts) > 40, "every command"
    assert {name: uses for name, uses in texts.items() if uses} == {}


def test_no_meaning_of_an_exit_code_has_a_word_that_is_not_used() -> None:
    assert found(exits.markdown_tables() + exits.verdict_table()) == []


@pytest.mark.parametrize("folder", TEMPLATES)
def test_no_template_has_a_word_that_is_not_used(folder: str) -> None:
    files = sorted((ROOT / "validation" / folder / "templates").iterdir())
    files += sorted((ROOT / "validation" / folder).glob("words/en.yml"))
    assert files
    uses = {}
    for path in files:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".html":
            text = re.sub(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}|<(script|style)\b.*?</\1>", "", text, flags=re.DOTALL)
        elif path.suffix in (".css", ".js"):
            continue
        uses[path.name] = found(text)
    assert {name: use for name, use in uses.items() if use} == {}


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """Every text of a module that it can print, with its line: no docstring, and no program that it sends."""
    source = path.read_text(encoding="utf-8")
    # Parsed only where it can have one, a text that is written in several pieces included.
    if not _pattern().search(re.sub(r"""["']\s*\n\s*f?["']""", "", source)):
        return
    tree = ast.parse(source)
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and id(node) not in docs else None
        if isinstance(text, str) and " " in text and "\nimport " not in text:
            # `passed: told: ` is the place in a document, by the names of its keys.
            yield node.lineno, re.sub(r"\btold: ", "", text)


@pytest.mark.parametrize("folder", ["toolkit", "validation"])
def test_no_message_has_a_word_that_is_not_used(folder: str) -> None:
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert len(paths) > 100
    uses = [
        f"{path.relative_to(ROOT)}:{line}: {use.partition(': ')[2]}"
        for path in paths
        for line, text in literals(path)
        for use in found(text)
    ]
    assert uses == []
