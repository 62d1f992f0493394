"""Signing a run and checking it: manifest of hashes, statements with OpenSSH signatures, one file for the customer.

Nothing here needs this toolkit to be checked: `sha256sum -c` and `ssh-keygen -Y verify` do it too
(docs/explanation/signing.md).
"""

from __future__ import annotations

from pathlib import Path

MANIFEST = "MANIFEST.sha256"
SIGNATURES = "signatures"

__all__ = ["MANIFEST", "SIGNATURES", "is_signed"]


def is_signed(run_dir: Path) -> bool:
    """True as soon as somebody has signed the run: from then on nothing in it may change."""
    return any((run_dir / SIGNATURES).glob("*.sig"))
