"""The model of remoting on what really trains: by the reference engine, over a link of known delay and rate."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine_run import Client, describe, local, server
from tests.support.relay import relay
from toolkit.engine import build, host_modules
from validation.analysis.remote_model import Calls, Costs, Step, costs, predict

LACKS = build.missing_tools() or host_modules.lacks_compiler()
pytestmark = pytest.mark.skipif(bool(LACKS), reason=f"no compiler here: {LACKS}")
BATCH = 64
ASKED = ["--gpus", "1", "--inputs", "256", "--hidden", "16", "--steps", "12", "--batch", str(BATCH), "--costs"]
BYTES = BATCH * (256 + 1) * 4
DELAY_MS, MBPS = 15.0, 20.0


def echoing(serving: socket.socket, bytes_: int) -> None:
    """Gives everything back once it is there."""
    connection, _ = serving.accept()
    with connection:
        got = b""
        while len(got) < bytes_:
            got += connection.recv(1 << 20)
        connection.sendall(got)


def test_the_relay_passes_bytes_on_as_late_and_as_slowly_as_it_says() -> None:
    data = bytes(range(256)) * 400
    with socket.create_server(("127.0.0.1", 0)) as serving:
        threading.Thread(target=echoing, args=(serving, len(data)), daemon=True).start()
        link = relay(serving.getsockname()[1], MBPS / 1000, DELAY_MS)
        with link as port, socket.create_connection(("127.0.0.1", port)) as one:
            began = time.monotonic()
            one.sendall(data)
            back = b""
            while len(back) < len(data):
                back += one.recv(1 << 20)
            took = time.monotonic() - began
    assert back == data
    least = 2 * DELAY_MS / 1e3 + 2 * len(data) * 8 / MBPS / 1e6
    assert least <= took < 5 * least


def trained(client: Client) -> dict[str, Any]:
    command = [sys.executable, "-m", "toolkit.lease.programs.train", "--json", *ASKED]
    done = subprocess.run(command, env=client.environment(), capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def calls(report: dict[str, Any]) -> Calls:
    kinds = ("synchronisation", "launches", "to_device", "from_device")
    return Calls(*(middle(report["costs"][f"{kind}_s"]) for kind in kinds))


def test_delay_and_rate_of_a_link_are_found_in_the_costs_and_make_the_step(tmp_path: Path) -> None:
    """The link is far slower than anything else here, so that a busy machine changes little."""
    devices = describe(tmp_path)
    with server(tmp_path / "server", devices=devices) as there:
        native = trained(local(tmp_path, devices))
        with relay(there.port, MBPS / 1000, DELAY_MS) as port:
            remote = trained(Client(f"127.0.0.1:{port}", tmp_path))
    assert remote["costs"]["bytes_to_device"] == native["costs"]["bytes_to_device"] == BYTES
    assert remote["costs"]["launches_each"] == 13
    assert remote["losses"] == native["losses"], "what is measured at the end changes nothing"
    assert all(wait <= step for wait, step in zip(remote["wait_s"], remote["step_s"], strict=True))
    step = Step(
        batch=BATCH,
        native=middle(native["step_s"][1:]),
        waiting=middle(native["wait_s"][1:]),
        launches=13,
        bytes_to=BYTES,
        bytes_from=4,
        synchronisations=1,
    )
    found: Costs = costs(step, calls(native), calls(remote))
    assert 2 * DELAY_MS / 1e3 <= found.synchronisation < 6 * DELAY_MS / 1e3
    a_byte = 8 / MBPS / 1e6
    assert 0.5 * a_byte < found.byte_to < 3 * a_byte
    assert predict(step, found).remote == pytest.approx(middle(remote["step_s"][1:]), rel=0.5)


@pytest.mark.parametrize(
    ("more", "words"), [(["--gpus", "2"], "one GPU"), (["--infer"], "whole training"), (["--keep", "kept"], "whole")]
)
def test_costs_are_of_a_training_on_one_gpu(tmp_path: Path, more: list[str], words: str) -> None:
    client = local(tmp_path, describe(tmp_path))
    command = [sys.executable, "-m", "toolkit.lease.programs.train", "--json", *ASKED, *more]
    done = subprocess.run(command, env=client.environment(), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert words in done.stderr
