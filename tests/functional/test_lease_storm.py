"""The clients of a storm of leases, before a `toolkit` that only says what the real one does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import lease_storms

pytestmark = pytest.mark.engines

TOOLKIT = """#!/bin/sh
echo "100 MiB: you get 1989 of 5040 shards, 101 MiB" >&2
echo "lease 40: only some of its parts could start; it is released and requested again" >&2
echo "lease 41: 1/2 of gpu1:0, gpu2:0-1 (emulated devices: not a GPU's figures)" >&2
[ -z "$SBATCH_ACCOUNT" ] || echo "as $SBATCH_ACCOUNT" >&2
sleep 0.2
echo "lease 41 has ended: a job of higher priority needs its GPUs" >&2
echo "a program's last word" >&2
echo "and one more" >&2
exit 143
"""


def storm(tmp_path: Path, *words: int) -> list[dict[str, object]]:
    for name, text in {"runuser": '#!/bin/sh\nshift 3\n"$@"\n', "toolkit": TOOLKIT, "scancel": "#!/bin/sh\n"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    program = [sys.executable, lease_storms.SUPPORT / "lease_storm.py", *map(str, words)]
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(program, env=env, capture_output=True, text=True, check=True, timeout=60)
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


def test_what_a_client_is_told_that_it_has_is_kept(tmp_path: Path) -> None:
    outcomes = storm(tmp_path, 6, 6, 1, 60, 1)
    assert len(outcomes) == 6
    for one in outcomes:
        assert (one["lease"], one["where"], one["code"], one["shards"]) == (41, "1/2 of gpu1:0, gpu2:0-1", 143, 1989)
        assert lease_storms.preempted(one)
        assert 0 < float(str(one["from_s"])) <= float(str(one["until_s"]))
        assert one["urgent"] is (one["user"] == "alice")
    assert storm(tmp_path, 6, 6, 1, 0, 0) == []  # no time for any
