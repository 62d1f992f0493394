"""The toolkit on a node of a lab, as an operator installs it: this checkout and its environment, under /opt.

What pip would install comes from this machine's own environment instead, so that a test asks no registry.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = "/opt/elastic-ai-toolkit"  # default of monitoring_revalidate_toolkit
PROJECT = "elastic-ai-toolkit"
LEFT_OUT = ("tests", "molecule", "benchmarks", "docs", ".ci")
SITE = f".venv/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
SCRIPTS = ("ansible-inventory", "ansible-playbook", "ansible", "toolkit")
MAKE = f"""set -e
rm -rf {HOME} && mkdir {HOME} && cd {HOME} && tar x
python3 -m venv --without-pip .venv
echo {HOME} > {SITE}/elastic-ai-toolkit.pth
cp -r packages/. {SITE} && rm -r packages
cp scripts/* .venv/bin && chmod 755 .venv/bin/* && rm -r scripts
.venv/bin/toolkit --version"""


def packages() -> list[metadata.Distribution]:
    """The distributions that the toolkit needs, found from its own requirements."""
    found: dict[str, metadata.Distribution] = {}
    wanted = [(PROJECT, "")]
    while wanted:
        name, extra = wanted.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found:
            continue
        try:
            found[key] = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # of another system or Python
            continue
        for line in found[key].requires or ():
            if "extra ==" not in line:
                wanted.append((re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0], extra))
    return [one for key, one in found.items() if key != PROJECT]


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), mode
    archive.addfile(info, io.BytesIO(data))


def packed() -> bytes:
    """A tar file: the checkout's files, `packages/` and `scripts/`."""
    into = io.BytesIO()
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    with tarfile.open(fileobj=into, mode="w") as archive:
        for name in filter(None, tracked.split("\0")):
            path = ROOT / name
            if name.split("/")[0] not in LEFT_OUT and (path.is_file() or path.is_symlink()):
                archive.add(path, name)
        for one in packages():
            for file in one.files or ():
                path = Path(str(one.locate_file(file)))
                if path.is_file() and ".." not in file.parts and "__pycache__" not in file.parts:
                    archive.add(path, f"packages/{file}")
        for name in SCRIPTS:
            script = Path(sys.executable).with_name(name).read_text("utf-8")
            _add(archive, f"scripts/{name}", re.sub(r"\A#!.*", f"#!{HOME}/.venv/bin/python", script).encode(), 0o755)
    return into.getvalue()


def install(ssh: Sequence[str]) -> None:
    """Bring it to the node that `ssh` (words of a command) logs in to; the test fails where it does not start there."""
    done = subprocess.run([*ssh, MAKE], input=packed(), capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()


def bring(ssh: Sequence[str], inventory: Path, to: str) -> None:
    """Bring a lab's inventory with its keys to the folder `to` of the node, with its paths in it."""
    tar = subprocess.run(["tar", "c", "-C", str(inventory), "."], capture_output=True, check=True).stdout
    script = f"set -e; rm -rf {to}; mkdir -m 700 {to}; tar x -C {to}; sed -i 's#{inventory}#{to}#g' {to}/hosts.yml"
    done = subprocess.run([*ssh, script], input=tar, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
