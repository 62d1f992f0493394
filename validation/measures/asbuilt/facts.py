"""Facts of the as-built checks of a node (kind as-built), and of what site.yml would change (kind converged)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from validation.model.base import Model
from validation.model.built import NodeBuilt
from validation.model.facts import Facts, Name, once

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class CheckOutcome(Model):
    """A check of a node by its name, `test_base.py::test_clock_service_runs`, and what became of it.

    `not-applicable`: the site's own inventory says that it does not concern this node. `not-run`: it could not be run,
    was skipped, or is planned and not there. `words` say why, "" where it passed.
    """

    name: Name
    outcome: Literal["passed", "failed", "not-run", "not-applicable"]
    words: str = ""


class AsBuiltFacts(Facts):
    """The as-built checks of a node. `checks_sha256`: hash over the files of the checks that were run."""

    type: Literal["as-built"] = "as-built"
    node: Name
    checks: tuple[CheckOutcome, ...]
    checks_sha256: Sha256

    @field_validator("checks")
    @classmethod
    def _once(cls, checks: tuple[CheckOutcome, ...]) -> tuple[CheckOutcome, ...]:
        return once(checks, "name")

    def of(self, outcome: str) -> tuple[CheckOutcome, ...]:
        """The checks with that outcome."""
        return tuple(check for check in self.checks if check.outcome == outcome)


class ConvergedFacts(Facts):
    """What site.yml in check mode said of each node. `version`: the toolkit and commit whose site.yml it was."""

    type: Literal["converged"] = "converged"
    nodes: tuple[NodeBuilt, ...]
    version: str

    def node(self, name: str) -> NodeBuilt | None:
        """What was said of a node; None where nothing was."""
        return next((found for found in self.nodes if found.node == name), None)
