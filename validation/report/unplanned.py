"""Why nothing of a figure was planned: its suite was not selected, the plan left it out, or a machine is lacking."""

from __future__ import annotations

from collections.abc import Iterable

from validation.report.documents import RunDocuments

_NEEDS = {"remoting": (("clients", "client"), ("gpu_servers", "GPU server"))}
"""Suite -> groups of which the inventory has to have a node, each with what a node of it is called."""


def why_unplanned(documents: RunDocuments, suite: str, criteria: Iterable[str] = ()) -> str:
    """A clause: why the plan has no measurement for `criteria`, which are of that suite."""
    plan = documents.plan
    if suite not in plan.suites:
        return f"the suite {suite} was not selected for this run"
    wanted = set(criteria)
    left = next((one.why for one in plan.left_out if wanted & set(one.criteria)), None)
    if left is not None:
        return left
    groups = {group for node in documents.topology.nodes for group in node.groups}
    lacking = [name for group, name in _NEEDS.get(suite, ()) if group not in groups]
    if lacking:
        return f"the inventory declares no {' and no '.join(lacking)}"
    return f"the suite {suite} was selected, and planned nothing for this figure"


def unplanned(documents: RunDocuments, suite: str, criteria: Iterable[str] = ()) -> str:
    """The same as the sentence of an empty frame."""
    return f"Not measured: {why_unplanned(documents, suite, criteria)}."
