"""A notebook server by the engine torch, on a real agent's lease: who reaches it, and what is left of it. Agent,
engine, JupyterLab and its kernels are real, on loopback; test_notebooks_browser.py has what its user does."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.functional.test_lease_agent import start  # noqa: F401 - a fixture
from tests.support import jupyter_env, lease_forms, torch_engine
from tests.support.lease_agents import Start
from tests.support.torch_engine import wait_until
from tests.support.torch_env import ROOT, plain_environment

pytestmark = pytest.mark.engines
#: What `toolkit jupyter` does once it has its lease.
TOOLKIT = """
import sys
from pathlib import Path
from tests.support.lease_host import FakeHost
from toolkit.lease.endpoint import LeaseEndpoint
from toolkit.lease.fields import Fields
from toolkit.lease.kept import folder
from toolkit.lease.notebook import here, request, server, server_python
place, engine, python, saves = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], float(sys.argv[4])
folder.state = lambda: place / "state"
here.SAVES_S = saves
host = FakeHost(folder=place)
object.__setattr__(host, "engine_dir", engine)
end = LeaseEndpoint.read(Fields.in_file(place / "endpoint.json"))
say = lambda words: print(words, file=sys.stderr, flush=True)
found = here.Fit("torch", server_python.Python(python, "jupyterlab"))
sys.exit(here.start(host, [python, server.__file__], [end], say, None,
                    request=request.NotebookRequest(), found=found, folder=place / "work"))
"""
TRAINS = """\
import torch
model = torch.nn.Linear(8, 1).cuda()
steps = torch.optim.SGD(model.parameters(), 0.1)
x, y = torch.ones(4, 8, device="cuda"), torch.zeros(4, 1, device="cuda")
first = None
for step in range(5):
    loss = ((model(x) - y) ** 2).mean()
    steps.zero_grad(); loss.backward(); steps.step()
    first = first or loss.item()
print("trained on", torch.cuda.get_device_name(0), loss.item() < first)
"""
LOOPS = """\
import time
one = torch.ones(4, device="cuda")
print("loops", flush=True)
while True:
    one = one * 1.0
    one.sum().item()
    time.sleep(0.05)
"""


@dataclass
class Toolkit:
    """The command, running."""

    process: subprocess.Popen[str]
    place: Path
    url: str
    listened_s: float

    def said(self) -> str:
        return (self.place / "said").read_text(errors="replace")


def begin(lease: Any, server: torch_engine.Server, place: Path, saves_s: float) -> Toolkit:
    """The notebook server on that lease, as soon as it has printed its URL."""
    release = json.loads((torch_engine.built() / "engine.json").read_text())["release"]
    end = replace(lease.endpoint, engine="torch", release=release, port=server.port, heartbeat_s=1.0, grace_s=60.0)
    (place / "endpoint.json").write_text(end.text())
    (place / "work").mkdir()
    (place / "run").mkdir(mode=0o700)
    own = {"XDG_RUNTIME_DIR": str(place / "run"), "HOME": str(place), "PYTHONPATH": str(ROOT)}
    words = [str(place), str(torch_engine.built()), str(jupyter_env.python()), str(saves_s)]
    began = time.monotonic()
    with (place / "said").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", TOOLKIT, *words], env={**plain_environment(), **own}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=said, text=True, start_new_session=True,
        )  # fmt: skip
    assert process.stdout
    url = process.stdout.readline().strip()
    assert url, (place / "said").read_text()
    return Toolkit(process, place, url, time.monotonic() - began)


@pytest.fixture
def running(
    start: Start,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[tuple[Toolkit, Any]]:
    """request: how long the server stays when its lease has ended, in seconds."""
    monkeypatch.setattr(torch_engine, "TOKEN", lease_forms.TOKEN)
    lease = start(grace_s=60.0, first_s=300.0)
    with torch_engine.server(tmp_path / "server") as server:
        one = begin(lease, server, tmp_path, getattr(request, "param", 15.0))
        yield one, lease
        if one.process.poll() is None:
            os.killpg(one.process.pid, signal.SIGKILL)
        one.process.wait()


def status(url: str, token: str) -> int:
    """Of a request that needs the token."""
    wanted = Request(f"{url.partition('/lab')[0]}/api/contents", headers={"Authorization": f"token {token}"})
    try:
        with urlopen(wanted, timeout=60) as answer:
            return int(answer.status)
    except HTTPError as fault:
        return fault.code


def family(pid: int) -> list[int]:
    """A process and all that came of it."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(line.split()[0]): int(line.split()[1]) for line in listed.splitlines()}
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def test_nobody_gets_in_without_the_token_and_it_is_in_no_argument(running: tuple[Toolkit, Any]) -> None:
    one, lease = running
    token = one.url.partition("token=")[2]
    assert (status(one.url, token), status(one.url, "0" * 48)) == (200, 403)
    kernels = Request(f"{one.url.partition('/lab')[0]}/api/kernels", b"{}", {"Authorization": f"token {token}"})
    with urlopen(kernels, timeout=120) as answer:
        assert answer.status == 201
    pids = family(one.process.pid)
    assert len(pids) >= 3, "the toolkit, the notebook server, a kernel"
    for pid in pids:
        for what in ("cmdline", "environ"):
            assert token.encode() not in Path(f"/proc/{pid}/{what}").read_bytes(), (pid, what)
    assert token not in one.said()
    words = [Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in pids]
    (connection,) = (Path(word) for argv in words for word in argv if re.search(r"/kernel-[^/]+\.json$", word))
    runtime = connection.parent
    assert stat.S_IMODE(runtime.stat().st_mode) & 0o777 == 0o700
    assert stat.S_IMODE(connection.stat().st_mode) & 0o777 == 0o600
    assert json.loads(connection.read_text())["transport"] == "ipc"
    wait_until(lambda: len(list(runtime.glob("kernel-*-ipc-*"))) == 5, "the kernel listens at its sockets", 120)
    url = one.place / "state" / "notebooks" / "41"
    assert (url.read_text(), stat.S_IMODE(url.stat().st_mode)) == (one.url, 0o600)
    lease.due(0.0)
    assert one.process.wait(120) in (0, 128 + signal.SIGTERM), one.said()
    assert "lease 41 has ended: its time is over" in one.said()
    assert not url.exists()
    assert not runtime.exists()
