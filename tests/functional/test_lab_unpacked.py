"""Packages that the lab unpacks once for all its nodes: what dpkg gets is what dpkg-deb would have given."""

from __future__ import annotations

import hashlib
import random
import re
import subprocess
from importlib import resources
from pathlib import Path

import pytest

from toolkit.lab.aptcache import UNPACKED_BYTES, unpack
from toolkit.lab.image import FILES


def make_package(folder: Path, size_bytes: int) -> Path:
    """A real package of about this size."""
    tree = folder / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(
        "Package: thing\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@example.com>\nDescription: thing\n"
    )
    (tree / "content").write_bytes(random.Random(7).randbytes(size_bytes))
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", tree, folder], check=True, capture_output=True)
    return folder / "thing_1_all.deb"


def own(package: Path) -> bytes:
    """What dpkg-deb itself gives."""
    return subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, capture_output=True).stdout


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    folder = tmp_path / "unpacked"
    folder.mkdir()
    return folder


@pytest.fixture
def asked(tmp_path: Path, unpacked: Path) -> Path:
    """The nodes' dpkg-deb, with the folder of this test."""
    text = (resources.files("toolkit.lab") / "files" / "lab-dpkg-deb").read_text()
    assert "/usr/local/libexec/elastic-ai-lab/unpacked/" in text
    program = tmp_path / "lab-dpkg-deb"
    program.write_text(text.replace("/usr/local/libexec/elastic-ai-lab/unpacked/", f"{unpacked}/"))
    return program


def test_a_package_is_unpacked_once_and_found_by_its_hash(tmp_path: Path, unpacked: Path, asked: Path) -> None:
    package = make_package(tmp_path, 2 * UNPACKED_BYTES[0])
    unpack(package, unpacked)
    (files,) = unpacked.iterdir()
    assert files.name == f"{hashlib.sha256(package.read_bytes()).hexdigest()}.tar"
    assert files.read_bytes() == own(package)
    files.write_bytes(b"as the lab has it")
    unpack(package, unpacked)
    got = subprocess.run(["sh", asked, "--fsys-tarfile", package], check=True, capture_output=True).stdout
    assert got == b"as the lab has it"


def test_what_the_lab_has_not_unpacked_goes_to_dpkg_deb(tmp_path: Path, unpacked: Path, asked: Path) -> None:
    package = make_package(tmp_path, UNPACKED_BYTES[0] // 2)
    unpack(package, unpacked)
    assert not list(unpacked.iterdir())
    got = subprocess.run(["sh", asked, "--fsys-tarfile", package], check=True, capture_output=True).stdout
    assert got == own(package)
    field = subprocess.run(["sh", asked, "--field", package, "Package"], check=True, capture_output=True, text=True)
    assert field.stdout == "thing\n"


def test_a_damaged_package_is_left_to_the_node_who_says_so(tmp_path: Path, unpacked: Path, asked: Path) -> None:
    package = make_package(tmp_path, 2 * UNPACKED_BYTES[0])
    package.write_bytes(package.read_bytes()[:-5000])
    unpack(package, unpacked)
    assert not list(unpacked.iterdir())
    done = subprocess.run(["sh", asked, "--fsys-tarfile", package], check=False, capture_output=True)
    assert done.returncode == 2
    assert b"dpkg-deb: error" in done.stderr


def test_apt_gives_dpkg_the_folder_of_the_labs_dpkg_deb_first() -> None:
    settings = (resources.files("toolkit.lab") / "files" / "lab-apt").read_text()
    path = re.search(r'^DPkg::Path "(.*)";$', settings, re.M)
    assert path is not None  # without it apt looks in /usr/sbin, /usr/bin, /sbin and /bin alone
    assert f"/{Path(FILES['lab-dpkg-deb'][0]).parent}" == path[1].split(":")[0]
