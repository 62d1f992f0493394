"""The lab's stand-ins for the vendors' repositories: what data are refused, and what apt gets to see."""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from toolkit.errors import LabError
from toolkit.lab import debrepo
from toolkit.lab.aptcache import vendor_file
from toolkit.lab.debrepo import fingerprint, make_key, make_repositories
from toolkit.lab.fake_packages import data_files, fingerprint_of, load_fake_packages
from toolkit.lab.spec import VENDOR_HOST

pytestmark = pytest.mark.systems

DATA = {
    "repo": "cuda",
    "label": "Elastic AI lab stand-in",
    "layout": "flat",
    "source": "public",
    "packages": [
        {
            "os": ["debian12", "debian13"],
            "name": "datacenter-gpu-manager-4-core",
            "version": "1:4.6.0-1",
            "depends": "libc6 (>= 2.28)",
            "pre_depends": "dpkg",
            "conflicts": "datacenter-gpu-manager",
            "files": {
                "/usr/bin/dcgmi": {"mode": "0755", "content": "#!/bin/sh\necho a stand-in\n"},
                "/usr/bin/dcgm": {"link": "dcgmi"},
                "/etc/dcgm.conf": {"content": "x=1\n"},
            },
            "scripts": {"postinst": "#!/bin/sh\nset -e\n"},
        },
        {"os": ["debian12"], "name": "datacenter-gpu-manager-4-core", "version": "1:4.5.0-1"},
    ],
}


def write(folder: Path, data: dict, name: str = "cuda") -> Path:
    path = folder / f"{name}.yml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return path


def changed(**fields) -> dict:
    return {**DATA, "packages": [{**DATA["packages"][0], **fields}]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (changed(depend="x"), r"cuda\.yml:\d+: packages\.0\.depend: unknown key"),
        (changed(name="Bad_Name"), r"cuda\.yml:\d+: packages\.0\.name"),
        (changed(versions=["1.0-1"]), "give either version or versions"),
        (changed(version="v1"), r"cuda\.yml:\d+: packages\.0\.version"),
        (changed(os=["debian11"]), r"cuda\.yml:\d+: packages\.0\.os"),
        (changed(depends="a\nInjected: b"), r"cuda\.yml:\d+: packages\.0\.depends"),
        (changed(files={"etc/x": {"content": ""}}), "give the full path"),
        (changed(files={"/etc/../x": {"content": ""}}), "give the full path"),
        (changed(files={"/etc/x": {}}), "either content or link"),
        (changed(scripts={"config": ""}), r"packages\.0\.scripts"),
        ({**DATA, "packages": [*DATA["packages"], DATA["packages"][0]]}, "duplicate package for debian12"),
        ({**DATA, "repo": "doca"}, "the file name says 'cuda'"),
    ],
)
def test_data_that_do_not_fit_are_refused_with_file_and_entry(tmp_path: Path, data: dict, message: str):
    with pytest.raises(LabError, match=message):
        load_fake_packages([write(tmp_path, data)])


def test_the_packaged_data_fit_and_are_labelled_as_stand_ins():
    found = load_fake_packages()
    assert {"cuda", "docker", "doca", "nvidia-container-toolkit"} <= {s.repo for s in found}
    assert len(found) == len(data_files())
    assert all("stand-in" in s.label and s.source and s.packages for s in found)


def test_versions_that_differ_in_nothing_else_are_one_entry(tmp_path: Path):
    entry = {
        "os": ["debian12"],
        "name": "driver-{branch}",
        "versions": ["1:580.95.05-1", "1:590.48.01-1"],
        "depends": "lib (= {version})",
        "files": {"/etc/driver-{upstream}": {"content": "{upstream}\n"}},
    }
    (found,) = load_fake_packages([write(tmp_path, {**DATA, "packages": [entry]})])
    assert [(p.name, p.version, p.depends, *p.files) for p in found.of("debian12")] == [
        ("driver-580", "1:580.95.05-1", "lib (= 1:580.95.05-1)", "/etc/driver-580.95.05"),
        ("driver-590", "1:590.48.01-1", "lib (= 1:590.48.01-1)", "/etc/driver-590.48.01"),
    ]
    assert [file.content for p in found.of("debian12") for file in p.files.values()] == ["580.95.05\n", "590.48.01\n"]


