"""Before a GPU goes from one to the next, nobody has it open.

Who may have it: root, services that the inventory names, the unit of a lease that runs, and owners of jobs that run, as
the records of native jobs say (module native). Whatever else has it, a process that was passed the open file for
instance, is ended where it is a user's, or named, and then the GPU goes to nobody.
"""

from __future__ import annotations

import grp
import pwd
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from toolkit.lease import LeaseError
from toolkit.lease.machine.fence import GROUP
from toolkit.lease.machine.host import Host
from toolkit.lease.machine.openers import Opener
from toolkit.lease.machine.processes import lease_of
from toolkit.lease.machine.unit import MPS_USER
from toolkit.lease.server.instance import known
from toolkit.lease.server.native import native_users, service_uids
from toolkit.lease.server_conf import ServerConf

#: How long who was ended may take to go (the driver frees much memory slowly), and how long a queue of descriptors may
#: stay filled.
GONE_S, QUEUE_S = 20.0, 2.0
#: Users of services without which a server does not work, and into which any user's open files can come: a message bus
#: keeps them for whoever does not read. These are never ended; the server takes no more jobs until they have let go.
NEEDED = re.compile(r"messagebus|dbus|polkitd|systemd-[a-z-]+")


@dataclass(frozen=True)
class Entitled:
    """Who may have which GPU now: uids that may have all, uids by GPU and by file of an instance, GPUs by
    lease (None: it cannot be told, so that none of its processes is ended)."""

    services: frozenset[int]
    users: Mapping[int, set[int]]
    files: Mapping[str, set[int]]
    leases: Mapping[str, set[int] | None]

    def has(self, opener: Opener) -> bool:
        """Whether this process may have what it has."""
        process, index = opener.process, opener.index
        lease = lease_of(process.groups)
        if lease:
            own = self.leases.get(lease, set())
            return lease in self.leases and (index is None or own is None or index in own)
        if process.uid in self.services or process.uid in self.files.get(opener.path, ()):
            return True
        if index is None:
            return any(process.uid in uids for uids in self.users.values())
        return process.uid in self.users.get(index, ())


def _number(name: str) -> Iterable[int]:
    try:
        return [pwd.getpwnam(name).pw_uid]
    except KeyError:
        return []


def _needed(uid: int) -> bool:
    """Whether the server needs this user's processes."""
    try:
        return NEEDED.fullmatch(pwd.getpwuid(uid).pw_name) is not None
    except KeyError:
        return False


def _members() -> list[int]:
    """Whom the administrator has put into the group of the device files."""
    try:
        return [uid for name in grp.getgrnam(GROUP).gr_mem for uid in _number(name)]
    except KeyError:
        return []


def entitled(host: Host, conf: ServerConf) -> Entitled:
    """As the records say now."""
    users, files = native_users(host)
    # Also of one that is ending, beside others on a GPU: its own end sees to its processes.
    instances = known(host)
    leases = {**{job: one.indices for job, one in instances.by_job.items()}, **dict.fromkeys(instances.lost)}
    services = {0, *service_uids(conf), *_members(), *_number(MPS_USER)}
    return Entitled(frozenset(services), users, files, leases)


def _by_nvml(host: Host, found: Collection[Opener]) -> list[Opener]:
    """Processes with memory on a GPU that have none of its device files, as far as the driver tells: the numbers that
    it knows are those of the machine, and not of a container in it."""
    if not host.openers.numbered_as_driver():
        return []
    try:
        seen, gpus = host.gpus.processes(), {gpu.uuid: gpu.index for gpu in host.gpus.gpus()}
    except LeaseError:
        return []  # without a driver nothing is lent
    ours = {opener.process.pid for opener in found}
    more = []
    for uuid, pids in seen.items():
        for pid in pids:
            process = None if pid in ours else host.openers.process(pid)
            if process is not None:
                more.append(Opener(process, gpus.get(uuid), f"has memory on {uuid}"))
    return more


def _others(host: Host, conf: ServerConf, gpus: Collection[int], owners: Collection[int]) -> list[Opener]:
    """Who has one of these GPUs, and may not."""
    found = host.openers.find(owners)
    found += _by_nvml(host, found)
    here = {one.process.pid for one in found if one.index in gpus}
    elsewhere = {one.process.pid for one in found if one.index is not None} - here
    may = entitled(host, conf)
    found = [one for one in found if (one.index is None or one.index in gpus) and not may.has(one)]
    if conf.fence:
        return found
    # Anybody may have opened others: what is no GPU's belongs to those.
    return [one for one in found if one.index is not None or one.hidden or one.process.pid not in elsewhere]


def clear(
    host: Host, conf: ServerConf, gpus: Collection[int], owners: Collection[int] = ()
) -> tuple[list[str], list[str]]:
    """See that nobody has these GPUs but who may: what was done, and who still has one, in words.

    owners: of a job that had them and has ended. Processes of users are ended: theirs always, those of others where the
    device files are closed to them, for then they were passed what they have; where they are open to all it is told.
    What only may hide something is ended where it is an owner's and stays; of others it is told.
    """
    if not gpus:
        return [], []
    told: dict[str, None] = {}
    hides: dict[int, float] = {}  # since when, by user: who passes it on from process to process wins no time
    until: float | None = None
    while True:
        found = _others(host, conf, gpus, owners)
        now = host.clock.monotonic()
        left = [one for one in found if one.process.uid in owners or (conf.fence and not one.hidden)]
        told |= dict.fromkeys(one.told() for one in found if one not in left)
        # A look may take long: who was ended in the last one is looked at once more.
        if not left or (until is not None and now > until):
            return list(told), [one.told() for one in left]
        for one in left:
            if _needed(one.process.uid):
                until = now + GONE_S if until is None else until
            elif not one.hidden or now - hides.setdefault(one.process.uid, now) >= QUEUE_S:
                told[f"{one.told()}, and is ended: its GPU goes to another"] = None
                host.openers.end(one)
                until = now + GONE_S if until is None else until
        host.clock.sleep(0.2)
