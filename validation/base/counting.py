"""Numbers with their nouns. Standard library only: nodes import it."""

from __future__ import annotations

#: Nouns whose plural is not the word and an s.
_MANY = {"criterion": "criteria", "process": "processes", "switch": "switches", "address": "addresses", "box": "boxes"}


def number_of(count: object, noun: str, many: str | None = None) -> str:
    """The count and its noun, as in 1 GPU, 2 GPUs, 1 criterion, 1.5 hours, 0 pairs of ports.

    Of a noun with an "of" after it, the first word is the one that changes.
    """
    said = f"{count:g}" if isinstance(count, float) else str(count)
    if said == "1":
        return f"1 {noun}"
    first, of, rest = noun.partition(" of ")
    *before, last = first.split(" ")
    words = " ".join([*before, _MANY.get(last) or (f"{last[:-1]}ies" if last.endswith(("ry", "py")) else f"{last}s")])
    return f"{said} {many or words + of + rest}"


def be(count: int) -> str:
    """The verb after so many: is, are."""
    return "is" if count == 1 else "are"


def were(count: int) -> str:
    """The verb after so many, of what is past: was, were."""
    return "was" if count == 1 else "were"
