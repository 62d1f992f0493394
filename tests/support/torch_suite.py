"""Torch's own device-generic tests, files of its repository at the release's tag, natively and by the engine.

    python -m tests.support.torch_suite FOLDER test_indexing test_view_ops --limit-s 900

prints a table of counts; what fails by the engine and not natively stands below it, unless the list
tests/data/torch/suite_FILE.txt names it with a reason. The wheel has what the files import; the files are in no wheel.
Each test is known by its class and name without the device: `TestShapeOps::test_flip_float32`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import selectors
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.support import torch_engine, torch_env
from tests.support.torch_engine import PROGRAMS, Server
from tests.support.torch_sweep import LISTS, RESTARTS, known

FOLDER = "ELASTIC_AI_TORCH_TESTS"
WHOLE = ("test_indexing", "test_type_promotion", "test_shape_ops", "test_sort_and_select", "test_view_ops")
"""The files that are short enough to be run whole."""
STATES = ("passed", "failed", "skipped")
ENDED = "the process ended"
NO_KERNEL = re.compile(r"not implemented for '|on CPU does not support ")
"""What a processor's kernel says of a dtype that GPUs alone take."""


@dataclass(frozen=True)
class Suite:
    """Name -> (state, text): passed, failed or skipped. Not `whole`: the time for it was over."""

    results: dict[str, tuple[str, str]]
    whole: bool
    took_s: float

    def count(self, state: str, names: set[str] | None = None) -> int:
        """Of tests that ended so; of these names alone."""
        return Counter(one for name, (one, _) in self.results.items() if names is None or name in names)[state]

    def failed(self) -> dict[str, str]:
        """Name -> why."""
        return {name: text for name, (state, text) in self.results.items() if state == "failed"}


def plain(node: str) -> str:
    """`TestShapeOps::test_flip_float32` of `test_shape_ops.py::TestShapeOpsCUDA::test_flip_cuda_float32`."""
    _, _, rest = node.partition("::")
    rest = re.sub(r"(CPU|CUDA)::", "::", rest)
    return re.sub(r"_(cpu|cuda)(?=_|$|\[)", "", rest)


def _lines(process: subprocess.Popen[bytes], until: float) -> tuple[list[str], bool]:
    """What it prints until it ends, or until the time is over; then it is killed. Whether it ended."""
    assert process.stdout
    whole, kept = True, b""
    os.set_blocking(process.stdout.fileno(), False)
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            left = until - time.monotonic()
            if left <= 0:
                whole = False
                process.kill()
                break
            if selector.select(left):
                piece = process.stdout.read()
                if piece == b"":
                    break
                kept += piece or b""
    process.wait()
    return kept.decode(errors="replace").splitlines(), whole


