"""How a rank of a training ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
RANK = """
import atexit, multiprocessing, os, time
from validation.probes import train_cnn, train_long, train_world
assert train_cnn.leave is train_long.leave is train_world.leave
atexit.register(os.abort)
multiprocessing.Process(target=time.sleep, args=(60,)).start()
print("measured")
train_world.leave(train_world.Alone())
"""


def test_what_fails_while_the_interpreter_ends_costs_no_result() -> None:
    """Nothing of torch's own end comes to run, and nobody who reads pictures stays."""
    words = [sys.executable, "-c", RANK]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (0, "measured\n"), done.stderr
