"""Every filter of the collection: documented as its code is, found by `ansible-doc`, used by a role or a playbook."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment, nodes

from tests.support.node_modules import load

REPO = Path(__file__).parents[2]
FOLDER = REPO / "plugins/filter"
PREFIX = "elastic_ai.toolkit."
USES = re.compile(r"""(?:\|\s*|map\(\s*['"])elastic_ai\.toolkit\.(\w+)""")
GROUPS = [load(f"plugins/filter/{path.name}") for path in sorted(FOLDER.glob("*.py"))]
FILTERS: dict[str, Any] = {
    name: getattr(load(f"plugins/plugin_utils/{module}.py"), name)
    for group in GROUPS
    for module, names in group.CODE.items()
    for name in names
}
#: The types of an option that its annotation allows.
TYPES = {
    "str": {"str"},
    "int": {"int"},
    "bool": {"bool"},
    "float": {"float"},
    "Mapping": {"dict"},
    "dict": {"dict"},
    "Sequence": {"list"},
    "Iterable": {"list"},
    "list": {"list"},
    "Path": {"path"},
}


def sidecar(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yml").read_text(encoding="utf-8"))
    return document


def used() -> dict[str, str]:
    """Filter -> a file of a role or a playbook that uses it; also where a line goes on in the next."""
    found: dict[str, str] = {}
    folders = ("roles", "playbooks", "stacks", "inventories")
    for path in [REPO / "site.yml", *(file for folder in folders for file in (REPO / folder).rglob("*"))]:
        if path.is_file() and path.suffix in {".yml", ".j2", ".yaml"}:
            text = path.read_text(encoding="utf-8")
            found |= dict.fromkeys(USES.findall(text), str(path.relative_to(REPO)))
    return found


def ansible_doc(*arguments: str) -> Any:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-doc", "-t", "filter", "--json", *arguments],
        cwd=REPO,
        env=kept | {"ANSIBLE_COLLECTIONS_PATH": str(REPO), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_name_is_one_filter_with_one_document() -> None:
    named = [name for group in GROUPS for names in group.CODE.values() for name in names]
    assert sorted(named) == sorted(set(named))
    assert {path.stem for path in FOLDER.glob("*.yml")} == set(named)
    assert not {path.stem for path in FOLDER.glob("*.py")} & set(named), "ansible-doc would read the group's file"


def test_what_roles_use_exists_and_what_exists_is_used() -> None:
    found = used()
    assert {name: path for name, path in found.items() if name not in FILTERS} == {}, "no such filter"
    assert sorted(set(FILTERS) - set(found)) == [], "no role and no playbook uses it"


def test_ansible_doc_knows_all_of_them() -> None:
    listed = ansible_doc("--list", PREFIX.rstrip("."))
    assert set(listed) == {PREFIX + name for name in FILTERS}
    assert [name for name, short in listed.items() if not short or short == "UNDOCUMENTED"] == []
    told = ansible_doc(*listed)
    for name, document in told.items():
        assert document["doc"]["short_description"], name
        assert document["examples"], name
        assert document["return"]["_value"]["description"], name
    assert set(told) == set(listed)


def annotated(annotation: Any) -> set[str]:
    """Types of an option for an annotation, by its name without what it holds; all where it says none."""
    names = {part.split("[")[0].strip() for part in re.sub(r"\[[^\[\]]*(\[[^\[\]]*\])*\]", "", annotation).split("|")}
    names -= {"None"}
    return TYPES.get(names.pop(), set()) if len(names) == 1 else set()


@pytest.mark.parametrize("name", sorted(FILTERS))
def test_the_document_says_what_the_code_takes(name: str) -> None:
    document = sidecar(name)["DOCUMENTATION"]
    parameters = list(inspect.signature(FILTERS[name]).parameters.values())
    assert document["name"] == name
    options = document["options"]
    assert list(options) == ["_input", *(one.name for one in parameters[1:])]
    positional = [one.name for one in parameters[1:] if one.kind is not inspect.Parameter.KEYWORD_ONLY]
    assert [one.strip() for one in document.get("positional", "").split(",") if one] == positional
    for option, parameter in zip(options.values(), parameters, strict=True):
        assert option["description"]
        required = parameter.default is inspect.Parameter.empty
        assert option.get("required", False) is required, parameter.name
        allowed = annotated(parameter.annotation)
        assert not allowed or option["type"] in allowed, (parameter.name, parameter.annotation)
        if isinstance(parameter.default, str | int | bool):
            assert option["default"] == parameter.default, parameter.name


@pytest.mark.parametrize("name", sorted(FILTERS))
def test_the_example_is_a_template_that_uses_it(name: str) -> None:
    document = sidecar(name)
    templates = yaml.safe_load(document["EXAMPLES"])
    environment = Environment(autoescape=True)
    for text in templates.values():
        uses = {one.name for one in environment.parse(text).find_all(nodes.Filter)}
        assert PREFIX + name in uses
        assert {one.removeprefix(PREFIX) for one in uses if one.startswith(PREFIX)} <= set(FILTERS)
    assert document["RETURN"]["_value"]["type"]
