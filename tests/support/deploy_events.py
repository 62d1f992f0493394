"""Events of Ansible, as `toolkit deploy` is given them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toolkit.deploy.stages import Stage
from toolkit.deploy.watch import DeployWatch

ROOT = Path(__file__).resolve().parents[2]
STAGES = (Stage("base", ("Base system",)), Stage("training", ("Prepare", "Train")))


def event(kind: str, host: str = "", **data: Any) -> dict[str, Any]:
    return {"event": kind, "pid": 7, "event_data": {**data, **({"host": host} if host else {})}}


def begun(*nodes: str) -> DeployWatch:
    """A run whose first task is running on the nodes."""
    watch = DeployWatch(STAGES)
    watch.take(event("playbook_on_start"))
    watch.take(event("playbook_on_play_start", name="Base system"))
    watch.take(event("playbook_on_task_start", role="base", task="Install"))
    for node in nodes:
        watch.take(event("runner_on_start", node))
    return watch
