"""The page of the pool with 200 GPUs, 150 jobs and 300 that wait: first answer, delay of an end, memory, questions.

    python benchmarks/pool_page.py [--watchers 0 50 500]

The real server in a process of its own, over TLS on loopback; Slurm's answers are made up and cost nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.support.page_pool import Client, free_port
from toolkit.page.http import BASE

ROOT = Path(__file__).parents[1]


async def watcher(port: int, context: ssl.SSLContext, address: str, heard: list[float], ready: asyncio.Event) -> None:
    """A watcher that notes when it hears of each change after the first."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, limit=1 << 22, local_addr=(address, 0)
    )
    writer.write(f"GET {BASE}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    first = True
    async for line in reader:
        if line.startswith(b"data: "):
            if first:
                ready.set()
            else:
                heard.append(time.monotonic())
            first = False


async def latencies(port: int, count: int, events: str) -> tuple[list[float], int]:
    """Seconds from announcements of ends to each watcher, and how many watched."""
    context = Client(port).context
    heard: list[float] = []
    readies = [asyncio.Event() for _ in range(count)]
    # Of a hundred addresses, for one alone cannot have all that watch.
    addresses = [f"127.0.1.{n % 100 + 1}" for n in range(count)]
    tasks = [
        asyncio.create_task(watcher(port, context, address, heard, ready))
        for address, ready in zip(addresses, readies, strict=True)
    ]
    await asyncio.gather(*(asyncio.wait_for(ready.wait(), 120) for ready in readies))
    spans: list[float] = []
    for number in range(1001, 1006):
        heard.clear()
        began = time.monotonic()
        subprocess.run(
            ["logger", "--socket", events, "-d", "--socket-errors=off", "-t", "pool", "--", f"end {number}"], check=True
        )
        while len(heard) < count and time.monotonic() - began < 30:
            await asyncio.sleep(0.005)
        spans += [when - began for when in heard[:count]]
        await asyncio.sleep(3)
    for task in tasks:
        task.cancel()
    return spans, count


def memory_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def main() -> None:
    """Measure, and print one JSON line for each number of watchers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--watchers", type=int, nargs="*", default=[0, 50, 500])
    for count in parser.parse_args().watchers:
        with tempfile.TemporaryDirectory() as name:
            port = free_port()
            command = [sys.executable, "-m", "tests.support.page_pool", name, str(port)]
            process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
            client, until = Client(port), time.monotonic() + 60
            while True:
                try:
                    if json.loads(client.get("/pool.json"))["gpus"]:
                        break
                except OSError:
                    if time.monotonic() > until:
                        raise
                time.sleep(0.1)
            began = time.monotonic()
            answers = []
            for _ in range(10):
                start = time.monotonic()
                size = len(client.get("/"))
                answers.append(time.monotonic() - start)
            spans, _ = asyncio.run(latencies(port, count, f"{name}/events")) if count else ([], 0)
            left = 60 - (time.monotonic() - began)
            time.sleep(max(0.0, left))
            times = [float(line) for line in Path(name, "asked").read_text().splitlines()]
            asked = max(sum(start <= when < start + 60 for when in times) for start in times)
            print(
                json.dumps(
                    {
                        "watchers": count,
                        "page_bytes": size,
                        "page_median_s": round(statistics.median(answers), 4),
                        "end_to_watcher_median_s": round(statistics.median(spans), 3) if spans else None,
                        "end_to_watcher_most_s": round(max(spans), 3) if spans else None,
                        "memory_mib": round(memory_mib(process.pid), 1),
                        "asked_most_in_a_minute": asked,
                    }
                ),
                flush=True,
            )
            process.terminate()
            process.wait(20)


if __name__ == "__main__":
    main()
