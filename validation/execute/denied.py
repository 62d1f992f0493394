"""What the nodes of a measurement, and in a lab their host, were denied meanwhile: from counters to the model."""

from __future__ import annotations

from pydantic import ValidationError

from validation.execute.remote import Output
from validation.model import Denied, Topology
from validation.probes.denied import Reading, between, reading

HOST = "host"


def denied_on(node: str, output: Output, by_daemon: bool) -> Denied | None:
    """What the supervisor of a probe says that its node was denied; None where it said nothing usable.

    `by_daemon`: what the probe starts cannot be told from the programs of others.
    """
    for document in reversed(output.documents()):
        said = document.get("denied")
        if isinstance(said, dict):
            try:
                others = None if by_daemon else said.get("others")
                return Denied.model_validate({**said, "others": others, "where": node})
            except ValidationError:
                continue  # a line that is not the supervisor's
    return None


class HostWatch:
    """Reads the machine that carries a lab, which is this one; of any other topology it knows nothing."""

    def __init__(self, topology: Topology) -> None:
        """Takes the first reading."""
        self._before: Reading | None = reading(own_group=False) if topology.lab_link is not None else None

    def denied(self) -> tuple[Denied, ...]:
        """What the lab's host was denied since the first reading; empty without a lab.

        Programs of others are not told apart there: what the lab's nodes run is the host's programs, too.
        """
        if self._before is None:
            return ()
        found = between(self._before, reading(own_group=False))
        return (Denied.model_validate({**found, "others": None, "where": HOST}),)
