"""Noise of login files on every way to a node, over a real sshd: what is ours is found, whatever stands beside it."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.run_case import Quiet, only, plan, topology
from tests.support.sshd import NEEDED, host_line, serving
from validation.execute import Remote, SshLauncher, run_plan, ssh
from validation.execute.ssh import is_anchor
from validation.model import Topology

pytestmark = NEEDED
PORT = 15326
NOISE = {
    "line, then a pause": "echo Agent pid 59; sleep 0.4",
    "pause between two lines": "echo one; sleep 0.3; echo two; sleep 0.3",
    "no end of line": "printf 'Agent pid 59'",
    "braces": "echo '{}'; echo '[1]'; printf '{\"a\":'; sleep 0.2",
    "an object of somebody else's": """echo '{"level": "info", "msg": "hello", "kind": "motd"}'; sleep 0.3""",
    "an object that is nearly ours": """echo '{"ready": false}'; echo '{"denied": {}}'; sleep 0.2""",
    "escapes and a BOM": r"printf '\033]0;title\007\033[1;31mhello\033[0m'; sleep 0.2; printf '\357\273\277'",
    "carriage returns": r"printf 'motd\r\nmore\r'; sleep 0.2",
    "warnings on stderr": "echo 'bash: warning: setlocale: LC_ALL: cannot change locale (xx_XX)' >&2; sleep 0.2",
    "beside and after the answer": "(for i in 1 2 3 4 5 6 7 8 9; do echo tick; echo '{}'; sleep 0.2; done) &",
}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """An sshd that is noisy at each address in another way: each command runs after lines of a login file."""
    with tempfile.TemporaryDirectory(prefix="elastic-ai-test-") as name:
        path = Path(name)
        more, addresses = "PasswordAuthentication no\nMaxSessions 20\n", []
        for at, words in enumerate(NOISE.values(), 2):
            program = path / f"noisy{at}"
            program.write_text(f'#!/bin/sh\n{words}\neval "$SSH_ORIGINAL_COMMAND"\n')
            program.chmod(0o755)
            more += f"Match LocalAddress 127.0.0.{at}\nForceCommand {program}\n"
            addresses.append(f"127.0.0.{at}")
        with serving(path, PORT, addresses, more):
            (path / "known_hosts").write_text(host_line(path, [f"[{address}]:{PORT}" for address in addresses]))
            yield path


def site(folder: Path) -> Topology:
    extra = ("-o", f"UserKnownHostsFile={folder / 'known_hosts'}", "-o", "StrictHostKeyChecking=yes")
    return topology(len(NOISE), port=PORT, key_file=str(folder / "user"), extra_args=extra)


def test_a_noisy_node_is_reached_and_measured(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "PROBE_PYTHON", sys.executable)
    topo = site(folder)
    whole = only(plan(topo), *(f"facts.gpu{at}" for at in range(1, len(NOISE) + 1)))
    progress = Quiet()

    async def work() -> None:
        launcher = SshLauncher("inventories/test")
        try:
            assert await launcher.connect(topo.nodes) == {}
            await run_plan(whole, topo, launcher, tmp_path, progress)
        finally:
            await launcher.close()

    asyncio.run(work())
    found = {noise: progress.results[f"facts.gpu{at}"] for at, noise in enumerate(NOISE, 1)}
    assert {noise: (result.status, result.error) for noise, result in found.items()} == dict.fromkeys(
        NOISE, ("ok", None)
    )
    assert all(result.denied for result in found.values()), "the supervisor's last line is found too"


ANCHOR = {"ready": True, "probes_sha256": "f" * 64}


@pytest.mark.parametrize(
    "script",
    [
        "echo Agent pid 1; echo '{ours}'",
        "echo Agent pid 1; sleep 0.3; echo '{ours}'",
        "printf '%s' '{first}'; sleep 0.3; echo '{rest}'",
        "echo '{ours}'; printf half",
        "echo '{{}}'; sleep 0.2; echo '{{\"ready\": true}}'; sleep 0.2; echo '{ours}'; exec sleep 60",
        r"printf '\033[0m\357\273\277%s\033[0m\r\n' '{ours}'",
        "printf '%s' '{ours}'",
    ],
)
def test_the_first_document_is_the_first_that_is_ours(script: str) -> None:
    ours = json.dumps(ANCHOR)

    async def work() -> object:
        words = script.format(ours=ours, first=ours[:9], rest=ours[9:])
        remote = await Remote.spawn("gpu1", ["sh", "-c", f"exec 2>/dev/null; {words}"])
        try:
            return await asyncio.wait_for(remote.first_document(is_anchor), 20)
        finally:
            remote._kill()
            await remote.finish()

    assert asyncio.run(work()) == ANCHOR


def test_what_never_answers_says_the_line_that_tells_why() -> None:
    target = site(Path("/nowhere")).nodes[0].ssh
    said = b"mkdir: cannot create directory: Permission denied\nsudo: a password is required\n"
    assert "needs sudo without a password" in ssh.explain(target, ssh.Output(1, b"", said), "i")
    said = b"Load key: welcome\nsudo: unable to resolve host gpu1\nquota exceeded\nbash: warning: setlocale: LC_ALL\n"
    assert ssh.explain(target, ssh.Output(1, b"", said), "i") == "cannot be used (ssh: quota exceeded)"
    said = f"+ exec {ssh.PROBE_PYTHON} -I -m validation.probes anchor\nsudo: a password is required\n".encode()
    assert "needs sudo without a password" in ssh.explain(target, ssh.Output(1, b"", said), "i")
    closed = ssh.Output(0, b"\x1b[1mThis account is currently not available.\x1b[0m\n", b"")
    assert "This account is currently not available." in ssh.explain(target, closed, "i")
    missing = f"bash: line 1: {ssh.PROBE_PYTHON}: No such file or directory\n".encode()
    assert "probes are not installed" in ssh.explain(target, ssh.Output(127, b"", missing), "i")
