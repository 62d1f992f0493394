"""Every role's interface: argument_specs and defaults say the same, and one task leads to present or absent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

REPO = Path(__file__).parents[2]
ROLES = sorted(path.parents[1] for path in (REPO / "roles").glob("*/tasks/main.yml"))
# Roles that bring nothing about that could be taken back, and why.
STATELESS = {
    "packages": "a part of other roles, told by them what to do",
    "preflight": "reads only",
    "reboot": "an act, not a state",
}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}


def options(role: Path) -> dict[str, Any]:
    spec: dict[str, Any] = read(role / "meta/argument_specs.yml")["argument_specs"]["main"]
    return dict(spec.get("options") or {})


def comparable(value: Any) -> Any:
    """A default, whatever the way in which its lines are folded."""
    return " ".join(value.split()) if isinstance(value, str) else value


def test_there_are_roles() -> None:
    assert len(ROLES) > 5


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_the_specification_and_the_defaults_say_the_same(role: Path) -> None:
    specified, defaults = options(role), read(role / "defaults/main.yml") or {}
    own = {n for n, option in specified.items() if n.startswith(f"{role.name}_") and not option.get("required")}
    assert own <= set(defaults), "options without a default"
    assert set(defaults) <= set(specified), "defaults that nobody specifies"
    for name, value in defaults.items():
        if "default" not in specified[name]:
            assert "{{" in str(value), f"{name}: its default is not in argument_specs, and is no template"
            continue
        assert comparable(specified[name]["default"]) == comparable(value), f"{name}: argument_specs says otherwise"


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_option_is_described_and_typed(role: Path) -> None:
    spec = read(role / "meta/argument_specs.yml")["argument_specs"]["main"]
    assert spec.get("short_description")
    assert spec.get("description"), "the role's page needs sentences on what it does"
    for name, option in options(role).items():
        assert option.get("description"), f"{name}: no description"
        assert option.get("type"), f"{name}: no type"


def registered(tasks: Any) -> Iterator[str]:
    """What tasks, and blocks of them, register or set."""
    if isinstance(tasks, list):
        for one in tasks:
            yield from registered(one)
    elif isinstance(tasks, dict):
        yield from [tasks["register"]] if "register" in tasks else []
        facts = tasks.get("ansible.builtin.set_fact")
        yield from facts if isinstance(facts, dict) else []
        for one in tasks.values():
            yield from registered(one)


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_no_task_registers_what_is_a_setting(role: Path) -> None:
    """It would stand in the setting's place from then on: an image was looked for under the tag of another recipe."""
    found = {name: path.name for path in sorted(role.glob("tasks/*.yml")) for name in registered(read(path))}
    assert not {name: file for name, file in found.items() if name in options(role)}


@pytest.mark.parametrize("role", [r for r in ROLES if r.name not in STATELESS], ids=lambda role: role.name)
def test_a_role_can_be_taken_back(role: Path) -> None:
    state = options(role).get(f"{role.name}_state", {})
    assert (state.get("choices"), state.get("default")) == (["present", "absent"], "present")
    tasks = read(role / "tasks/main.yml")
    check, way = tasks  # tasks/main.yml has the way to present or absent, and nothing else
    assert "elastic_ai.toolkit.role_arguments" in check
    assert re.fullmatch(rf"\{{\{{ {role.name}_state( if .*)? \}}\}}\.yml", way["ansible.builtin.include_tasks"])
    for name in ("present", "absent"):
        assert read(role / f"tasks/{name}.yml"), f"tasks/{name}.yml does nothing"


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_variable_carries_the_name_of_a_role(role: Path) -> None:
    """Its own, or that of the role whose variable it reads; and what belongs to the inventory as a whole."""
    shared = ("stack_", "elastic_ai_", "training_slots", "remoting_engine_")
    owners = tuple(f"{other.name}_" for other in ROLES)
    assert [name for name in options(role) if not name.startswith((*owners, *shared))] == []


def repeated_keys(text: str) -> list[str]:
    """Keys that a mapping has more than once, by itself or by what it merges; Ansible warns of each in every run."""
    found: list[str] = []
    nodes, seen = [yaml.compose(text, Loader=yaml.SafeLoader)], set[int]()
    while nodes:
        node = nodes.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            nodes += node.value
        elif isinstance(node, yaml.MappingNode):
            keys: list[str] = []
            for key, value in node.value:
                merged = key.tag == "tag:yaml.org,2002:merge" and isinstance(value, yaml.MappingNode)
                keys += [one.value for one, _ in value.value] if merged else [str(key.value)]
                nodes.append(value)
            found += [key for key in dict.fromkeys(keys) if keys.count(key) > 1]
    return found


def test_no_mapping_of_a_role_or_play_has_a_key_twice() -> None:
    assert repeated_keys("a: &a {x: 1}\nb:\n  <<: *a\n  x: 2\n") == ["x"]
    files = [*REPO.glob("roles/*/*/*.yml"), *REPO.glob("playbooks/*.yml"), REPO / "site.yml"]
    assert len(files) > 100
    found = {str(file.relative_to(REPO)): repeated_keys(file.read_text(encoding="utf-8")) for file in files}
    assert {name: keys for name, keys in found.items() if keys} == {}
