"""Makes repositories of the files: apt-ftparchive and createrepo_c write the indices, the mirror's key signs them.

apt's flat repositories (CUDA, DOCA) are what reprepro cannot make; apt-ftparchive makes both forms.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from toolkit.mirror import openpgp
from toolkit.mirror.documents import Repository
from toolkit.mirror.tools import run

#: In a repository: of which files its index was made, and by which key it is signed.
MADE = ".made"
Say = Callable[[str], None]


def publish(repository: Repository, folder: Path, fingerprint: str, say: Say) -> bool:
    """Write and sign the index of a repository, where it is not of these files already. Files that are no longer
    planned go, after no index names them. True where it was written."""
    root = folder / repository.folder
    (root / "pool").mkdir(parents=True, exist_ok=True)
    listed = "\n".join(sorted(f"{one.sha256} {one.file}" for one in repository.packages))
    about = f"{fingerprint}\n{repository.model_dump_json(exclude={'packages'})}\n{listed}\n"
    recipe = hashlib.sha256(about.encode()).hexdigest()
    made = root / MADE
    if made.is_file() and made.read_text() == recipe:
        return False
    say(f"{repository.system}: writing the index of {repository.name}")
    made.unlink(missing_ok=True)
    wanted = {one.file for one in repository.packages}
    for file in (root / "pool").iterdir():
        if f"pool/{file.name}" not in wanted:
            file.unlink()
    (_apt if repository.suite else _dnf)(repository, root)
    made.write_text(recipe)
    return True


def _apt(repository: Repository, root: Path) -> None:
    flat = repository.suite in ("/", "./")
    release = root if flat else root / "dists" / repository.suite
    component = (repository.components.split() or ["main"])[0]
    index = release if flat else release / component / f"binary-{repository.architecture}"
    shutil.rmtree(root / "dists", ignore_errors=True)
    index.mkdir(parents=True, exist_ok=True)
    packages = run(["apt-ftparchive", "packages", "pool"], package="apt-utils", cwd=root)
    (index / "Packages").write_text(packages, encoding="utf-8")
    (index / "Packages.gz").write_bytes(gzip.compress(packages.encode(), mtime=0))
    fields = {"Origin": repository.origin or "Elastic AI", "Label": repository.label or "Elastic AI"}
    if not flat:
        fields |= {"Suite": repository.suite, "Codename": repository.suite, "Components": component}
    fields |= {"Architectures": repository.architecture}
    settings = [f"-oAPT::FTPArchive::Release::{key}={value}" for key, value in fields.items()]
    settings.append("-oAPT::FTPArchive::Release::Patterns=Packages*")
    for old in ("Release", "InRelease", "Release.gpg"):
        (release / old).unlink(missing_ok=True)
    text = run(["apt-ftparchive", *settings, "release", "."], package="apt-utils", cwd=release)
    (release / "Release").write_text(text, encoding="utf-8")
    openpgp.sign(release / "Release", clear=release / "InRelease", detached=release / "Release.gpg")


def _dnf(repository: Repository, root: Path) -> None:
    shutil.rmtree(root / "repodata", ignore_errors=True)
    run(["createrepo_c", "--quiet", "--workers=2", str(root)], package="createrepo-c")
    if repository.modules:
        listing = root / "modules.yaml"
        listing.write_text(repository.modules, encoding="utf-8")
        run(["modifyrepo_c", "--mdtype=modules", str(listing), str(root / "repodata")], package="createrepo-c")
        listing.unlink()
    index = root / "repodata/repomd.xml"
    openpgp.sign(index, clear=None, detached=root / "repodata/repomd.xml.asc")
