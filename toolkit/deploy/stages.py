"""The stages of a playbook: one for each playbook that it imports, by its file's name; a play of its own is one too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from validation.base.yaml_text import parse_yaml
from validation.model.load import ConfigError, read_source


@dataclass(frozen=True)
class Stage:
    """A stage, and the names of its plays."""

    name: str
    plays: tuple[str, ...]


def read_stages(playbook: Path) -> tuple[Stage, ...]:
    """Stages in their order. ConfigError when a file cannot be read or is no playbook."""
    stages: list[Stage] = []
    for entry in _entries(playbook):
        imported = _imported(entry)
        if imported is None:
            stages.append(Stage(str(entry.get("name") or playbook.stem), (_play(entry),)))
            continue
        path = playbook.parent / imported
        entries = _entries(path)
        if all(_imported(inner) is not None for inner in entries):  # a list of stages, as site.yml imports it
            stages.extend(read_stages(path))
        else:
            stages.append(Stage(path.stem, tuple(_plays(path, entries))))
    return tuple(stages)


def _plays(playbook: Path, entries: list[dict[str, Any]]) -> Iterator[str]:
    """Names of a stage's plays, with those of playbooks that it imports itself."""
    for entry in entries:
        imported = _imported(entry)
        if imported is None:
            yield _play(entry)
        else:
            path = playbook.parent / imported
            yield from _plays(path, _entries(path))


def _entries(playbook: Path) -> list[dict[str, Any]]:
    try:
        entries = parse_yaml(read_source(playbook).text)
    except yaml.YAMLError as fault:
        raise ConfigError(f"{playbook}: {' '.join(str(fault).split())}") from None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError(f"{playbook}: a playbook is a list of plays")
    return entries


def _imported(entry: dict[str, Any]) -> str | None:
    for key in ("ansible.builtin.import_playbook", "import_playbook"):
        if key in entry:
            return str(entry[key])
    return None


def _play(entry: dict[str, Any]) -> str:
    """The name that Ansible shows: a play without one is called by its hosts."""
    hosts = entry.get("hosts", "")
    return str(entry.get("name") or (",".join(map(str, hosts)) if isinstance(hosts, list) else hosts))
