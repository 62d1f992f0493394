"""Temporary folders of a controller that was killed: the next one removes them, and those of one that lives stay."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.engine_run import ROOT
from validation.base import temporary
from validation.base.sockets import sockets

HOLDING = """
import sys, time
from pathlib import Path
from validation.base.temporary import Room
room = Room("eai-test", Path(sys.argv[1]))
(room.path / "secret").write_text("key")
print(room.path, flush=True)
time.sleep(600)
"""


def holding(base: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that has a folder, and that folder."""
    words = [sys.executable, "-c", HOLDING, str(base)]
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_folder_goes_with_the_next_of_its_kind_once_its_owner_is_dead(tmp_path: Path) -> None:
    dead, left = holding(tmp_path)
    alive, kept = holding(tmp_path)
    try:
        assert left.is_dir(), "its owner lives"
        assert kept.is_dir()
        dead.kill()
        dead.wait()
        assert (left / "secret").exists()
        other = tmp_path / "eai-tests-of-another-kind"
        other.mkdir()
        with temporary.room("eai-test", tmp_path) as mine:
            assert sorted(tmp_path.iterdir()) == sorted([kept, mine, other])
            assert mine.stat().st_mode & 0o777 == 0o700
        assert sorted(tmp_path.iterdir()) == sorted([kept, other])
    finally:
        for process in (dead, alive):
            process.kill()
            process.wait()


def test_what_is_no_folder_of_ours_is_not_touched(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / "eai-test-link").symlink_to(target)
    (tmp_path / "eai-test-file").write_text("")
    temporary.sweep("eai-test", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["eai-test-file", "eai-test-link", "target"]


@pytest.mark.parametrize("kind", ["eat-ssh", "eat-door"])
def test_sockets_of_a_killed_controller_go_at_the_next_start(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:  # sockets' paths are short; those of tests need not be
        monkeypatch.setattr(tempfile, "tempdir", short)
        left = Path(short, f"{kind}-x1y2z3_4")
        left.mkdir()
        made = sockets(kind)
        assert not left.exists()
        made.close()
        assert list(Path(short).iterdir()) == []


def test_folders_of_a_longer_name_are_of_another_kind(tmp_path: Path) -> None:
    others = [tmp_path / "eai-test-more-abcdefgh", tmp_path / "eai-test-notes"]
    for other in others:
        other.mkdir()
    left = Path(tempfile.mkdtemp(prefix="eai-test-", dir=tmp_path))
    temporary.sweep("eai-test", tmp_path)
    assert [other.is_dir() for other in others] == [True, True]
    assert not left.exists()
