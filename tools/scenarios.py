#!/usr/bin/env python3
"""Print the molecule scenarios that play a role, playbook or file that changed since a commit, one a line.

    tools/scenarios.py origin/main      what this branch and the working tree changed since they left origin/main
    tools/scenarios.py --all            every scenario

A scenario is printed where something changed that it plays: a role or playbook named in its files or in its converge
playbook, directly or through other roles; its own files; or what every scenario uses.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
#: A change of these concerns every scenario: what makes nodes, plays roles, or gives them versions and values.
EVERYWHERE = (
    ".config/molecule/",
    "ansible.cfg",
    "molecule/shared/",
    "playbooks/group_vars/",
    "plugins/",
    "requirements-test.lock",
    "stacks/",
    "toolkit/lab/",
)
#: Sources outside a role that the role puts on nodes.
SHIPPED = {
    "engine/": {"remoting_client", "remoting_server"},
    "toolkit/engine/": {"remoting_client", "remoting_server"},
    "toolkit/backup/": {"backup"},
    "toolkit/lease/": {"remoting_client", "remoting_server", "slurm"},
    "toolkit/login/": {"pool_login"},
    "toolkit/page/": {"pool_page"},
    "toolkit/pool_answers.py": {"remoting_client"},
    "validation/nvml/": {"acceptance", "monitoring", "remoting_client", "remoting_server"},
    "validation/probes/": {"acceptance"},
    "validation/measures/": {"acceptance"},
    "tools/build_wheel.py": {"acceptance"},
}
_ROLE_TASKS = {f"{prefix}{name}" for prefix in ("", "ansible.builtin.") for name in ("include_role", "import_role")}
#: Tasks of a role that others end with, by role: they play nothing else of it (the record of a stage).
PASSING = {"acceptance": "stage"}
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLAYBOOKS = {f"{prefix}import_playbook" for prefix in ("", "ansible.builtin.")}


def scenarios() -> list[str]:
    """Every scenario, by the name of its folder."""
    return sorted(path.parent.name for path in (ROOT / "molecule").glob("*/molecule.yml"))


def _mappings(document: Any) -> Iterator[dict[str, Any]]:
    """Every mapping in a document, however deep."""
    if isinstance(document, dict):
        yield document
        document = list(document.values())
    if isinstance(document, list):
        for item in document:
            yield from _mappings(item)


@cache
def named(path: Path) -> tuple[set[str], set[Path]]:
    """The roles that a file of Ansible plays, and the playbooks that it imports."""
    roles: set[str] = set()
    playbooks: set[Path] = set()
    for mapping in _mappings(yaml.load(path.read_bytes(), _LOADER)):  # noqa: S506 - a safe loader
        for role in mapping.get("roles") or ():
            roles.add(role if isinstance(role, str) else role.get("role", ""))
        for key in _ROLE_TASKS & mapping.keys():
            if PASSING.get(mapping[key]["name"]) != mapping[key].get("tasks_from", "main"):
                roles.add(mapping[key]["name"])
        for key in _PLAYBOOKS & mapping.keys():
            playbooks.add((path.parent / mapping[key]).resolve())
    return {name.rpartition(".")[2] for name in roles if "{{" not in name}, playbooks


@cache
def played(scenario: str) -> tuple[set[str], set[str]]:
    """The roles that a scenario plays, and every file outside them that it reads, as paths from the root."""
    home = ROOT / "molecule" / scenario
    own = yaml.safe_load((home / "molecule.yml").read_text(encoding="utf-8"))
    stated = (own.get("provisioner") or {}).get("playbooks") or {}
    converge = stated.get("converge", f"../../playbooks/{scenario}.yml")
    waiting = {path for path in home.rglob("*.yml") if path.name != "molecule.yml"}
    waiting |= {(home / name).resolve() for name in (converge, *stated.values())}
    checks = (own.get("verifier") or {}).get("additional_files_or_dirs") or ()
    # Paths of checks are relative to the scenario's folder of tests.
    files = {str((home / "tests" / name).resolve().relative_to(ROOT)) for name in checks}
    roles: set[str] = set()
    seen: set[Path] = set()
    while waiting:
        path = waiting.pop()
        seen.add(path)
        more, playbooks = named(path)
        for role in more - roles:
            folder = ROOT / "roles" / role
            playbooks |= {*folder.rglob("tasks/*.yml"), *folder.rglob("handlers/*.yml")}
        roles |= more
        waiting |= playbooks - seen
    files |= {str(path.relative_to(ROOT)) for path in seen if "roles" not in path.relative_to(ROOT).parts[:1]}
    return roles, files


def affected(changed: Iterable[str]) -> list[str]:
    """The scenarios that changes of these files concern."""
    paths = sorted(changed)
    if any(path.startswith(EVERYWHERE) for path in paths):
        return scenarios()
    touched = {path.split("/")[1] for path in paths if path.startswith("roles/")}
    for prefix, roles in SHIPPED.items():
        touched |= {role for role in roles if any(path.startswith(prefix) for path in paths)}
    found = []
    for scenario in scenarios():
        roles, read = played(scenario)
        files = {*read, f"molecule/{scenario}"}
        if touched & roles or any(path == file or path.startswith(f"{file}/") for path in paths for file in files):
            found.append(scenario)
    return found


def changed_since(base: str, root: Path = ROOT) -> set[str]:
    """Every file that differs from where this branch left `base`: committed, in the working tree, or new."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout

    fork = git("merge-base", base, "HEAD").strip()
    names = git("diff", "--name-only", "--no-renames", "-z", fork)
    return {name for name in (names + git("ls-files", "-z", "--others", "--exclude-standard")).split("\0") if name}


def main() -> int:
    """Print the scenarios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("base", nargs="?", help="the commit, branch or tag to compare with")
    parser.add_argument("--all", action="store_true", help="every scenario")
    asked = parser.parse_args()
    if asked.all == bool(asked.base):
        parser.error("name one commit, or say --all")
    try:
        names = scenarios() if asked.all else affected(changed_since(asked.base))
    except subprocess.CalledProcessError as failed:
        print(f"error: cannot compare with '{asked.base}': {failed.stderr.strip()}", file=sys.stderr)
        return 2
    print("".join(f"{name}\n" for name in names), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
