"""The first minutes with a real GPU: everything that only a driver and a GPU can say, as one folder of records.

    benchmarks/first_gpu.py [--minutes 10] [--out DIR] [--emulated GPUS]

Needs Python 3.10 with the toolkit's packages and the NVIDIA driver; more with gcc (the engine, copies by other code)
and PyTorch. First comes what nobody can make up later: the driver's own words; then raw documents of the probes, the
same copies by other code, the engine beside native in turns, the product's own inspection, and compute by PyTorch.

Each step has a limit and none ends the others. OUT/NAME.out and .err are what each said; OUT/summary.json has every
step with its command, seconds and outcome, and OUT/summary.txt the same to read. What did not run says why.
--emulated: on emulated GPUs that are built here, as the tests do; they show that the steps work and prove no figure.

Exit code 0 where every step that ran ended well, 1 where one failed or reached its limit, or none ran, 2 without a
driver, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[1]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(HERE)]

from first_gpu_words import NO_DRIVER  # noqa: E402

Outcome = Literal["ended well", "failed", "reached its limit", "not run"]
LEAST_S = 5.0
"""What has to be left for one more step."""
COPIES = {"largest_bytes": 1 << 30, "repeat": 7, "latency_count": 200, "warm_s": 1.0}
LOAD = {"largest_bytes": 1 << 28, "repeat": 6, "copies": 8, "warm_s": 1.0}
SMALL = {"largest_bytes": 1 << 20, "warm_s": 0.1}
"""Of copies on emulated GPUs: they copy in this machine's memory."""
BATCHES, STEPS = (64, 1024), 200
INSPECT = (sys.executable, "-m", "toolkit", "validate", "--here", "--quick")
JUDGED = (0, 1, 3)
"""Exit codes of a validation that came to its verdict: passed, failed, undecided (docs/reference/exit-codes.md)."""


@dataclass(frozen=True)
class Step:
    """One thing to run. `limit_s`: its own; `needs`: why it cannot run here, "" where it can; `document`: what it
    prints is a probe's, which has an exit code of its own; `codes`: exit codes of a command that came to its end."""

    name: str
    limit_s: float
    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    needs: str = ""
    document: bool = False
    codes: Sequence[int] = (0,)


@dataclass(frozen=True)
class Done:
    """What came of a step."""

    name: str
    outcome: Outcome
    why: str
    command: tuple[str, ...]
    seconds: float
    limit_s: float
    code: int | None = None


class Day:
    """Runs steps one after another until the time is over."""

    def __init__(self, out: Path, seconds: float, environment: Mapping[str, str]) -> None:
        """`out`: a folder for all that is said; `environment`: of every step."""
        self.out, self.environment = out, dict(environment)
        self._until = time.monotonic() + seconds
        self.done: list[Done] = []

    def left(self) -> float:
        """Seconds."""
        return self._until - time.monotonic()

    def run(self, step: Step) -> Done:
        """Its output in two files. Nothing that it does ends the others."""
        limit = min(step.limit_s, self.left())
        if step.needs:
            return self._note(step, "not run", step.needs, 0.0, limit)
        if limit < LEAST_S:
            return self._note(step, "not run", "no time was left", 0.0, limit)
        print(f"{step.name} (at most {limit:.0f} s) ... ", end="", flush=True)
        began = time.monotonic()
        with (self.out / f"{step.name}.out").open("wb") as out, (self.out / f"{step.name}.err").open("wb") as err:
            try:
                child = subprocess.Popen(
                    step.words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=self.out,
                    env={**self.environment, **step.environment}, start_new_session=True,
                )  # fmt: skip
            except OSError as fault:
                return self._note(step, "failed", str(fault), 0.0, limit)
            try:
                code: int | None = child.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(child)
        took = time.monotonic() - began
        if code is None:
            return self._note(step, "reached its limit", f"{limit:.0f} s", took, limit)
        why = (
            ""
            if code == 0
            else f"exit code {code}: {_last((self.out / f'{step.name}.err').read_text(errors='replace'))}"
        )
        if step.document and code == 0:
            why = refused(self.out / f"{step.name}.out")
        ended = not why or (code != 0 and code in step.codes)
        return self._note(step, "ended well" if ended else "failed", why, took, limit, code)

    def _note(
        self, step: Step, outcome: Outcome, why: str, seconds: float, limit: float, code: int | None = None
    ) -> Done:
        done = Done(step.name, outcome, why, tuple(step.words), round(seconds, 1), round(max(limit, 0.0), 1), code)
        self.done.append(done)
        began = "" if outcome != "not run" else f"{step.name}: "
        print(f"{began}{outcome}{f' ({why})' if why else ''}" + (f", {seconds:.1f} s" if seconds else ""), flush=True)
        return done


