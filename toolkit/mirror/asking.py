"""Asks the roles what a site needs: playbooks/mirror.yml, which connects to no node."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from toolkit.errors import UsageFault
from toolkit.inventory_files import refuse_unusable
from toolkit.lab_inventory import refuse_absent_lab
from toolkit.loudness import ran as shown
from validation.base import bounded, project
from validation.base.temporary import room


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Source(_Read):
    """A repository of a vendor, as role repos would write it (filter repos_plan)."""

    name: str
    system: str
    url: str
    suite: str
    components: str
    key_url: str
    fingerprints: tuple[str, ...]
    architecture: str


class Pin(_Read):
    """A preference of apt."""

    packages: str
    pin: str
    priority: int
    why: str = ""


class _Packages(_Read):
    os_key: str
    wanted: dict[str, dict[str, str]]
    image: tuple[str, ...]
    pins: tuple[Pin, ...]
    notes: tuple[str, ...]


class _Sources(_Read):
    repositories: tuple[Source, ...]
    pins: tuple[Pin, ...]
    upstream: dict[str, Any]


class _Outside(_Read):
    images: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()


class Asked(_Read):
    """What one node needs."""

    packages: _Packages
    sources: _Sources
    outside: _Outside = _Outside()


@dataclass
class SystemWishes:
    """What all nodes of one system need. sets: packages that one node gets at once, each with its preferences; roles:
    who wants a package."""

    system: str
    sets: dict[str, tuple[dict[str, str], tuple[Pin, ...]]] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)


def ask(inventory: Path, recorded: Path | None) -> dict[str, Asked]:
    """By node. UsageFault with Ansible's words where the roles cannot answer."""
    refuse_unusable(inventory)
    refuse_absent_lab(inventory)
    with room("eai-mirror-ask") as folder:
        extra = {"mirror_to": str(folder), "mirror_recorded": str(recorded.resolve()) if recorded else ""}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        program = shutil.which("ansible-playbook", path=path)
        if program is None:
            raise UsageFault(f"ansible-playbook is not installed: {sys.executable} -m pip install ansible-core")
        playbook = project.file("playbooks/mirror.yml")
        words = [program, "-i", str(inventory.resolve()), str(playbook), "-e", json.dumps(extra)]
        shown(words)
        environment = {**os.environ, "PATH": path, "ANSIBLE_CONFIG": str(project.ROOT / "ansible.cfg")}
        done = bounded.run(words, most=64 << 20, env={**environment, "ANSIBLE_NOCOLOR": "1"}, cwd=str(project.ROOT))
        if done.returncode != 0:
            said = (done.stdout + done.stderr).decode("utf-8", "replace").splitlines()
            told = [line.strip() for line in said if "ERROR" in line or "fatal:" in line] or said[-3:]
            raise UsageFault(f"{inventory}: the roles could not be asked: {' '.join('; '.join(told[:4]).split())}")
        answers = {file.stem: _read(file) for file in sorted(folder.glob("*.json"))}
    if not answers:
        raise UsageFault(f"{inventory}: has no node, so nothing has to be mirrored")
    return answers


def _read(file: Path) -> Asked:
    try:
        return Asked.model_validate_json(file.read_bytes())
    except ValidationError as fault:
        raise UsageFault(f"{file.stem}: the roles' answer cannot be read: {fault.errors()[0]['msg']}") from None


def by_system(answers: Mapping[str, Asked]) -> list[SystemWishes]:
    """The same by system: nodes that need the same are asked for once."""
    found: dict[str, SystemWishes] = {}
    for node, one in answers.items():
        system = one.packages.os_key
        wishes = found.setdefault(system, SystemWishes(system))
        wanted: dict[str, str] = {}
        for role, packages in one.packages.wanted.items():
            wanted |= packages
            for name in packages:
                wishes.roles.setdefault(name, role)
        pins = (*one.sources.pins, *one.packages.pins)
        if (wanted, pins) not in wishes.sets.values():
            wishes.sets[node] = (wanted, pins)
        if one.packages.image:
            wishes.sets[f"{node}: training image"] = (dict.fromkeys(one.packages.image, ""), pins)
            for name in one.packages.image:
                wishes.roles.setdefault(name, "horovod")
        for source in one.sources.repositories:
            wishes.sources.setdefault(source.name, source)
    return list(found.values())
