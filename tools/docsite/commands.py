"""The reference of the command line, made from click: a page for each command, with every leaf and every option."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from toolkit import command_table
from toolkit.answer_forms import BY_COMMAND
from toolkit.answers import schema_of
from toolkit.cli import cli
from toolkit.exits import ANY, MEANINGS
from tools.docsite.markdown import block, cell, code, escaped, page, table

FOLDER = "reference/commands"
WIDTH = 100
COMMON = {"--help", "--help-all", "--quiet", "--verbose"}
"""Options that every command has."""


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    return click.Context(command, info_name=name, parent=parent, terminal_width=WIDTH, max_content_width=WIDTH)


def walk(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[click.Context]:
    """A command and all below it, those without a place in the help left out."""
    context = _context(command, name, parent)
    yield context
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            if found is not None and not found.hidden:
                yield from walk(found, each, context)


def words(help_text: str) -> str:
    """The help of a command as Markdown: paragraphs, and what stands behind a \\b as it is."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(help_text.replace("\f", "\n\n"))):
        lines = paragraph.strip("\n").splitlines()
        if lines and lines[0].strip() == "\b":
            parts.append(block("\n".join(lines[1:])))
        elif lines:
            parts.append(escaped(" ".join(line.strip() for line in lines)))
    return "\n\n".join(parts)


def _options(context: click.Context) -> str:
    rows = []
    for param in context.command.get_params(context):
        if not isinstance(param, click.Option) or COMMON.intersection(param.opts):
            continue
        hidden, param.hidden = param.hidden, False  # those that the short help leaves out have their place here
        try:
            record = param.get_help_record(context)
        finally:
            param.hidden = hidden
        if record is not None:
            rows.append((code(record[0]), escaped(record[1])))
    return table(("Option", "Meaning"), rows)


def exits(command: str) -> str:
    """The exit codes of a command; those of its group where it has none of its own."""
    name = command if command in MEANINGS else command.split(" ")[0]
    meanings = {**MEANINGS.get(name, {}), **ANY}
    return table(("Exit code", "Meaning"), [(str(int(each)), text) for each, text in sorted(meanings.items())])


def _one(context: click.Context, level: int) -> str:
    command, path = context.command, context.command_path
    parts = [f"{'#' * level} {path}"] if level > 1 else []
    usage = command.get_usage(context).partition(":")[2].strip()
    parts.append(block(" ".join(usage.split())))
    parts.append(words(command.help or ""))
    if options := _options(context):
        parts.append(options)
    if answers := BY_COMMAND.get(path.partition(" ")[2]):
        links = (f"[{code(schema_of(each))}](../answer-keys.md#{each}-1)" for each in answers)
        parts.append(f"Answer with `--json`: {', '.join(links)}.")
    if not isinstance(command, click.Group) or command.invoke_without_command:
        parts.append(exits(path.partition(" ")[2]))
    return "\n\n".join(part.strip("\n") for part in parts if part.strip())


def pages() -> dict[str, str]:
    """Path -> text: an index by what commands are for, and a page for each command of the first level."""
    root = _context(cli, "toolkit", None)
    made: dict[str, str] = {}
    listed: dict[str, list[tuple[str, str]]] = {}
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        assert command is not None
        found = list(walk(command, name, root))
        made[f"{FOLDER}/{name}.md"] = page(
            f"toolkit {name}", *(_one(context, 1 if n == 0 else 2) for n, context in enumerate(found))
        )
        listed[name] = [(f"[{code(f'toolkit {name}')}]({name}.md)", escaped(command_table.words(name)))]
        listed[name] += [
            (f"[{code(each.command_path)}]({name}.md#{anchor(each)})", escaped(_first(each.command)))
            for each in found[1:]
        ]
    groups = {**command_table.COMMANDS, "Help": {command_table.HELP: ""}}
    parts = [
        "Each page lists what a command takes, with every option, and how it ends: the text of `--help-all`. Every "
        "command also has `-q` (no progress), `-v` (what it runs, reads and writes) and `-h`.",
    ]
    for title, names in groups.items():
        parts += [f"## {title}", table(("Command", "What it does"), [row for name in names for row in listed[name]])]
    made[f"{FOLDER}/index.md"] = page("Commands", *parts)
    return made


def _first(command: click.Command) -> str:
    return command.get_short_help_str(limit=1000).rstrip(".")


def anchor(context: click.Context) -> str:
    """The anchor of a leaf on its command's page."""
    return cell(context.command_path).replace(" ", "-")
