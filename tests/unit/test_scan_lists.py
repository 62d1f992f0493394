"""Lists of nodes as other people save them: from spreadsheets, by copying out of other files."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolkit.errors import UsageFault
from toolkit.scan.wanted import checked, from_file


def listed(folder: Path, content: bytes) -> list[tuple[str, str | None, int | None]]:
    path = folder / "nodes.csv"
    path.write_bytes(content)
    return [(one.address, one.name, one.port) for one in checked(from_file(path))]


@pytest.mark.parametrize(
    "content",
    [
        b"address,name\n198.51.100.1,gpu1\n",
        b"\xef\xbb\xbfaddress,name\r\n198.51.100.1,gpu1\r\n",
        b'"address","name"\n"198.51.100.1","gpu1"\n',
        b"Address, Name\n198.51.100.1, gpu1\n",
        b"\xef\xbb\xbfAddress;Name;Port\r\n198.51.100.1;gpu1;\r\n",
        b"address\tname\n198.51.100.1\tgpu1\n",
        b"address,name,,\n198.51.100.1,gpu1,,\n",
        b"name,address\ngpu1,198.51.100.1\n",
    ],
    ids=["plain", "utf-8 mark", "quotes", "capitals", "semicolons", "tabs", "empty columns", "other order"],
)
def test_a_list_is_read_however_a_spreadsheet_saves_it(tmp_path: Path, content: bytes) -> None:
    assert listed(tmp_path, content) == [("198.51.100.1", "gpu1", None)]


def test_a_list_without_columns_may_begin_with_a_mark(tmp_path: Path) -> None:
    assert listed(tmp_path, b"\xef\xbb\xbf198.51.100.1\r\n") == [("198.51.100.1", None, None)]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("198.51.100.1,gpu1", "names them in its first line: address,name,"),
        ("198.51.100.0/30", "is a network; write the addresses of its nodes"),
        ("root@198.51.100.1", "column user, or use --user"),
        ("198.51.100.1:2222", "put the port into the column port"),
        ("gpu1.example:22", "put the port into the column port"),
        ("198.51.100.1 gpu1", "is no address or host name"),
    ],
)
def test_what_is_no_address_is_refused_with_its_place_and_what_to_write(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(UsageFault, match=r"nodes\.csv:1: ") as refused:
        listed(tmp_path, f"{line}\n".encode())
    assert words in str(refused.value)
