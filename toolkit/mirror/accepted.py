"""Which mirror of a site this machine accepted last: an older one has a good signature, too, and old packages.

It is kept as deployments are, below $XDG_STATE_HOME, one file for each site that mirrors name.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from toolkit.errors import UsageFault
from validation.base import bounded
from validation.base.files import replace, users_folder

_MOST_BYTES = 1 << 16


class Accepted(BaseModel):
    """A mirror that was verified whole, with a signature that the signers vouch for. Times are ISO 8601."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    site: str
    signed: str
    manifest_sha256: str
    key: str


def older(said: Mapping[str, str], manifest_sha256: str) -> str:
    """Words where a mirror was signed before the one that was accepted last; "" where not, or where none was."""
    last = _kept(said.get("site", ""))
    if last is None or last.manifest_sha256 == manifest_sha256:
        return ""
    mine, other = _moment(said.get("signed", "")), _moment(last.signed)
    if other is None or (mine is not None and mine >= other):
        return ""
    return (
        f"signed {said.get('signed', 'at no time')}, before the mirror of {last.site} that was accepted here last "
        f"(signed {last.signed} with {last.key}); somebody may have brought back an old one; if that is meant: --older"
    )


def accept(said: Mapping[str, str], manifest_sha256: str) -> None:
    """Keep a mirror as the last one. UsageFault where it cannot be kept."""
    site = said.get("site", "")
    made = Accepted(site=site, signed=said.get("signed", ""), manifest_sha256=manifest_sha256, key=said.get("key", "?"))
    path = _path(site)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace(path, f"{made.model_dump_json()}\n".encode())
    except OSError as fault:
        raise UsageFault(
            f"{path}: cannot be written: {fault.strerror}; the mirror is good, but an older one would not be noticed "
            "later; set XDG_STATE_HOME to a folder that can be written"
        ) from None


def _kept(site: str) -> Accepted | None:
    path = _path(site)
    try:
        return Accepted.model_validate_json(bounded.read_file(path, _MOST_BYTES))
    except FileNotFoundError:
        return None
    except (bounded.TooMuch, OSError, ValidationError):
        raise UsageFault(
            f"{path}: cannot be read, so whether this mirror is older than the last one is not known; if it may be: rm "
            f"{path}"
        ) from None


def _path(site: str) -> Path:
    base = users_folder("XDG_STATE_HOME", ".local/state")
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", site)[:40] or "site"
    return base / "elastic-ai-toolkit/mirror" / f"{name}-{hashlib.sha256(site.encode()).hexdigest()[:8]}.json"


def _moment(text: str) -> datetime | None:
    with contextlib.suppress(ValueError):
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return found if found.tzinfo else None
    return None
