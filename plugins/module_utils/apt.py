"""package_set by apt and dpkg."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ansible_collections.elastic_ai.toolkit.plugins.module_utils.packages import (
    Action,
    LockedError,
    PackageError,
    Plan,
    explain,
)

Runner = Callable[[list[str]], tuple[int, str]]
LISTS = Path("/var/lib/apt/lists")
LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock")
# needrestart, which Ubuntu's servers have, would restart services by itself in the middle of a transaction.
ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "LC_ALL": "C.UTF-8",
    "LANGUAGE": "",  # C.UTF-8 alone leaves messages to it
    "APT_LISTCHANGES_FRONTEND": "none",
    "NEEDRESTART_SUSPEND": "1",
}
# A role's own configuration is in place before a package that ships another one.
CONFFILES = ["-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"]
FIELDS = "${Package}\t${Architecture}\t${db:Status-Want}\t${db:Status-Status}\t${db:Status-Eflag}\t${Version}"
FLOCK = "hhqqi4x"  # struct flock on 64-bit Linux


def parse_simulation(output: str, older: Callable[[str, str], bool]) -> Plan:
    """The transaction that `apt-get -s` prints; older(a, b) tells whether version a is older than b."""
    plan = Plan()
    for line in output.splitlines():
        found = re.match(r"(Inst|Remv|Purg) (\S+)(?: \[([^\]]+)\])?(?: \((\S+))?", line)
        if not found:
            continue
        name, before, version = found[2], found[3] or "", found[4] or ""
        if found[1] != "Inst":
            plan.actions.append(Action("remove", name, before=before))
        elif not before:
            plan.actions.append(Action("install", name, version))
        else:
            kind = "downgrade" if older(version, before) else "upgrade"
            plan.actions.append(Action(kind, name, version, before))
    return plan


def parse_depends(output: str) -> dict[str, list[str]]:
    """What each package depends on, providers of virtual packages included, from `apt-cache depends`."""
    depends: dict[str, list[str]] = {}
    current = ""
    for line in output.splitlines():
        name = line.split(":")[-1].strip().strip("<>").lstrip("|")
        if line and not line.startswith(" "):
            current = line.strip().strip("<>")
            depends[current] = []
        elif re.match(r"  ?\|?(Pre)?Depends: |    ", line) and current:
            depends[current].append(name)
    return depends


def parse_relations(text: str) -> list[list[str]]:
    """Names in a Depends field, without versions and architectures: one list of alternatives for each relation."""
    relations = (clause.split("|") for clause in text.split(",") if clause.strip())
    return [[re.split(r"[\s(:\[]", choice.strip())[0] for choice in clause] for clause in relations]


def fetch_bytes(output: str) -> int:
    """What `apt-get --print-uris` says is still to be fetched; packages in folders are used where they lie."""
    return sum(int(size) for size in re.findall(r"^'(?!file:|copy:)[^']+' \S+ (\d+)", output, re.M))


def package_sizes_bytes(output: str) -> list[int]:
    """Sizes of the package files that `apt-cache show` describes, wherever they are."""
    return [int(size) for size in re.findall(r"^Size: (\d+)$", output, re.M)]


def installed_bytes(output: str) -> int:
    """Disk space of the packages that `apt-cache show` describes."""
    return sum(int(size) * 1024 for size in re.findall(r"^Installed-Size: (\d+)$", output, re.M))


#: What dpkg itself says while it configures packages.
OWN_WORDS = re.compile(r"dpkg: |Setting up |Processing |Errors were encountered| installed \S+ package | \S+$|\s*$")


def unfinished(left: list[str], said: str) -> str:
    """Why packages stay half-done, by what their scripts said when dpkg configured them, and what to do."""
    words = [line.strip() for line in said.splitlines() if not OWN_WORDS.match(line)][-3:]
    why = f": {'; '.join(words)}" if words else ""
    return (
        f"{', '.join(left)} was left half-configured, and its own script fails{why}. See to that (dpkg --configure -a "
        f"shows it), or take it away (apt-get purge {left[0]}), and run again; nothing else was changed"
    )


class Apt:
    """Debian and Ubuntu."""

    def __init__(self, run: Runner, lock_timeout_s: int, recommends: bool) -> None:
        """run gives the exit code and all output of a command."""
        self.run = run
        self.lock_timeout_s = lock_timeout_s
        self.recommends = recommends
        self.native = run(["dpkg", "--print-architecture"])[1].strip()
        self.notes: list[str] = []

    def older(self, one: str, other: str) -> bool:
        """Whether one version is older than the other."""
        return self.run(["dpkg", "--compare-versions", one, "lt", other])[0] == 0

    def rows(self) -> list[list[str]]:
        """All packages that dpkg knows: name, wanted, status, flag, version."""
        rows = []
        for line in self.run(["dpkg-query", "-W", "-f", FIELDS + "\n"])[1].splitlines():
            name, architecture, *rest = line.split("\t")
            foreign = architecture not in (self.native, "all", "")
            rows.append([f"{name}:{architecture}" if foreign else name, *rest])
        return rows

    def installed(self) -> dict[str, str]:
        """Version of each installed package."""
        return {
            name: version
            for name, _, status, _, version in self.rows()
            if status not in ("not-installed", "config-files")
        }

    def traces(self) -> set[str]:
        """Packages that are installed or have left configuration behind."""
        return {name for name, _, status, _, _ in self.rows() if status != "not-installed"}

    def held(self) -> set[str]:
        """Packages on hold."""
        return {name for name, want, _, _, _ in self.rows() if want == "hold"}

    def half_done(self) -> list[str]:
        """Packages that a killed or failed run left behind, or a journal that dpkg has still to read."""
        states = ("half-installed", "half-configured", "unpacked")
        names = [name for name, _, status, flag, _ in self.rows() if status in states or flag == "reinstreq"]
        journal = [p.name for p in Path("/var/lib/dpkg/updates").glob("[0-9]*")]
        return names or (["dpkg's journal"] if journal else [])

    def lock_holder(self) -> str:
        """Which lock is held and by whom, "" when all are free."""
        for name in LOCKS:
            if not Path(name).exists():
                continue
            with Path(name).open("rb+") as stream:
                question = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
                kind, _, _, _, pid = struct.unpack(FLOCK, fcntl.fcntl(stream, fcntl.F_GETLK, question))
            if kind == fcntl.F_UNLCK:
                continue
            try:
                command = (
                    Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                )
            except OSError:
                command = ""
            return f"{name} is held by " + (f"process {pid} ({command})" if command else "a process outside this node")
        return ""

    def locked(self, work: Callable[[], str]) -> str:
        """Do something that needs the locks; wait for them at most lock_timeout_s, then say who holds one."""
        until = time.monotonic() + self.lock_timeout_s
        while True:
            holder = self.lock_holder()
            if not holder:
                try:
                    return work()
                except LockedError as error:
                    holder = str(error)
            if time.monotonic() >= until:
                raise LockedError(
                    f"another package manager is at work: {holder}; waited {self.lock_timeout_s} s"
                    " (packages_lock_timeout_s). Nothing was changed; run again when it has ended"
                )
            time.sleep(1)

    def must(self, command: list[str]) -> str:
        """Output of a command that has to succeed."""
        code, output = self.run(command)
        if code != 0:
            raise explain(output)
        return output

    def get(self, *words: str) -> list[str]:
        """An apt-get command that asks nothing."""
        recommends = "true" if self.recommends else "false"
        settings = ["-o", f"APT::Install-Recommends={recommends}", "-o", f"DPkg::Lock::Timeout={self.lock_timeout_s}"]
        return ["apt-get", "-y", *CONFFILES, *settings, *words]

    def repair(self) -> None:
        """Finish what a killed run left half-done. PackageError with the words of a package's own script that fails."""

        def work() -> str:
            _, said = self.run(["dpkg", "--configure", "-a", "--force-confdef", "--force-confold"])
            if not self.half_done():
                return ""
            code, output = self.run(self.get("--fix-broken", "install"))  # what remains, apt mends
            left = self.half_done()
            if code != 0 and left and "script subprocess returned error" in said:
                raise PackageError(unfinished(left, said))
            if code != 0:
                raise explain(output)
            return output

        self.locked(work)

    def lists_age_s(self) -> float:
        """Age of the package lists; infinite when there are none, or when a source was changed after them."""
        if not any(LISTS.glob("*_Packages*")):
            return float("inf")
        fetched = LISTS.stat().st_mtime
        parts = [p for folder in ("sources.list.d", "preferences.d") for p in Path("/etc/apt", folder).glob("*")]
        changed = [p.stat().st_mtime for p in [Path("/etc/apt/sources.list"), *parts] if p.exists()]
        return float("inf") if any(stamp > fetched for stamp in changed) else time.time() - fetched

    def refresh(self) -> None:
        """Fetch the package lists."""
        output = self.locked(lambda: self.must(self.get("update")))
        self.notes = [line[3:] for line in output.splitlines() if line.startswith("W: ")]
        os.utime(LISTS)

    def versions(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Versions that can be had of each name, newest first; none of a name that apt does not know."""
        found: dict[str, list[str]] = {name: [] for name in names}
        for line in self.run(["apt-cache", "madison", *found])[1].splitlines() if found else []:
            parts = [part.strip() for part in line.split("|")]
            if len(parts) == 3 and parts[0] in found and not parts[2].endswith("Sources"):
                found[parts[0]].append(parts[1])
        return {name: list(dict.fromkeys(versions)) for name, versions in found.items()}

    def simulate(self, wanted: Mapping[str, str]) -> Plan:
        """What installing would do."""
        allow = ["--allow-downgrades", "--allow-change-held-packages"]
        return parse_simulation(self.must(self.get("-s", *allow, "install", *self.words(wanted))), self.older)

    def words(self, wanted: Mapping[str, str]) -> list[str]:
        """Packages as apt-get takes them."""
        return [f"{name}={version}" if version else name for name, version in wanted.items()]

    def depends(self, plan: Plan) -> dict[str, list[str]]:
        """Dependencies of what a plan would install."""
        return parse_depends(self.run(["apt-cache", "depends", *plan.names("install", "upgrade", "downgrade")])[1])

    def check_space(self, wanted: Mapping[str, str], plan: Plan) -> None:
        """Refuse before anything is done when the disk would fill up half-way."""
        archives = "/var/cache/apt/archives"
        new = [f"{action.name}={action.version}" for action in plan.actions if action.kind == "install"]
        shown = self.run(["apt-cache", "show", *new])[1] if new else ""
        sizes, use = package_sizes_bytes(shown), installed_bytes(shown)
        fetch = sum(sizes)
        # Only apt-get tells what is there already, but it takes as long as a small installation: asked where it counts.
        if len(sizes) < len(plan.actions) or shutil.disk_usage(archives).free < fetch:
            allow = ["--allow-downgrades", "--allow-change-held-packages"]
            fetch = fetch_bytes(self.run(self.get("--print-uris", *allow, "install", *self.words(wanted)))[1])
        for path, need in ((archives, fetch), ("/usr", use)):
            free = shutil.disk_usage(path).free
            if free < need:
                raise PackageError(
                    f"the disk is full: {path} has {free // 2**20} MiB free and {-(-need // 2**20)} MiB are needed."
                    " Nothing was changed; make room and run again"
                )

    def install(self, wanted: Mapping[str, str], plan: Plan) -> None:
        """Install, in one transaction."""
        allow = ["--allow-downgrades"] if plan.names("downgrade") else []
        # Holds of others were refused before; what is left are the toolkit's own.
        command = self.get(*allow, "--allow-change-held-packages", "install", *self.words(wanted))
        self.locked(lambda: self.must(command))

    def hold(self, names: Iterable[str]) -> None:
        """Put packages on hold."""
        self.must(["apt-mark", "hold", *names])

    def unhold(self, names: Iterable[str]) -> None:
        """Release packages."""
        self.must(["apt-mark", "unhold", *names])

    def dependencies(self) -> dict[str, list[list[str]]]:
        """For each installed package, its dependencies as lists of installed packages that satisfy them."""
        fields = "${Package}\t${db:Status-Status}\t${Pre-Depends}, ${Depends}\t${Provides}\n"
        rows = [line.split("\t") for line in self.run(["dpkg-query", "-W", "-f", fields])[1].splitlines()]
        rows = [row for row in rows if len(row) == 4 and row[1] not in ("not-installed", "config-files")]
        providers: dict[str, list[str]] = {}
        for name, _, _, provides in rows:
            for provided in [name, *(choice for clause in parse_relations(provides) for choice in clause)]:
                providers.setdefault(provided, []).append(name)
        return {
            name: [[p for choice in clause for p in providers.get(choice, [])] for clause in parse_relations(depends)]
            for name, _, depends, _ in rows
        }

    def purge_words(self, names: Iterable[str], restore: Iterable[str]) -> list[str]:
        """One transaction that purges some and brings others back."""
        return ["--allow-change-held-packages", "purge", *names, *(f"{name}+" for name in restore)]

    def simulate_purge(self, names: Iterable[str], restore: Iterable[str]) -> Plan:
        """What purging would do."""
        return parse_simulation(self.must(self.get("-s", *self.purge_words(names, restore))), self.older)

    def purge(self, names: Iterable[str], restore: Iterable[str]) -> None:
        """Purge, in one transaction."""
        command = self.get(*self.purge_words(names, restore))
        self.locked(lambda: self.must(command))
