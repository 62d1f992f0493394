"""Notebooks on the lab: a notebook server for alice, and what she does with it."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tests.support import jupyter_env
from tests.support.lease_lab import run_as, shell
from toolkit.lab import lab as labs
from toolkit.lab.frameworks import PYTHON

#: What a newcomer has: it says what it sees.
FIRST = """import torch
print("sees", torch.cuda.device_count(), torch.ones(3, device="cuda").sum().item())
"""
CELL = "import os, socket\nprint('on', socket.gethostname(), 'cells', 6 * 7, os.environ.get('CUDA_VISIBLE_DEVICES'))"
TRAINS = """import torch
w = torch.zeros(8, device="cuda", requires_grad=True)
for _ in range(3):
    loss = ((w - 1) ** 2).sum(); loss.backward()
    w = (w - 0.1 * w.grad).detach().requires_grad_()
print("trained to", round(loss.item(), 2))
"""
LOOPS = (
    "import time\nprint('loops', flush=True)\nwhile True: torch.ones(2, device='cuda').sum().item(); time.sleep(0.05)"
)
WAITS = "import time\nopen('/home/alice/waits', 'w').close()\nwhile True: time.sleep(0.05)\n"
CLIENT = Path(__file__).with_name("notebook_client.py")
#: Shell: an environment of Python with these packages and the lab's PyTorch; packages of one's own.
HERE = """set -e; cd /home/alice; runuser -u alice -- python3 -m venv --without-pip nb
site=$(echo nb/lib/python3.*/site-packages)
tar -x --no-same-owner -C $site; echo {}/lib/$(basename $(dirname $site))/site-packages > $site/torch.pth"""
THERE = """set -e; site=$(runuser -u alice -- python3 -m site --user-site); runuser -u alice -- mkdir -p $site
tar -x --no-same-owner -C $site"""


class Lab(Protocol):
    """A lab, as far as it is needed here."""

    name: str

    def ssh(self, node: str, *command: str) -> str:
        """What the command said on the node."""


def torch_of(lab: Lab) -> str:
    """The environment with PyTorch that nodes have."""
    command = lab.ssh("client1", f"cat /{PYTHON}").split("exec ")[1].split()[0]
    return command.removesuffix("/bin/python")


def in_environment(lab: Lab, script: str) -> tuple[int, str]:
    """As alice who activated the Python that has PyTorch."""
    return run_as(
        lab, "alice", f"env PATH={torch_of(lab)}/bin:/usr/local/bin:/usr/bin:/bin sh -c {shlex.quote(script)}"
    )


@contextmanager
def with_jupyter(lab: Lab) -> Iterator[Lab]:
    """alice has a notebook server: on client1 in an environment with PyTorch, on gpu1 among her own packages."""
    packages = next((jupyter_env.python().parents[1]).glob("lib/python*/site-packages"))
    without = [f"--exclude=./{name}" for name in ("numpy*", "sympy*", "networkx*", "jupyterlab", "babel", "*.pth")]
    pack = ["tar", "-C", str(packages), *without, "-c", "."]
    spec = labs.load(lab.name)
    for node, script in (("client1", HERE.format(torch_of(lab))), ("gpu1", THERE)):
        with subprocess.Popen(pack, stdout=subprocess.PIPE) as packed:
            words = [*labs.ssh_words(spec, spec.node(node)), script]
            subprocess.run(words, stdin=packed.stdout, check=True, timeout=300)
    lab.ssh("client1", f"cat > /home/alice/notebook_client.py <<'END'\n{CLIENT.read_text()}\nEND\n")
    try:
        yield lab
    finally:
        shell(lab, "client1", "systemctl stop 'elastic-ai-kept-*'; rm -r /home/alice/{nb,waits,notebook_client.py}")
        shell(lab, "gpu1", "rm -r /home/alice/.local")


def served(lab: Lab, words: str) -> tuple[int, str]:
    """`toolkit jupyter --detach` of alice: its lease, and its URL."""
    code, out = run_as(lab, "alice", f"env PATH=/home/alice/nb/bin:/usr/bin:/bin toolkit jupyter --detach {words}")
    assert code == 0, out
    (url,) = (line for line in out.splitlines() if line.startswith("http://127.0.0.1:"))
    return int(out.split("toolkit lease release ")[1].split()[0]), url


def cells(lab: Lab, url: str, *lines: tuple[str, ...]) -> list[str]:
    """What a client of that URL does, and the output of each cell."""
    given = "\n".join(json.dumps(line) for line in lines)
    client = f"/home/alice/nb/bin/python3 /home/alice/notebook_client.py '{url}'"
    do = f"{client} <<'END'\n{given}\nEND\n"
    code, out = run_as(lab, "alice", f"bash -c {shlex.quote(do)}")
    assert code == 0, out
    return [json.loads(line) for line in out.splitlines()]
