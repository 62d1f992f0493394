"""Repositories of a few tiny packages in folders, for apt and dnf as they are; unsigned."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

SPEC = """\
Name: tiny
Version: 1
Release: 1
Summary: of a test
License: none
BuildArch: noarch
AutoReqProv: no
%description
of a test
"""


def deb(folder: Path, name: str, version: str = "1.0", depends: str = "", essential: bool = False) -> Path:
    """A package of one file."""
    tree = folder / f".{name}"
    (tree / "DEBIAN").mkdir(parents=True, exist_ok=True)
    (tree / name).write_text(f"{name} {version}\n")
    lines = [f"Package: {name}", f"Version: {version}", "Architecture: all", "Maintainer: a test <test@example.net>"]
    lines += [f"Depends: {depends}"] if depends else []
    lines += ["Essential: yes"] if essential else []
    (tree / "DEBIAN/control").write_text("\n".join([*lines, "Description: of a test", ""]))
    target = folder / f"{name}_{version.split(':')[-1]}_all.deb"
    subprocess.run(
        ["dpkg-deb", "-Znone", "--root-owner-group", "--build", tree, target], check=True, capture_output=True
    )
    subprocess.run(["rm", "-r", tree], check=True)
    return target


def apt_index(folder: Path) -> None:
    """Index of all packages in a folder, as a flat repository without a signature."""
    stanzas = []
    for file in sorted(folder.glob("*.deb")):
        control = subprocess.check_output(["dpkg-deb", "--field", file], text=True).strip()
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        stanzas.append(f"{control}\nFilename: ./{file.name}\nSize: {file.stat().st_size}\nSHA256: {digest}\n")
    text = "\n".join(stanzas).encode()
    (folder / "Packages").write_bytes(text)
    line = f" {hashlib.sha256(text).hexdigest()} {len(text)} Packages"
    (folder / "Release").write_text(f"Date: Sat, 28 Nov 2026 10:00:00 UTC\nArchitectures: amd64\nSHA256:\n{line}\n")


def rpms(folder: Path, packages: Sequence[tuple[str, str]]) -> None:
    """Packages (name, what it needs) with their index."""
    parts, files = [], []
    for name, needs in packages:
        parts += [f"%package -n {name}", "Summary: of a test", *([f"Requires: {needs}"] if needs else [])]
        parts += [f"%description -n {name}", "of a test", f"%files -n {name}", f"/opt/{name}"]
        files.append(f"mkdir -p %{{buildroot}}/opt; echo {name} > %{{buildroot}}/opt/{name}")
    spec = folder / "tiny.spec"
    spec.write_text("\n".join([SPEC, *parts, "%install", *files, ""]))
    places = [f"--define=_topdir {folder}/top", f"--define=_rpmdir {folder}", f"--define=_dbpath {folder}/top/db"]
    name = "--define=_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm"
    subprocess.run(["rpmbuild", "-bb", "--quiet", *places, name, spec], check=True, capture_output=True)
    subprocess.run(["rm", "-r", folder / "top", spec], check=True)
    subprocess.run(["createrepo_c", "--quiet", folder], check=True, capture_output=True)
