"""RDMA measurements whose probes are scripts on this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.local_launcher import LocalLauncher, execute
from tests.support.rdma_documents import CASES, doc
from tests.support.run_case import only, topology
from tests.support.site import CRITERIA
from validation.execute import Remote
from validation.model import Plan, Result, Topology
from validation.plan.suites import make_plan
from validation.rules.fabric import load_fabric

LIGHT, WRITE = "rdma-first-light.gpu1-lo.gpu2-lo", "rdma-bandwidth.write.gpu1-lo.gpu2-lo"


# Prints that it is ready, then its document when the client has ended or when it is stopped, as a server does.
SERVER = (
    "import sys,time; print('{{\"ready\": true}}', flush=True); time.sleep({wait}); print({doc!r}); sys.exit({code})"
)


CLIENT = "import sys; sys.stdin.readline(); print({doc!r}); sys.exit({code})"


class Scripted(LocalLauncher):
    """Probes that say what a test wants: (client's document, server's document)."""

    def __init__(self, client: dict[str, Any], server: dict[str, Any]) -> None:
        super().__init__()
        self.client, self.server = client, server

    async def start(self, node: str, probe: Sequence[str]) -> Remote:
        self.started.append((node, tuple(probe)))
        serves = "serve" in probe
        said = self.server if serves else self.client
        code = SERVER if serves else CLIENT
        ended = said.get("exit", 1 if said["error"] else 0)
        script = code.format(doc=json.dumps(said), code=ended, wait=0.3)
        remote = await Remote.spawn(node, [sys.executable, "-I", "-c", script])
        self.running.append(remote)
        return remote


def planned(*ids: str) -> tuple[Plan, Topology]:
    topo = topology(2)
    return only(make_plan("r", topo, load_fabric("roce40"), CRITERIA, ("transport",)), *ids), topo


def ends(case: str, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Documents of both ends, from a recording."""
    kind, text, facts, _ = CASES[case]
    mine = {k: v for k, v in facts.items() if k != "peer"}
    client = {**doc(kind, text), "facts": {**mine, **changes.get("client", {})}}
    server = {**doc("serve", ""), "facts": {**facts["peer"], **changes.get("server", {})}}
    return client, server


def one(run_dir: Path, client: dict[str, Any], server: dict[str, Any], id_: str = WRITE, **params: Any) -> Result:
    whole, topo = planned(id_)
    measurement = whole.measurements[0]
    given = {**measurement.params, **params}
    whole = whole.model_copy(update={"measurements": (measurement.model_copy(update={"params": given}),)})
    return execute(run_dir, whole, topo, Scripted(client, server)).results[id_]
