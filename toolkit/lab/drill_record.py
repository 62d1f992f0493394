"""What a drill keeps in its folder: drill.json, by which the same command goes on, and drill.md."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from toolkit.errors import LabError
from toolkit.lab.drill import Drilled, table
from toolkit.rundir import write_text


def read_drill(out: Path, lab: str) -> list[Drilled]:
    """What an earlier command of the same lab came to, without what had no verdict; LabError for another lab's."""
    path = out / "drill.json"
    if not path.is_file():
        return []
    try:
        raw = json.loads(path.read_text())
        found = [Drilled(**{**one, "blamed": tuple(one["blamed"])}) for one in raw["drilled"]]
        other = raw["lab"] if raw["lab"] != lab else ""
    except (ValueError, TypeError, KeyError) as error:
        raise LabError(f"{path}: not written by a drill: {error}; --anew, or choose another --out") from None
    if other:
        raise LabError(f"{path} is of lab '{other}'; --anew, or choose another --out")
    return [one for one in found if not one.trouble]


def write_drill(out: Path, lab: str, done: Sequence[Drilled], left_out: Mapping[str, str]) -> None:
    """drill.json and drill.md, whole."""
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "drill.json", json.dumps({"lab": lab, "drilled": [asdict(d) for d in done]}, indent=2) + "\n")
    write_text(out / "drill.md", table(done, left_out))
