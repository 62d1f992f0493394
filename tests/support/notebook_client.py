"""A notebook's client, in the notebooks' own Python: reads words as JSON lines, answers each with a
cell's output so far.

cell CODE WORD; interrupt WORD; restart; wait WORD: until the output of the last cell has the word.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

LIMIT_S = 240.0
URL = urlsplit(sys.argv[1] if len(sys.argv) > 1 else "")
BASE, TOKEN = f"{URL.scheme}://{URL.netloc}", URL.query.partition("token=")[2]


def call(path: str) -> Any:
    """POST; its answer."""
    wanted = Request(f"{BASE}/api/kernels{path}", b"{}", {"Authorization": f"token {TOKEN}"})
    with urlopen(wanted, timeout=LIMIT_S) as answer:
        text = answer.read()
    return json.loads(text) if text else None


class Client:
    """Of one kernel."""

    def __init__(self) -> None:
        import websocket

        self.kernel = call("")["id"]
        where = f"ws{BASE[4:]}/api/kernels/{self.kernel}/channels"
        self.socket = websocket.create_connection(where, header=[f"Authorization: token {TOKEN}"], timeout=LIMIT_S)
        self.code, self.cell, self.output = "", "", ""

    def run(self, code: str) -> None:
        """Send a cell."""
        self.code, self.cell, self.output = code, uuid.uuid4().hex, ""
        header = {"msg_id": self.cell, "msg_type": "execute_request", "session": "s", "username": "u", "version": "5.3"}
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        message = {"channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": content}
        self.socket.send(json.dumps(message))

    def until(self, word: str) -> str:
        """The output once it has the word, or after the limit."""
        end = time.monotonic() + LIMIT_S
        while word not in self.output and time.monotonic() < end:
            told = json.loads(self.socket.recv())
            content = told["content"]
            if told["parent_header"].get("msg_id") == self.cell and content.get("status") == "aborted":
                self.run(self.code)  # it came while the kernel dropped what was sent before the error of another cell
                continue
            if told["parent_header"].get("msg_id") == self.cell and told["channel"] == "iopub":
                self.output += str(content.get("text", "")) + str(content.get("ename", ""))
        return self.output

    def does(self, what: str, *words: str) -> str:
        """The answer to a line."""
        if what == "cell":
            self.run(words[0])
        elif what != "wait":
            call(f"/{self.kernel}/{what}")
        return self.until(words[-1]) if words else ""


if __name__ == "__main__":
    client = Client()
    for line in sys.stdin:
        print(json.dumps(client.does(*json.loads(line))), flush=True)
