"""What package_set decides and remembers, apart from any package manager."""

from __future__ import annotations

import fnmatch
import grp
import json
import pwd
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.module_utils.files import STATE_DIR, write_json

Runner = Callable[[list[str]], tuple[int, str]]
#: What makes dnf mind versionlock.list.
DNF_VERSIONLOCK = "python3-dnf-plugin-versionlock"
#: Options of package_set, which its action plugin reads too.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "owner": {"type": "str", "required": True},
    "wanted": {"type": "dict", "default": {}},
    "forbid": {"type": "list", "elements": "str", "default": []},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "cache_valid_s": {"type": "int", "default": 3600},
    "lock_timeout_s": {"type": "int", "default": 300},
    "install_recommends": {"type": "bool", "default": False},
    "state_dir": {"type": "path", "default": STATE_DIR},
}


class PackageError(Exception):
    """Why a transaction was refused or failed, as one message for the operator."""


class LockedError(PackageError):
    """Another package manager is at work."""


@dataclass(frozen=True)
class Action:
    """One line of a simulated transaction."""

    kind: str  # install, upgrade, downgrade, remove
    name: str
    version: str = ""
    before: str = ""

    def __str__(self) -> str:
        """In words, for messages."""
        what = {"install": self.version, "remove": self.before}.get(self.kind, f"{self.before} -> {self.version}")
        return f"{self.kind} {self.name} ({what})"


@dataclass
class Plan:
    """A simulated transaction."""

    actions: list[Action] = field(default_factory=list)

    def names(self, *kinds: str) -> list[str]:
        """Names of the packages that are to be installed, upgraded, ..."""
        return sorted(a.name for a in self.actions if a.kind in kinds)


def chain_to(target: str, wanted: Iterable[str], depends: Mapping[str, Iterable[str]]) -> list[str]:
    """How a wanted package leads to the target: [wanted, ..., target]; [target] when nothing is known."""
    paths = [[name] for name in wanted]
    seen = set(wanted)
    while paths:
        path = paths.pop(0)
        if path[-1] == target:
            return path
        for name in depends.get(path[-1], ()):
            if name not in seen:
                seen.add(name)
                paths.append([*path, name])
    return [target]


def forbidden(plan: Plan, patterns: Iterable[str]) -> list[Action]:
    """Actions on packages that the caller must not touch."""
    return [a for a in plan.actions if any(fnmatch.fnmatchcase(a.name, pattern) for pattern in patterns)]


def refusals(
    plan: Plan,
    wanted: Mapping[str, str],
    patterns: Iterable[str],
    foreign_holds: Iterable[str],
    depends: Mapping[str, Iterable[str]],
) -> list[str]:
    """Every reason why a simulated transaction may not run."""
    reasons = []
    # What only the package manager names, but goes with a pinned package, is of the same source and so of its version.
    pinned = {version for version in wanted.values() if version}
    for action in forbidden(plan, patterns):
        path = chain_to(action.name, wanted, depends)
        pulls = f"{path[0]} pulls it ({' -> '.join(path)})" if len(path) > 1 else f"{', '.join(wanted)} needs it"
        reasons.append(f"would {action}, which this role must not touch: {pulls}")
    held = set(foreign_holds)
    for action in plan.actions:
        if action.name in held:
            reasons.append(
                f"would {action}, but {action.name} is on hold and not by the toolkit: release it"
                f" (apt-mark unhold or dnf versionlock delete) or choose the version that is installed"
            )
        elif action.kind == "downgrade" and not wanted.get(action.name) and action.version not in pinned:
            reasons.append(f"would {action}, which no pinned version asks for")
    return reasons


