"""What every probe printed, recorded or made, and the parameters with which its parser accepts it: by name."""

from __future__ import annotations

import json
from typing import Any

from tests.support import tf_documents
from tests.support.collectives_documents import TESTS, TESTS_PARAMS
from tests.support.ib_documents import ERRORS
from tests.support.ib_documents import document as fabric
from tests.support.rdma_case import PORT, card, document
from tests.support.rdma_documents import CASES, RECORDED
from tests.support.rdma_documents import doc as rdma_doc
from tests.support.remote_move_documents import MOVE, move_document
from tests.support.remote_neighbours_documents import NEIGHBOURS, NOREBOOT, neighbours_document, noreboot_document
from tests.support.remote_pooled_documents import POOLED, pooled_document
from tests.support.remote_shares_documents import SHARES, shares_document
from tests.support.remote_train_documents import INFER, TRAIN, infer_document, train_document
from tests.support.remote_unchanged_documents import UNCHANGED, unchanged_document
from tests.support.remote_worlds_documents import LAYOUT, SCALE, layout_document, scale_document
from tests.support.remoting_documents import COPY, ISOLATE, PARTS, copybench, cut, isolated
from tests.support.remoting_documents import doc as remoting_doc
from tests.support.tool_documents import BANDWIDTH, DATA, FACTS, SOCKPERF_FACTS, TRAINING_PARAMS, training
from tests.support.tool_documents import doc as tcp_doc

Recording = tuple[dict[str, Any], dict[str, Any]]


def recordings() -> dict[str, Recording]:
    found: dict[str, Recording] = {}
    for path in sorted([*(DATA / "iperf3").glob("[0-9]*.json"), *(DATA / "iperf3").glob("stalled*.json")]):
        found[f"iperf3 {path.stem}"] = tcp_doc("tcp-bandwidth", path.read_text()), BANDWIDTH
    found["sockperf"] = (
        tcp_doc("tcp-latency", (DATA / "sockperf/3.7-tcp.out").read_text(), SOCKPERF_FACTS),
        {"seconds": 1},
    )
    for mtu, name in ((1500, "mtu1500"), (9000, "mtu9000"), (65535, "loopback-65535")):
        text = (DATA / f"ping/20221126-{name}.out").read_text()
        found[f"ping {mtu}"] = tcp_doc("path-mtu", text, {"path_mtu_bytes": mtu}), {"mtu": mtu}
    losses = [round(2.3 / (1 + i / 20), 5) for i in range(110)]
    found["training"] = tcp_doc("training-short", training(losses=losses)), TRAINING_PARAMS
    found["facts"] = tcp_doc("facts", facts=FACTS), {}
    log = tf_documents.printed(tf_documents.PARAMS, 900.0)
    found["tf-cnn-benchmarks"] = tcp_doc("tf-cnn-benchmarks", log), tf_documents.PARAMS
    for name, (kind, text, facts, params) in CASES.items():
        found[name] = rdma_doc(kind, text, facts), params
    found["rdma-ports rxe"] = RECORDED, {}
    limit = {"bytes": -1, "user": "nobody", "unread": ""}
    found["rdma-ports card"] = document({"ports": [card(PORT)], "memlock": limit, "policy": None}), {}
    found["ib-fabric clean"], found["ib-fabric errors"] = (fabric(), {}), (fabric(ERRORS), {})
    report = json.dumps(copybench())
    found["copies"] = remoting_doc("remoting-copy", {"servers": ["gpu1", "gpu2"], "gpus": 2}, report), COPY
    found["isolation"], found["breached"] = (isolated(), ISOLATE), (isolated("no token"), ISOLATE)
    found["fractions"] = cut(total_bytes=[190 << 20, 64 << 20], taken_bytes=[190 << 20, 64 << 20]), PARTS
    found["trained both ways"] = train_document(), TRAIN
    found["answered both ways"] = infer_document(), INFER
    found["trained in layouts"] = layout_document(), LAYOUT
    found["beside neighbours"] = neighbours_document(), NEIGHBOURS
    found["changes of parts"] = noreboot_document(), NOREBOOT
    found["trained on more and more"] = scale_document(), SCALE
    found["trained on parts"] = shares_document(), SHARES
    found["unchanged"] = unchanged_document(), UNCHANGED
    found["a GPU changes hands"] = move_document(), MOVE
    found["siloed and pooled"] = pooled_document(), POOLED
    found["utilisation"] = tcp_doc("utilisation", facts={
        "leased_ratio": [0.5, 0.25, 1.0], "gpu_utilization_ratio": [0.1, 0.2, 0.3], "gpu_memory_ratio": [],
        "leased_ratio_from_s": 45, "days": 30, "step_s": 15, "emulated": False}), {}  # fmt: skip
    found["collectives nccl-tests"] = TESTS, TESTS_PARAMS
    for path in sorted((DATA / "dcgm").glob("*.json")):
        failed = {"level": 2, "returncode": int("fail" in path.stem), "said": ""}
        found[f"dcgm {path.stem}"] = tcp_doc("dcgm-diag", path.read_text(), failed, tool="DCGM"), {"level": 2}
    for path in sorted((DATA / "kinds").glob("*.json")):  # what a kind's probe printed, and its params
        recorded = json.loads(path.read_text())
        params = {key: tuple(value) if isinstance(value, list) else value for key, value in recorded["params"].items()}
        found[path.stem] = recorded["document"], params  # as a plan is read
    return found


RECORDINGS = recordings()
