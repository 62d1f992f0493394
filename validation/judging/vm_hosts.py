"""Under the profile of a fabric between virtual machines: what stayed within one host says nothing of the fabric.

No machine can tell on which host it runs; the inventory declares it (`elastic_ai_hypervisor_host`). The published
method has the client on another host than the server (VMware blog, part 2, 2019).
"""

from __future__ import annotations

from collections.abc import Sequence

from validation.judging.case import Case
from validation.kinds.record import names
from validation.model import Judgement, Measurement
from validation.rules.criterion import Criterion


def over_the_fabric(case: Case, criterion: Criterion, judged: Sequence[Judgement]) -> Sequence[Judgement]:
    """The judgements; one that would pass is taken back where nothing shows that its measurement left a host.

    A failure stays: it is one wherever the machines run. In a rehearsal the lab's own network is what is measured.
    """
    if case.virtual or not case.fabric.hypervisors:
        return judged
    inside = {m.id: why for m in case.serving(criterion) if (why := _inside(case, m)) is not None}
    held = []
    for judgement in judged:
        why = next((inside[id_] for id_ in judgement.evidence if id_ in inside), None)
        if why is not None and judgement.verdict == "pass":
            reason = f"{judgement.reason}; not judged: {why}"
            changes = {"verdict": "not-measured", "reason_code": "not-the-fabric", "reason": reason}
            judgement = judgement.model_copy(update=changes)
        held.append(judgement)
    return held


def _inside(case: Case, measurement: Measurement) -> str | None:
    """Why a measurement may have stayed within one host; None where it did not, or is of one node alone."""
    parties = list(dict.fromkeys([e.node for e in measurement.endpoints] or names(measurement, "hosts")))
    hosts = {name: case.nodes[name].hypervisor_host for name in parties if name in case.virtual_nodes}
    if len(parties) < 2 or len(hosts) < 2:  # a machine of its own is a host of its own
        return None
    silent = [name for name, host in hosts.items() if host is None]
    if silent:
        return f"the inventory does not declare elastic_ai_hypervisor_host of {', '.join(silent)}"
    if len(hosts) == len(parties) and len(set(hosts.values())) == 1:
        return f"{' and '.join(parties)} are virtual machines of one host, {hosts[parties[0]]}"
    return None
