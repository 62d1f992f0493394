"""A node joins: provisioned, known to all others, drained until accepted, and then given to the pool."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from toolkit.errors import UsageFault
from toolkit.inventory import read_site
from toolkit.node import accept, checks, playbooks
from toolkit.node.drain import DrainReason
from toolkit.node.head import Head, answers
from toolkit.node.leave import wait_empty
from toolkit.node.state import Kept, Progress
from validation.signing import is_signed
from validation.verdict.addendum import Addendum

SERVES_WITHIN_S = 120.0
Say = Callable[[str], None]


@dataclass(frozen=True)
class Newcomer:
    """Who joins which site, what it is held against and measured with, and who signs that with which key."""

    name: str
    inventory: Path
    runs_dir: Path
    accepted: str | None
    peers: Sequence[str]
    key: Path | None
    who: str | None


class Joining:
    """One node on its way in."""

    def __init__(self, verb: Literal["add", "replace"], asked: Newcomer, say: Say) -> None:
        """Everything that can be refused is refused here; nothing has been changed then."""
        name, inventory, runs_dir, key, who = asked.name, asked.inventory, asked.runs_dir, asked.key, asked.who
        self.verb, self.inventory, self.name, self.runs_dir, self.say = verb, inventory, name, runs_dir, say
        self.short = checks.short(name)
        if key is not None and who is not None:
            from validation.signing import ssh
            from validation.signing.statement import signer

            signer(who)
            ssh.read_key(key.expanduser())
        self.key, self.who = key.expanduser() if key else None, who
        site = read_site(inventory)
        self.node = checks.node_of(site.topology, inventory, name)
        if verb == "replace":
            checks.refuse_head(self.node, inventory, verb)
        checks.refuse_joined(site.topology, inventory)
        self.accepted = checks.accepted_run(runs_dir, asked.accepted, site.topology, name)
        self.kept = Kept(inventory, name)
        earlier = self.kept.read()
        self.head = Head(site.topology)
        pool = self.head.nodes()
        if verb == "replace" and self.short not in pool:
            raise UsageFault(f"{name} is not in the pool, so nothing is to be replaced: toolkit node add {name}")
        checks.joinable(pool, name, verb == "replace" or earlier is not None)
        checks.engine_stays(inventory, self.head)
        servers = [node.name for node in site.topology.nodes if "gpu_servers" in node.groups and node.name != name]
        jobs = {one: self.head.jobs_on(checks.short(one)) for one in servers}
        self.peers = checks.peers_of(site.topology, name, asked.peers, jobs)
        self.asked = accept.plan_for(site, inventory, self.accepted, self.node, self.peers)
        if verb == "add" and not answers(self.node):
            raise UsageFault(f"{name} ({self.node.ssh.host}) does not answer by ssh; see that it is on, and its key")

    def empty(self, grace_s: int | None) -> None:
        """Of a node that is to be replaced: no new work, and what runs is waited for."""
        progress = self.kept.begin(self.verb, self.name)
        if "empty" in progress.done:
            return
        self.head.drain(self.short, DrainReason(self.verb))
        wait_empty(self.head, self.short, grace_s, self.say)
        if not answers(self.node):
            raise UsageFault(
                f"{self.name} is drained and empty; exchange the machine and run the same command again: nothing "
                f"answers by ssh at {self.node.ssh.host} yet (its host key may be another)"
            )
        self.kept.step(progress, "empty")

    def join(self) -> Addendum:
        """Provision, acceptance, and the pool; from where an earlier command left off."""
        progress = self.kept.begin(self.verb, self.name)
        progress = self._provision(progress)
        run, found = self._accept(progress)
        for line in accept.told(found):
            self.say(line)
        if not found.accepted:
            self.head.drain(self.short, DrainReason(self.verb, f"not accepted, {found.run}"))
            self.kept.clear()
            return found
        if is_signed(run):
            self.say(f"{run} is signed already")
        elif self.key is not None and self.who is not None:
            self.say(accept.signed(run, self.key, self.who))
        else:
            self.say(f'its addendum is in {run}; sign it: toolkit sign {run} --key FILE --as "NAME, COMPANY"')
        self.head.resume(self.short)
        self._serves()
        self.kept.clear()
        return found

    def _provision(self, progress: Progress) -> Progress:
        names = f"{self.name},{self.head.node.name}"
        if "provisioned" not in progress.done:
            self.say(f"{self.name} is checked and provisioned; the pool has it drained")
            playbooks.run(playbooks.SITE, self.inventory, names, playbooks.joining(self.name))
            progress = self.kept.step(progress, "provisioned")
        there = self.head.nodes().get(self.short)
        if there is None or there.serves:
            state = "does not know it" if there is None else f"has it {there.state.lower()}"
            raise UsageFault(f"{self.name} was provisioned, and Slurm {state}; it should be drained until accepted")
        if "learned" not in progress.done:
            self.say("all others learn of it; leases there go on")
            playbooks.run(playbooks.SITE, self.inventory, None, [*playbooks.learning(), *playbooks.joining(self.name)])
            progress = self.kept.step(progress, "learned")
        return progress

    def _accept(self, progress: Progress) -> tuple[Path, Addendum]:
        earlier = Path(progress.run) if progress.run and (Path(progress.run) / "run.json").is_file() else None
        peers = ", ".join(peer.name for peer in self.peers)
        self.say(f"acceptance of {self.name} with {peers}, against {self.accepted.name}")

        def begun(run_dir: Path) -> None:
            self.kept.write(progress.model_copy(update={"run": str(run_dir.resolve())}))

        run_dir = accept.measure_node(self.asked, self.runs_dir, earlier, begun)
        return run_dir, accept.conclude(self.verb, run_dir, self.accepted, self.node, self.peers)

    def _serves(self) -> None:
        deadline = time.monotonic() + SERVES_WITHIN_S
        while time.monotonic() < deadline:
            there = self.head.nodes().get(self.short)
            if there is not None and there.serves:
                return
            time.sleep(1)
        raise UsageFault(
            f"{self.name} was accepted and resumed, and Slurm has it {there.state if there else 'nowhere'}"
        )
