"""The two ports of a lease, where any user of the server may have sat down on any port.

Ports that others have are passed over. Where they have so many that a lease finds none, or took one in the moment that
it was given out, their processes are ended, those with the most ports first: the range is the leases'.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping

from toolkit.lease import LeaseError
from toolkit.lease.instance_record import Instance
from toolkit.lease.machine.host import Host
from toolkit.lease.machine.processes import lease_of
from toolkit.lease.machine.sockets import Occupant
from toolkit.lease.server_conf import ServerConf
from validation.base.counting import number_of

#: How long a process that was ended may take until its ports are free.
GONE_S = 5.0


def _pick(host: Host, address: str, candidates: Collection[int], wanted: int | None = None) -> list[int]:
    """Two of them that are free, at random, so that an old endpoint does not lead to a new lease; `wanted` first."""
    for lenient in (False, True):
        left = list(candidates)
        found: list[int] = []
        if wanted in left and host.sockets.free(address, wanted, lenient):
            left.remove(wanted)
            found.append(wanted)
        while left and len(found) < 2:
            port = left.pop(secrets.randbelow(len(left)))
            if host.sockets.free(address, port, lenient):
                found.append(port)
        if len(found) == 2:
            return found
    return []


def _squatters(host: Host, first: int, last: int) -> list[Occupant]:
    """Processes of users on these ports, who has most of them first."""
    found = [one for one in host.sockets.occupants(first, last) if one.process.uid and not lease_of(one.process.groups)]
    return sorted(found, key=lambda one: -len(one.ports))


def _wait_free(host: Host, address: str, ports: Collection[int]) -> None:
    until = host.clock.monotonic() + GONE_S
    while host.clock.monotonic() < until and not any(host.sockets.free(address, port) for port in ports):
        host.clock.sleep(0.05)


def free_ports(
    host: Host, conf: ServerConf, others: Mapping[str, Instance], wanted: int | None = None
) -> tuple[int, int, list[str]]:
    """Two ports that nobody has, and whose processes were ended for them, in words. LeaseError where there are none.
    wanted: the first one, unless another lease has it; a user's process there is ended."""
    first, last = conf.ports
    taken = {port for instance in others.values() for port in instance.ports}
    candidates = [port for port in range(first, last + 1) if port not in taken]
    told: list[str] = []
    if wanted in candidates:
        told += taken_back(host, [wanted])
        if told:
            _wait_free(host, conf.address, [wanted])
    found = _pick(host, conf.address, candidates, wanted)
    for one in [] if found or len(candidates) < 2 else _squatters(host, first, last):
        told.append(f"{one.process.told()} has {len(one.ports)} of the leases' ports, and is ended")
        one.process.kill()
        _wait_free(host, conf.address, [port for port in one.ports if port in set(candidates)])
        found = _pick(host, conf.address, candidates, wanted)
        if found:
            break
    if not found:
        raise LeaseError(
            f"{conf.node}: all ports for leases ({first}-{last}) are in use; they are enough for "
            f"{number_of((last - first + 1) // 2, 'lease')} at a time (remoting_server_ports)"
        )
    return found[0], found[1], told


def taken_back(host: Host, ports: Collection[int]) -> list[str]:
    """Ends processes of users that have taken ports which a lease was just given: which, in words."""
    told = []
    for port in ports:
        for one in _squatters(host, port, port):
            told.append(f"{one.process.told()} took port {port} of a lease, and is ended")
            one.process.kill()
    return told


def still_ours(
    host: Host, ports: Collection[int], uids: Collection[int], ours: Collection[int]
) -> tuple[list[str], list[str]]:
    """Who listens on the ports of a lease that has ended: what is the lease's own, and what is others', in words. uids,
    ours: under which its unit ran, and which processes it had."""
    own, others = [], []
    for one in host.sockets.listeners(ports):
        if one.uid in uids or set(one.pids) & set(ours):
            own.append(f"something still listens on port {one.port}")
        else:
            who = f"process {one.pids[0]} of uid {one.uid}" if one.pids else f"uid {one.uid}"
            others.append(f"{who} listens on port {one.port}, which was the lease's")
    return own, others
