"""What is remembered of a run and was damaged, or changed by others: it counts as none, and the run is read."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.remembered import Read, all_of, cut, file_of, judged, lines_read, linked
from tests.unit.test_documents import BANDWIDTH, lost
from validation.run import remembered
from validation.run.read import Run


@pytest.fixture
def run(site_runs: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(site_runs["clean"], tmp_path / "run"))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Read:
    return lines_read(monkeypatch, tmp_path)


def written_anew(run: Path, *statements: str) -> None:
    """What is kept of a run, changed by somebody who renews its hash, too."""
    path = file_of(run)
    with contextlib.closing(sqlite3.connect(path)) as base, base:
        for statement in statements:
            base.execute(statement)
    file_of(run, ".sha256").write_bytes(remembered._sum_of(path, path.name))


@pytest.mark.parametrize("umask", [0o002, 0o077])
def test_what_is_kept_is_the_users_alone_whatever_the_umask(run: Path, read: Read, umask: int) -> None:
    was = os.umask(umask)
    try:
        judged(run, read)
    finally:
        os.umask(was)
    assert {path.suffix: path.stat().st_mode & 0o777 for path in file_of(run).parent.iterdir()} == {
        ".sqlite": 0o600,
        ".sha256": 0o600,
    }
    assert Run(run).known is not None


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


HOSTILE: dict[str, Callable[[Path], Any]] = {
    "cut": cut,
    "flipped": flipped,
    "emptied": lambda path: path.write_bytes(b""),
    "gone": Path.unlink,
    "of anybody": lambda path: path.chmod(0o666),
    "of a group": lambda path: path.chmod(0o620),
    "of another user": lambda path: os.chown(path, 1, -1),
    "a link": linked,
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a pipe": fifo,
    "huge": lambda path: os.truncate(path, remembered.MOST_BYTES + 1),
}


@pytest.mark.parametrize("end", [".sqlite", ".sha256"])
@pytest.mark.parametrize("how", HOSTILE)
def test_a_file_that_is_damaged_or_not_ours_counts_as_none(run: Path, read: Read, end: str, how: str) -> None:
    if how == "of another user" and os.geteuid() != 0:
        pytest.skip("nobody but root gives files away")
    good = judged(run, read)
    HOSTILE[how](file_of(run, end))
    assert Run(run).known is None
    assert judged(run, read) == good
    assert sorted(read) == all_of(run)


def test_a_folder_that_others_can_write_counts_as_none(run: Path, read: Read) -> None:
    judged(run, read)
    for folder in (file_of(run).parent, file_of(run).parent.parent):
        folder.chmod(0o777)
        assert Run(run).known is None
        folder.chmod(0o700)
    assert Run(run).known is not None


ROWS = {
    "a sample": "UPDATE samples SET sample_values = replace(sample_values, '0', '9')",
    "a status": "UPDATE results SET status = 'failed'",
    "a fault": "UPDATE results SET faults = NULL",
    "evidence": """UPDATE about SET value = '{"faults": {}, "notes": []}' WHERE name = 'evidence'""",
    "a row less": "DELETE FROM results WHERE line = 3",
    "a row more": "INSERT INTO folders VALUES ('x', 'y', 'z')",
}


@pytest.mark.parametrize("what", ROWS)
def test_a_row_that_was_changed_counts_as_none(run: Path, read: Read, what: str) -> None:
    (run / "raw" / BANDWIDTH / "gpu1.out").write_text("damaged")  # there is a fault to hide
    damaged = judged(run, read)
    lost(damaged)
    with contextlib.closing(sqlite3.connect(file_of(run))) as base, base:
        assert base.execute(ROWS[what]).rowcount
    assert Run(run).known is None
    assert judged(run, read) == damaged


OBJECTS = {
    "a view in place of a table": (
        "ALTER TABLE folders RENAME TO other",
        "CREATE VIEW folders AS SELECT * FROM other",
    ),
    "a view beside them": ("CREATE VIEW other AS SELECT load_extension('/tmp/x.so') FROM about",),
    "a view without an end": (
        "DROP TABLE samples",
        "CREATE VIEW samples AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
        " SELECT 'metric' AS metric, 'unit' AS unit, 0 AS place, '[]' AS sample_values FROM n",
    ),
    "a trigger": ("CREATE TRIGGER other AFTER INSERT ON about BEGIN DELETE FROM results; END",),
    "an index on a function": ("CREATE INDEX other ON results(abs(line))",),
    "a virtual table": ("CREATE VIRTUAL TABLE other USING fts5(text)",),
    "another column": ("ALTER TABLE results ADD COLUMN other TEXT DEFAULT 'x'",),
    "a table less": ("DROP TABLE places",),
    "a table more": ("CREATE TABLE other (a TEXT)",),
}


@pytest.mark.parametrize("what", OBJECTS)
def test_a_file_with_anything_but_our_tables_counts_as_none(run: Path, read: Read, what: str) -> None:
    """Even where its hash was renewed: nothing that SQL can be made to run is looked at."""
    good = judged(run, read)
    written_anew(run, *OBJECTS[what])
    assert Run(run).known is None
    assert judged(run, read) == good


VALUES = {
    "no number": "UPDATE samples SET sample_values = '[true, \"x\"]'",
    "one less": "UPDATE samples SET sample_values = '[1.0]'",
    "no JSON": "UPDATE samples SET sample_values = '['",
    "nested without an end": f"UPDATE samples SET sample_values = '{'[' * 100_000}'",
    "bytes": "UPDATE samples SET sample_values = x'ff00'",
    "no such place": "UPDATE samples SET place = 99",
    "a line beyond the last": "UPDATE places SET lines = replace(lines, '[', '[4000000000, ')",
    "no such status": "UPDATE results SET status = 'accepted'",
    "no text": "UPDATE results SET measurement = x'00'",
    "no size": "UPDATE about SET value = 'x' WHERE name = 'size'",
    "a negative size": "UPDATE about SET value = '-1' WHERE name = 'size'",
    "nothing of it": "DELETE FROM about",
}


@pytest.mark.parametrize("what", VALUES)
def test_a_file_with_values_that_do_not_fit_counts_as_none(run: Path, read: Read, what: str) -> None:
    good = judged(run, read)
    written_anew(run, VALUES[what])
    assert Run(run).known is None
    assert judged(run, read) == good
