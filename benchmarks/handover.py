"""How long it takes from a verdict to a verified bundle: the commands at the end of bin/rehearse, one by one.

    .venv/bin/python benchmarks/handover.py RUN [--repeat 3]

Works on a copy of a judged run, without its signatures and reports and with a cache of its own, so that nothing of
before helps. Prints wall and CPU seconds of each command, median of the repeats, as one JSON document. `report` stands
for what `toolkit validate` does after judging; the handover is the rest.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BIN = Path(sys.executable).parent
HANDOVER = ("sign", "bundle", "verify")
MADE = ("report.*", "junit.xml", "metrics.prom", "signatures", "MANIFEST.sha256", "README.txt", ".lock")


def timed(*words: str | Path, cache: Path) -> tuple[float, float]:
    """Wall and CPU seconds of a toolkit command that must succeed."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [str(word) for word in (BIN / "toolkit", *words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "XDG_CACHE_HOME": str(cache)})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - began, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def once(source: Path) -> dict[str, tuple[float, float]]:
    """All commands on a fresh copy."""
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        run, key = room / source.name, room / "key"
        shutil.copytree(source, run, ignore=shutil.ignore_patterns(*MADE))
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        (room / "signers").write_text(f"a@example.com {key.with_suffix('.pub').read_text()}")
        cache = room / "cache"
        return {
            "report": timed("report", run, cache=cache),
            "sign": timed("sign", run, "--key", key, "--as", "A. Example, Example AG", cache=cache),
            "bundle": timed("bundle", run, cache=cache),
            "verify": timed("verify", room / f"{source.name}.zip", "--allowed-signers", room / "signers", cache=cache),
        }


def main() -> None:
    """Print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    found = [once(args.run) for _ in range(args.repeat)]

    def median(names: tuple[str, ...], which: int) -> float:
        return round(statistics.median(sum(each[name][which] for name in names) for each in found), 1)

    parts = {name: (name,) for name in found[0]} | {"handover": HANDOVER}
    figures = {what: {"wall_s": median(names, 0), "cpu_s": median(names, 1)} for what, names in parts.items()}
    print(json.dumps({"repeats": args.repeat, "load": round(os.getloadavg()[0], 1), **figures}, indent=2))


if __name__ == "__main__":
    main()