def test_a_changed_entry_is_another_set(tmp_path: Path):
    first = fingerprint_of(load_fake_packages([write(tmp_path, DATA)]))
    assert fingerprint_of(load_fake_packages([write(tmp_path, DATA)])) == first
    assert fingerprint_of(load_fake_packages([write(tmp_path, changed(version="1:4.6.1-1"))])) != first


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Repositories of DATA, flat, and as a suite, and the key that signs them."""
    root = tmp_path_factory.mktemp("vendor")
    make_key(root / "key")
    suite = write(root, {**DATA, "repo": "docker", "layout": "suite"}, "docker")
    make_repositories(load_fake_packages([write(root, DATA), suite]), root / "out", root / "key/secret.asc")
    return root


def fields(deb: Path, *names: str) -> str:
    return subprocess.run(["dpkg-deb", "-f", deb, *names], check=True, capture_output=True, text=True).stdout.strip()


def test_a_package_has_the_true_names_and_says_that_it_is_a_stand_in(made: Path):
    debs = sorted((made / "out/cuda/debian12").glob("*.deb"))
    assert [fields(d, "Version") for d in debs] == ["1:4.5.0-1", "1:4.6.0-1"]
    assert len(list((made / "out/cuda/debian13").glob("*.deb"))) == 1
    assert fields(debs[1], "Depends") == "libc6 (>= 2.28)"
    assert fields(debs[1], "Pre-Depends") == "dpkg"
    assert fields(debs[1], "Conflicts") == "datacenter-gpu-manager"
    assert "stand-in" in fields(debs[1], "Description")
    listed = subprocess.run(["dpkg-deb", "-c", debs[1]], check=True, capture_output=True, text=True).stdout
    assert re.search(r"-rwxr-xr-x root/root .* \./usr/bin/dcgmi\n", listed)
    assert "./usr/bin/dcgm -> dcgmi" in listed
    conffiles = subprocess.run(["dpkg-deb", "-I", debs[1], "conffiles"], check=True, capture_output=True, text=True)
    assert conffiles.stdout == "/etc/dcgm.conf\n"


@pytest.mark.parametrize(
    ("folder", "index", "place"),
    [
        ("cuda/debian13", "Packages", "./datacenter"),
        ("docker/debian13/dists/trixie", "stable/binary-", "pool/datacenter"),
    ],
)
def test_the_index_is_signed_and_names_every_file(made: Path, tmp_path: Path, folder: str, index: str, place: str):
    release = made / "out" / folder / "InRelease"
    ring = tmp_path / "ring.gpg"
    subprocess.run(["gpg", "--dearmor", "--output", ring, made / "key/key.asc"], check=True, capture_output=True)
    verified = subprocess.run(["gpgv", "--keyring", ring, release], capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stderr
    sums = re.findall(r"^ ([0-9a-f]{64}) (\d+) (\S+)$", release.read_text(), re.MULTILINE)
    assert any(name.startswith(index) for _, _, name in sums)
    for digest, size, name in sums:
        data = (release.parent / name).read_bytes()
        assert (hashlib.sha256(data).hexdigest(), str(len(data))) == (digest, size)
    packages = next(release.parent.rglob("Packages")).read_text()
    assert f"Filename: {place}" in packages
    for name, digest in re.findall(r"^Filename: (\S+)\n.*\nSHA256: (\S+)$", packages, re.MULTILINE):
        top = made / "out" / "/".join(folder.split("/")[:2])
        assert hashlib.sha256((top / name).read_bytes()).hexdigest() == digest


def test_a_package_that_dpkg_refuses_is_named(tmp_path: Path):
    make_key(tmp_path / "key")
    fakes = load_fake_packages([write(tmp_path, changed(depends="a (>> b"))])
    with pytest.raises(LabError, match=r"vendor/cuda\.yml: datacenter-gpu-manager-4-core 1:4\.6\.0-1"):
        make_repositories(fakes, tmp_path / "out", tmp_path / "key/secret.asc")


def test_the_set_is_made_once_and_again_when_the_data_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ELASTIC_AI_LAB_CACHE", str(tmp_path / "cache"))
    data = [write(tmp_path, changed())]
    monkeypatch.setattr(debrepo, "load_fake_packages", lambda: load_fake_packages(data))
    said: list[str] = []
    first = debrepo.vendor_repositories(said.append)
    assert debrepo.vendor_repositories(said.append) == first
    assert len(said) == 1
    assert first.fingerprint == fingerprint(first.key)
    assert (tmp_path / "cache/vendor/key/secret.asc").stat().st_mode & 0o077 == 0
    write(tmp_path, changed(version="1:4.6.1-1"))
    second = debrepo.vendor_repositories(said.append)
    assert second.folder != first.folder
    assert second.fingerprint == first.fingerprint


def test_only_files_of_the_set_are_served(tmp_path: Path):
    (tmp_path / "set/cuda/debian12").mkdir(parents=True)
    (tmp_path / "set/cuda/debian12/a+b_1.deb").write_text("")
    (tmp_path / "secret").write_text("")
    base = f"http://{VENDOR_HOST}"
    assert vendor_file(f"{base}/cuda/debian12/./a%2bb_1.deb", tmp_path / "set")
    assert vendor_file(f"{base}/cuda/debian12/", tmp_path / "set") is None
    assert vendor_file(f"{base}/../secret", tmp_path / "set") is None
    assert vendor_file(f"{base}/%2e%2e/secret", tmp_path / "set") is None
