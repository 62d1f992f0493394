"""The schemas of answers and documents: published as they are declared, and one for each command that answers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click
import pytest

from tests.support.answers import FOLDER
from toolkit import answer_forms, answers
from toolkit.cli import cli

FILES = answer_forms.files()


def leaves(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something by itself, with its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        here = (*words, name)
        if isinstance(command, click.Group):
            yield from leaves(command, here)
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield " ".join(here), command


def test_every_command_that_answers_has_json_and_a_schema_and_no_other_has() -> None:
    found = dict(leaves(cli))
    assert len(found) > 40
    with_json = {words for words, command in found.items() if any("--json" in p.opts for p in command.params)}
    assert set(found) - with_json == set(answer_forms.WITHOUT)
    assert with_json == set(answer_forms.BY_COMMAND)
    named = {name for names in answer_forms.BY_COMMAND.values() for name in names}
    assert named | set(answer_forms.BY_PAGE) == set(answer_forms.ANSWERS)


@pytest.mark.parametrize("file", sorted(FILES))
def test_schema_is_published_as_it_is_declared(file: str) -> None:
    standing = (FOLDER / file).read_text(encoding="utf-8")
    assert standing == json.dumps(FILES[file], indent=2) + "\n", "run tools/make_docs.py"


def test_no_schema_is_published_that_nothing_is_written_by() -> None:
    there = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.json")}
    assert there == {*FILES, "report-2.json"}


@pytest.mark.parametrize("name", sorted(answer_forms.ANSWERS))
def test_an_answer_begins_with_its_schema_and_refuses_what_is_not_declared(name: str) -> None:
    schema = answer_forms.answer_schema(name)
    assert next(iter(schema["properties"])) == "schema" == schema["required"][0]
    assert schema["properties"]["schema"]["const"] == f"elastic-ai/{name}/1"
    assert schema.get("additionalProperties", name == "engine-pack") is (name == "engine-pack")


def test_times_have_one_form_and_nothing_is_none() -> None:
    said = json.loads(answers.text("runs", {"schema": "old", "created": "2026-11-21T10:15:00.5+00:00", "no": None}))
    assert said == {"schema": "elastic-ai/runs/1", "created": "2026-11-21T10:15:00.5Z", "no": None}
    assert (answers.when(None), answers.when(0.0)) == (None, "1970-01-01T00:00:00Z")
