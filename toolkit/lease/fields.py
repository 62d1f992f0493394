"""One JSON object, read strictly: every field there once, of its type and within its bounds, and no other one.

What leases write for each other (instance_record, endpoint, static_forms, native_records) is read by this alone,
much of it by root. LeaseError, with what the object is and which field is at fault.
"""

from __future__ import annotations

import ipaddress
import json
import re
from pathlib import Path
from typing import Any, NoReturn

from toolkit.lease import LeaseError

#: No file that a lease has is larger.
MOST_BYTES = 1 << 20
#: Nothing that ends a line or a word elsewhere.
PLAIN = r"[^\x00-\x1f\x7f\ud800-\udfff]*"
HOST = r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}"
PATH = r"/[^\x00-\x1f\x7f\ud800-\udfff]*"


class DamagedDocument(LeaseError):
    """A document that is damaged, or of another release."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field is there twice")
    return found


def _constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


class Fields:
    """The fields of an object that are yet to be read. Each is asked for once; `end` refuses those that nobody asked
    for. what: for the error."""

    def __init__(self, data: object, what: str) -> None:
        """DamagedDocument where the data is no object."""
        self.what = what
        if not isinstance(data, dict):
            raise DamagedDocument(f"{what} is no JSON object")
        self._left: dict[str, Any] = dict(data)

    @classmethod
    def of(cls, text: str, what: str) -> Fields:
        """Of a document."""
        if len(text) > MOST_BYTES:
            raise DamagedDocument(f"{what} is larger than {MOST_BYTES} bytes")
        try:
            data = json.loads(text, object_pairs_hook=_once, parse_constant=_constant)
        except (ValueError, RecursionError) as fault:
            raise DamagedDocument(f"{what} is not JSON: {str(fault)[:80]}") from None
        return cls(data, what)

    @classmethod
    def in_file(cls, path: Path) -> Fields:
        """Of a file; FileNotFoundError where there is none."""
        try:
            with path.open("rb") as stream:
                text = stream.read(MOST_BYTES + 1).decode()
        except FileNotFoundError:
            raise
        except OSError as fault:
            raise DamagedDocument(f"{path}: {fault.strerror}") from None
        except UnicodeDecodeError:
            raise DamagedDocument(f"{path} is not JSON: no UTF-8") from None
        return cls.of(text, str(path))

    def refuse(self, key: str, why: str) -> NoReturn:
        """DamagedDocument for a field."""
        raise DamagedDocument(f"{self.what}: {key} {why}; it is damaged, or another release of the toolkit wrote it")

    def _take(self, key: str) -> Any:
        if key not in self._left:
            self.refuse(key, "is missing")
        return self._left.pop(key)

    def has(self, key: str) -> bool:
        """Whether a field is there that was not read yet."""
        return key in self._left

    def _text(self, key: str, value: object, form: str) -> str:
        if not isinstance(value, str) or not re.fullmatch(form, value):
            self.refuse(key, f"is {_shown(value)}")
        return value

    def text(self, key: str, form: str = PLAIN) -> str:
        """Text of that form, a regular expression."""
        return self._text(key, self._take(key), form)

    def secret(self, key: str, form: str) -> str:
        """Text of that form, which no error shows."""
        value = self._take(key)
        if not isinstance(value, str) or not re.fullmatch(form, value):
            self.refuse(key, "is none")
        return value

    def texts(self, key: str, form: str = PLAIN) -> tuple[str, ...]:
        """A list of such texts."""
        return tuple(self._text(key, value, form) for value in self._list(key))

    def path(self, key: str) -> Path:
        """An absolute path."""
        return Path(self.text(key, PATH))

    def host(self, key: str) -> str:
        """An address, or a name that this machine resolves."""
        return self.text(key, HOST)

    def address(self, key: str) -> str:
        """An IPv4 address."""
        return self._address(key, self._take(key))

    def addresses(self, key: str) -> tuple[str, ...]:
        """A list of them."""
        return tuple(self._address(key, value) for value in self._list(key))

    def _address(self, key: str, value: object) -> str:
        try:
            return str(ipaddress.IPv4Address(self._text(key, value, r"[0-9.]{7,15}")))
        except ValueError:
            self.refuse(key, f"is {_shown(value)}, which is no IPv4 address")

    def flag(self, key: str) -> bool:
        """true or false."""
        value = self._take(key)
        if not isinstance(value, bool):
            self.refuse(key, f"is {_shown(value)}")
        return value

    def number(self, key: str, least: int = 0, most: int = 1 << 62) -> int:
        """A whole number."""
        return self._number(key, self._take(key), least, most)

    def numbers(self, key: str, least: int = 0, most: int = 1 << 62) -> tuple[int, ...]:
        """A list of them."""
        return tuple(self._number(key, value, least, most) for value in self._list(key))

    def _number(self, key: str, value: object, least: int, most: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            self.refuse(key, f"is {_shown(value)}")
        return value

    def number_or_none(self, key: str, least: int = 0, most: int = 1 << 62) -> int | None:
        """A whole number, or null."""
        value = self._take(key)
        return None if value is None else self._number(key, value, least, most)

    def seconds(self, key: str) -> float:
        """A time or a moment, not negative."""
        return self._seconds(key, self._take(key))

    def seconds_or_none(self, key: str, least: float = 0.0) -> float | None:
        """The same, or null. least: of a moment that may be before the clock's beginning."""
        value = self._take(key)
        return None if value is None else self._seconds(key, value, least)

    def _seconds(self, key: str, value: object, least: float = 0.0) -> float:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= 1e15:
            self.refuse(key, f"is {_shown(value)}")
        return float(value)

    def _list(self, key: str) -> list[Any]:
        value = self._take(key)
        if not isinstance(value, list):
            self.refuse(key, f"is {_shown(value)}, and no list")
        return value

    def inner(self, key: str) -> Fields:
        """An object in this one."""
        return Fields(self._take(key), f"{self.what}: {key}")

    def each(self, key: str) -> list[Fields]:
        """A list of objects."""
        return [Fields(value, f"{self.what}: {key}[{place}]") for place, value in enumerate(self._list(key))]

    def end(self) -> None:
        """DamagedDocument where there is more."""
        for key in self._left:
            self.refuse(_shown(key), "is unknown")


def _shown(value: object) -> str:
    """A value for an error: short, and printable whatever it is."""
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
