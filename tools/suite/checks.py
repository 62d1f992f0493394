"""Every check of `bin/test`: its command, and when it may run."""

from __future__ import annotations

import ast
import enum
import functools
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from tools.suite.wanted import ROOT, Wanted, WantedError

GROUPS = ("engines", "computes", "systems")
"""Marks of whole files in tests/functional (pyproject.toml); files without one run probes on loopback."""
LOOPBACK = "loopback"
BROWSERS = ("report", "compare", "docs", "pool_page", "panels")
BROWSER = tuple(f"tests/integration/test_{name}_browser.py" for name in BROWSERS)
SMALL_SITE = "tests/integration/test_standin_small.py"
MACHINES = ("test_vm_*.py", "test_storage_nfs.py", "test_handover_machines.py")
"""Of tests/integration, what is about emulated machines alone."""
BACKUP = tuple(f"toolkit/backup/{name}.py" for name in ("archive", "on_head", "placing", "there"))
ON_NODES = (
    "plugins/modules",
    "plugins/module_utils",
    "toolkit/lease",
    *BACKUP,
    "validation/nvml",
    "validation/probes",
    "roles",
)
PROBES = "validation/measures/*/*_probe.py"
SHELL = ("bin/*", ".ci/run", "toolkit/lab/files/node-loop", "toolkit/lab/files/vm-build")
LEAST = ("nice", "-n", "19")


class When(enum.IntEnum):
    """When a check may run. Of those that may, the smaller number begins first."""

    FIRST = 0
    """Before the lab, two at a time: what measures on this machine, and short linters."""
    LAB = 1
    """The lab: once all that has to end before it has ended."""
    ALONG = 2
    """At the ordinary priority, as what has time limits needs, before the lab and beside it."""
    BESIDE = 3
    """At the lowest priority, beside the others. The lab's tests that measure wait until these and ALONG have ended."""
    LAST = 4
    """When all others have ended."""


@dataclass(frozen=True)
class Check:
    """A command of `bin/test`. `before_lab`: a check at the lowest priority that has ended before the lab begins."""

    name: str
    command: tuple[str, ...]
    when: When = When.FIRST
    before_lab: bool = False
    env: Mapping[str, str] = field(default_factory=dict)


def probes() -> list[str]:
    """The probes of measurements, which run on nodes."""
    return sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(PROBES))


def marked() -> dict[str, list[str]]:
    """Group -> the files of tests/functional that are in it, by the mark that stands in the file."""
    found: dict[str, list[str]] = {group: [] for group in (LOOPBACK, *GROUPS)}
    for path in sorted((ROOT / "tests/functional").glob("test_*.py")):
        found[group_of(path.read_text(encoding="utf-8"))].append(str(path.relative_to(ROOT)))
    return found


@functools.cache
def group_of(text: str) -> str:
    """The group of a test file by its `pytestmark`; WantedError where it has two, or a single test has one."""
    tree = ast.parse(text)
    of_file = [one for one in tree.body if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "pytestmark"]
    marks, others = [mark for one in of_file for mark in _groups(one)], _groups(tree)
    if len(others) > 1 or marks != others:
        raise WantedError(f"a test file is in one group as a whole, and this one names {', '.join(others)}")
    return marks[0] if marks else LOOPBACK


def _groups(tree: ast.AST) -> list[str]:
    nodes = [one for one in ast.walk(tree) if isinstance(one, ast.Attribute) and one.attr in GROUPS]
    return [one.attr for one in nodes if ast.unparse(one.value) == "pytest.mark"]


def checks(wanted: Wanted, memory: str | None) -> list[Check]:
    """The checks of the parts. `memory`: a folder in memory for what tests keep, None where there is none."""
    rest = ("--rest",) if wanted.rest else ()
    pytest = (sys.executable, "-m", "pytest", *rest)
    kept = {"PYTEST_DEBUG_TEMPROOT": memory} if memory else {}

    def tests(name: str, *what: str, when: When = When.FIRST) -> Check:
        return Check(name, (*pytest, *what), when, env=kept)

    found: list[Check] = []
    if "lab" in wanted.parts:
        # measures nothing; longer than the others of the lowest priority, so it is the first of them
        small = (sys.executable, "-m", "pytest", SMALL_SITE)
        found.append(Check("a small site as on Ubuntu", small, When.BESIDE, before_lab=True))
        ignored = (*(f"*/{one}" for one in MACHINES), "*_browser.py", f"*/{SMALL_SITE.rpartition('/')[2]}")
        site = (*pytest, "tests/integration", *(f"--ignore-glob={name}" for name in ignored))
        found.append(Check("the site in the lab", site, When.LAB))
    if "functional" in wanted.parts:
        files = marked()
        found += [
            tests("functional tests", *files[LOOPBACK]),
            tests("functional tests of engines, leases and nodes", "tests/engine", *files["engines"]),
            tests("PyTorch by the engine torch", "tests/engine_torch", when=When.ALONG),
            tests("functional tests that only compute", *files["computes"], when=When.BESIDE),
            tests("functional tests of systems and reports", *files["systems"], when=When.BESIDE),
        ]
    if "unit" in wanted.parts:
        found.append(tests("unit tests", "tests/unit", when=When.BESIDE))
    if "functional" in wanted.parts:
        found.append(tests("reports and documentation in a browser", *BROWSER, when=When.BESIDE))
    if "lint" in wanted.parts:
        found += linters()
    if "molecule" in wanted.parts:
        found += molecule(wanted.since)
    if "machines" in wanted.parts:
        found_by = [(ROOT / "tests/integration").glob(one) for one in MACHINES]
        machines = sorted(str(path.relative_to(ROOT)) for paths in found_by for path in paths)
        found.append(Check("emulated machines", (*pytest, *machines), When.LAST))
    return found


def linters() -> list[Check]:
    """What looks at the whole tree."""
    shell = [str(p.relative_to(ROOT)) for pattern in SHELL for p in sorted(ROOT.glob(pattern))]
    return [
        Check("ruff", ("ruff", "check", ".")),
        Check("ruff format", ("ruff", "format", "--check", ".")),
        Check("shellcheck", ("shellcheck", "-x", *shell)),
        Check("yamllint", ("yamllint", "--strict", ".")),
        Check("changelog", ("tools/changelog.py", "--check")),
        Check("mypy", ("mypy",)),
        Check("documentation site", (sys.executable, "-m", "tools.docsite")),
        Check("python 3.9 on nodes", ("vermin", "-t=3.9-", "--violations", "--no-tips", *ON_NODES, *probes())),
        Check("ansible-lint", ("ansible-lint", "--offline"), When.BESIDE),
    ]


def molecule(since: str) -> list[Check]:
    """A check for each scenario; with `since` for each that plays what has changed since that commit."""
    # else it warns that scenarios of a collection are below extensions/
    env = {"MOLECULE_GLOB": "molecule/*/molecule.yml"}
    command = [sys.executable, "tools/scenarios.py", since or "--all"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise WantedError("cannot tell which scenarios to run: see the line above")
    names = done.stdout.split()
    if not names:
        print(f"\n== molecule: no scenario plays what changed since {since}", flush=True)
    return [Check(f"molecule {n}", ("molecule", "test", "--scenario-name", n), env=env) for n in names]


def shown(check: Check) -> str:
    """The command as one line."""
    return shlex.join(check.command)
