"""The wheel of this tree, and a Python that has nothing of the project but it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

REPO = Path(__file__).parents[2]
#: Commands of Ansible that the toolkit starts, and where each begins.
ANSIBLE = {"ansible-playbook": "playbook", "ansible-inventory": "inventory"}
START = "#!{python}\nimport sys\nfrom ansible.cli.{module} import main\nsys.exit(main())\n"


def files(*names: str) -> list[str]:
    """Files of the tree as it is now, committed or not; those that git has and somebody removed are among them."""
    words = ["git", "-C", str(REPO), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *names]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return [name for name in said.split("\0") if name]


def build_wheel(folder: Path) -> Path:
    """The wheel of this tree; its build leaves nothing here."""
    return pack(clone(folder), folder / "wheels")


def clone(folder: Path) -> Path:
    """This tree as it is now, in `folder`; what is not committed is added."""
    words = ["git", "clone", "-q", "--shared", str(REPO), str(folder / "tree")]
    subprocess.run(words, check=True)
    for name in files():
        source, target = REPO / name, folder / "tree" / name
        if source.is_file() and not source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
        elif not source.exists():
            target.unlink(missing_ok=True)
    subprocess.run(["git", "-C", str(folder / "tree"), "add", "-A"], check=True)
    return folder / "tree"


def pack(tree: Path, folder: Path, umask: int = 0o022) -> Path:
    """The wheel of a tree, made without asking any registry."""
    words = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    subprocess.run([*words, str(tree)], check=True, env=environment, umask=umask)
    return next(folder.glob("*.whl"))


class Installed:
    """A virtual environment with the wheel. Packages of others are those of the tests' own Python."""

    def __init__(self, wheel: Path, folder: Path) -> None:
        """Make it in `folder`."""
        self.home, self.desk = folder / "home", folder / "desk"
        for made in (self.home, self.desk):
            made.mkdir(parents=True)
        venv.create(folder / "venv", symlinks=True)
        self.bin = folder / "venv/bin"
        self.python = self.bin / "python"
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "-q", "--no-index", "--no-deps"]
        subprocess.run([*pip, "--no-compile", str(wheel)], check=True)
        self.packages = next((folder / "venv/lib").glob("python*/site-packages"))
        (self.packages / "of_the_tests.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
        for name, module in ANSIBLE.items():
            (self.bin / name).write_text(START.format(python=self.python, module=module), encoding="utf-8")
            (self.bin / name).chmod(0o755)

    @property
    def collection(self) -> Path:
        """Where its files of the project are."""
        return self.packages / "ansible_collections/elastic_ai/toolkit"

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """A command of it in an empty folder, with nothing of this process's environment."""
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.home), "LANG": "C.UTF-8", **more}
        return subprocess.run(
            [str(self.bin / words[0]), *words[1:]],
            cwd=self.desk, env=environment, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
