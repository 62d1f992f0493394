"""Each fault that a lab of containers can have fires its alert and no other: from the fault to the notification."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

import pytest
from conftest import NAME, Lab, toolkit

from tests.support import alert_drill
from tests.support.fault_alerts import EXPECTED
from tests.support.traces import traces
from toolkit.lab.faults import FAULTS

pytestmark = [pytest.mark.rest, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a lab")]
LAB = f"{NAME}-alerts"
QUIET_S = 180  # with no fault: longer than any alert on a fault waits that has no reason to
MOST_S = 300
KINDS = alert_drill.kinds()


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab whose head notifies a webhook on itself."""
    inventory = tmp_path_factory.mktemp("alerts") / "inventory"
    toolkit("lab", "down", "--name", LAB)  # of a run that was cut off
    up = toolkit("lab", "up", "--name", LAB, "--inventory", inventory)
    assert up.returncode == 0, up.stderr
    try:
        hooks = [{"url": f"http://127.0.0.1:{alert_drill.PORT}/"}]
        path = inventory / "group_vars/all/alerts.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"monitoring_webhooks": hooks, "horovod_state": "absent"}))
        done = toolkit("deploy", "-i", inventory, timeout_s=3600)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        lab = Lab(LAB, inventory)
        alert_drill.listen(lab)
        yield lab
    finally:
        down = toolkit("lab", "down", "--name", LAB)
    assert down.returncode == 0, down.stderr
    assert not any(traces(LAB).values())


def test_nobody_is_told_of_anything_while_all_is_well(watched: Lab) -> None:
    time.sleep(QUIET_S)
    assert alert_drill.heard(watched) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_fires_its_alert_on_its_node_and_no_other(watched: Lab, kind: str) -> None:
    row = EXPECTED[kind]
    nodes = ("gpu1", "gpu2") if FAULTS[kind].gpus_only else ("gpu2", "client1", "gpu1")
    node = nodes[KINDS.index(kind) % len(nodes)]
    began = time.time()
    planted = toolkit("lab", "fault", "set", "--name", LAB, node, kind)
    assert planted.returncode == 0, planted.stderr
    planted_at = time.time()
    try:
        if row.waits_s > alert_drill.LONG_S:
            assert alert_drill.until(lambda: alert_drill.pending(watched, row.alert, node), 2 * MOST_S)
            print(
                f"| {kind} | {node} | {row.alert} waits {row.waits_s} s | {time.time() - planted_at:.0f} |", flush=True
            )
        else:
            limit_s = MOST_S + row.waits_s
            told = alert_drill.until(lambda: alert_drill.firing(watched, began, row.alert, node), limit_s)
            assert told, (alert_drill.heard(watched, began), alert_drill.alerts(watched))
            print(f"| {kind} | {node} | {row.alert} | {told - planted_at:.0f} |", flush=True)
    finally:
        cleared = toolkit("lab", "fault", "clear", "--name", LAB, node)
    assert cleared.returncode == 0, cleared.stderr
    if kind != KINDS[-1]:  # of a port that flapped the last quarter of an hour counts
        assert alert_drill.until(lambda: not alert_drill.alerts(watched), 2 * MOST_S), alert_drill.alerts(watched)
    assert alert_drill.others(alert_drill.heard(watched, began), row, node) == []
