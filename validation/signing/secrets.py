"""Finds what looks like a secret in the files of a run, before they are signed or published.

This is a net, not a wall: it knows the usual forms (private keys, vault blobs, passwords in URLs and assignments, the
tokens of well-known services). That secrets don't get into a run in the first place is the business of those who write
it: the inventory is copied by an allow-list (toolkit/inventory_record.py), and topology.json holds paths of keys only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from validation.counting import number_of
from validation.load import ConfigError
from validation.signing.manifest import entries

# A line is looked at closely only where one of these stands in it: logs may have hundreds of megabytes.
_HINTS = (
    b"private key", b"ansible_vault", b"://", b"passw", b"passphrase", b"pwd", b"secret", b"token", b"api", b"access",
    b"credential", b"authorization", b"sshpass", b"akia", b"asia", b"ghp_", b"gho_", b"ghs_", b"github_pat_",
    b"glpat-", b"xox", b"eyj", b"hf_", b"nvapi-", b"$6$", b"$y$",
)  # fmt: skip
_NAME = rb"(?:password|passwd|passphrase|pwd|secret|api[_-]?key|access[_-]?key|private[_-]?key|token|credentials?)"
_RULES: tuple[tuple[str, re.Pattern[bytes]], ...] = tuple(
    (words, re.compile(pattern, re.IGNORECASE))
    for words, pattern in (
        ("a private key", rb"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----"),
        ("a vault value", rb"\$ANSIBLE_VAULT;|\"__ansible_vault\""),
        ("a password in a URL", rb"[a-z][a-z0-9+.-]{1,20}://[^\s/:@\"'<>]{0,64}:[^\s/@\"'<>]{1,200}@[a-z0-9\[]"),
        ("an Authorization header", rb"authorization[\"']?\s*[:=]\s*[\"']?(?:bearer|basic|token) +\S{8}"),
        (
            "a password on a command line",
            rb"\bsshpass +-p *\S|--?(?:password|passwd|token|secret)[ =]+[^\s\"'<>{\[(-]{4,}",
        ),
        ("a token", rb"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[pousr]_[a-z0-9]{30,}|\bgithub_pat_[a-z0-9_]{22,}"),
        ("a token", rb"\bglpat-[a-z0-9_-]{20,}|\bxox[abprs]-[a-z0-9-]{10,}|\bhf_[a-z0-9]{30,}|\bnvapi-[a-z0-9_-]{20,}"),
        ("a token", rb"\beyJ[a-z0-9_-]{10,}\.eyJ[a-z0-9_-]{10,}\.[a-z0-9_-]{10,}"),
        ("a password hash", rb"\$(?:6|5|y|2[aby])\$[a-z0-9./$=]{20,}"),
    )
)
# Name, quote, sign, value. A word of letters alone after a colon counts only at the end of a line: prose goes on.
_ASSIGNED = re.compile(
    _NAME + rb"(_?[a-z0-9]{1,12})?[\"']?\s{0,4}(?:=|:(?!\s{1,4}[a-z]+[ ,;.][^\n]*[a-z]))\s{0,4}"
    rb"(?:\"([^\"]{4,400})|'([^']{4,400})|([^\s\"',;<>&]{4,400}))",
    re.IGNORECASE,
)
_PLACE = re.compile(rb"_?(?:file|path|dir|url)s?", re.IGNORECASE)  # where a secret is, not what it is
_HARMLESS = re.compile(
    rb"(?:none|null|true|false|undefined|unset|hidden|redacted|required|refused|missing|absent|present|changed|wrong|invalid)\b.{0,40}"
    rb"|[*x.]+|\{\{.*|\$[A-Z_({].*|[/~].*|[\d.,:]+",
    re.IGNORECASE | re.DOTALL,
)
_PIECE_BYTES = 8 << 20


@dataclass(frozen=True)
class Hit:
    """Something that looks like a secret; never holds the secret itself."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        """`file:line: looks like ...`."""
        return f"{self.file}:{self.line}: looks like {self.what}"


def looks_like(line: bytes) -> str | None:
    """What a line looks like, if it looks like a secret."""
    for words, pattern in _RULES:
        if pattern.search(line):
            return words
    for match in _ASSIGNED.finditer(line):
        value = next(group for group in match.groups()[1:] if group is not None)
        if not _HARMLESS.fullmatch(value) and not (match.group(1) and _PLACE.fullmatch(match.group(1))):
            return "a password or token"
    return None


def secret_name(name: str) -> bool:
    """True where a variable's name says that its value is secret."""
    return re.search(_NAME.decode(), name, re.IGNORECASE) is not None


