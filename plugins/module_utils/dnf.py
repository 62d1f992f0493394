"""package_set by dnf and rpm: the same interface as apt, as far as Enterprise Linux 9 needs it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ansible_collections.elastic_ai.toolkit.plugins.module_utils.packages import Action, LockedError, Plan, explain

Runner = Callable[[list[str]], tuple[int, str]]
ENVIRONMENT = {"LC_ALL": "C.UTF-8"}
NEVR = "%{NAME}\t%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\n"
SECTIONS = {
    "Installing": "install",
    "Upgrading": "upgrade",
    "Downgrading": "downgrade",
    "Removing": "remove",
    "Reinstalling": "",
}


def parse_transaction(output: str, installed: Mapping[str, str]) -> Plan:
    """The transaction that dnf prints before it asks: sections of rows, name arch version repository size."""
    plan, kind = Plan(), ""
    for line in output.splitlines():
        section = re.match(r"([A-Z][a-z]+)(?: [a-z ]+)?:$", line)
        if section:
            kind = SECTIONS.get(section[1], "")
            continue
        row = re.match(r" (\S+)\s+(?:x86_64|noarch|aarch64|i686)\s+(\S+)\s+\S+", line)
        if row and kind:
            version = "" if kind == "remove" else row[2]
            plan.actions.append(Action(kind, row[1], version, installed.get(row[1], "")))
    return plan


class Dnf:
    """Red Hat Enterprise Linux 9 and what is built from it."""

    def __init__(self, run: Runner, lock_timeout_s: int, recommends: bool) -> None:
        """run gives the exit code and all output of a command."""
        self.run = run
        self.lock_timeout_s = lock_timeout_s
        self.settings = [f"--setopt=install_weak_deps={recommends}", "--setopt=clean_requirements_on_remove=False"]
        self.notes: list[str] = []

    def must(self, command: list[str]) -> str:
        """Output of a command that has to succeed."""
        code, output = self.run(command)
        if code != 0:
            raise explain(output)
        return output

    def locked(self, work: Callable[[], str]) -> str:
        """dnf itself waits for its lock without end, so whoever holds it is looked for before."""
        until = time.monotonic() + self.lock_timeout_s
        while True:
            code, output = self.run(["fuser", "/var/lib/rpm/.rpm.lock"])
            if code != 0:
                return work()
            if time.monotonic() >= until:
                pids = " ".join(re.findall(r"\d+", output.split(":")[-1]))
                raise LockedError(
                    f"another package manager is at work: /var/lib/rpm/.rpm.lock is held by process {pids};"
                    f" waited {self.lock_timeout_s} s (packages_lock_timeout_s). Nothing was changed; run again when it"
                    " has ended"
                )
            time.sleep(1)

    def installed(self) -> dict[str, str]:
        """Version of each installed package."""
        return dict(line.split("\t", 1) for line in self.must(["rpm", "-qa", "--qf", NEVR]).splitlines())

    def traces(self) -> set[str]:
        """Packages that are installed."""
        return set(self.installed())

    def held(self) -> set[str]:
        """Packages that are locked to a version."""
        locks = Path("/etc/dnf/plugins/versionlock.list")
        lines = locks.read_text(encoding="utf-8").splitlines() if locks.is_file() else []
        return {found[1] for line in lines if (found := re.match(r"([^#!\s]\S*?)-\d+:", line))}

    def half_done(self) -> list[str]:
        """Rpm has no half-configured packages."""
        return []

    def repair(self) -> None:
        """Nothing to repair."""

    def lists_age_s(self) -> float:
        """Dnf keeps the age of its lists itself."""
        return 0.0

    def refresh(self) -> None:
        """Fetch the package lists."""
        self.must(["dnf", "-q", "makecache", "--refresh"])

    def versions(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Versions that can be had of each name, newest first."""
        found: dict[str, list[str]] = {name: [] for name in names}
        query = ["dnf", "-q", "repoquery", "--available", "--qf", "%{name}\t%{epoch}:%{version}-%{release}", *found]
        for line in self.run(query)[1].splitlines():
            name, _, version = line.partition("\t")
            if name in found:
                found[name].insert(0, version.removeprefix("0:"))
        return found

    def words(self, wanted: Mapping[str, str]) -> list[str]:
        """Packages as dnf takes them."""
        return [f"{name}-{version}" if version else name for name, version in wanted.items()]

    def simulate(self, wanted: Mapping[str, str]) -> Plan:
        """What installing would do; dnf ends with 1 when it is not allowed to go on, and prints its plan before."""
        code, output = self.run(["dnf", "--assumeno", *self.settings, "install", *self.words(wanted)])
        if code != 0 and "Operation aborted" not in output:
            raise explain(output)
        return parse_transaction(output, self.installed())

    def depends(self, plan: Plan) -> dict[str, list[str]]:
        """Dependencies of what a plan would install."""
        depends = {}
        for name in plan.names("install", "upgrade", "downgrade"):
            query = ["dnf", "-q", "repoquery", "--requires", "--resolve", "--qf", "%{name}", name]
            depends[name] = self.run(query)[1].split()
        return depends

    def check_space(self, wanted: Mapping[str, str], plan: Plan) -> None:
        """Dnf checks it before its transaction."""

    def install(self, wanted: Mapping[str, str], plan: Plan) -> None:
        """Install, in one transaction; holds of the toolkit itself are released for it."""
        own = sorted(self.held() & set(wanted))
        if own:
            self.unhold(own)
        self.locked(lambda: self.must(["dnf", "-y", *self.settings, "install", *self.words(wanted)]))

    def hold(self, names: Iterable[str]) -> None:
        """Lock packages to the versions that are installed."""
        self.must(["dnf", "-q", "versionlock", "add", *names])

    def unhold(self, names: Iterable[str]) -> None:
        """Release packages."""
        self.must(["dnf", "-q", "versionlock", "delete", *names])

    def dependencies(self) -> dict[str, list[list[str]]]:
        """Left to dnf, which would remove what depends; simulate_purge shows it and package_set refuses."""
        return {name: [] for name in self.installed()}

    def simulate_purge(self, names: Iterable[str], restore: Iterable[str]) -> Plan:
        """What removing would do."""
        code, output = self.run(["dnf", "--assumeno", *self.settings, "remove", *names])
        if code != 0 and "Operation aborted" not in output:
            raise explain(output)
        return parse_transaction(output, self.installed())

    def purge(self, names: Iterable[str], restore: Iterable[str]) -> None:
        """Remove, and then bring back what installing had removed."""
        self.locked(lambda: self.must(["dnf", "-y", *self.settings, "remove", *names]))
        back = list(restore)
        if back:
            self.locked(lambda: self.must(["dnf", "-y", *self.settings, "install", *back]))
