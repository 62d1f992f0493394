"""A node's apt in a folder: real apt-get with its own configuration, lists and package database; nothing is installed.

What a transaction would leave on the node is written down by `apply`: the status of each package, and its files below
/etc. A removed package leaves those, as dpkg does with configuration files.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from tests.support.node_modules import load

apt, packages = load("plugins/module_utils/apt.py"), load("plugins/module_utils/packages.py")
SETTINGS = """\
Dir "{root}";
Dir::State::status "{root}/var/lib/dpkg/status";
Dir::Etc::trusted "/etc/apt/trusted.gpg";
APT::Sandbox::User "root";
APT::Architecture "{architecture}";
"""


class Node:
    """A node without any package, whose only repository is `repository` (flat, as the lab's builder makes it)."""

    def __init__(self, root: Path, repository: Path) -> None:
        self.root, self.repository = root, repository
        self.architecture = subprocess.check_output(["dpkg", "--print-architecture"], text=True).strip()
        for folder in ("etc/apt/preferences.d", "etc/apt/sources.list.d", "etc/apt/apt.conf.d", "var/lib/dpkg"):
            (root / folder).mkdir(parents=True)
        for folder in ("var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/log/apt"):
            (root / folder).mkdir(parents=True)
        (root / "etc/apt/sources.list").write_text(f"deb [trusted=yes] file:{repository} ./\n")
        (root / "apt.conf").write_text(SETTINGS.format(root=root, architecture=self.architecture))
        self.fresh()
        self.apt: Any = apt.Apt(self.run, 300, False)
        self.apt.must(["apt-get", "update"])

    def fresh(self) -> None:
        """As it was before anything was installed or written."""
        self.status: dict[str, str] = {}
        self._write_status()
        for path in (self.root / "etc/apt/preferences.d").iterdir():
            path.unlink()

    def run(self, command: list[str]) -> tuple[int, str]:
        """Exit code and all output, as the module's runner gives them."""
        where = {"APT_CONFIG": str(self.root / "apt.conf"), "DPKG_ADMINDIR": str(self.root / "var/lib/dpkg")}
        environment = {**os.environ, **apt.ENVIRONMENT, **where}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        return done.returncode, done.stdout + done.stderr

    def plan(self, wanted: dict[str, str], forbid: tuple[str, ...] = ()) -> Any:
        """What package_set would do here; PackageError in its words where it refuses."""
        plan = self.apt.simulate(wanted)
        reasons = packages.refusals(plan, wanted, forbid, [], {})
        if reasons:
            raise packages.PackageError("; ".join(reasons))
        return plan

    def would(self, wanted: dict[str, str]) -> dict[str, str]:
        """Versions by package that would come."""
        return {action.name: action.version for action in self.plan(wanted).actions}

    def transaction(self, wanted: dict[str, str], forbid: tuple[str, ...] = ()) -> dict[str, str]:
        """Versions by package after it."""
        self.apply(self.plan(wanted, forbid))
        return self.installed()

    def installed(self) -> dict[str, str]:
        """Version by package."""
        found: dict[str, str] = self.apt.installed()
        return found

    def apply(self, plan: Any) -> None:
        """What dpkg would have done."""
        for action in plan.actions:
            if action.kind == "remove":
                self.status[action.name] = re.sub(
                    r"^Status: .*$", "Status: deinstall ok config-files", self.status[action.name], flags=re.MULTILINE
                )
                continue
            deb = self.repository / f"{action.name}_{action.version.split(':')[-1]}_{self.architecture}.deb"
            control = subprocess.check_output(["dpkg-deb", "-f", deb], text=True)
            self.status[action.name] = re.sub(
                r"^(Package: .*)$", r"\1\nStatus: install ok installed", control, count=1, flags=re.MULTILINE
            )
            files = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], capture_output=True, check=True).stdout
            tar = ["tar", "-x", "--no-same-owner", "-C", self.root, "--wildcards", "./etc/*"]
            subprocess.run(tar, input=files, capture_output=True, check=False)  # most have nothing below /etc
        self._write_status()

    def _write_status(self) -> None:
        text = "\n".join(stanza.strip() + "\n" for stanza in self.status.values())
        (self.root / "var/lib/dpkg/status").write_text(text)