def secret_text(text: str) -> bool:
    """True where a text looks as if it held a secret."""
    return any(looks_like(line.encode()) for line in text.splitlines())


def _pieces(path: str) -> Iterator[bytes]:
    """A file in pieces that end with a line, as long as its lines are not longer than a piece."""
    rest = b""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - of hundreds of thousands
        while block := file.read(_PIECE_BYTES):
            block = rest + block
            cut = block.rfind(b"\n") + 1
            if cut == 0 and len(block) < 2 * _PIECE_BYTES:
                rest = block
                continue
            cut = cut or len(block)
            yield block[:cut]
            rest = block[cut:]
    if rest:
        yield rest


def _scan_file(path: str, name: str) -> Iterator[Hit]:
    before = 0
    for piece in _pieces(path):
        low = piece.lower()
        starts: set[int] = set()
        for hint in _HINTS:
            at = low.find(hint)
            while at >= 0:
                starts.add(low.rfind(b"\n", 0, at) + 1)
                end = low.find(b"\n", at)
                at = low.find(hint, end) if end >= 0 else -1
        for start in sorted(starts):
            end = piece.find(b"\n", start)
            what = looks_like(piece[start : end if end >= 0 else None])
            if what:
                yield Hit(name, before + piece.count(b"\n", 0, start) + 1, what)
        before += piece.count(b"\n")


def scan(run_dir: Path, only: Iterable[str] | None = None) -> list[Hit]:
    """Everything in the run's files that looks like a secret, in the order of the files. ConfigError where unreadable.

    A PDF is compressed and not looked into: it is made from the same text as report.html.
    """
    names = sorted(name for name, good in entries(run_dir) if good) if only is None else list(only)
    hits: list[Hit] = []
    for name in names:
        if name.endswith((".pdf", ".png")):
            continue
        try:
            hits += _scan_file(f"{run_dir}/{name}", name)
        except OSError as fault:
            raise ConfigError(f"{run_dir / name}: cannot be read: {fault.strerror or fault}") from None
    return hits


def refuse_secrets(run_dir: Path, allowed: Iterable[str] = ()) -> tuple[str, ...]:
    """The allowed files that do hold something; ConfigError naming file and line of everything else.

    An allowed file must exist, so that a misspelt name is not taken for consent.
    """
    wanted = set(allowed)
    for name in sorted(wanted):
        if not (run_dir / name).is_file():
            raise ConfigError(f"--allow {name}: no such file in {run_dir}; give its path below {run_dir.name}/")
    hits = scan(run_dir)
    open_ = [hit for hit in hits if hit.file not in wanted]
    if open_:
        shown = "".join(f"\n  {hit}" for hit in open_[:20])
        more = f"\n  and {len(open_) - 20} more" if len(open_) > 20 else ""
        raise ConfigError(
            f"{run_dir}: {number_of(len(open_), 'possible secret')}; nothing was signed or "
            f"bundled:{shown}{more}\n"
            "  what to do: look at each. Where it is a secret, change it, take its cause away, and measure again. "
            "Where it is none, allow its file: --allow FILE"
        )
    return tuple(sorted({hit.file for hit in hits}))
