"""The engine `torch` beside native PyTorch on one GPU, at sizes of a GPU: client and server on the machine that has it.

    ELASTIC_AI_TORCH_PYTHON=PYTHON benchmarks/torch_gpu.py OUT.json [--rounds 2] [--seconds 300] [--link 25/0.05]

Native, the engine over loopback, and the engine by a link (Gbit/s and ms of round trip, by the toolkit's relay), in
turns. Losses of all are held against native's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support import torch_engine, torch_env  # noqa: E402
from tests.support.relay import relay  # noqa: E402

WORKER = Path(__file__).with_name("torch_gpu_worker.py")
PROGRAMS = (
    "resnet50",
    "resnet50-pinned",
    "resnet50-bf16",
    "resnet50-images",
    "gpt",
    "gpt-bf16",
    "decode",
    "mlp",
    "copies",
)
THREADS = {"OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": "4", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def worker(program: str, environment: dict[str, str]) -> dict[str, Any]:
    """Its document; what went wrong, under "fault"."""
    done = subprocess.run([str(torch_env.python()), str(WORKER), program], capture_output=True, text=True, check=False,
                          env={**environment, **THREADS}, timeout=200)  # fmt: skip
    if done.returncode:
        return {"fault": done.stderr[-1500:]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--link", default="25/0.05", metavar="GBPS/MS")
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    given = parser.parse_args()
    until = time.monotonic() + given.seconds
    gbps, delay = map(float, given.link.split("/"))
    found: list[dict[str, Any]] = []
    natives: dict[str, list[str]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        torch_engine.server(Path(folder), "--device", "cuda", **THREADS) as on,
        relay(on.port, gbps, delay / 2) as port,
    ):
        remote = {**on.environment(ELASTIC_AI_TORCH_ONLY_LEASED="1"), **THREADS}
        ways = {
            "native": {**torch_env.plain_environment(), **THREADS},
            "loopback": remote,
            f"{given.link}": {**remote, "ELASTIC_AI_TORCH_SERVERS": f"127.0.0.1:{port}"},
        }
        for number in range(given.rounds):
            for program in given.programs.split(","):
                losses: dict[str, list[str]] = {}
                for way in list(ways) if number % 2 == 0 else list(ways)[::-1]:
                    if time.monotonic() > until:
                        break
                    told = worker(program, ways[way])
                    losses[way] = told.pop("losses", [])
                    found.append({"round": number, "program": program, "way": way, **told})
                    print(number, program, way, json.dumps(told), flush=True)
                if program in natives and "native" in losses:
                    itself = sum(a == b for a, b in zip(natives[program], losses["native"], strict=False))
                    print(f"   {program} natively twice: {itself} losses alike", flush=True)
                    found.append({"program": program, "way": "natively twice", "alike": itself})
                natives.setdefault(program, losses.get("native", []))
                for way in [one for one in losses if one != "native"]:
                    one, other = losses.get("native", []), losses[way]
                    same = sum(a == b for a, b in zip(one, other, strict=False))
                    print(f"   {program} {way}: {same} of {len(one)} losses alike", flush=True)
                    found.append({"round": number, "program": program, "way": way, "alike": [same, len(one)]})
        log = on.said()
    given.out.write_text(json.dumps({"cpus": os.cpu_count(), "found": found, "server": log[-2000:]}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
