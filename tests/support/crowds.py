"""What crowds a port: connections as fast as they can be made, each of which says a word."""

from __future__ import annotations

#: Arguments: port, word.
FLOODS = """
import socket, sys
port, word = int(sys.argv[1]), sys.argv[2].encode()
kept = []
print("floods", flush=True)
while True:
    one = socket.socket()
    one.setblocking(False)
    try:
        one.connect(("127.0.0.1", port))
    except OSError:
        pass
    kept.append(one)
    if len(kept) == 200:
        for one in kept:
            try:
                if word:
                    one.send(word)
            except OSError:
                pass
        kept = kept[150:]
"""
