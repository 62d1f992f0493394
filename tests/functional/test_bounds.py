"""Whatever a node, a tool or a file says without an end: a bound, one clear error, and nothing runs on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.local_launcher import LocalLauncher, execute
from tests.support.node_modules import ROOT, load
from tests.support.run_case import only, plan, processes_of, topology
from validation.base import bounded
from validation.execute import Remote, measure, remote
from validation.probes import tool

MOST = 1 << 20
ENDLESS = "import sys\nwhile True: {stream}.write('x' * 65535 + chr(10))"


class Endless(LocalLauncher):
    """gpu1's probe prints without an end; it does not look at its stdin."""

    def __init__(self, stream: str) -> None:
        super().__init__()
        self.code = ENDLESS.format(stream=f"sys.{stream}")

    async def start(self, node: str, probe: Sequence[str]) -> Remote:
        if node != "gpu1":
            return await super().start(node, probe)
        found = await Remote.spawn(node, [sys.executable, "-c", self.code], what=remote.named(probe), most=MOST)
        self.running.append(found)
        return found


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_probe_that_prints_without_an_end_costs_itself(
    stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "STOP_TIMEOUT_S", 0.2)
    topo = topology(2)
    launcher = Endless(stream)
    results = execute(tmp_path, only(plan(topo), "facts.gpu1", "facts.gpu2"), topo, launcher).results
    assert results["facts.gpu2"].status == "ok"
    bad = results["facts.gpu1"]
    assert (bad.status, bad.error) == (
        "failed", f"gpu1: the probe facts printed more than 1 MiB on {stream} and was ended",
    )  # fmt: skip
    assert processes_of(launcher.code[:40]) == []
    logs = [tmp_path / log.path for log in bad.provenance.raw]
    assert 0 < sum(log.stat().st_size for log in logs) < 2 * MOST + (1 << 17), "what is kept has a bound too"


def test_a_connection_whose_login_prints_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "STOP_TIMEOUT_S", 0.2)

    async def work() -> tuple[object, str]:
        found = await Remote.spawn("gpu1", ["yes", '{"ready": 1}'], what="its login", most=MOST)
        first = await asyncio.wait_for(found.first_document(), 60)
        return first, (await found.stop()).fault

    assert asyncio.run(work()) == (None, "its login printed more than 1 MiB on stdout and was ended")


