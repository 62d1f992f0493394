"""Which nodes role monitoring asks for metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml


def nodes_running(
    names: Iterable[str], unit: str, hostvars: Mapping[str, Mapping[str, Any]], recorded: str, job: str
) -> list[str]:
    """Hosts on which a unit was active when role monitoring read them.

    A host that this run does not reach, as with --limit, stays if it is a target of `job` in the configuration that the
    head has, whose text is `recorded` ("" where there is none).
    """
    known = _targets(recorded, job)

    def active(name: str) -> bool:
        read = hostvars[name].get("monitoring_node")
        if read is None:
            return name in known
        return bool(((read.get("units") or {}).get(unit) or {}).get("active"))

    return [name for name in names if active(name)]


def _targets(recorded: str, job: str) -> set[str]:
    """Labels `node` of a job's targets in a configuration of Prometheus."""
    try:
        configured = yaml.safe_load(recorded) or {}
    except yaml.YAMLError:
        return set()  # the role writes it anew
    jobs = [entry for entry in configured.get("scrape_configs") or [] if entry.get("job_name") == job]
    return {str(s["labels"]["node"]) for entry in jobs for s in entry.get("static_configs") or [] if "labels" in s}
