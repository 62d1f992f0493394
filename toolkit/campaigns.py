"""Several fabrics on one page: which are asked for, what is refused before it is made, and where it is written."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit import acceptance
from toolkit.errors import UsageFault
from toolkit.exits import Exit
from toolkit.report_request import FORMATS_OF_SEVERAL
from validation.run.names import VERDICT


@dataclass(frozen=True)
class Made:
    """What was written: format -> file, format -> one line why it could not be made; the campaign as text and JSON."""

    paths: dict[str, Path]
    left_out: dict[str, str]
    text: str
    campaign: dict[str, Any]

    def document(self) -> dict[str, Any]:
        """For --json."""
        paths = {name: str(path) for name, path in self.paths.items()}
        return {"report": paths.get("html"), "files": paths, "left_out": self.left_out, **self.campaign}


def fabrics_asked(given: str | None) -> tuple[str | None, ...]:
    """The names in --fabric, of which None is the inventory's. UsageFault for an empty one, and for one named twice."""
    if given is None:
        return (None,)
    found = tuple(name.strip() for name in given.split(","))
    if not all(found):
        raise UsageFault(f"--fabric {given!r}: a name is missing; give NAME, or NAME,NAME,...")
    twice = next((name for name in found if found.count(name) > 1), None)
    if twice:
        raise UsageFault(f"--fabric {given}: {twice} is there twice; a campaign measures each fabric once")
    return found


def worst(codes: Sequence[int]) -> Exit:
    """The gravest of runs' exit codes: a failure weighs more than what could not be decided."""
    return next(code for code in (Exit.FAILED, Exit.INCOMPLETE, Exit.OK) if code in codes)


def make(folders: Sequence[Path], formats: Collection[str], out: Path | None, runs_dir: Path) -> Made:
    """Write the campaign of the runs in `folders`, into `out` (None: a folder of `runs_dir` named by the newest run).

    ConfigError for a damaged run, or one whose verdict does not follow from its files; NotTogether for runs that do not
    fit together; UsageFault for the same folder twice.
    """
    from validation.campaign import as_text, campaign_of, write_formats  # only here: templates are slow to load

    for index, folder in enumerate(folders):
        if folder.resolve() in [other.resolve() for other in folders[:index]]:
            raise UsageFault(f"{folder}: is named twice; name each run once")
    campaign = campaign_of(folders)
    for folder in folders:
        if (folder / VERDICT).exists():
            acceptance.standing(folder)
    where = out or runs_dir / f"{max(run.run for run in campaign.runs)}-campaign"
    written = write_formats(campaign, [name for name in FORMATS_OF_SEVERAL if name in formats], where)
    told = campaign.model_dump(mode="json", by_alias=True)
    return Made(written.paths, written.left_out, as_text(campaign).rstrip("\n"), told)
