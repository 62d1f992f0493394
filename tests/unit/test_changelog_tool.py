"""Changelog: fragments that would break the page, and versions that are none, are refused before anything changes."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import changelog  # noqa: E402
import release as release_tool  # noqa: E402

DAY = datetime.date(2026, 1, 1)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "changelog.d/a.added.md").write_text("One.\n")
    (tmp_path / "CHANGELOG.md").write_text(
        f"# Changes\n\n{changelog.MARK}\n## 0.3.0 (2026-01-01)\n\n### Added\n\n- x.\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe x.\n", "is not UTF-8 text"),
        (b"One.\n## 9.9.9 (2030-01-01)\n\nTwo.\n", "has a heading or a comment"),
        (b"One.\n  # x\nTwo.\n", "has a heading or a comment"),
        (f"One.\n{changelog.MARK}Two.\n".encode(), "has a heading or a comment"),
        (b"One.\n---\n`x`", "has a heading or a comment"),
        (b"\xef\xbb\xbfOne.\n", "U+FEFF"),
        (b"One \x1b[31m.\n", "U+001B"),
        ("One \u202e.\n".encode(), "U+202E"),
        (b"  \n", "is empty"),
    ],
)
def test_a_fragment_that_would_break_the_page_is_named(tree: Path, content: bytes, words: str) -> None:
    assert changelog.faults(tree) == []
    (tree / "changelog.d/a.added.md").write_bytes(content)
    (fault,) = changelog.faults(tree)
    assert fault.startswith("changelog.d/a.added.md: ")
    assert words in fault


def test_a_folder_or_a_link_is_no_fragment(tree: Path) -> None:
    (tree / "changelog.d/b.fixed.md").mkdir()
    (tree / "changelog.d/c.fixed.md").symlink_to(tree / "CHANGELOG.md")
    assert [fault.partition(": ")[2] for fault in changelog.faults(tree)] == ["is no plain file"] * 2


@pytest.mark.parametrize("version", ["0.3.0", "0.2.9", "\u0660.\u0664.\u0660", "00.4.0", "0.4", "0.4.0\n", "-1.0.0"])
def test_a_version_that_is_none_or_older_changes_nothing(tree: Path, version: str) -> None:
    before = (tree / "CHANGELOG.md").read_text()
    with pytest.raises(ValueError, match=r"is no version|is older than 0\.3\.0|has a section"):
        changelog.release(version, DAY, tree)
    assert (tree / "CHANGELOG.md").read_text() == before
    assert changelog.fragments(tree)


def test_a_newer_version_is_written(tree: Path) -> None:
    assert changelog.release("0.10.0", DAY, tree).startswith("\n## 0.10.0 (2026-01-01)")
    assert changelog.fragments(tree) == []


def test_a_file_in_the_place_of_the_new_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_tool, "run", lambda *_words, **_env: "")
    monkeypatch.setattr(release_tool, "ROOT", tmp_path)
    monkeypatch.setattr(release_tool, "version_of", lambda _root: "0.3.0")
    (tmp_path / "CHANGELOG.md").write_text("\n## 0.3.0 (2026-01-01)\n")
    (tmp_path / "dist").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("dist", "link"):
        with pytest.raises(release_tool.Fault, match="is no folder; name a new one"):
            release_tool.build(tmp_path / name, tmp_path / "key")