def dnf_plan(results: Iterable[str], older: Callable[[str, str], bool]) -> Plan:
    """The transaction that ansible.builtin.dnf tells of, also in check mode; older(a, b) tells which version is older.

    An upgrade is told twice: the new version as installed, the old one as removed.
    """
    new: dict[str, str] = {}
    old: dict[str, str] = {}
    for line in results:
        found = re.match(r"(Installed|Removed): (\S+)-([^-\s]+-[^-\s]+)\.[^.\s]+$", line)
        if found:
            (new if found[1] == "Installed" else old)[found[2]] = found[3]
    plan = Plan()
    for name in sorted(set(new) | set(old)):
        before, version = old.get(name, ""), new.get(name, "")
        kind = "install" if not before else "remove" if not version else "upgrade"
        if kind == "upgrade" and older(version, before):
            kind = "downgrade"
        plan.actions.append(Action(kind, name, version, before))
    return plan


def dnf_lock(name: str, version: str) -> str:
    """A line of versionlock.list, as `dnf versionlock add` writes it."""
    return f"{name}-{version if ':' in version else '0:' + version}.*"


def dnf_locked(line: str) -> str:
    """The package that a line of versionlock.list locks to one version, "" of any other line."""
    found = re.match(r"([^#!\s]\S*?)-\d+:", line)
    return found[1] if found else ""


def refuse_removals(owner: str, names: Iterable[str], removed: Iterable[str]) -> None:
    """Refuse to remove an owner's packages when others, which it did not install, would go with them."""
    beyond = sorted(set(removed) - set(names))
    if beyond:
        raise PackageError(
            f"removing the packages of {owner} would also remove {', '.join(beyond)}, which it did not install."
            " Nothing was changed; remove those packages first"
        )


def still_needed(depends: Mapping[str, list[list[str]]], candidates: set[str]) -> dict[str, str]:
    """Candidates for removal that must stay, each with one package that needs it.

    depends: for every package that will be there, its dependencies, each a list of package names that satisfy it.
    Versions do not matter here: all of this is installed, so every dependency is satisfied by something.
    """
    needed: dict[str, str] = {}
    queue = [name for name in depends if name not in candidates]
    staying = set(queue)
    while queue:
        name = queue.pop()
        for choices in depends[name]:
            if not choices or staying.intersection(choices):
                continue
            choice = next((c for c in choices if c in candidates and c in depends), None)
            if choice is not None:
                needed[choice] = name
                staying.add(choice)
                queue.append(choice)
    return needed


def accounts() -> tuple[set[str], set[str]]:
    """Local users and groups."""
    return {entry.pw_name for entry in pwd.getpwall()}, {entry.gr_name for entry in grp.getgrall()}


