"""Torch's own device-generic tests, files of its repository at the release's tag, natively and by the engine.

`ELASTIC_AI_TORCH_TESTS` names the folder with test_indexing.py and the others: the wheel has what they import.
Each test is known by its class and name without the device: `TestShapeOps::test_flip_float32`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.support import torch_env
from tests.support.torch_engine import PROGRAMS, Server, ended
from tests.support.torch_sweep import RESTARTS

FOLDER = "ELASTIC_AI_TORCH_TESTS"


@dataclass(frozen=True)
class Suite:
    """Name -> (state, text): passed, failed or skipped."""

    results: dict[str, tuple[str, str]]

    def count(self, state: str) -> int:
        """Of tests that ended so."""
        return Counter(state for state, _ in self.results.values())[state]

    def failed(self) -> dict[str, str]:
        """Name -> why."""
        return {name: text for name, (state, text) in self.results.items() if state == "failed"}


def plain(node: str) -> str:
    """`TestShapeOps::test_flip_float32` of `test_shape_ops.py::TestShapeOpsCUDA::test_flip_cuda_float32`."""
    _, _, rest = node.partition("::")
    rest = re.sub(r"(CPU|CUDA)::", "::", rest)
    return re.sub(r"_(cpu|cuda)(?=_|$|\[)", "", rest)


def run(file: Path, on: Server | None, only: str = "", limit_s: float = 900) -> Suite:
    """The whole file. A test that ends the process, or the session, has failed; the others go on in a new one."""
    results: dict[str, tuple[str, str]] = {}
    after = ""
    base = on.environment() if on else torch_env.plain_environment()
    path = ":".join([str(PROGRAMS), str(file.parent), *base.get("PYTHONPATH", "").split(":")]).rstrip(":")
    base |= {"PYTHONPATH": path, "PYTORCH_TESTING_DEVICE_ONLY_FOR": "cuda" if on else "cpu"}
    command = [str(torch_env.python()), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "suite_lines"]
    command += ["-c", os.devnull, f"--rootdir={file.parent}", "--tb=short", "-W", "ignore", str(file)]
    command += ["-k", only] if only else []
    for _ in range(RESTARTS):
        process = subprocess.Popen(
            command,
            env={**base, **({"ELASTIC_AI_SUITE_AFTER": after} if after else {})},
            cwd=file.parent, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        done = ended(process, limit_s)
        begun = ""
        for line in done.out.splitlines():
            _, at, text = line.partition("@{")
            said = json.loads("{" + text) if at else {}
            if "begin" in said:
                begun = said["begin"]
                results[plain(begun)] = ("failed", "the process ended")
            elif "name" in said:
                results[plain(said["name"])] = (said["state"], said["text"])
            elif "end" in said:
                return Suite(results)
        assert begun, f"{file.name} did not begin: {done.out[-2000:]} {done.err[-2000:]}"
        if results[plain(begun)][1] == "the process ended":
            results[plain(begun)] = ("failed", f"the process ended with {done.code}")
        after = begun
    raise AssertionError(f"{file.name}: {RESTARTS} tests ended the process: {Suite(results).failed()}")
