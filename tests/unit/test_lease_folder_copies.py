"""A folder that `--sync` copies to a server and back: what cannot go there and come back is said before anything is
asked for."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from toolkit.lease import LeaseError
from toolkit.lease.client.folder_copies import readable


def by_mode(path: str | Path, wanted: int, **_more: object) -> bool:
    """os.access for a user who owns nothing here, whoever runs the tests."""
    return Path(path).stat().st_mode & wanted == wanted


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(os, "access", by_mode)
    made = tmp_path / "project"
    (made / "deep").mkdir(parents=True)
    (made / "deep" / "in").write_text("given")
    (made / "nowhere").symlink_to("gone")
    (made / "read-only").write_text("its folder decides")
    for path, mode in ((made, 0o777), (made / "deep", 0o777), (made / "read-only", 0o444)):
        path.chmod(mode)
    return made


def test_a_folder_that_can_go_there_and_come_back_is_taken(folder: Path) -> None:
    (folder.parent / "link").symlink_to(folder)
    assert readable(folder.parent / "link") == folder.resolve()


def test_what_cannot_is_one_sentence_with_its_path(folder: Path) -> None:
    (folder / "deep" / "in").chmod(0o600)
    with pytest.raises(LeaseError, match=rf"^--sync {folder}: you may not read {folder}/deep/in$"):
        readable(folder)
    (folder / "deep" / "in").chmod(0o644)
    (folder / "deep").chmod(0o755)
    with pytest.raises(LeaseError, match=rf"{folder}/deep is a folder that you may not read and write$"):
        readable(folder)
    (folder / "deep").chmod(0o777)
    os.mknod(folder / "deep" / "device", 0o666 | stat.S_IFCHR, os.makedev(0, 0))
    with pytest.raises(LeaseError, match=rf"{folder}/deep/device is a device$"):
        readable(folder)
    for wrong in (folder / "gone", folder / "nowhere", folder / "read-only"):
        with pytest.raises(LeaseError, match="not a folder that you may read and write"):
            readable(wrong)
