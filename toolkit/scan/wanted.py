"""The list of nodes to read: addresses as words, ranges, or a file of them, with columns where it is CSV."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path

from toolkit.errors import UsageFault
from toolkit.inventory_address import is_ipv6
from validation.base.counting import number_of
from validation.model.load import read_source

GROUPS = ("heads", "clients", "gpu_servers")
COLUMNS = ("address", "name", "group", "user", "port", "host_key")
_ADDRESS = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,252})$")
_SECRET = re.compile(r"pass|secret|token", re.IGNORECASE)
_MOST = 4096  # nodes of one list; a range with a digit too many is no list


@dataclass(frozen=True)
class Wanted:
    """A node to read. `place` is where the list says so; what is None is found out, or the same for all."""

    address: str
    place: str
    name: str | None = None
    group: str | None = None
    user: str | None = None
    port: int | None = None
    host_key: str | None = None


def expand(word: str, place: str) -> list[str]:
    """`198.51.100.[31:34]` is four addresses; Ansible's own rule for ranges."""
    if "[" not in word or is_ipv6(word):
        return [word]
    from ansible.errors import AnsibleError  # type: ignore[import-untyped]
    from ansible.plugins.inventory import expand_hostname_range  # type: ignore[import-untyped]

    try:
        found = [str(address) for address in expand_hostname_range(word)]
    except (AnsibleError, ValueError) as fault:
        raise UsageFault(f"{place}: {word}: no such range: {fault}; write it like 198.51.100.[31:34]") from None
    if not found:
        raise UsageFault(f"{place}: {word}: no such range: its end is before its beginning; write [31:34]")
    return found


def from_words(words: tuple[str, ...]) -> list[Wanted]:
    """Addresses and ranges of the command line."""
    return [Wanted(address, "command line") for word in words for address in expand(word, "command line")]


def from_file(path: Path) -> list[Wanted]:
    """A file: an address or range on each line, or CSV whose first line names the columns, `address` among them.

    As spreadsheets save it: a mark of UTF-8 before it, commas, semicolons or tabs, names in any case, empty columns.
    """
    lines = read_source(path).text.removeprefix("\ufeff").splitlines()
    rows = [(n, line) for n, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("#")]
    if not rows:
        raise UsageFault(f"{path}: no address; one on each line, or CSV with the columns {', '.join(COLUMNS)}")
    separator = next((one for one in ",;\t" if "address" in map(str.lower, _cells(rows[0][1], one))), None)
    if separator is None:
        return [Wanted(a, f"{path}:{n}") for n, line in rows for a in expand(line.strip(), f"{path}:{n}")]
    header = [cell.lower() for cell in _cells(rows[0][1], separator)]
    for column in header:
        if column not in COLUMNS:
            why = "a password has no place in a list: --ask-password" if _SECRET.search(column) else "remove it"
            raise UsageFault(f"{path}:{rows[0][0]}: unknown column {column!r}; known: {', '.join(COLUMNS)}; {why}")
    found = []
    for number, line in rows[1:]:
        cells = _cells(line, separator)
        if len(cells) > len(header):
            words = {",": "commas", ";": "semicolons", "\t": "tabs"}[separator]
            raise UsageFault(
                f"{path}:{number}: {number_of(len(cells), 'cell')}, {number_of(len(header), 'column')}; "
                f"remove the {words} too many"
            )
        found += _row(dict(zip(header, cells, strict=False)), f"{path}:{number}")
    return found


def _cells(line: str, separator: str) -> list[str]:
    """The cells of a line, without quotes, and without empty ones behind the last."""
    found = [cell.strip() for cell in next(csv.reader([line], delimiter=separator))]
    while found and not found[-1]:
        found.pop()
    return found


def _no_address(word: str) -> str:
    """What is wrong with a word that is no address, and what to write."""
    if re.search(r"[,;\t]", word):
        return f"no address or host name; a list with columns names them in its first line: {','.join(COLUMNS)}"
    if re.fullmatch(r"[0-9.]+/\d+", word):
        return "a network; write the addresses of its nodes, as 198.51.100.[31:34]"
    if "@" in word:
        return "no address or host name; put the user into the column user, or use --user"
    if re.fullmatch(r"[^:]+:\d+", word):
        return "no address or host name; put the port into the column port of a list"
    return "no address or host name"


def _row(row: dict[str, str], place: str) -> list[Wanted]:
    given = {key: value for key, value in row.items() if value}
    address = given.pop("address", "")
    if not address:
        raise UsageFault(f"{place}: no address; every line needs one")
    group, port = given.get("group"), given.get("port", "")
    if group is not None and group not in GROUPS:
        raise UsageFault(f"{place}: group {group!r} is unknown; one of {', '.join(GROUPS)}, or leave it empty")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise UsageFault(f"{place}: port {port!r} is none; a number from 1 to 65535, or leave it empty")
    key = given.get("host_key")
    if key is not None and not re.fullmatch(r"SHA256:[A-Za-z0-9+/]{43}", key):
        raise UsageFault(f"{place}: host_key {key!r} is no fingerprint; write it as ssh-keygen -lf does: SHA256:...")
    many = expand(address, place)
    if len(many) > 1 and (given.get("name") or key):
        raise UsageFault(
            f"{place}: one name or host key for the {number_of(len(many), 'node')} of {address}; a line for each"
        )
    return [
        Wanted(a, place, given.get("name"), group, given.get("user"), int(port) if port else None, key) for a in many
    ]


def checked(wanted: list[Wanted]) -> list[Wanted]:
    """The list, refused where an address is none or stands there twice."""
    if not wanted:
        raise UsageFault("no nodes: name addresses, or a file of them with --nodes")
    if len(wanted) > _MOST:
        raise UsageFault(f"{number_of(len(wanted), 'address')}; at most {_MOST} at a time: is a range too wide?")
    seen: dict[tuple[str, int | None], str] = {}
    for one in wanted:
        if not _ADDRESS.fullmatch(one.address) and not is_ipv6(one.address):
            raise UsageFault(f"{one.place}: {one.address!r} is {_no_address(one.address)}")
        if is_ipv6(one.address):
            words = "is an IPv6 address, and this release manages nodes over IPv4 alone; name the node's IPv4 address"
            raise UsageFault(f"{one.place}: {one.address} {words}")
        key = (one.address.lower(), one.port)
        if key in seen:
            raise UsageFault(f"{one.place}: address {one.address} is in {seen[key]} too; remove one of them")
        seen[key] = one.place
    return wanted
