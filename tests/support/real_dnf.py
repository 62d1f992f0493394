"""A node's dnf in a folder: real transactions of ansible.builtin.dnf, on the lab's RPM stand-ins.

`--installroot` keeps all of it in the folder; the packages are made by rpmbuild and createrepo_c, and signed. The
module runs as on a node: by the interpreter that has dnf's bindings, apart from this one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ansible

from tests.support.dnf_node import DnfNode
from toolkit.lab import rpmrepo
from toolkit.lab.debrepo import make_key
from toolkit.lab.host import RPM_TOOLS
from toolkit.lab.rpm_packages import load_rpm_packages

PYTHON = "/usr/bin/python3"
MACHINE = rpmrepo.MACHINE
TOOLS = ("dnf", "gpg", "rpm", *RPM_TOOLS)
#: What verifies an index, by gpgme, and a package: every EL has them.
VERIFIES = ("gpg", "gpgconf", "rpmkeys")
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


def missing_tools() -> list[str]:
    """What this machine lacks for it."""
    there = subprocess.run([PYTHON, "-c", "import dnf"], capture_output=True, check=False).returncode == 0
    return [tool for tool in TOOLS if shutil.which(tool) is None] + ([] if there else ["python3-dnf"])


def make_repositories(folder: Path) -> None:
    """The lab's repositories for EL 9, folder/NAME/el9, signed with the key in folder/key."""
    make_key(folder / "key")
    rpmrepo.make_repositories(load_rpm_packages(), folder, folder / "key")


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
        signed = f"gpgcheck=1\nrepo_gpgcheck=1\ngpgkey=file://{repositories}/key/key.asc\n"
        for path in sorted(p for p in repositories.iterdir() if (p / "el9/repodata").is_dir()):
            section = f"[{path.name}]\nname={path.name}\nbaseurl=file://{path}/el9\n{signed}metadata_expire=never\n"
            (self.root / f"etc/yum.repos.d/{path.name}.repo").write_text(section, encoding="utf-8")
        (folder / "dnf.conf").write_text(CONFIGURATION.format(root=self.root), encoding="utf-8")
        plugin = f"[main]\nenabled=1\nlocklist={self.locks}\n"
        (self.root / "etc/dnf/plugins/versionlock.conf").write_text(plugin, encoding="utf-8")
        (folder / ".rpmmacros").write_text("%_dbpath /var/lib/rpm\n", encoding="utf-8")  # Debian's is the user's own
        self.home = {"HOME": str(folder), "LC_ALL": "C.UTF-8"}
        (folder / "modules").mkdir()
        (folder / "modules/ansible").symlink_to(Path(ansible.__file__).parent)  # and nothing else of this environment
        for tool in VERIFIES:
            (folder / "modules" / tool).symlink_to(shutil.which(tool) or tool)

    def dnf(self, args: Mapping[str, Any], check: bool) -> dict[str, Any]:
        """The real module's answer."""
        where = {"installroot": str(self.root), "conf_file": str(self.folder / "dnf.conf"), "releasever": "9"}
        arguments = {**args, **where, "_ansible_check_mode": check}
        done = subprocess.run(
            [PYTHON, "-m", "ansible.modules.dnf"],
            input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}), capture_output=True, text=True, check=False,
            # No other program of the node is needed for it: a small EL lacks some, as fuser.
            env={**self.home, "PATH": str(self.folder / "modules"), "PYTHONPATH": str(self.folder / "modules")},
            cwd=self.folder,
        )  # fmt: skip
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        assert lines, done.stdout + done.stderr
        answer: dict[str, Any] = json.loads(lines[-1])
        return answer

    def agents(self) -> list[int]:
        """The agents that gpg has started here to verify indices, one for each repository."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
                found += [int(path.name)] if words[0] == "gpg-agent" and f"{self.root}/" in " ".join(words) else []
        return found

    def commands(self, command: list[str], **_: Any) -> tuple[int, str, str]:
        """rpm, on the installation root."""
        words = [command[0], "--root", self.root, *command[1:]] if command[0] == "rpm" else command
        environment = {**os.environ, **self.home}
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
        return done.returncode, done.stdout, done.stderr

    def installed(self) -> set[str]:
        """Name-version-release.architecture of each package; not the keys, which rpm lists as packages."""
        return {name for name in self.commands(["rpm", "-qa"])[1].split() if not name.startswith("gpg-pubkey-")}


@contextlib.contextmanager
def node_of(folder: Path, repositories: Path) -> Iterator[Node]:
    """A node, of which nothing runs afterwards: gpg's agents outlive dnf. Each holds two of the inotify instances that
    root has, 128 by default, which the services in the nodes of labs need."""
    node = Node(folder, repositories)
    try:
        yield node
    finally:
        for agent in node.agents():
            os.kill(agent, signal.SIGTERM)
        end = time.monotonic() + 10
        while node.agents() and time.monotonic() < end:
            time.sleep(0.02)
    assert node.agents() == []
