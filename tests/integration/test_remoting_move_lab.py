"""On a provisioned lab, whose policy lets one class take GPUs back: a GPU changes hands under a program."""

from __future__ import annotations

import json
import shlex
import subprocess

import pytest
from conftest import ROOT, Lab

from toolkit.lab import lab as labs
from toolkit.lab.inventory import POOL
from validation.kinds import parse
from validation.measures.remoting.move import MoveFacts
from validation.measures.remoting.plan import MOVE_VIRTUAL, SAFE_S

pytestmark = [pytest.mark.usefixtures("quiet"), pytest.mark.rest]
GRACE_S = POOL["preemption"]["grace_s"]
KNOWN = {"server": "gpu1", "elsewhere": "gpu2", "safe_s": SAFE_S}
KNOWN |= dict(zip(("batch", "inputs", "hidden", "pace_ms", "steps"), MOVE_VIRTUAL, strict=True))


def probed(lab: Lab) -> dict[str, object]:
    """What the probe says on the client, which is sent there for it and taken away again."""
    spec = labs.load(lab.name)
    there = labs.ssh_words(spec, spec.node("client1"))
    asked = shlex.quote(json.dumps({**KNOWN, "limit_s": 300.0}))
    run = f"cd $(mktemp -d) && tar x && python3 -m validation.probes remoting-move {asked}"
    run += "; code=$?; rm -r $PWD; exit $code"
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "validation").rglob("*.py")]
    packed = subprocess.run(["tar", "c", *files], cwd=ROOT, capture_output=True, check=True).stdout
    done = subprocess.run([*there, run], input=packed, capture_output=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, object] = json.loads(done.stdout.splitlines()[0])
    return found


def test_a_gpu_changes_hands_under_a_program_that_trains(pool: Lab) -> None:
    document = probed(pool)
    assert document["error"] is None
    _, facts = parse("remoting-move", document, KNOWN)  # type: ignore[arg-type]
    assert isinstance(facts, MoveFacts)
    assert facts.unmade == ""
    assert facts.wrong() == []
    it = facts.moved
    assert it is not None
    assert (it.gave, it.took, it.grace_s, it.elsewhere, it.steps_lost) == ("everyday", "urgent", GRACE_S, True, 0)
    assert it.gone_s < GRACE_S, "it ended by itself, and not by the end of its grace"
