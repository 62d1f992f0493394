"""A node's dnf in a folder: real transactions of ansible.builtin.dnf, on RPM repositories of tests/data/rpm/el9.yml.

`--installroot` keeps all of it in the folder; the packages are empty and made by rpmbuild and createrepo_c. The module
runs as on a node: by the interpreter that has dnf's bindings, apart from this one.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ansible
import yaml

from tests.support.dnf_node import DnfNode
from tests.support.node_modules import ROOT

PYTHON = "/usr/bin/python3"
MACHINE = platform.machine()
TOOLS = ("dnf", "rpm", "rpmbuild", "createrepo_c", "modifyrepo_c")
CONFIGURATION = """\
[main]
installroot={root}
reposdir={root}/etc/yum.repos.d
cachedir={root}/var/cache/dnf
persistdir={root}/var/lib/dnf
logdir={root}/var/log
varsdir={root}/etc/dnf/vars
pluginconfpath={root}/etc/dnf/plugins
module_platform_id=platform:el9
best=1
"""
HEAD = """\
%global debug_package %{nil}
%define __os_install_post %{nil}
Name: stand-ins
Version: 1
Release: 1
Summary: Stand-ins of the Elastic AI Toolkit's tests, not the vendors' software
License: none
%description
None of the vendors' software.
"""


def missing_tools() -> list[str]:
    """What this machine lacks for it."""
    there = subprocess.run([PYTHON, "-c", "import dnf"], capture_output=True, check=False).returncode == 0
    return [tool for tool in TOOLS if shutil.which(tool) is None] + ([] if there else ["python3-dnf"])


def _sections(entry: Mapping[str, Any], version: str) -> str:
    """A package's part of a spec file."""
    epoch = f"{entry['epoch']}:" if "epoch" in entry else ""
    words = {"version": version, "upstream": version.rsplit("-", 1)[0], "evr": epoch + version, "machine": MACHINE}
    number, release = version.rsplit("-", 1)
    lines = [f"%package -n {entry['name']}", "Summary: stand-in", f"Version: {number}", f"Release: {release}"]
    lines += [f"Epoch: {entry['epoch']}"] if epoch else []
    for relation in ("requires", "recommends", "provides", "conflicts"):
        lines += [f"{relation.capitalize()}: {text.format(**words)}" for text in entry.get(relation, [])]
    lines += [f"%description -n {entry['name']}", "stand-in", f"%files -n {entry['name']}"]
    return "\n".join(lines) + "\n"


def _modules(streams: Mapping[str, Any], files: list[str]) -> str:
    """Metadata of module streams, each with the packages of its releases."""
    documents: list[dict[str, Any]] = []
    for stream, releases in streams["releases"].items():
        # name-version-release.arch.rpm; those of a driver have an epoch, which no file's name has
        parts = [file.removesuffix(".rpm").rsplit("-", 2) for file in files]
        rpms = [f"{name}-3:{number}-{rest}" for name, number, rest in parts if number.startswith(releases)]
        about = {"summary": "stand-in", "description": "stand-in", "license": {"module": ["none"]}}
        names = {"name": streams["module"], "stream": stream, "version": 1, "context": "1", "arch": MACHINE}
        data = {**names, **about, "artifacts": {"rpms": [rpm for rpm in rpms if "fabric" not in rpm]}}
        documents.append({"document": "modulemd", "version": 2, "data": data})
    default = {"module": streams["module"], "stream": streams["default"]}
    documents.append({"document": "modulemd-defaults", "version": 1, "data": default})
    return "".join(f"---\n{yaml.safe_dump(document)}...\n" for document in documents)


