"""The first run of alice, who knows only `toolkit`: nothing is shared, nothing is set, and it works or says why not."""

from __future__ import annotations

import shlex
import time

import pytest
from conftest import Lab

from tests.support.lease_lab import json_in, run_as, shell

NUMPY = """import numpy
print(int(numpy.arange(4).sum()), file=open("made", "w"))
print("sum", open("made").read().strip())
"""
TORCH = "import torch\nprint('torch sees', torch.cuda.device_count())\n"
HERE = "/home/alice/first"


def first(pool: Lab, words: str, text: str) -> tuple[int, str]:
    """`toolkit run` in a new folder of alice's with this train.py."""
    shell(pool, "client1", f"install -d -o alice {HERE}; cat > {HERE}/train.py <<'END'\n{text}END\n")
    return run_as(pool, "alice", f"sh -c {shlex.quote(f'cd {HERE} && toolkit run {words}')}")


def jobs(pool: Lab) -> str:
    """The number that Slurm gives the next job."""
    return shell(pool, "head", "scontrol show config | grep -i ^NEXT_JOB_ID")


@pytest.mark.usefixtures("nothing_left")
def test_the_first_run_works_where_nothing_is_shared(pool: Lab) -> None:
    """In the site's image, which has what the servers' own Python lacks; the folder goes there and comes back."""
    for words in ("train.py", "-- python train.py"):
        code, out = first(pool, words, NUMPY)
        assert (code, "sum 6" in out.splitlines()) == (0, True), out
        told = out[: out.index("sum 6")].splitlines()
        assert "this folder (" in out
        assert "image training:latest (PyTorch " in out
        assert "has no numpy (train.py:1)" in out
        assert [line for line in told if line.startswith("lease ")], out
        assert shell(pool, "client1", f"cat {HERE}/made; stat -c %U {HERE}/made").split() == ["6", "alice"]
        shell(pool, "client1", f"rm {HERE}/made")
    assert "Exited with exit code" not in out
    code, out = first(pool, "train.py", "print('plain')\nraise SystemExit(7)\n")
    assert (code, "plain" in out, "image" in out, "Exited with" in out) == (7, True, False, False), out


@pytest.mark.usefixtures("nothing_left")
def test_a_program_that_would_see_no_gpu_runs_only_where_processors_are_enough(pool: Lab) -> None:
    code, out = first(pool, "train.py", TORCH)
    assert (code, "PyTorch would see no GPU: " in out, "--cpu-ok" in out) == (2, True, True), out
    code, out = first(pool, "--cpu-ok train.py", TORCH)
    assert (code, "torch sees 0" in out.splitlines()) == (0, True), out


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(
    ("words", "text", "said"),
    [
        ("gone.py", "", f"gone.py: no such file in {HERE}"),
        ("train.py", "import nowhere_at_all\n", "has no nowhere_at_all (train.py:1)"),
        ("-- no-such-program", "", "the server has no program no-such-program"),
        ("--image training -- no-such-program", "", "image training:latest has no program no-such-program"),
        ("-- python3 ../elsewhere.py", "", "is not in this folder"),
    ],
)
def test_what_no_machine_can_run_is_refused_before_anything_is_requested(
    pool: Lab, words: str, text: str, said: str
) -> None:
    shell(pool, "client1", "touch /home/alice/elsewhere.py")
    before, began = jobs(pool), time.monotonic()
    code, out = first(pool, words, text)
    print(f"{words}: refused in {time.monotonic() - began:.1f} s")
    assert (code, said in out, len(out.splitlines())) == (2, True, 1), out
    assert jobs(pool) == before, "a job was submitted"


@pytest.mark.usefixtures("nothing_left")
def test_images_are_listed_with_frameworks_and_servers(pool: Lab) -> None:
    code, out = run_as(pool, "alice", "toolkit images")
    row = next(line for line in out.splitlines() if line.startswith("training "))
    assert (code, "gpu1, gpu2" in row, "torch " in row, "(no GPU)" in row, "(default)" in row) == (0, *[True] * 4), out
    code, out = run_as(pool, "alice", "toolkit images --json")
    found = json_in(out)
    image = next(one for one in found["images"] if one["default"])
    assert (found["schema"], image["servers"], "training:latest" in image["names"]) == (
        "elastic-ai/images/1", ["gpu1", "gpu2"], True,
    )  # fmt: skip
    assert (image["frameworks"]["torch"]["cuda"], image["size_bytes"] > 1 << 20) == (None, True)
