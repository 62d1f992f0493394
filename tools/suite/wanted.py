"""What is asked of `bin/test`: its options and the names of parts."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("lint", "unit", "functional", "lab")
MORE = ("molecule", "machines")


class WantedError(ValueError):
    """What was asked for does not exist: one sentence."""


@dataclass(frozen=True)
class Wanted:
    """The parts to run. `rest`: with the tests marked `rest`; `since`: a commit, "" for every scenario of molecule."""

    parts: tuple[str, ...]
    rest: bool = False
    since: str = ""


def wanted(arguments: Sequence[str]) -> Wanted:
    """The arguments of `bin/test` as what they mean; WantedError where they mean nothing."""
    words, everything, since = list(arguments), False, ""
    if words and words[0] == "--all":
        everything = True
        del words[0]
    elif words and words[0] == "--since":
        if len(words) < 2 or not words[1]:
            raise WantedError("--since needs a commit, branch or tag")
        since = _common_with(words[1])
        del words[:2]
    elif words and words[0].startswith("-"):
        raise WantedError(f"no option '{words[0]}'; there are: --all, --since COMMIT, --help")
    for part in words:
        if part in PARTS:
            continue
        if part not in MORE:
            raise WantedError(f"no part '{part}'; there are: {' '.join(PARTS)}, and with --all also: {' '.join(MORE)}")
        if part == "molecule" and not (everything or since):
            raise WantedError("part 'molecule' is one of bin/test --all and bin/test --since COMMIT")
        if part == "machines" and not everything:
            raise WantedError("part 'machines' is one of bin/test --all")
    usual = ("molecule",) if since else (*PARTS, *MORE) if everything else PARTS
    return Wanted(tuple(words) or usual, everything, since)


def _common_with(commit: str) -> str:
    """The last commit that HEAD has in common with another."""
    done = subprocess.run(["git", "merge-base", commit, "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        why = done.stderr.strip() or "they have no commit in common"
        raise WantedError(f"cannot compare with that commit ({commit}): {why}")
    return done.stdout.strip()
