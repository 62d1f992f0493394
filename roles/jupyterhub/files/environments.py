"""On the hub's machine: environments that have the packages of the hub and those of another Python.

    environments.py ROOT MINOR OFFERED OUT

ROOT: the hub's environment. OFFERED: JSON, a list of names and Pythons ("" for the hub's own). OUT: the file by which
`start` finds their Pythons. Prints one JSON object: changed. With --look nothing is written.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

_ASK = "import json, sys, sysconfig; print(json.dumps([list(sys.version_info[:2]), sysconfig.get_path('purelib')]))"


def packages_of(python: str, minor: str) -> str:
    """The folder of a Python's packages. SystemExit where it is of another minor release."""
    try:
        done = subprocess.run(
            [python, "-c", _ASK], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
        )
        version, folder = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.CalledProcessError) as fault:
        sys.exit(f"jupyterhub_environments: {python} is no Python that runs here: {fault}")
    if ".".join(map(str, version)) != minor:
        sys.exit(f"jupyterhub_environments: {python} is Python {version[0]}.{version[1]}; notebooks here have {minor}")
    return str(folder)


def wanted(root: Path, minor: str, offered: list[dict[str, str]]) -> tuple[dict[str, str], dict[Path, str]]:
    """The Python of each name, and the files with their texts."""
    pythons, files = {}, {}
    for number, one in enumerate(offered):
        if not one["python"]:
            pythons[one["name"]] = str(root / "bin/python")
            continue
        folder = root / "environments" / str(number)
        site = folder / f"lib/python{minor}/site-packages"
        files[site / "elastic-ai.pth"] = (
            f"{root}/lib/python{minor}/site-packages\n{packages_of(one['python'], minor)}\n"
        )
        files[folder / "pyvenv.cfg"] = f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {minor}\n"
        pythons[one["name"]] = str(folder / "bin/python")
    return pythons, files


def main(argv: list[str]) -> int:
    """What is as wanted already is left alone."""
    look = "--look" in argv
    root_text, minor, text, out_text = [word for word in argv if word != "--look"]
    root, out = Path(root_text), Path(out_text)
    pythons, files = wanted(root, minor, json.loads(text))
    files[out] = json.dumps(pythons, indent=2, sort_keys=True) + "\n"
    off = [path for path, content in files.items() if not path.is_file() or path.read_text() != content]
    for path in [] if look else off:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path])
        if path.name == "pyvenv.cfg":
            links = {"bin/python3": f"/usr/bin/python{minor}", "bin/python": "python3", "share": str(root / "share"),
                     "etc": str(root / "etc")}  # fmt: skip
            (path.parent / "bin").mkdir(exist_ok=True)
            for name, target in links.items():
                link = path.parent / name
                link.unlink(missing_ok=True)
                link.symlink_to(target)
    print(json.dumps({"changed": bool(off)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
