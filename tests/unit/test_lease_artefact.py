"""The archive of an engine: installed whole, or refused with the reason."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from tests.support.node_modules import load

artefact = load("plugins/modules/engine_artefact.py")


def archive(path: Path, members: dict[str, bytes], link: tuple[str, str] | None = None) -> str:
    with tarfile.open(path, "w:gz") as opened:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o755 if name.startswith("bin/") else 0o644
            opened.addfile(info, io.BytesIO(content))
        if link:
            info = tarfile.TarInfo(link[0])
            info.type, info.linkname = tarfile.SYMTYPE, link[1]
            opened.addfile(info)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def engine(release: str) -> dict[str, bytes]:
    return {"engine.json": json.dumps({"engine": "reference", "release": release}).encode(), "bin/server": b"#!"}


def test_a_release_replaces_the_one_before(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for release in ("r1", "r2"):
        sha = archive(tmp_path / "a.tar.gz", engine(release))
        assert artefact.installed(root, sha) is None
        assert artefact.install(tmp_path / "a.tar.gz", sha, root) == {"engine": "reference", "release": release}
        assert artefact.installed(root, sha) == {"engine": "reference", "release": release}
    assert (root / "current").readlink() == Path("reference-r2")
    assert (root / "current/bin/server").stat().st_mode & 0o777 == 0o755
    assert sorted(p.name for p in root.iterdir()) == ["current", "reference-r2"]


def test_a_release_is_on_the_disk_before_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut after the rename would leave a release of empty files, with the mark of a whole one."""
    flushed: dict[str, bool] = {}

    def flush(handle: int) -> None:
        flushed[Path(f"/proc/self/fd/{handle}").readlink().name] = (tmp_path / "root/reference-r1").exists()

    monkeypatch.setattr(os, "fsync", flush)
    artefact.install(tmp_path / "a.tar.gz", archive(tmp_path / "a.tar.gz", engine("r1")), tmp_path / "root")
    assert flushed == {"engine.json": False, "server": False, ".sha256": False}


def test_an_engine_beside_it_stays(tmp_path: Path) -> None:
    root = tmp_path / "root"
    further = root / "beside/torch"
    sha = archive(tmp_path / "b.tar.gz", engine("t1"))
    artefact.install(tmp_path / "b.tar.gz", sha, further)
    (further / "venv").mkdir()
    for release in ("r1", "r2"):
        artefact.install(tmp_path / "a.tar.gz", archive(tmp_path / "a.tar.gz", engine(release)), root)
    assert artefact.installed(further, sha) == {"engine": "reference", "release": "t1"}
    artefact.install(tmp_path / "b.tar.gz", archive(tmp_path / "b.tar.gz", engine("t2")), further)
    assert sorted(p.name for p in further.iterdir()) == ["current", "reference-t2", "venv"]
    assert sorted(p.name for p in root.iterdir()) == ["beside", "current", "reference-r2"]


@pytest.mark.parametrize(
    ("members", "link", "words"),
    [
        ({"../x": b""}, None, "does not belong"),
        ({"/etc/x": b""}, None, "does not belong"),
        (engine("r1"), ("lib/x", "../../../etc/passwd"), "does not belong"),
        ({"bin/server": b""}, None, "no engine's archive"),
        ({"engine.json": b"{}"}, None, "names no engine"),
        ({"engine.json": b'{"engine": "../x", "release": "1"}'}, None, "no name and release"),
    ],
)
def test_refused(tmp_path: Path, members: dict[str, bytes], link: tuple[str, str] | None, words: str) -> None:
    sha = archive(tmp_path / "a.tar.gz", members, link)
    with pytest.raises(artefact.Refused, match=words):
        artefact.install(tmp_path / "a.tar.gz", sha, tmp_path / "root")
    assert list((tmp_path / "root").glob("*")) == []


def test_another_checksum_and_no_archive(tmp_path: Path) -> None:
    archive(tmp_path / "a.tar.gz", engine("r1"))
    with pytest.raises(artefact.Refused, match="its checksum is"):
        artefact.install(tmp_path / "a.tar.gz", "0" * 64, tmp_path / "root")
    with pytest.raises(artefact.Refused, match="not there"):
        artefact.install(tmp_path / "b.tar.gz", "0" * 64, tmp_path / "root")
    (tmp_path / "c.tar.gz").write_bytes(b"no archive")
    sha = hashlib.sha256(b"no archive").hexdigest()
    with pytest.raises(artefact.Refused, match="no engine's archive"):
        artefact.install(tmp_path / "c.tar.gz", sha, tmp_path / "root")
