"""Finds what looks like a secret in the files of a run, before they are signed or published.

This is a net, not a wall: it knows the usual forms (private keys, vault blobs, passwords in URLs and assignments, the
tokens of well-known services). That secrets don't get into a run in the first place is the business of those who write
it: the inventory is copied by an allow-list (toolkit/inventory_record.py), and topology.json holds paths of keys only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from validation.base.counting import number_of
from validation.base.secret_words import looks_like
from validation.model.load import ConfigError
from validation.signing.manifest import entries

# A line is looked at closely only where one of these stands in it: logs may have hundreds of megabytes.
_HINTS = (
    b"private key", b"ansible_vault", b"://", b"passw", b"passphrase", b"pwd", b"secret", b"token", b"api", b"access",
    b"credential", b"authorization", b"sshpass", b"akia", b"asia", b"ghp_", b"gho_", b"ghs_", b"github_pat_",
    b"glpat-", b"xox", b"eyj", b"hf_", b"nvapi-", b"$6$", b"$y$",
)  # fmt: skip
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
