#!/usr/bin/env python3
"""Build this repository's wheel, once for each state of its sources.

Prints one JSON object: {"changed": bool, "wheel": path, "sha256": hex, "sources": hex}. The wheel is kept in the cache
under the hash of its sources, so that a second call with the same sources builds nothing and answers the same. With
--check nothing is built; "wheel" and "sha256" are then empty where the cache has none.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SINGLE = ("pyproject.toml", "README.md", "LICENSE", "NOTICE")
PACKAGES = ("toolkit", "validation")


def sources() -> list[Path]:
    """Every file that goes into the wheel or decides how it is built, in a fixed order."""
    files = [ROOT / name for name in SINGLE if (ROOT / name).is_file()]
    for package in PACKAGES:
        files += [
            path
            for path in sorted((ROOT / package).rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
        ]
    return files


def hash_of(files: list[Path]) -> str:
    """One sha256 over names and contents."""
    total = hashlib.sha256()
    for path in files:
        total.update(f"{path.relative_to(ROOT)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def build(files: list[Path], folder: Path) -> None:
    """Build from a copy, so that leftovers in the working tree (build/) take no part; fill `folder` whole."""
    with tempfile.TemporaryDirectory(prefix="elastic-ai-wheel-") as scratch:
        tree, out = Path(scratch) / "tree", Path(scratch) / "out"
        for path in files:
            target = tree / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        # The lock brings setuptools: nothing is fetched here.
        quiet = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run(
            [*quiet, "--wheel-dir", str(out), str(tree)],
            check=True,
            stdout=sys.stderr,
            env={**os.environ, "SOURCE_DATE_EPOCH": "315532800"},  # 1980-01-01, the earliest that a zip can state
        )
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".partial-"))
        for wheel in out.glob("*.whl"):
            shutil.copyfile(wheel, partial / wheel.name)
        partial.chmod(0o755)
        try:
            partial.rename(folder)
        except OSError:  # another call has built the same meanwhile
            shutil.rmtree(partial)


def main() -> int:
    """Answer with the wheel of the present sources."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, required=True, help="folder that keeps built wheels")
    parser.add_argument("--check", action="store_true", help="build nothing, only tell")
    options = parser.parse_args()
    files = sources()
    state = hash_of(files)
    folder = options.cache.expanduser() / f"elastic-ai-toolkit-{state[:16]}"
    changed = not any(folder.glob("*.whl"))
    if changed and not options.check:
        try:
            build(files, folder)
        except subprocess.CalledProcessError as error:
            print(
                f"error: pip could not build the wheel of {ROOT} (exit {error.returncode}), see above", file=sys.stderr
            )
            return 1
    wheel = next(iter(folder.glob("*.whl")), None)
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest() if wheel else ""
    print(json.dumps({"changed": changed, "wheel": str(wheel or ""), "sha256": sha256, "sources": state}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
