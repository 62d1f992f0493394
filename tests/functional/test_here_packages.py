"""`toolkit validate --here` in a Python that lacks one of the packages that it works with: which, and where from."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.engine_run import ROOT
from toolkit.needs import MODULES, bounds

pytestmark = pytest.mark.systems

SITE = Path(sysconfig.get_path("purelib"))
ALIASES = {"yaml": ("yaml", "_yaml", "pyyaml"), "pydantic": ("pydantic",)}
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """The command in an environment of its own that has this one's packages but for those that are named."""
    venv.create(tmp_path / "bare", with_pip=False)
    (packages,) = (tmp_path / "bare").glob("lib/python*/site-packages")
    python = tmp_path / "bare/bin/python"

    def run(*without: str, arguments: tuple[str, ...] = ("--dry-run",)) -> subprocess.CompletedProcess[str]:
        gone = {name for one in without for name in ALIASES.get(one, (one,))}
        for entry in SITE.iterdir():
            name = entry.name.partition("-")[0].partition(".")[0].lower()
            if name not in gone and "*" not in gone and not (packages / entry.name).exists():
                (packages / entry.name).symlink_to(entry)
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            [str(python), "-m", "toolkit", "validate", "--here", "--quick", "--suite", "preflight", *arguments],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip

    return run


def test_with_all_of_them_it_starts(run: Run) -> None:
    done = run("ansible", "ansible_runner", "paramiko", "weasyprint", "prometheus_client", "pytest", "testinfra")
    assert done.returncode == 0, done.stderr
    assert "this machine: " in done.stderr


@pytest.mark.parametrize("module", MODULES)
def test_the_one_that_is_missing_is_named_with_how_it_comes_here(run: Run, module: str) -> None:
    done = run(module)
    package = MODULES[module]
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert f" lacks {bounds()[package]}: " in done.stderr
    assert "-m pip install click>=" in done.stderr.replace("'", "")
    assert "without internet" in done.stderr
    assert "pip install --no-index --find-links wheels" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_where_all_are_missing_all_are_named_at_once(run: Run) -> None:
    done = run("*")
    assert done.returncode == 2
    assert all(f"{bounds()[package]}" in done.stderr.partition(": ")[2] for package in MODULES.values())


def test_one_that_is_too_old_is_named_with_its_version(run: Run, tmp_path: Path) -> None:
    (packages,) = (tmp_path / "bare").glob("lib/python*/site-packages")
    (packages / "pydantic").mkdir()
    (packages / "pydantic/__init__.py").write_text("")
    record = packages / "pydantic-1.10.2.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: pydantic\nVersion: 1.10.2\n")
    done = run("pydantic")
    assert done.returncode == 2
    assert f"lacks {bounds()['pydantic']} (it has 1.10.2): " in done.stderr


@pytest.mark.parametrize("module", ["markupsafe", "pydantic_core"])
def test_what_one_of_them_needs_itself_is_named_too(run: Run, module: str) -> None:
    done = run(module, arguments=("--format", "html"))
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "defect" not in done.stderr
    assert f"lacks {module.replace('_', '-')} (No module named '{module}" in done.stderr
    assert "[1/" not in done.stderr, "before anything is measured"


def test_the_page_has_the_same_packages() -> None:
    lines = (ROOT / "docs/how-to/here.md").read_text().splitlines()
    (line,) = (one for one in lines if one.strip().startswith("pip install "))
    assert line.partition("#")[0].split()[2:] == list(MODULES.values())
