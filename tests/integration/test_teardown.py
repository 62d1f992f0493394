"""After playbooks/teardown.yml the nodes of a lab are what they were before site.yml; with `--all`, before the page and
the hub of notebooks too."""

from __future__ import annotations

import pytest
from conftest import Provisioned

from tests.support.recap import recap
from tests.support.snapshot import differences, snapshot, snapshots

# What running services write by themselves. After teardown none of it is left, so only check mode needs this.
LIVE = ("files: /var/lib/mysql/", "files: /var/lib/slurm/slurmctld/", "files: /var/lib/prometheus/")
WEB = {"elastic-ai-page.service", "elastic-ai-jupyterhub.service", "elastic-ai-login.socket"}


@pytest.mark.rest
@pytest.mark.usefixtures("page_and_hub")
def test_teardown_predicts_in_check_mode_and_touches_nothing(provisioned: Provisioned) -> None:
    node = next(iter(provisioned.before))
    before = snapshot(provisioned.lab, node)
    assert set(before["units"]) >= WEB, "the page and the hub are to go as well"
    done = provisioned.lab.playbook("--check", name="playbooks/teardown.yml")
    assert done.returncode == 0, done.stdout[-6000:]
    assert recap(done.stdout)[node]["changed"] > 0
    found = differences(before, snapshot(provisioned.lab, node))
    assert [line for line in found if not line.startswith(LIVE)] == []


@pytest.fixture(scope="module")
def torn_down(provisioned: Provisioned) -> str:
    """What the first teardown printed."""
    done = provisioned.lab.playbook(name="playbooks/teardown.yml")
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


@pytest.mark.usefixtures("torn_down")
def test_teardown_leaves_the_nodes_as_they_were(provisioned: Provisioned) -> None:
    after = snapshots(provisioned.lab, tuple(provisioned.before))
    left = {node: differences(before, after[node]) for node, before in provisioned.before.items()}
    assert left == {node: [] for node in provisioned.before}


@pytest.mark.rest
def test_a_second_teardown_finds_nothing_to_do(provisioned: Provisioned, torn_down: str) -> None:
    assert all(counts["changed"] > 0 for counts in recap(torn_down).values())
    done = provisioned.lab.playbook(name="playbooks/teardown.yml")
    assert done.returncode == 0, done.stdout[-6000:]
    assert {host: counts["changed"] for host, counts in recap(done.stdout).items()} == dict.fromkeys(
        provisioned.before, 0
    )
