"""The collection elastic_ai.toolkit: built, installed into an empty folder, and a role run from there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.computes

REPO = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
#: What a site writes that has nothing but the collection.
PLAYBOOK = """
- name: Container engine
  hosts: all
  gather_facts: true
  gather_subset: ["!all", min, virtual]
  roles:
    - role: elastic_ai.toolkit.docker
      docker_provider: docker_ce
      docker_version: 29.4.3
"""
FOLDERS = {"meta", "playbooks", "plugins", "roles", "stacks", "toolkit", "tools", "validation"}


def ansible(folder: Path, name: str, *arguments: str, **environment: str) -> str:
    """What one of Ansible's commands says in a folder without settings, where only these collections are found."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    own = {"HOME": str(folder), "ANSIBLE_COLLECTIONS_PATH": str(folder), "NO_COLOR": "1"}
    done = subprocess.run(
        [BIN / name, *arguments],
        cwd=folder, env=kept | own | environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the collection, from an archive that was built of this tree."""
    folder = tmp_path_factory.mktemp("site")
    ansible(folder, "ansible-galaxy", "collection", "build", str(REPO), "--output-path", str(folder))
    archive = next(folder.glob("elastic_ai-toolkit-*.tar.gz"))
    ansible(folder, "ansible-galaxy", "collection", "install", str(archive), "--offline", "-p", str(folder))
    return folder


def test_the_archive_holds_what_roles_need_and_nothing_else(installed: Path) -> None:
    with tarfile.open(next(installed.glob("*.tar.gz"))) as archive:
        names = archive.getnames()
    assert {name.split("/")[0] for name in names if "/" in name} == FOLDERS
    assert not [name for name in names if "__pycache__" in name or name.startswith("ansible_collections")]
    for role in ("remoting_client", "remoting_server"):
        variables = yaml.safe_load((REPO / f"roles/{role}/vars/main.yml").read_text(encoding="utf-8"))
        assert {*variables[f"__{role}_modules"]} <= {*names}, "what the role puts on nodes"
    kernels = "toolkit/lease/programs/kernels/"
    assert [n for n in names if n.startswith(kernels)] == [f"{kernels}train.ptx"]
    assert not [n for n in names if n.startswith("toolkit/engine/")], "nothing is compiled from a collection"
    galaxy = yaml.safe_load((REPO / "galaxy.yml").read_text(encoding="utf-8"))
    project = (REPO / "pyproject.toml").read_text(encoding="utf-8")
    assert f'\nversion = "{galaxy["version"]}"\n' in project, "one version for the package and the collection"


def test_ansible_doc_knows_every_filter_of_the_archive(installed: Path) -> None:
    names = sorted(f"elastic_ai.toolkit.{path.stem}" for path in (REPO / "plugins/filter").glob("*.yml"))
    told = json.loads(ansible(installed, "ansible-doc", "-t", "filter", "--json", *names))
    assert sorted(told) == names
    assert all(str(installed) in one["doc"]["filename"] for one in told.values())


def test_a_role_runs_from_the_installed_collection_on_rocky_10(installed: Path) -> None:
    """A system that only role docker knows: its entry in one file of that role is all that it takes."""
    node = json.loads((REPO / "tests/data/facts/os/el9.json").read_text(encoding="utf-8"))
    node["ansible_facts"] |= {
        "ansible_distribution": "Rocky",
        "ansible_distribution_version": "10.1",
        "ansible_distribution_major_version": "10",
    }
    (installed / "rocky10.json").write_text(json.dumps(node), encoding="utf-8")
    (installed / "play.yml").write_text(PLAYBOOK, encoding="utf-8")
    hosts = "node1 ansible_connection=canned canned_recording={0}/rocky10.json canned_log={0}/calls"
    (installed / "hosts.ini").write_text(hosts.format(installed), encoding="utf-8")
    canned = {"ANSIBLE_CONNECTION_PLUGINS": str(REPO / "tests/plugins/connection")}
    said = ansible(installed, "ansible-playbook", "play.yml", "--check", "-i", "hosts.ini", **canned)
    assert "elastic_ai.toolkit.docker : Gather node state" in said
    calls = [json.loads(line) for line in (installed / "calls").read_text(encoding="utf-8").splitlines()]
    wanted = next(call["args"]["wanted"] for call in calls if call["module"] == "package_ledger")
    assert (wanted["docker-ce"], wanted["docker-ce-cli"]) == ("3:29.4.3-1.el10", "1:29.4.3-1.el10")
    asked = next(call["args"]["name"] for call in calls if call["module"] == "dnf")
    assert {"docker-ce-3:29.4.3-1.el10", "docker-ce-cli-1:29.4.3-1.el10"} <= set(asked)
