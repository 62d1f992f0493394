"""Whether a text can be seen whole, told of its bytes piece by piece."""

from __future__ import annotations

import random
import sys

import pytest

from validation.base import visible
from validation.base.visible import clean, hidden


def test_it_is_told_of_bytes_as_of_text_for_every_character(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visible, "PIECE_BYTES", 16)
    for code in range(sys.maxunicode + 1):
        if 0xD800 <= code < 0xE000:
            continue  # a surrogate alone is in no UTF-8
        text = f"a line\n{chr(code)}"
        assert clean(text.encode()) is not hidden(text), hex(code)


def test_it_is_found_wherever_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visible, "PIECE_BYTES", 8)
    chance = random.Random(46)
    letters = ["a", "\n", "é", "\u4e2d", "\U0001f600", "\t"]
    for _ in range(2000):
        text = "".join(chance.choices(letters, k=chance.randrange(40)))
        assert clean(text.encode())
        at = chance.randrange(len(text) + 1)
        assert not clean(f"{text[:at]}\u202e{text[at:]}".encode())