def _end(child: subprocess.Popen[bytes]) -> None:
    """What a step started goes with it, too what does not end when it is asked to."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(5)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:200] if lines else "it said nothing"


def refused(path: Path) -> str:
    """Why a probe measured nothing, by its document; "" where it did."""
    try:
        said = json.loads(path.read_text(errors="replace"))
        return "" if said["returncode"] == 0 else f"exit code {said['returncode']}: {_last(said['stderr'])}"
    except (ValueError, KeyError, TypeError):
        return "it printed no document"


def probe(kind: str, limit_s: float, asked: Mapping[str, object]) -> Step:
    """A probe's raw document, as a validation asks for it."""
    words = [sys.executable, "-m", "validation.probes", kind, json.dumps(asked)]
    return Step(f"20-{kind}", limit_s, words, document=True)


def words_of_the_machine() -> list[Step]:
    """What nobody can make up later."""
    mine = [sys.executable, str(HERE / "first_gpu_words.py")]
    return [
        Step("10-driver", 90, [*mine, "driver"]),
        Step("11-machine", 60, [*mine, "machine"]),
        Step("12-nvlinks", 30, [sys.executable, "-m", "validation.probes.nvlinks"]),
        Step("13-driver-libraries", 30, [sys.executable, "-m", "validation.probes.gpulibs"]),
        Step("14-kernels", 60, [*mine, "kernels"]),
    ]


def documents(emulated: bool) -> list[Step]:
    """Of the probes."""
    small = SMALL if emulated else {}
    return [
        probe("facts", 40, {}),
        probe("gpu-health", 30, {}),
        probe("gpu-copies", 120, {**COPIES, **small}),
        probe("gpu-load", 60, {**LOAD, **small}),
        probe("gpu-tools", 60, {"time_limit_s": 50}),
    ]


def other_copies(folder: Path, emulated: bool) -> list[Step]:
    """The same copies by other code: sixteen in a row between two events, and one at a time."""
    program, size = str(folder / "first_gpu_copies"), str(SMALL["largest_bytes"] if emulated else 512 << 20)
    lacks = "" if shutil.which("gcc") else "no gcc is here"
    source = str(HERE / "first_gpu_copies.c")
    return [
        Step("30-copies-build", 30, ["gcc", "-O2", "-Wall", "-o", program, source, "-ldl"], needs=lacks),
        Step("31-copies", 60, [program, size], needs=lacks),
    ]


@contextlib.contextmanager
def engine(folder: Path, day: Day, lacks: str) -> Iterator[dict[str, str]]:
    """The environment of a client of the reference engine over loopback, whose server has this machine's GPUs."""
    if lacks:
        yield {}
        return
    token, port = folder / "token", folder / "port"
    token.touch(0o600)
    token.write_text(os.urandom(32).hex())
    words = [str(folder / "bin/elastic-ai-refserver"), "--bind", "127.0.0.1", "--allow", "127.0.0.1"]
    words += ["--port-file", str(port), "--token-file", str(token)]
    with (day.out / "40-server.err").open("wb") as said:
        server = subprocess.Popen(
            words, env=day.environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
        )
        try:
            until = time.monotonic() + 20
            while not port.exists() and server.poll() is None and time.monotonic() < until:
                time.sleep(0.05)
            yield (
                {}
                if not port.exists()
                else {
                    "LD_LIBRARY_PATH": str(folder / "lib"),
                    "ELASTIC_AI_SERVERS": f"127.0.0.1:{port.read_text().strip()}",
                    "ELASTIC_AI_TOKEN_FILE": str(token),
                }
            )
        finally:
            _end(server)


