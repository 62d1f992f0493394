"""A lab goes from the release before to today's and back, batch by batch, while jobs of others go on: the command is
killed in every step, one node is rebooted with its batch, and a batch that is worse than the accepted run stops it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from conftest import Lab, toolkit, validation_of

from tests.support.lease_lab import shell, until
from tests.support.traces import traces
from tests.support.upgrade_lab import LIMIT_S, Site, ran_once

pytestmark = pytest.mark.rest
NAME = "upgrades"
OLD, NEW = "rehearsal-previous", "rehearsal"
#: What the two releases differ in, of NVIDIA's container toolkit.
PACKAGE = {OLD: "1.18.2-1", NEW: "1.19.1-1"}
SERVERS = ("gpu1", "gpu2")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A lab that was provisioned with the older release and accepted; it goes without a trace."""
    folder = tmp_path_factory.mktemp("upgrades")
    if any(traces(NAME).values()):  # of a run that was cut off
        assert toolkit("lab", "down", "--name", NAME).returncode == 0
    up = toolkit("lab", "up", "--name", NAME, "--inventory", folder / "inventory")
    assert up.returncode == 0, up.stderr
    try:
        lab = Lab(NAME, folder / "inventory")
        site = Site(lab, lab.inventory, folder / "runs")
        site.release(OLD)
        done = toolkit("deploy", "-i", lab.inventory, timeout_s=LIMIT_S)
        assert done.returncode == 0, f"{done.stdout[-6000:]}{done.stderr[-6000:]}"
        suites = [word for suite in ("preflight", "as-built", "transport") for word in ("--suite", suite)]
        accepted = validation_of(lab.inventory, folder / "runs", "--fabric", "tcp10", *suites, "--format", "html")
        assert accepted.exit_code == 0, accepted.stderr
        yield site
    finally:
        down = toolkit("lab", "down", "--name", NAME)
    assert down.returncode == 0, down.stderr
    assert not any(traces(NAME).values())


def test_an_upgrade_goes_on_wherever_it_was_killed_and_comes_back(site: Site) -> None:
    lab, before = site.lab, site.boots()
    assert site.releases() == dict.fromkeys(SERVERS, (OLD, PACKAGE[OLD]))
    number = site.job("gpu2")
    shell(lab, "gpu2", "mkdir -p /run/elastic-ai/reboot-required; echo planted > /run/elastic-ai/reboot-required/test")

    code, said = site.ran("upgrade", "--to", NEW, "--dry-run")
    assert code == 0, said
    assert re.search(r"^gpu2 +container toolkit 1\.18\.2 to 1\.19\.1$", said, re.MULTILINE), said
    assert f"waits for: job {number} of alice" in said
    assert re.search(r"^gpu2 +waits for a reboot already: test: planted \(reboot\)$", said, re.MULTILINE), said
    assert "1 node to be rebooted" in said
    assert "batch 3 of 3: gpu2" in said
    assert site.out_of_work() == {}, "nothing was changed"

    # Killed in each step of a batch: the next command says where it is and goes on there.
    upgrade = ("upgrade", "--to", NEW)
    began = time.monotonic()
    site.killed("batch 1 of 3 (head): drain", *upgrade)
    site.killed("batch 2 of 3 (client1, gpu1): deploy", *upgrade, later_s=20)
    code, said = site.ran(*upgrade, "--dry-run")
    assert (code, "batch 2 of 3: client1, gpu1  in deploy" in said) == (0, True), said
    site.killed("batch 2 of 3 (client1, gpu1): validate", *upgrade, later_s=5)
    site.killed("batch 2 of 3 (client1, gpu1): resume", *upgrade)
    site.killed("batch 3 of 3 (gpu2): drain", *upgrade, later_s=5)
    assert site.state(number) == "RUNNING", "it is waited for"
    assert site.out_of_work() == {"gpu2": "draining"}
    assert site.boots() == before
    shell(lab, "gpu2", "touch /tmp/go-on")
    code, said = site.ran(*upgrade)
    print(f"upgrade with five kills: {(time.monotonic() - began) / 60:.1f} minutes")
    assert code == 0, said
    assert f"next: write stack_release: {NEW} into" in said
    assert site.releases() == dict.fromkeys(SERVERS, (NEW, PACKAGE[NEW]))
    until(site.out_of_work, {}, 120)
    assert {node for node, boot in site.boots().items() if boot != before[node]} == {"gpu2"}, (
        "one reboot, with its batch"
    )
    assert ran_once(lab, number) == ["COMPLETED"]
    site.release(NEW)

    # And back, with the head last; the jobs of others go on.
    shell(lab, "gpu2", "rm -f /tmp/go-on")  # gone with the reboot
    number = site.job("gpu2")
    began = time.monotonic()
    site.killed("batch 1 of 3 (client1, gpu1): deploy", "rollback", later_s=10)
    site.killed("batch 2 of 3 (gpu2): drain", "rollback")
    assert site.state(number) == "RUNNING"
    shell(lab, "gpu2", "touch /tmp/go-on")
    code, said = site.ran("rollback")
    print(f"rollback with two kills: {(time.monotonic() - began) / 60:.1f} minutes")
    assert code == 0, said
    assert site.releases() == dict.fromkeys(SERVERS, (OLD, PACKAGE[OLD]))
    until(site.out_of_work, {}, 120)
    assert ran_once(lab, number) == ["COMPLETED"]
    site.release(OLD)


def test_a_batch_that_is_worse_than_the_accepted_run_stops_it_and_stays_drained(site: Site) -> None:
    lab = site.lab
    planted = toolkit("lab", "fault", "set", "--name", NAME, "gpu1", "nccl-pinned")
    assert planted.returncode == 0, planted.stderr
    code, said = site.ran("upgrade", "--to", NEW)
    assert code == 1, said
    assert "pf.ncclenv" in said
    assert site.out_of_work() == {"gpu1": "drained"}
    assert "toolkit upgrade: failed in validate" in shell(lab, "head", "scontrol show node gpu1")
    assert site.releases()["gpu2"] == (OLD, PACKAGE[OLD]), "later batches are untouched"
    cleared = toolkit("lab", "fault", "clear", "--name", NAME, "gpu1")
    assert cleared.returncode == 0, cleared.stderr
    code, said = site.ran("upgrade", "--to", NEW)
    assert code == 0, said
    until(site.out_of_work, {}, 120)
    assert site.releases() == dict.fromkeys(SERVERS, (NEW, PACKAGE[NEW]))
