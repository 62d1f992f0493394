"""TFRecord files and the Example messages in them, as far as pictures with labels need.

The framing (tensorflow/core/lib/io/record_writer.h): length, 8 bytes little endian; its masked CRC-32C, 4 bytes; the
data; their masked CRC-32C. The checksum of the length is checked, for it tells a file of another format; that of the
data is not, for without a library it takes longer than the picture's decoding. Messages are protobuf's wire format.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Any

HEAD, TAIL = 12, 4
MASK_DELTA = 0xA282EAD8  # record_writer.h
CASTAGNOLI = 0x82F63B78  # CRC-32C, reflected
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class Unreadable(Exception):
    """What is wrong with a file, in words."""


def _table() -> list[int]:
    made = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (CASTAGNOLI if value & 1 else 0)
        made.append(value)
    return made


_TABLE = _table()


def masked_crc(data: bytes) -> int:
    """The checksum as TFRecord files have it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + MASK_DELTA) & 0xFFFFFFFF


def spans(path: str) -> Iterator[tuple[int, int]]:
    """Offset and size in bytes of the data of each record. Unreadable where the file is no TFRecord or is cut off."""
    with open(path, "rb") as file:  # noqa: PTH123
        end = os.fstat(file.fileno()).st_size
        at = 0
        while at < end:
            file.seek(at)
            head = file.read(HEAD)
            if len(head) < HEAD:
                raise Unreadable(f"{path} ends in the middle of a record, at byte {at}")
            size, crc = struct.unpack("<QI", head)
            if masked_crc(head[:8]) != crc:
                raise Unreadable(f"{path} is no TFRecord: the length at byte {at} does not have its checksum")
            if at + HEAD + size + TAIL > end:
                raise Unreadable(f"{path} ends in the middle of a record, at byte {at}")
            yield at + HEAD, size
            at += HEAD + size + TAIL


def framed(data: bytes) -> bytes:
    """A record of a TFRecord file."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise Unreadable("a number of the message does not end")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Number, wire type and value (int or bytes) of each field of a message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = _varint(data, at)
            yield number, kind, value
            continue
        size = {FIXED64: 8, FIXED32: 4}.get(kind)
        if kind == BYTES:
            size, at = _varint(data, at)
        if size is None or at + size > len(data):
            raise Unreadable("a field of the message goes beyond its end")
        yield number, kind, data[at : at + size]
        at += size


def example(data: bytes) -> dict[str, list[Any]]:
    """Features of an Example by name: lists of bytes, or of whole numbers; those of real numbers are left out."""
    found: dict[str, list[Any]] = {}
    for number, kind, features in fields(data):
        if (number, kind) != (1, BYTES):
            continue
        for _, one, entry in fields(features):
            if one == BYTES:
                name, values = _entry(entry)
                if values is not None:
                    found[name] = values
    return found


def _entry(entry: bytes) -> tuple[str, list[Any] | None]:
    name, values = "", None
    for number, _, value in fields(entry):
        if number == 1:
            name = value.decode("utf-8", "replace")
        elif number == 2:
            for sort, _, listed in fields(value):
                if sort == 1:  # BytesList
                    values = [item for _, _, item in fields(listed)]
                elif sort == 3:  # Int64List, packed or not
                    values = []
                    for _, kind, item in fields(listed):
                        values += _packed(item) if kind == BYTES else [item]
    return name, values


def _packed(data: bytes) -> list[int]:
    values, at = [], 0
    while at < len(data):
        value, at = _varint(data, at)
        values.append(value)
    return values


def _field(number: int, data: bytes) -> bytes:
    return _number(number << 3 | BYTES) + _number(len(data)) + data


def _number(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def example_of(picture: bytes, label: int) -> bytes:
    """An Example with the two features that are read here."""
    values = {
        "image/encoded": _field(1, _field(1, picture)),
        "image/class/label": _field(3, _field(1, _number(label))),
    }
    entries = b"".join(_field(1, _field(1, name.encode()) + _field(2, value)) for name, value in values.items())
    return _field(1, entries)