def run(file: Path, on: Server | None, only: str = "", limit_s: float = 900) -> Suite:
    """The file, as far as the time allows. A test that ends the process has failed; the others go on in a new one."""
    results: dict[str, tuple[str, str]] = {}
    began, after = time.monotonic(), ""
    base = on.environment() if on else torch_env.plain_environment()
    path = ":".join([str(PROGRAMS), str(file.parent), *base.get("PYTHONPATH", "").split(":")]).rstrip(":")
    base |= {"PYTHONPATH": path, "PYTORCH_TESTING_DEVICE_ONLY_FOR": "cuda" if on else "cpu"}
    command = [str(torch_env.python()), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "suite_lines"]
    command += ["-c", os.devnull, f"--rootdir={file.parent}", "--tb=short", "--disable-warnings", str(file)]
    command += ["-k", only] if only else []
    for _ in range(RESTARTS):
        process = subprocess.Popen(
            command,
            env={**base, **({"ELASTIC_AI_SUITE_AFTER": after} if after else {})},
            cwd=file.parent, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        lines, whole = _lines(process, began + limit_s)
        begun = ""
        for line in lines:
            _, at, text = line.partition("@{")
            said = json.loads("{" + text) if at and text.endswith("}") else {}
            if "begin" in said:
                begun = said["begin"]
                results[plain(begun)] = ("failed", ENDED)
            elif "name" in said:
                results[plain(said["name"])] = (said["state"], said["text"])
            elif "end" in said:
                assert results or only, f"{file.name} has no tests here: {chr(10).join(lines)[-2000:]}"
                return Suite(results, True, time.monotonic() - began)
        assert begun or not whole, f"{file.name} did not begin: {chr(10).join(lines)[-2000:]}"
        if not whole:
            results = {name: result for name, result in results.items() if result[1] != ENDED or name != plain(begun)}
            return Suite(results, False, time.monotonic() - began)
        if results[plain(begun)][1] == ENDED:
            results[plain(begun)] = ("failed", f"{ENDED} with {process.returncode}")
        after = begun
    raise AssertionError(f"{file.name}: {RESTARTS} tests ended the process: {Suite(results, False, 0).failed()}")


@dataclass(frozen=True)
class Both:
    """A file natively and by the engine, as far as both came."""

    name: str
    native: Suite
    engine: Suite

    def row(self) -> str:
        """A line of the table."""
        cells = [f"{self.name}.py" + ("" if self.native.whole and self.engine.whole else " (by time)")]
        seen = None if self.native.whole and self.engine.whole else set(self.native.results) & set(self.engine.results)
        cells += [str(side.count(state, seen)) for side in (self.native, self.engine) for state in STATES]
        cells += [str(len(self.no_kernel())), str(len(self.lost())), str(len(self.listed()))]
        cells += [f"{self.native.took_s:.0f}", f"{self.engine.took_s:.0f}"]
        return "| " + " | ".join(cells) + " |"

    def listed(self) -> dict[str, str]:
        """Name -> reason, of what is known to fail."""
        return known(LISTS / f"suite_{self.name.removeprefix('test_')}.txt")

    def lost(self) -> dict[str, str]:
        """What fails by the engine and does not fail natively: name -> why."""
        alike = {name for name, (state, _) in self.native.results.items() if state == "failed"}
        lost = {name: text for name, text in self.engine.failed().items() if name not in alike}
        return {name: text for name, text in lost.items() if name not in self.no_kernel()}

    def no_kernel(self) -> dict[str, str]:
        """What torch tests on GPUs alone, for a dtype of which the server's processor has no kernel: name -> why."""
        failed = self.engine.failed().items()
        return {name: text for name, text in failed if name not in self.native.results and NO_KERNEL.search(text)}

    def faults(self) -> list[str]:
        """What the list does not say: new failures, and listed ones that pass or are there no longer."""
        listed, lost = self.listed(), self.lost()
        new = [f"{self.name} {name}: {lost[name]}" for name in sorted(set(lost) - set(listed))]
        passed = {name for name, (state, _) in self.engine.results.items() if state != "failed"}
        over = [f"{self.name} {name} passes: remove it from the list" for name in sorted(set(listed) & passed)]
        gone = set(listed) - set(self.engine.results) if self.engine.whole else set()
        return new + over + [f"{self.name} {name} is no test: remove it from the list" for name in sorted(gone)]


SIDES = [f"{side} {state}" for side in ("native", "engine") for state in STATES]
HEAD = ["file", *SIDES, "no kernel on processors", "failed by the engine alone", "listed", "native s", "engine s"]


def main() -> int:
    """Runs what the command line names; 1 where a list does not say what was seen."""
    parser = argparse.ArgumentParser(description="torch's own tests, natively and by the engine")
    parser.add_argument("folder", type=Path, help="test/ of PyTorch's repository at the tag of the release")
    parser.add_argument("files", nargs="*", default=list(WHOLE), help="without: those that are run whole")
    parser.add_argument("--limit-s", type=float, default=900, help="for each file and side")
    parser.add_argument("--only", default="", help="an expression of pytest's -k")
    parser.add_argument("--like-cuda", type=int, help="seed: the server behaves as a GPU does")
    given = parser.parse_args()
    options = [] if given.like_cuda is None else ["--like-cuda", str(given.like_cuda)]
    ask = [torch_env.python(), "-c", torch_env.ASK]
    told = subprocess.check_output(ask, text=True, env=torch_env.plain_environment()).strip()
    print(f"torch {told}; files of {given.folder}{'; a server like CUDA' if options else ''}\n", flush=True)
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}", flush=True)
    faults: list[str] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        on = stack.enter_context(torch_engine.server(folder, *options))
        for name in given.files:
            file = given.folder.absolute() / f"{name}.py"
            both = Both(name, run(file, None, given.only, given.limit_s), run(file, on, given.only, given.limit_s))
            print(both.row(), flush=True)
            faults += both.faults()
    print("\n".join(["", *faults]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
