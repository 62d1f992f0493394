"""Output of programs that go on alone: two files in turn, read while they are written, and shown on a terminal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from toolkit.lease.kept.output import ForTerminal, Log, Reader


def test_output_takes_so_much_of_the_disk_and_no_more(tmp_path: Path) -> None:
    log = Log(tmp_path, half_bytes=1000)
    lines = [b"line %05d\n" % number for number in range(1000)]
    reader, read = Reader(tmp_path), b""
    for number, line in enumerate(lines):
        log.write(line)
        if number % 50 == 0:
            read += b"".join(reader.read())
    read += b"".join(reader.read())
    assert read == b"".join(lines), "one who follows misses nothing"
    left = b"".join(Reader(tmp_path).read())
    assert b"".join(lines).endswith(left)
    assert 1000 < len(left) <= 2000
    assert log.dropped == len(b"".join(lines)) - len(left)
    log.write(b"x" * 5000)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 2000


@pytest.mark.parametrize("at", range(4))
def test_what_comes_while_a_reader_goes_to_the_next_file_is_read(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer goes on after each of the reader's reads."""
    log, reader, moments, read = Log(tmp_path, half_bytes=1000), Reader(tmp_path), [0], os.read
    log.write(b"a" * 500)

    def then_written(file: int, size: int) -> bytes:
        found = read(file, size)
        if moments[0] == at:
            log.write(b"b" * 700)
        moments[0] += 1
        return found

    monkeypatch.setattr(os, "read", then_written)
    found = b"".join(data for _look in range(4) for data in reader.read())
    assert found == b"a" * 500 + b"b" * 700
    assert reader.missed == 0


@pytest.mark.parametrize(("written", "read", "missed"), [(1400, 1400, 0), (2400, 2400, 0), (5600, 1600, 4000)])
def test_what_was_gone_before_it_was_read_is_counted(written: int, read: int, missed: int, tmp_path: Path) -> None:
    log, reader = Log(tmp_path, half_bytes=1000), Reader(tmp_path)
    log.write(b"a" * 500)
    assert b"".join(reader.read()) == b"a" * 500
    log.write(b"b" * written)
    assert (len(b"".join(reader.read())), reader.missed) == (read, missed)


def test_a_terminal_gets_text_and_colours_alone() -> None:
    shows = ForTerminal()
    hostile = b"\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m\r 50%\x9b\xe2\x80\xae\xff"
    said = shows.text(hostile)
    assert said.replace("\x1b[31m", "").replace("\x1b[0m", "").replace("\r", "").isprintable()
    assert "\x1b[31mred\x1b[0m\r 50%" in said
    pieces = ForTerminal()
    text = "\x1b[32mgrün 漢\x1b[0m\n".encode()
    assert "".join(pieces.text(text[n : n + 1]) for n in range(len(text))) == text.decode()
    assert pieces.text(b"", last=True) == "\x1b[0m"


def test_a_link_in_place_of_the_output_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of another\n")
    (tmp_path / "output.0").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic links"):
        Log(tmp_path)
    assert list(Reader(tmp_path).read()) == []
