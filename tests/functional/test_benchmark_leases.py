"""benchmarks/leases.py before a lab that only answers: what it asks for, in which order, and what it prints."""

from __future__ import annotations

import base64
import json
import re
import threading
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import leases as benchmark
from toolkit.lease import SHARDS_PER_GPU as GPU

OUTCOME = {
    "user": "bob", "wish": "-p 1/2", "death": "none", "code": 0, "lease": 41, "seconds": 3.0, "said": "",
    "urgent": False, "where": "1/2 of gpu1:0", "from_s": 1.0, "until_s": 4.0, "shards": 0,
}  # fmt: skip


class AnsweringLab(benchmark.StandingLab):
    """Four nodes without jobs, on which nothing is run; `ran` are the commands, scripts in plain text."""

    ran: list[tuple[str, str]]
    stopped: threading.Event
    queue: str = ""
    client: dict[str, Any]

    def ssh(self, node: str, *command: str) -> str:
        line = re.sub(r"^echo (\S+) \| base64 -d", lambda m: base64.b64decode(m[1]).decode(), " ".join(command)).strip()
        self.ran.append((node, line))
        if line.startswith("squeue"):
            return self.queue
        if line.startswith("for who in"):
            return "bob\n"  # alice was there
        if "touch /root/stop" in line:
            self.stopped.set()
        if "lease_watch.py /root/stop" in line:
            assert self.stopped.wait(20)
            return json.dumps({"most": GPU // 2, "instances": 1})
        if line.startswith("python3") and "lease_storm.py" in line:
            return json.dumps([OUTCOME])
        if line.startswith("python3") and "leases_client.py" in line:
            return json.dumps(self.client)
        if line.startswith("sacct"):
            return f"7|wrap|COMPLETED|\n41|elastic-ai-lease|CANCELLED by 2002|gres/shard={GPU // 2}\n"
        return {"sbatch": "7\n", "sinfo": "idle none\nidle none\n"}.get(line.split()[0], "")

    def policy(self, *words: str) -> float:
        self.ran.append(("", " ".join(["pool.yml", *words[:1]])))
        if words:
            assert "preempts" in Path(words[1].removeprefix("@")).read_text()
        return 1.0


@pytest.fixture
def lab() -> Iterator[AnsweringLab]:
    lab = AnsweringLab("lab", Path("hosts.yml"))
    for key, value in {"ran": [], "stopped": threading.Event(), "client": {}}.items():
        object.__setattr__(lab, key, value)
    yield lab
    gone = [line for _node, line in lab.ran if line.startswith("userdel")]
    if not lab.queue:
        assert len(gone) == 4
        assert all("bob" in line and "alice" not in line for line in gone)  # who was there before stays


def test_a_storm_applies_its_policy_and_takes_it_away(lab: AnsweringLab, capsys: pytest.CaptureFixture[str]) -> None:
    asked = Namespace(calm=False, leases=2, at_a_time=1, seed=1, limit_s=5)
    assert benchmark.storm(lab, asked) == 0
    out = capsys.readouterr().out
    assert "left on the servers: nothing" in out
    assert "1 leases asked for, 1 of them given" in out
    assert "the time was enough for 1 of 2 leases" in out
    assert out.endswith("nothing leaked, nothing was given twice\n")
    steps = [line for node, line in lab.ran if line.startswith("pool.yml") or "lease_storm.py 2" in line]
    assert [step.split()[0] for step in steps] == ["pool.yml", "python3", "pool.yml"]
    assert (steps[0], steps[2]) == ("pool.yml -e", "pool.yml")
    assert steps[1].endswith("lease_storm.py 2 1 1 5 4")


def test_a_fault_of_a_storm_is_named_and_fails(lab: AnsweringLab, capsys: pytest.CaptureFixture[str]) -> None:
    OUTCOME["code"] = 2
    try:
        assert benchmark.storm(lab, Namespace(calm=True, leases=1, at_a_time=1, seed=1, limit_s=5)) == 1
    finally:
        OUTCOME["code"] = 0
    assert "FAULT: -p 1/2 ended with 2" in capsys.readouterr().out
    assert not [line for _node, line in lab.ran if line.startswith("pool.yml")]


def test_the_controllers_count_is_a_rate(lab: AnsweringLab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.client.update(clients=300, told=300, still=300, asked=1575, window_s=90.0)
    assert benchmark.waiting(lab, Namespace(clients=300, window_s=90)) == 0
    assert "1575 questions, 3.50 for each client and minute" in capsys.readouterr().out


def test_a_turn_that_somebody_never_had_fails(lab: AnsweringLab, capsys: pytest.CaptureFixture[str]) -> None:
    idle = {"client": [1.0, 3.0, 2.0], "server": [1.0]}
    lab.client.update(idle_s=idle, waiting=50, waiting_s={"server": [4.0]}, turns=50, turns_s=60.0)
    asked = Namespace(runs=3, waiting=50)
    assert benchmark.first_line(lab, asked) == 0
    out = capsys.readouterr().out
    assert "on the client, idle: median 2.0 s (1.0 to 3.0, 3 runs)" in out
    assert "on the server, while 50 clients wait for another server: median 4.0 s" in out
    lab.client["turns"] = 49
    assert benchmark.first_line(lab, asked) == 1
    lab.ran[:] = lab.ran[len(lab.ran) // 2 :]


def test_a_pool_with_jobs_is_left_alone(lab: AnsweringLab) -> None:
    object.__setattr__(lab, "queue", "41 all train alice R 1:00\n")
    with pytest.raises(SystemExit, match="the lab's pool has jobs"):
        benchmark.storm(lab, Namespace(calm=False))
    assert [line.split()[0] for _node, line in lab.ran] == ["squeue"]