def engines(folder: Path, day: Day, emulated: bool) -> None:
    """Copies and training natively and by the engine over loopback, in turns."""
    lacks = "" if shutil.which("gcc") else "no gcc is here"
    build = "from pathlib import Path; import sys; from toolkit.engine import build; "
    build += "build.compile_engine(Path(sys.argv[1]), build.default_release())"
    made = day.run(Step("40-engine-build", 90, [sys.executable, "-c", build, str(folder)], needs=lacks))
    lacks = lacks or ("" if made.outcome == "ended well" else "the engine was not built")
    with engine(folder, day, lacks) as remote:
        lacks = lacks or (
            ""
            if remote
            else f"the engine's server did not start: {_last((day.out / '40-server.err').read_text(errors='replace'))}"
        )
        copies = [sys.executable, "-m", "toolkit.lease.programs.copybench", "--json"]
        small = [*copies, "--bytes", str(SMALL["largest_bytes"])] if emulated else copies
        train = [sys.executable, "-m", "toolkit.lease.programs.train", "--json", "--costs", "--gpus", "1"]
        for turn in (1, 2):
            ways = [("native", {}, ""), ("remote", remote, lacks)]
            for way, environment, needs in ways if turn == 1 else ways[::-1]:
                day.run(Step(f"41-copies-{way}-{turn}", 60, small, environment, needs))
                for batch in BATCHES[:1] if emulated else BATCHES:
                    words = [*train, "--steps", str(STEPS // 20 if emulated else STEPS), "--batch", str(batch)]
                    day.run(Step(f"42-train-{way}-{batch}-{turn}", 60, words, environment, needs))


def by_torch(day: Day) -> list[Step]:
    """Compute, load and training by PyTorch, where a Python of this machine has it, which is looked for while there is
    time."""
    from toolkit.here import find_torch, interpreters
    from validation.measures.compute.gpu_rates import shapes
    from validation.probes.deepbench import LISTS

    in_time = day.left() >= LEAST_S
    version, python = find_torch(interpreters()) if in_time else ("", "")
    needs = "" if version else "no PyTorch is here" if in_time else "no time was left"
    lists = {"lists": list(LISTS), "precisions": ["fp32", "tf32", "bf16", "fp16", "fp8"], "most": 12}
    rest = {"sustained": list(shapes()), "least_s": 0.02, "batches": 3, "exact": 5, "python": python, "anyway": True}
    burn = {"seconds": 20, "python": python, "anyway": True}
    asked = {"gpu-compute": (120, {**lists, **rest}), "burn-in": (70, burn)}
    steps = [probe(kind, limit, given) for kind, (limit, given) in asked.items()]
    found = [replace(step, name=step.name.replace("20-", "70-"), needs=needs) for step in steps]
    return [*found, Step("71-training", 300, [*INSPECT, "--suite", "training"], needs=needs, codes=JUDGED)]


def product() -> list[Step]:
    """What judges: the product's own commands."""
    return [
        Step("60-inspection", 150, INSPECT, codes=JUDGED),
        Step("61-remoting", 240, [*INSPECT, "--suite", "remoting"], codes=JUDGED),
    ]


def compared(out: Path) -> dict[str, bool]:
    """Of each training by the engine, whether its losses and weights are native's to the bit."""
    found = {}
    for path in sorted(out.glob("42-train-remote-*.out")):
        keys = ("losses", "weights_sha256")
        try:
            remote, native = (
                json.loads(one.read_text()) for one in (path, path.with_name(path.name.replace("remote", "native")))
            )
            found[path.stem] = all(remote[key] == native[key] for key in keys)
        except (OSError, ValueError, KeyError):
            continue
    return found


def summary(day: Day, began: str, emulated: int) -> None:
    """For a machine and to read."""
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    head = {
        "began": began, "ended": _now(), "commit": commit or None, "python": platform.python_version(),
        "kernel": platform.release(), "emulated_gpus": emulated, "bits_of_native": compared(day.out),
    }  # fmt: skip
    (day.out / "summary.json").write_text(json.dumps({**head, "steps": [asdict(one) for one in day.done]}, indent=1))
    lines = [f"first minutes with a GPU, {began}, commit {commit or 'unknown'}"]
    if emulated:
        lines.append(f"EMULATED GPUs ({emulated}): they show that the steps work, and prove no figure")
    lines += [
        f"{name}: losses and weights {'are' if same else 'are NOT'} native's"
        for name, same in compared(day.out).items()
    ]
    lines += [f"{d.name:28} {d.outcome}{f': {d.why}' if d.why else ''}  {d.seconds} s" for d in day.done]
    (day.out / "summary.txt").write_text("\n".join(lines) + "\n")


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def everything(day: Day, folder: Path, emulated: bool) -> None:
    """All steps in their order."""
    for step in [*words_of_the_machine(), *documents(emulated), *other_copies(folder, emulated)]:
        day.run(step)
    engines(folder, day, emulated)
    for steps in (lambda: product(), lambda: by_torch(day)):
        for step in steps():
            day.run(step)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="for all steps together (default 10)")
    parser.add_argument("--out", type=Path, help="folder for the records (default: first-gpu-TIME)")
    parser.add_argument("--emulated", type=int, default=0, metavar="GPUS", help="on so many emulated GPUs")
    given = parser.parse_args()
    if not 0 < given.minutes < math.inf:
        parser.error("--minutes: a number of more than 0 is wanted")
    began = _now()
    out: Path = given.out or Path(f"first-gpu-{began.replace(':', '-')[:19]}Z")
    if out.exists() and any(out.iterdir()):
        parser.error(f"--out {out}: it is not empty; name a new folder")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="eai-first-gpu-") as scratch:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "LC_ALL": "C", "LANGUAGE": ""}
        if given.emulated:
            from gpu_probe import emulated

            devices = Path(scratch) / "devices"
            devices.mkdir()
            environment |= emulated(devices, given.emulated)
        day = Day(out.resolve(), 60 * given.minutes, environment)
        code = 0
        try:
            everything(day, Path(scratch), bool(given.emulated))
        except KeyboardInterrupt:
            print("\ninterrupted; what ran is kept", flush=True)
            code = 130
        finally:
            summary(day, began, given.emulated)
    print(f"records: {out}/summary.txt")
    if code:
        return code
    if day.done[0].code == NO_DRIVER:
        return 2
    outcomes = {one.outcome for one in day.done}
    return int(bool(outcomes & {"failed", "reached its limit"}) or "ended well" not in outcomes)


if __name__ == "__main__":
    sys.exit(main())
