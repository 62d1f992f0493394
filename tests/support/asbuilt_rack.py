"""A site whose nodes are answered for by a stand-in of ssh, for `toolkit check` with the real pytest and Ansible."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.support import fake_node
from tests.support.warm import command


class Rack:
    """A folder with an inventory, and an ssh that asks nodes of a table."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes = {name: fake_node.healthy(name) for name in ("head", "client1", "gpu1")}
        found = fake_node.inventory()
        groups = {
            group: {"hosts": {name: found["_meta"]["hostvars"][name] for name in found[group]["hosts"]}}
            for group in ("heads", "clients", "gpu_servers")
        }
        (folder / "site").mkdir()
        document = {"all": {"vars": {"ansible_user": "root"}, "children": groups}}
        (folder / "site/hosts.yml").write_text(yaml.safe_dump(document))
        (folder / "bin").mkdir()
        ssh = folder / "bin/ssh"
        ssh.write_text(f'#!/bin/sh\nexec {sys.executable} {fake_node.__file__} {folder}/nodes "$@"\n')
        ssh.chmod(0o755)

    def declare(self, **variables: dict[str, Any]) -> None:
        """Give nodes further variables: node -> variables."""
        file = self.folder / "site/hosts.yml"
        document = yaml.safe_load(file.read_text())
        for group in document["all"]["children"].values():
            for name in group["hosts"].keys() & variables.keys():
                group["hosts"][name] |= variables[name]
        file.write_text(yaml.safe_dump(document))

    def environment(self) -> dict[str, str]:
        addresses = {"head": "10.0.0.10", "client1": "10.0.0.11", "gpu1": "10.0.0.12"}
        table = {addresses[name]: node for name, node in self.nodes.items()}
        (self.folder / "nodes").write_bytes(pickle.dumps(table))
        return {**os.environ, "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}

    def check(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return command(self.folder, ("check", "-i", "site", *arguments), self.environment())
