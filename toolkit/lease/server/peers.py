"""The servers of one lease, where its engine's servers speak with each other (an adapter's KNOWS_PEERS).

One server with several GPUs is all of them: its sessions meet there, by a secret that it draws. Of several each
computes the same list by itself: which nodes the lease's job has is Slurm's word, where these serve leases is the
role's (server.json), and the port and the secret follow from the job and from the key that root alone has on every
machine of Slurm (munge's). Nothing is exchanged, and nothing of it comes from a client or from text of a user's.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from dataclasses import dataclass

from toolkit.lease.engines import load
from toolkit.lease.instance_record import Peer
from toolkit.lease.jobs.lease_job import LeaseJob
from toolkit.lease.machine.host import Host
from toolkit.lease.server_conf import ServerConf

#: A shorter key than munge takes is none.
LEAST_KEY_BYTES = 32


@dataclass(frozen=True)
class Meeting:
    """The servers of a lease in the order of its nodes, with this one, whose position is `own`; their secret."""

    peers: tuple[Peer, ...]
    own: int
    token: str

    @property
    def port(self) -> int | None:
        """Where the others look for this one; None where it is alone, and may have any."""
        return self.peers[self.own].port if len(self.peers) > 1 else None

    def peers_at(self, port: int) -> tuple[Peer, ...]:
        """The servers, where this one got that port; none where the others look elsewhere: then all goes by the
        client."""
        if self.port is None:
            return (Peer(self.peers[self.own].address, port),)
        return self.peers if self.port == port else ()


def _derived(key: bytes, job: LeaseJob, *about: str) -> bytes:
    """Of this lease alone: the job's number and the moment that it was submitted never come together again."""
    words = "\0".join(("elastic-ai peers 1", job.job, f"{job.submitted:.0f}", str(job.uid), *about))
    return hmac.new(key, words.encode(), hashlib.sha256).digest()


def meeting_of(host: Host, job: LeaseJob, conf: ServerConf, engine: str) -> Meeting | None:
    """Where a lease's servers meet; None where it has one GPU alone, where its engine carries nothing between them, or
    where it cannot be told who they are: then all goes by the client."""
    if not getattr(load(engine), "KNOWS_PEERS", False):
        return None
    if len(job.nodes) < 2:
        alone = Meeting((Peer(conf.address, 0),), 0, secrets.token_hex(32))
        return alone if len(job.held) > 1 else None
    if job.submitted is None or conf.node not in job.nodes:
        return None
    try:
        key = host.munge_key.read_bytes()
        addresses = [str(ipaddress.IPv4Address(conf.servers[node])) for node in job.nodes]
    except (OSError, KeyError, ValueError):
        return None
    own = job.nodes.index(conf.node)
    if len(key) < LEAST_KEY_BYTES or len(set(addresses)) < len(addresses) or addresses[own] != conf.address:
        return None
    first, last = conf.ports
    drawn = [int.from_bytes(_derived(key, job, "port", node)[:8], "big") for node in job.nodes]
    ports = [first + number % (last - first + 1) for number in drawn]
    peers = tuple(Peer(address, port) for address, port in zip(addresses, ports))
    return Meeting(peers, own, _derived(key, job, "token").hex())
