"""Upgrade and rollback on the other systems: through dnf on nodes that imitate EL 9, through apt on ones that imitate
Ubuntu 24.04, and on virtual machines, whose kernel boots again with their batch.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import NEEDS_VMS, Lab, toolkit, validation_of

from tests.support.lease_lab import shell, until
from tests.support.traces import traces
from tests.support.upgrade_lab import DEB, LIMIT_S, RPM, Site, ran_once

pytestmark = pytest.mark.rest


@dataclass(frozen=True)
class Way:
    """Options of `lab up`; the releases and what they have of the container toolkit; nodes; `limit`: the only ones that
    are upgraded, the head among them; what else is declared."""

    up: Sequence[str]
    releases: tuple[str, str]
    packages: tuple[str, str]
    nodes: tuple[str, ...] = ("head", "client1", "gpu1", "gpu2")
    version: str = DEB
    machines: bool = False
    limit: str = ""
    declared: dict[str, object] = field(default_factory=dict)
    suites: tuple[str, ...] = ("preflight", "as-built", "transport")


REHEARSED = ("rehearsal-previous", "rehearsal")
#: Nothing of it is other than on Debian's containers, and the time of emulated machines is dear: the start of Python,
#: by which a server looks for leases that nobody ended, keeps their one processor busy for seconds.
WITHOUT = {"horovod_state": "absent", "monitoring_state": "absent", "remoting_server_sweep_s": 1800}
WAYS = {
    "el9": Way(("--os", "el9", "--nodes", "4"), ("previous", "current"), ("1.19.1-1", "1.20.1-1"), version=RPM),
    "ubuntu2404": Way(("--os", "ubuntu2404", "--nodes", "4"), REHEARSED, ("1.18.2-1", "1.19.1-1")),
    "vm": Way(
        ("--nodes", "vm"), REHEARSED, ("1.18.2-1", "1.19.1-1"), machines=True, limit="head,gpu2", declared=WITHOUT,
    ),
}  # fmt: skip


@pytest.fixture(params=[pytest.param(key, marks=NEEDS_VMS if way.machines else ()) for key, way in WAYS.items()])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Way, Site]]:
    """A lab that was provisioned with the older release and accepted; it goes without a trace."""
    way, name = WAYS[request.param], f"up-{request.param}"
    if any(traces(name).values()):  # of a run that was cut off
        assert toolkit("lab", "down", "--name", name).returncode == 0
    up = toolkit("lab", "up", *way.up, "--name", name, "--inventory", tmp_path / "inventory")
    try:
        assert up.returncode == 0, up.stderr
        lab = Lab(name, tmp_path / "inventory")
        made = Site(lab, lab.inventory, tmp_path / "runs", way.nodes, way.version)
        made.declare(**way.declared)
        made.release(way.releases[0])
        done = toolkit("deploy", "-i", lab.inventory, timeout_s=LIMIT_S)
        assert done.returncode == 0, f"{done.stdout[-6000:]}{done.stderr[-6000:]}"
        suites = [word for suite in way.suites for word in ("--suite", suite)]
        fabric = "roce40" if way.machines else "tcp10"
        accepted = validation_of(lab.inventory, made.runs, "--fabric", fabric, *suites, "--format", "html")
        assert accepted.exit_code == 0, accepted.stderr
        yield way, made
    finally:
        down = toolkit("lab", "down", "--name", name)
    assert down.returncode == 0, down.stderr
    assert not any(traces(name).values())


def test_an_upgrade_that_was_killed_goes_on_and_comes_back_on_every_system(site: tuple[Way, Site]) -> None:
    way, made = site
    (old, new), (was, becomes), lab = way.releases, way.packages, made.lab
    limit = ("--limit", way.limit) if way.limit else ()
    chosen = way.limit.split(",") if limit else made.servers
    upgraded = {node: (new, becomes) if node in chosen else (old, was) for node in made.servers}
    last, before = made.servers[-1], made.boots()
    assert made.releases() == dict.fromkeys(made.servers, (old, was))
    number = made.job(last)
    shell(lab, last, "mkdir -p /run/elastic-ai/reboot-required; echo planted > /run/elastic-ai/reboot-required/test")

    code, said = made.ran("upgrade", "--to", new, *limit, "--dry-run")
    assert code == 0, said
    assert re.search(rf"^{last} +.*container toolkit {was[:-2]} to {becomes[:-2]}", said, re.MULTILINE), said
    assert f"waits for: job {number} of alice" in said
    assert made.out_of_work() == {}, "nothing was changed"

    first, count, names = re.findall(r"^batch (\d+) of (\d+): (.+?)\s*$", said, re.MULTILINE)[0]
    upgrade, began = ("upgrade", "--to", new, *limit), time.monotonic()
    step = "drain" if last in names else "deploy"  # of a batch that the job keeps waiting, or of one before it
    made.killed(f"batch {first} of {count} ({names}): {step}", *upgrade, later_s=20)
    assert made.state(number) == "RUNNING", "it is waited for"
    shell(lab, last, "touch /tmp/go-on")
    code, said = made.ran(*upgrade)
    print(f"upgrade with a kill: {(time.monotonic() - began) / 60:.1f} minutes")
    assert code == 0, said
    assert made.releases() == upgraded
    until(made.out_of_work, {}, 300)
    booted = {node for node, boot in made.boots().items() if boot != before[node]}
    assert last in booted, "the reboot that was planted"
    assert shell(lab, last, "ls -A /run/elastic-ai/reboot-required 2> /dev/null; true").strip() == ""
    assert ran_once(lab, number) == ["COMPLETED"]
    if not limit:
        made.release(new)

    began = time.monotonic()
    code, said = made.ran("rollback")
    print(f"rollback: {(time.monotonic() - began) / 60:.1f} minutes")
    assert code == 0, said
    assert made.releases() == dict.fromkeys(made.servers, (old, was))
    until(made.out_of_work, {}, 300)