class PackageLedger:
    """What one owner's transactions brought to this node."""

    def __init__(self, state_dir: Path, owner: str) -> None:
        """Read the ledger; it may not exist yet."""
        self.path = state_dir / "ledger" / f"{owner}.packages.json"
        data: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8")) if self.path.is_file() else {}
        self.packages: set[str] = set(data.get("packages", []))
        self.holds: dict[str, str] = data.get("holds", {})
        self.removed: dict[str, str] = data.get("removed", {})
        self.users: set[str] = set(data.get("users", []))
        self.groups: set[str] = set(data.get("groups", []))
        self.exists = self.path.is_file()

    def save(self) -> None:
        """Write it; an empty one goes, with the folders above it that are empty then."""
        data = {
            "packages": sorted(self.packages),
            "holds": self.holds,
            "removed": self.removed,
            "users": sorted(self.users),
            "groups": sorted(self.groups),
        }
        if any(data.values()):
            write_json(self.path, data)
            return
        self.path.unlink(missing_ok=True)
        for folder in (self.path.parent, self.path.parent.parent):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()

    def others(self) -> dict[str, PackageLedger]:
        """The other owners' ledgers, by owner."""
        owners = (p.name.removesuffix(".packages.json") for p in sorted(self.path.parent.glob("*.packages.json")))
        state_dir = self.path.parent.parent
        return {
            owner: PackageLedger(state_dir, owner) for owner in owners if f"{owner}.packages.json" != self.path.name
        }

    def record(self, plan: Plan, before: Iterable[str]) -> None:
        """Remember what a transaction brings and takes; called before it runs, as it may be killed half-way."""
        self.packages |= set(plan.names("install")) - set(before)
        ours = self.packages.union(*(ledger.packages for ledger in self.others().values()))
        removed = {action.name: action.before for action in plan.actions if action.kind == "remove"}
        self.removed.update({name: version for name, version in removed.items() if name not in ours})
        self.save()

    def record_accounts(self, users: Iterable[str], groups: Iterable[str]) -> None:
        """Remember which users and groups there are now beside those that there were."""
        users_now, groups_now = accounts()
        self.users |= users_now - set(users)
        self.groups |= groups_now - set(groups)
        self.save()

    def remove_accounts(self, run: Runner) -> list[str]:
        """Remove users and groups that package scripts made and removing the packages left; what was done."""
        users = accounts()[0]
        kept = {name for ledger in self.others().values() for name in ledger.users | ledger.groups}
        done = []
        for command, names in (("userdel", self.users & users), ("groupdel", self.groups)):
            for name in sorted(names - kept):
                if command == "groupdel" and name not in accounts()[1]:
                    continue  # went with its user
                code, output = run([command, name])
                if code != 0:
                    raise PackageError(f"{command} {name}: {output.strip()}")
                done.append(f"{command} {name}")
        return done

    def clear(self) -> None:
        """Nothing of the owner is left on this node."""
        self.packages, self.holds, self.removed = set(), {}, {}
        self.users, self.groups = set(), set()
        self.save()


# First match counts. {0} is what the pattern found.
FAILURES = (
    (
        r"(?:No space left on device|don't have enough free space in \S+|At least \S+ more space needed[^\n]*)",
        "the disk is full ({0}): make room (df -h /var/cache/apt/archives /usr) and run again",
    ),
    (
        r"(?:E|W): [^\n]*(?:NO_PUBKEY|EXPKEYSIG|BADSIG|KEYEXPIRED|REVKEYSIG|Missing key"
        r"|is not signed|signatures couldn't be verified|Signing key on)[^\n]*",
        "a package repository is not signed by the key that this node trusts for it: {0}. Compare the key with the"
        " fingerprint that the vendor publishes (role repos, repos_fingerprints) and run again",
    ),
    (
        r"E: (?:Failed to fetch|Unable to fetch)[^\n]*",
        "packages cannot be fetched: {0}. Check the node's way to its package sources and run again",
    ),
    (r"E: Unable to correct problems[^\n]*", "the packages cannot be had together: {0}"),
    (r"E: Sub-process \S*dpkg\S* returned an error code[^\n]*", "a package's own script failed: {0}"),
)
LOCKED = r"(?:E: )?Could not get lock (\S+?)\.?(?:\s+It is held by process (\d+) \(([^)]*)\)|\s|$)"
DETAILS = r"^( \S+ : (?:Pre)?[A-Z][a-z-]+: .*|dpkg: error .*|E: .*|\S+: \S+ : .*but it is not .*)$"


def explain(output: str) -> PackageError:
    """One message for what a package manager printed when it failed."""
    locked = re.search(LOCKED, output)
    if locked:
        who = f"process {locked[2]} ({locked[3]})" if locked[2] else "another process"
        return LockedError(f"{locked[1]} is held by {who}")
    details = [line.strip() for line in output.splitlines() if re.match(DETAILS, line)]
    for pattern, message in FAILURES:
        found = re.search(pattern, output)
        if found:
            rest = [line for line in details if line not in found[0]][:6]
            what = re.sub(r"^[EW]: ", "", found[0]).rstrip(".")
            return PackageError(message.format(what) + (f" [{'; '.join(rest)}]" if rest else ""))
    tail = details or [line.strip() for line in output.splitlines() if line.strip()][-4:]
    return PackageError("the package manager failed: " + ("; ".join(tail[:8]) or "without a word"))