def test_the_end_of_a_pipe_that_nobody_read_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise asyncio of older Pythons prints at the end that its exception was never retrieved."""
    asked: list[str] = []

    async def work() -> None:
        found = await Remote.spawn("gpu1", ["sh", "-c", """echo '{"ready": 1}'; sleep 1"""])
        assert await asyncio.wait_for(found.first_document(lambda _: True), 60) is not None
        pipe = found._process.stdin
        assert pipe is not None
        closed = pipe.wait_closed

        async def wait_closed() -> None:
            try:
                await closed()
            except OSError as fault:
                asked.append(type(fault).__name__)
                raise

        monkeypatch.setattr(pipe, "wait_closed", wait_closed)
        pipe.write(b"x" * MOST)  # more than the pipe takes
        await found.stop()

    asyncio.run(work())
    assert asked in (["BrokenPipeError"], ["ConnectionResetError"])


def test_a_command_that_prints_without_an_end_is_ended_and_named() -> None:
    with pytest.raises(bounded.TooMuch, match=r"^gpu7: yes printed more than 1 MiB on stdout and was ended"):
        bounded.run(["yes", "bound-of-yes"], most=MOST, where="gpu7")
    with pytest.raises(bounded.TooMuch, match="on stderr"):
        bounded.run(["sh", "-c", "exec yes bound-of-yes >&2"], most=MOST)
    assert processes_of("bound-of-yes") == []


def test_a_command_within_its_bound_is_as_subprocess_has_it() -> None:
    done = bounded.run(["sh", "-c", "cat; echo err >&2; exit 3"], stdin=b"x" * 300_000)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"x" * 300_000, b"err\n")
    assert bounded.run(["true"], stdin=b"x" * 300_000).returncode == 0, "nobody reads what it is given"
    assert bounded.run(["sh", "-c", "printf %s 12345678"], most=8).stdout == b"12345678", "the bound itself is allowed"
    with pytest.raises(subprocess.TimeoutExpired):
        bounded.run(["sleep", "77.5"], timeout=0.2)
    with pytest.raises(FileNotFoundError):
        bounded.run(["/nowhere/at-all"])
    assert processes_of("sleep", "77.5") == []


def test_a_file_without_an_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 11)
    assert bounded.read_file(tmp_path / "a", 11) == b"x" * 11
    with pytest.raises(bounded.TooMuch, match="a: has more than 10 bytes"):
        bounded.read_file(tmp_path / "a", 10)
    with pytest.raises(bounded.TooMuch, match=r"/dev/zero: has more than 1 MiB"):
        bounded.read_file(Path("/dev/zero"), MOST)


def test_a_silent_probe_is_told_with_the_time_that_it_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figure is what was waited, and one end alone does not wait for another one to get ready."""
    clock = iter((1000.0, 1142.0))
    waits: list[float] = []
    wait_for = asyncio.wait_for

    async def noted(what: object, limit_s: float) -> object:
        waits.append(limit_s)
        return await wait_for(what, 0.2 if len(waits) == 1 else limit_s)  # type: ignore[arg-type]

    class Silent(LocalLauncher):
        async def start(self, node: str, probe: Sequence[str]) -> Remote:
            found = await Remote.spawn(node, ["cat"])
            self.running.append(found)
            return found

    monkeypatch.setattr(measure, "monotonic", lambda: next(clock))
    monkeypatch.setattr(measure.asyncio, "wait_for", noted)
    topo = topology(1)
    whole = only(plan(topo), "facts.gpu1")
    limit_s = whole.measurements[0].timeout_s
    result = execute(tmp_path, whole, topo, Silent()).results["facts.gpu1"]
    assert result.status == "timeout"
    assert result.error == f"no end and no answer from gpu1 in 142 s; its limit was {limit_s:g} s"
    assert waits[0] == limit_s + measure.LATE_S


def test_a_tool_that_prints_without_an_end_is_ended_on_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "MOST_BYTES", MOST)
    ran = tool.run_tool(["sh", "-c", "yes bound-of-a-tool & yes bound-of-a-tool"])
    assert len(ran.stdout) <= MOST
    assert ran.failure == "sh ended with signal 9: sh printed more than 1 MiB and was ended"
    assert processes_of("bound-of-a-tool") == []
    assert tool.run_tool(["sh", "-c", "printf out; printf err >&2; exit 4"])[1:] == (4, "out", "err")
    late = tool.run_tool(["sleep", "78.5"], timeout_s=0.2)
    assert (late.returncode, late.stdout) == (-9, "")
    closed = tool.run_tool(["sh", "-c", "exec >&- 2>&-; exec sleep 79.5"], timeout_s=0.2)
    assert closed.returncode == -9


@pytest.mark.parametrize("program", ["roles/monitoring/files/pool_metrics.py", "roles/slurm/files/pool_sync.py"])
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_an_answer_of_slurm_without_an_end_is_ended_on_the_head(
    program: str, stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "roles/monitoring/files"))
    module = load(program)
    (tmp_path / "endless").write_text(f"#!/bin/sh\nexec yes bound-of-slurm {'>&2' if stream == 'stderr' else ''}\n")
    (tmp_path / "endless").chmod(0o755)
    monkeypatch.setattr(module, "MOST_BYTES", MOST)
    with pytest.raises((subprocess.CalledProcessError, getattr(module, "Refused", OSError))) as fault:
        module.ask(str(tmp_path / "endless"))
    assert "printed more than 1 MiB and was ended" in f"{fault.value} {getattr(fault.value, 'stderr', '')}"
    assert module.ask("printf", "a\nb\n") == ["a", "b"]
    assert processes_of("bound-of-slurm") == []