def make_repositories(folder: Path) -> None:
    """folder/NAME for each repository of the data. A spec file holds one version of each name, so one for each age."""
    data = yaml.safe_load((ROOT / "tests/data/rpm/el9.yml").read_text(encoding="utf-8"))
    streams = data.pop("streams")
    for name, entries in data.items():
        (folder / name).mkdir(parents=True)
        for age in range(max(len(entry["versions"]) for entry in entries)):
            spec = folder / f"{name}-{age}.spec"
            sections = [_sections(entry, entry["versions"][age]) for entry in entries if len(entry["versions"]) > age]
            spec.write_text(HEAD + "".join(sections), encoding="utf-8")
            top = folder / "build" / spec.stem
            subprocess.run(
                ["rpmbuild", "-bb", "--quiet", f"--define=_topdir {top}", f"--define=_rpmdir {folder / name}", spec],
                check=True, capture_output=True, text=True,
            )  # fmt: skip
        subprocess.run(["createrepo_c", "--quiet", folder / name], check=True, capture_output=True)
    repository = folder / streams["repository"]
    listing = folder / "modules.yaml"
    listing.write_text(_modules(streams, [path.name for path in repository.rglob("*.rpm")]), encoding="utf-8")
    modify = ["modifyrepo_c", "--mdtype=modules", listing, repository / "repodata"]
    subprocess.run(modify, check=True, capture_output=True)


class Node(DnfNode):
    """An installation root with these repositories."""

    def __init__(self, folder: Path, repositories: Path) -> None:
        super().__init__(folder)
        self.root = folder / "root"
        for path in (
            "etc/yum.repos.d",
            "etc/dnf/vars",
            "etc/dnf/plugins",
            "etc/dnf/modules.d",
            "var/log",
            "var/lib/rpm",
        ):
            (self.root / path).mkdir(parents=True)
        for path in sorted(p for p in repositories.iterdir() if (p / "repodata").is_dir()):
            section = f"[{path.name}]\nname={path.name}\nbaseurl=file://{path}\ngpgcheck=0\nmetadata_expire=never\n"
            (self.root / f"etc/yum.repos.d/{path.name}.repo").write_text(section, encoding="utf-8")
        (folder / "dnf.conf").write_text(CONFIGURATION.format(root=self.root), encoding="utf-8")
        plugin = f"[main]\nenabled=1\nlocklist={self.locks}\n"
        (self.root / "etc/dnf/plugins/versionlock.conf").write_text(plugin, encoding="utf-8")
        (folder / ".rpmmacros").write_text("%_dbpath /var/lib/rpm\n", encoding="utf-8")  # Debian's is the user's own
        self.home = {"HOME": str(folder), "LC_ALL": "C.UTF-8"}
        (folder / "modules").mkdir()
        (folder / "modules/ansible").symlink_to(Path(ansible.__file__).parent)  # and nothing else of this environment

    def dnf(self, args: Mapping[str, Any], check: bool) -> dict[str, Any]:
        """The real module's answer."""
        where = {"installroot": str(self.root), "conf_file": str(self.folder / "dnf.conf"), "releasever": "9"}
        arguments = {**args, **where, "_ansible_check_mode": check}
        done = subprocess.run(
            [PYTHON, "-m", "ansible.modules.dnf"],
            input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}), capture_output=True, text=True, check=False,
            # No program of the node is needed for it: a small EL lacks some, as fuser.
            env={**self.home, "PATH": str(self.folder / "modules"), "PYTHONPATH": str(self.folder / "modules")},
            cwd=self.folder,
        )  # fmt: skip
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        assert lines, done.stdout + done.stderr
        answer: dict[str, Any] = json.loads(lines[-1])
        return answer

    def commands(self, command: list[str], **_: Any) -> tuple[int, str, str]:
        """rpm, on the installation root."""
        words = [command[0], "--root", self.root, *command[1:]] if command[0] == "rpm" else command
        environment = {**os.environ, **self.home}
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
        return done.returncode, done.stdout, done.stderr

    def installed(self) -> set[str]:
        """Name-version-release.architecture of each package."""
        return set(self.commands(["rpm", "-qa"])[1].split())
