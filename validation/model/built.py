"""How a site was built: what each run of `site.yml` did, as `toolkit deploy` writes it down from Ansible's own events.

One form for all who need it: what `toolkit deploy --json` prints, the site's record on the machine that provisions,
`built.json` of a run, and the report.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from validation.model.base import Model

Count = Annotated[int, Field(ge=0)]
MOST_TASKS = 20
"""How many changed tasks of a node are named; `changed` counts all of them. Project default."""


class NodeBuilt(Model):
    """What a run of Ansible did on a node. `ok` and `changed` count tasks, as Ansible's recap does.

    `not-finished`: Ansible ended before the last stage. `roles`: role (stage where there is none) -> tasks that changed
    something; `tasks` names the first of them. `failure`: where it stopped, and Ansible's words. `reboot`: why it waits
    for a reboot.
    """

    node: Annotated[str, Field(min_length=1)]
    outcome: Literal["ok", "failed", "unreachable", "not-finished"]
    ok: Count
    changed: Count
    roles: dict[str, Count] = Field(default={})
    tasks: tuple[str, ...] = ()
    failure: str = ""
    reboot: tuple[str, ...] = ()


class Deployment(Model):
    """A run of site.yml: by whom, when (ISO 8601 in UTC), of which commit, and what became of each node.

    `commit` is "" where the toolkit was no checkout of git; `modified`: files of the checkout were not as committed.
    `check`: only looked at what would change. `options` are those that leave parts of the site out (--tags,
    --skip-tags); of all others, which may hold secrets, only the number is kept. `finished`: Ansible came to its recap.
    """

    format: Literal["elastic-ai-deployment/1"] = "elastic-ai-deployment/1"
    inventory: str
    who: str
    began: str
    ended: str
    toolkit_version: str
    commit: str
    modified: bool | None
    check: bool
    limit: str | None = None
    options: tuple[str, ...] = ()
    other_options: Count = 0
    stages: tuple[str, ...]
    finished: bool
    interrupted: bool = False
    error: str = ""
    nodes: tuple[NodeBuilt, ...] = ()

    @field_validator("nodes")
    @classmethod
    def _once(cls, nodes: tuple[NodeBuilt, ...]) -> tuple[NodeBuilt, ...]:
        names = [node.node for node in nodes]
        if len(set(names)) != len(names):
            raise ValueError(f"duplicate node: {', '.join(sorted({n for n in names if names.count(n) > 1}))}")
        return nodes

    @property
    def version_words(self) -> str:
        """`toolkit 0.1.0, commit 0123456789ab with changes that were not committed`."""
        if not self.commit:
            return f"toolkit {self.toolkit_version}, commit not known"
        changed = " with changes that were not committed" if self.modified else ""
        return f"toolkit {self.toolkit_version}, commit {self.commit[:12]}{changed}"


class HowBuilt(Model):
    """built.json: the deployments of the site that this machine's record has, oldest first.

    `left_out` counts older ones that the record does not hold any more.
    """

    format: Literal["elastic-ai-built/1"] = "elastic-ai-built/1"
    deployments: tuple[Deployment, ...] = ()
    left_out: Count = 0
