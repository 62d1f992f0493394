"""What is asked of the nodes from the machine that runs the validation: the as-built checks, site.yml in check mode."""

from __future__ import annotations

from validation.kinds.record import Kind
from validation.measures.asbuilt import parse as asbuilt_parse
from validation.model import Call, Job, Measurement, Topology


def _checks(m: Measurement, topology: Topology) -> Job:
    node = topology.node(m.nodes[0])
    return Job(node=node.name, probe=Call(probe=m.kind, params={"node": node.name, "sudo": node.ssh.user != "root"}))


def _converged(m: Measurement, topology: Topology) -> Job:
    return Job(node=m.nodes[0], probe=Call(probe=m.kind, params={}))


KINDS = (
    Kind(
        name="as-built",
        title="As-built checks of a node",
        measures="Checks each node against the state that `site.yml` is meant to leave.",
        tool="pytest with pytest-testinfra, from the machine that validates",
        more="how-to/as-built.md",
        job=_checks,
        parse=asbuilt_parse.checks,
        once=True,
        on_controller=True,
    ),
    Kind(
        name="converged",
        title="What site.yml would change, in check mode",
        measures="Counts the tasks of `site.yml` that would still change something.",
        tool="ansible-playbook in check mode, from the machine that validates",
        more="how-to/as-built.md",
        job=_converged,
        parse=asbuilt_parse.converged,
        once=True,
        on_controller=True,
    ),
)
