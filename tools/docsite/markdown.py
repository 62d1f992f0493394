"""Pieces of Markdown that generated pages are made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def escaped(text: str) -> str:
    """Plain text as Markdown: nothing of it is markup, but for code between backticks."""
    parts = re.split(r"(`[^`\n]+`)", text)
    return "".join(part if n % 2 else _plain(part) for n, part in enumerate(parts))


def _plain(text: str) -> str:
    return re.sub(r"([\\*_\[\]])", r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))


def cell(text: str) -> str:
    """Markdown that fits into a cell of a table: one line, and nothing that ends the cell."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """Text as code in a line."""
    return f"`{text}`" if "`" not in text else f"`` {text} ``"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, or "" without rows."""
    lines = [f"| {' | '.join(cell(part) for part in row)} |" for row in rows]
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *lines]) + "\n" if lines else ""


def block(text: str, language: str = "text") -> str:
    """Lines as they are."""
    fence = "```" if "```" not in text else "````"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}\n"


def page(title: str, *parts: str) -> str:
    """A page: its title, and its parts with a blank line between them."""
    return "\n\n".join([f"# {title}", *(part.strip("\n") for part in parts if part.strip())]) + "\n"
