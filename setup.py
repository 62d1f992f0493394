"""What pyproject.toml cannot say: the wheel brings the collection too, so that an installed toolkit needs no checkout.

Roles, playbooks, plugins, stacks, inventories and the engines' C sources go to ansible_collections/elastic_ai/toolkit
beside the packages: there Ansible finds the collection on Python's path, and `validation.base.project` the files. Of a
checkout only what git has is taken: a site's own inventory, with its secrets, never gets into a wheel.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
PLACE = Path("ansible_collections/elastic_ai/toolkit")
BUILT = "built.json"
CARRIED = (
    *("engine", "inventories", "meta", "playbooks", "plugins", "roles", "stacks", "tools"),
    *("ansible.cfg", "galaxy.yml", "pyproject.toml", "site.yml", "LICENSE", "NOTICE"),
)


def git(*words: str) -> str:
    """What git says of this tree."""
    return subprocess.run(["git", "-C", str(HERE), *words], check=True, capture_output=True, text=True).stdout


def carried() -> Iterator[Path]:
    """Every file of the collection that goes into the wheel, by its path in this tree."""
    if (HERE / ".git").exists():
        yield from (Path(name) for name in git("ls-files", "-z", "--", *CARRIED).split("\0") if name)
        return
    for name in CARRIED:  # an archive of the sources
        path = HERE / name
        if not path.exists():
            raise SystemExit(f"error: {path}: no such file or folder; a wheel without it would deploy nothing")
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            inside = file.relative_to(HERE)
            hidden = any(part.startswith(".") or part == "__pycache__" for part in inside.parts)
            if file.is_file() and not hidden and file.suffix != ".pyc":
                yield inside


def built() -> dict[str, object]:
    """Of which commit this is."""
    if not (HERE / ".git").exists():
        noted = HERE / BUILT
        return json.loads(noted.read_text(encoding="utf-8")) if noted.is_file() else {"commit": "", "modified": None}
    return {
        "commit": git("rev-parse", "HEAD").strip(),
        "modified": bool(git("status", "--porcelain", "--untracked-files=no").strip()),
    }


class BuildPy(build_py):
    """The packages, and the collection."""

    def run(self) -> None:
        """Copy both; links become files, and modes those of git, whatever the builder's umask."""
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)  # what an earlier build left there would be packed too
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib)
        for name in carried():
            path = target / PLACE / name
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(HERE / name, path)
            shutil.copymode(HERE / name, path)
        (target / PLACE / BUILT).write_text(json.dumps(built()) + "\n", encoding="utf-8")
        for path in target.rglob("*"):
            if path.is_file():
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)


class Sdist(sdist):
    """Sources from which the same wheel can be built."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """With the collection, and with the commit, which git does not know there."""
        super().make_release_tree(base_dir, sorted({*files, "setup.py", *map(str, carried())}))
        (Path(base_dir) / BUILT).write_text(json.dumps(built()) + "\n", encoding="utf-8")


# Two builders make the same wheel, whatever their umask and the day; 1980-01-01 is the earliest that a zip can state.
os.umask(0o022)
os.environ.setdefault("SOURCE_DATE_EPOCH", "315532800")
setup(cmdclass={"build_py": BuildPy, "sdist": Sdist})
