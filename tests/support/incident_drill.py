"""From a fault to the drain, over the faults that a lab can plant on GPU servers.

    python -m tests.support.incident_drill --lab NAME --inventory DIR --runs DIR [--without KIND ...]

`toolkit incidents --do drain` watches meanwhile. Each GPU fault is planted on gpu1 by itself, and waited for at most
90 s; gpu-lost and gpu-xid happen while a program of alice on client1 copies through a lease of all GPUs of gpu1, and
their time counts from the moment at which its CUDA call failed. Those that are no reason for a drain, of GPUs and of
nodes, are on gpu2 meanwhile, one after the other. One JSON line for each fault, and one with the counts. The GPUs are
emulated.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from tests.support.power_cuts import BIN, Site
from toolkit.lab import lab as labs
from validation.base.project import ROOT

SICK = ("ecc", "gpu-missing", "gpu-lost", "gpu-xid")
"""Of these the GPU is reset or a part is replaced."""
AT_WORK = ("gpu-lost", "gpu-xid")
"""They come with a program's work alone."""
FAILED = "/tmp/drill-failed"
WORK = f"""cd /; rm -f {FAILED}
runuser -u alice -- toolkit run --no-kernels -l gpu1 -n 4 -- sh -c '
  while elastic-ai-copybench --bytes 64K --latency-count 20; do :; done; date +%s.%N > {FAILED}' \\
  > /tmp/drill-said 2>&1 &
disown -a"""
WELL = (
    "gpu-illegal", "ecc-off", "throttled", "pcie-x8", "nvlink-missing", "fabric-unready", "no-persistence",
    "gpu-exclusive", "slow-gpu", "disk-full", "wrong-time-zone", "nccl-pinned", "reboot-waits", "unit-failed",
)  # fmt: skip
WAIT_S, WORKS_S = 90.0, 240.0


def drained(site: Site) -> dict[str, str]:
    """Servers that incidents have drained."""
    return {name: why for name, why in site.out_of_work().items() if "toolkit incidents" in why}


def main() -> None:
    """All of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("lab", "inventory", "runs"):
        parser.add_argument(f"--{name}", required=True, type=str if name == "lab" else Path)
    parser.add_argument("--without", action="append", default=[], choices=(*SICK, *WELL))
    given = parser.parse_args()
    site = Site(given.lab, given.inventory, given.runs, Path(), given.runs)
    words = [str(BIN / "toolkit"), "incidents", "-i", str(given.inventory), "--do", "drain", "--most", "50"]
    with tempfile.TemporaryDirectory() as state:
        env = {**os.environ, "XDG_STATE_HOME": state}
        watch = subprocess.Popen(words, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(40)  # two looks at servers that are well
            times, wrong = _drilled(site, tuple(given.without), Path(state))
        finally:
            watch.send_signal(signal.SIGINT)
            watch.wait(60)
    counts = {"drained": len(times), "of": len([k for k in SICK if k not in given.without])}
    print(json.dumps({**counts, "longest_s": max(times, default=0.0), "wrongly": sorted(wrong)}))


def _drilled(site: Site, without: tuple[str, ...], state: Path) -> tuple[list[float], set[str]]:
    times, wrong, well = list[float](), set(drained(site)), iter([kind for kind in WELL if kind not in without])
    for kind in (kind for kind in SICK if kind not in without):
        if other := next(well, ""):
            site.fault("gpu2", other)
        site.fault("gpu1", kind)
        began = _at_work(site) if kind in AT_WORK else time.monotonic()
        while not (why := _out(site)) and time.monotonic() - began < WAIT_S:
            time.sleep(1)
        took = round(time.monotonic() - began, 1)
        found = {"fault": kind, "drained_after_s": took if why else None, "beside": other, "gpu1": why}
        print(json.dumps(found), flush=True)
        times += [took] if why else []
        wrong |= set(drained(site)) - {"gpu1"}
        for node in ("gpu1", "gpu2"):
            site.fault(node)
        time.sleep(20)  # a look at servers that are well again
        for path in state.rglob("gpu*.json"):
            path.unlink()
        site.head("scontrol update nodename=gpu1 state=resume; true")
        if kind in AT_WORK:
            time.sleep(15)  # what its lease leaves is gone
    for kind in well:
        site.fault("gpu2", kind)
        time.sleep(35)  # two looks
        wrong |= set(drained(site)) - {"gpu1"}
        print(json.dumps({"fault": kind, "drained": drained(site)}), flush=True)
        site.fault("gpu2")
    return times, wrong


def _out(site: Site) -> str:
    """Why gpu1 takes no work any more: by incidents, or by its own Epilog, which a lease's end runs first."""
    why = site.out_of_work().get("gpu1", "")
    return why if "drain" in why else ""


def _at_work(site: Site) -> float:
    """A program that copies until a call of CUDA fails; the moment of that. OSError where none failed."""
    words = [*labs.ssh_words(site.spec, site.spec.node("client1"))]
    subprocess.run([*words, f"bash -c {shlex.quote(WORK)}"], check=True, timeout=60)
    look = f"cat {FAILED}; date +%s.%N"
    deadline = time.monotonic() + WORKS_S
    while time.monotonic() < deadline:
        done = subprocess.run([*words, look], capture_output=True, text=True, check=False, timeout=60)
        now = time.monotonic()
        if len(found := done.stdout.split()) == 2:
            return now - (float(found[1]) - float(found[0]))
        time.sleep(0.5)
    said = subprocess.run([*words, "cat /tmp/drill-said"], capture_output=True, text=True, check=False).stdout
    raise OSError(f"no call of CUDA failed within {WORKS_S:.0f} s: {said[-500:]}")


if __name__ == "__main__":
    main()
