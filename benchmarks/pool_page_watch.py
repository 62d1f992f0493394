"""Watchers of the pool's page on its own machine, for pool_page_lab.py, which sends it there as text.

    python3 pool_page_watch.py HOST PORT COOKIE WATCHERS USER

Prints `ready`, and then, for each watcher and each time that the page shows USER's GPU taken or free again, one line:
`taken SECONDS` or `free SECONDS`, by the clock of this machine. It ends where its standard input does.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
import threading
import time

ADDRESSES = 100  # of this machine's own, for one alone cannot have all that watch


async def watch(place: tuple[str, int], cookie: str, number: int, user: str, ready: asyncio.Event) -> None:
    """One watcher, until it is cancelled."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(
        *place, ssl=context, limit=1 << 22, local_addr=(f"127.0.1.{number % ADDRESSES + 1}", 0)
    )
    writer.write(f"GET /pool/events HTTP/1.1\r\nHost: {place[0]}\r\nCookie: {cookie}\r\n\r\n".encode())
    taken = False
    async for line in reader:
        if not line.startswith(b"data: "):
            continue
        parts = json.loads(line[6:])
        if "gpus" in parts and (user in parts["gpus"]) != taken:
            taken = not taken
            print("taken" if taken else "free", time.time(), flush=True)
        ready.set()
    raise ConnectionError(f"watcher {number} was sent away")


def end_with_input() -> None:
    """End this program where its standard input does."""
    sys.stdin.read()
    os._exit(0)


async def main() -> None:
    """All of them."""
    threading.Thread(target=end_with_input, daemon=True).start()
    host, port, cookie, count, user = sys.argv[1:]
    readies = [asyncio.Event() for _ in range(int(count))]
    tasks = []
    for number, ready in enumerate(readies):
        tasks.append(asyncio.create_task(watch((host, int(port)), cookie, number, user, ready)))
        if number % 20 == 19:
            await asyncio.wait_for(ready.wait(), 120)
    await asyncio.gather(*(asyncio.wait_for(ready.wait(), 120) for ready in readies))
    print("ready", flush=True)
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    asyncio.run(main())
