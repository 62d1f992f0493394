"""What every command needs of this Python beside the standard library, said before any of it is imported.

Imported by the standard library alone, and by any Python 3 that there is: it is what tells that one is too old.
"""

from __future__ import annotations

import importlib.util
import platform
import re
import shlex
import sys
from pathlib import Path

PYTHON = (3, 10)
#: module -> package; what `toolkit validate --here` works with, as docs/how-to/here.md has it.
MODULES = {"click": "click", "pydantic": "pydantic", "yaml": "pyyaml", "rich": "rich", "jinja2": "jinja2"}
#: modules whose package has another name, of those that single commands need
NAMED = {**MODULES, "ansible": "ansible-core", "OpenSSL": "pyopenssl"}
OURS = ("toolkit", "validation", "plugins", "ansible_collections", "tests")
PROJECT = Path(__file__).resolve().parents[1] / "ansible_collections/elastic_ai/toolkit/pyproject.toml"


def bounds() -> dict[str, str]:
    """package -> the versions of it that will do, `pydantic>=2.7,<3`: those that the project itself asks for."""
    try:
        text = PROJECT.read_text(encoding="utf-8")
    except OSError:  # a part of it alone, as on nodes
        return {}
    listed = re.search(r"^dependencies = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    found = re.findall(r'"([\w-]+)([^";]*)(?:; *([^"]*))?"', listed[1] if listed else "")
    return {name.lower(): name.lower() + versions for name, versions, marker in found if _concerns(marker)}


def _concerns(marker: str, python: tuple[int, ...] = sys.version_info[:2]) -> bool:
    """Whether a line of the project's packages is one for this Python: `python_version < '3.12'`, or none."""
    match = re.fullmatch(r"python_version *(<|>=) *'(\d+)\.(\d+)'", marker.strip())
    if match is None:
        return True
    older = python < (int(match[2]), int(match[3]))
    return older if match[1] == "<" else not older


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _trouble(module: str, asked: str) -> str:
    """What is wrong with a package: "lacks pydantic>=2.7,<3"; "" where it will do."""
    package = MODULES[module]
    from importlib import metadata  # here, for it is half of what `toolkit --help` would take

    if importlib.util.find_spec(module) is None:
        return asked
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:  # a distribution that leaves such records out
        return ""
    least = re.search(r">=([\d.]+)", asked)
    return f"{asked} (it has {version})" if least and _numbers(version) < _numbers(least[1]) else ""


def lacking() -> str:
    """In words, what this Python lacks and where it comes from; "" where it has all."""
    if sys.version_info < PYTHON:
        wanted = ".".join(map(str, PYTHON))
        return f"this is Python {platform.python_version()} ({sys.executable}), and {wanted} or newer is needed"
    versions = bounds()
    asked = {module: versions.get(package, package) for module, package in MODULES.items()}
    lacks = [words for module, one in asked.items() if (words := _trouble(module, one))]
    return _words(lacks, list(asked.values())) if lacks else ""


def told(fault: ImportError) -> str:
    """The same of an import that failed; "" where it is one of the toolkit's own."""
    module = (fault.name or "").partition(".")[0]
    if not module or module in OURS or module in sys.stdlib_module_names:
        return ""
    package = NAMED.get(module, module.replace("_", "-"))
    asked = bounds().get(package, package)
    return _words([f"{asked} ({fault})"], [asked])


def _words(lacks: list[str], packages: list[str]) -> str:
    names = " ".join(map(shlex.quote, packages))
    here = f"this Python ({sys.executable}, {platform.python_version()}) lacks {', '.join(lacks)}"
    offline = f"python3 -m pip download -d wheels {names}"
    return (
        f"{here}: {sys.executable} -m pip install {names}; without internet, on a machine that has it, with the same "
        f"Python and system: {offline}, and here with that folder: {sys.executable} -m pip install --no-index "
        "--find-links wheels and the same names"
    )
