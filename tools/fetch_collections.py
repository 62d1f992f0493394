#!/usr/bin/env python3
"""Unpack the collections that requirements.yml names from the PyPI package `ansible` into collections/.

For sites that reach a Python index but not Galaxy; `ansible-galaxy collection install -r requirements.yml -p
collections` does the same from Galaxy. Safe to run again: a stamp tells what is unpacked already.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
BUNDLE = "12.3.0"  # the release of `ansible` for ansible-core 2.19; brings ansible.posix 2.1.0


def wanted_collections() -> list[str]:
    """Names in requirements.yml, in order."""
    document = yaml.safe_load((ROOT / "requirements.yml").read_text(encoding="utf-8"))
    return sorted(entry["name"] for entry in document["collections"])


def unpack(wheel: Path, names: list[str], destination: Path) -> None:
    """Replace the named collections below `destination` by those in the wheel."""
    tree = destination / "ansible_collections"
    with zipfile.ZipFile(wheel) as archive:
        members = archive.namelist()
        for name in names:
            prefix = f"ansible_collections/{name.replace('.', '/')}/"
            chosen = [member for member in members if member.startswith(prefix)]
            if not chosen:
                raise SystemExit(
                    f"error: {wheel.name} brings no collection {name}: get it from Galaxy (requirements.yml)"
                )
            shutil.rmtree(tree / Path(*name.split(".")), ignore_errors=True)
            archive.extractall(destination, chosen)


def main() -> int:
    """Fetch and unpack what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bundle", default=BUNDLE, help="release of the package `ansible` (default: %(default)s)")
    parser.add_argument("--wheel", type=Path, help="a wheel of `ansible` at hand, for machines without an index")
    options = parser.parse_args()
    names = wanted_collections()
    destination = ROOT / "collections"
    stamp = destination / ".bundle"
    state = f"ansible {options.bundle if options.wheel is None else options.wheel.name}: {' '.join(names)}\n"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == state:
        print(f"collections/ is up to date: {', '.join(names)}")
        return 0
    with tempfile.TemporaryDirectory(prefix="elastic-ai-collections-") as scratch:
        wheel = options.wheel
        if wheel is None:
            print(f"fetching ansible {options.bundle} (54 MB) for {', '.join(names)} ...", flush=True)
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch]
            fetched = subprocess.run([*command, f"ansible=={options.bundle}"], check=False)
            if fetched.returncode != 0:
                print("error: pip could not fetch it; give a wheel with --wheel, or use Galaxy", file=sys.stderr)
                return 1
            wheel = next(Path(scratch).glob("*.whl"))
        destination.mkdir(exist_ok=True)
        unpack(wheel, names, destination)
    stamp.write_text(state, encoding="utf-8")
    print(f"unpacked into collections/: {', '.join(names)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
