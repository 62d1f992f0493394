"""Probe `as-built`: the as-built checks of one node, by pytest with pytest-testinfra. stdout = the JUnit file.

Runs beside the inventory, not on the node. The line that it runs is the one of docs/how-to/as-built.md: whoever has the
checkout runs the same without this probe. Facts: `node`, `exit` (pytest's: 0 all passed, 1 some did not), and
`checks_sha256` over the files of the checks.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from validation.probes import ProbeDoc
from validation.probes.controller import inventory, run_here
from validation.probes.tool import Ran, document, last_line

CHECKS = Path(__file__).resolve().parents[2] / "asbuilt"
RAN = (0, 1)
"""pytest's exit codes after which its report is whole: all passed, some failed."""


@dataclass
class Asked:
    """The host of the inventory, and whether its user has to become root."""

    node: str
    sudo: bool = False


def checks_sha256(folder: Path = CHECKS) -> str:
    """SHA-256 over the files of the checks: tells whether they are those of a release."""
    total = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        total.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


def command(asked: Asked, site: str, junit: Path) -> list[str]:
    """The line that checks a node."""
    hosts = [f"--hosts=ansible://{asked.node}", f"--ansible-inventory={site}", *(["--sudo"] if asked.sudo else [])]
    options = ["-q", "-p", "no:cacheprovider", f"--junitxml={junit}"]
    return [sys.executable, "-m", "pytest", *hosts, *options, str(CHECKS)]


def probe(asked: Asked) -> ProbeDoc:
    """Check the node."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        facts: dict[str, Any] = {"node": asked.node, "checks_sha256": checks_sha256()}
        with tempfile.TemporaryDirectory(prefix="elastic-ai-as-built-") as folder:
            junit = Path(folder) / "junit.xml"
            try:
                words = command(asked, inventory(), junit)
            except ValueError as fault:
                return Ran(["pytest"], 2, "", ""), facts, str(fault)
            ran = run_here(words)
            report = junit.read_text(encoding="utf-8") if junit.is_file() else ""
        if ran.returncode not in RAN or not report:
            said = last_line(ran.stderr) or last_line(ran.stdout)
            return ran, facts, f"pytest ended with exit status {ran.returncode}: {said}"
        return Ran(ran.command, 0, report, ran.stderr), {**facts, "exit": ran.returncode}, None

    tools = f"{version('pytest')}, pytest-testinfra {version('pytest-testinfra')}"
    return document("as-built", "pytest", measure, lambda ran: tools)
