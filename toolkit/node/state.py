"""How far a node has come in or out, kept beside the site's deployments: the same command goes on there."""

from __future__ import annotations

import contextlib
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from toolkit.deploy.site_state import SiteState
from toolkit.errors import UsageFault
from validation.base import bounded

Verb = Literal["add", "replace", "remove"]


class Progress(BaseModel):
    """What is done of `verb`. `began` is ISO 8601 in UTC; `run` the folder of the acceptance's run, once it began."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    verb: Verb
    node: str
    began: str
    done: tuple[str, ...] = ()
    run: str = ""


class Kept:
    """The progress of one node of one site, on the disk."""

    def __init__(self, inventory: Path, node: str) -> None:
        """The file need not be there."""
        self.path = SiteState(inventory).folder / f"node-{node}.json"

    def read(self) -> Progress | None:
        """What an earlier command left unfinished; None where there is nothing, or nothing that can be read."""
        with contextlib.suppress(bounded.TooMuch, OSError, ValidationError, ValueError):
            return Progress.model_validate_json(bounded.read_file(self.path))
        return None

    def begin(self, verb: Verb, node: str) -> Progress:
        """The progress to go on with. UsageFault while another command for this node is unfinished; but a node that
        did not come in may always leave, for its way in may have no end."""
        found = self.read()
        if found is not None and verb == "remove" != found.verb:
            found = None
        if found is not None and found.verb != verb:
            raise UsageFault(
                f"{node}: 'toolkit node {found.verb} {node}' of {found.began[:16]} is not finished; finish it first"
            )
        return found or self.write(
            Progress(verb=verb, node=node, began=datetime.now(timezone.utc).isoformat(timespec="seconds"))
        )

    def write(self, progress: Progress) -> Progress:
        """Keep it; UsageFault where the disk refuses."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            new = self.path.with_suffix(".new")
            new.write_text(progress.model_dump_json() + "\n", encoding="utf-8")
            new.replace(self.path)
        except OSError as fault:
            raise UsageFault(f"{self.path}: cannot be written: {fault.strerror or fault}") from None
        return progress

    def step(self, progress: Progress, name: str) -> Progress:
        """One step more is done."""
        return self.write(progress.model_copy(update={"done": (*progress.done, name)}))

    def clear(self) -> None:
        """Nothing is open any more."""
        self.path.unlink(missing_ok=True)
