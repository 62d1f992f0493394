"""A browser's part towards the hub of notebooks, by the Python of role jupyterhub on the hub's machine: login, form,
routes, and a cell over the websocket. It is sent there as text, with the lines of a test after it.
"""

from __future__ import annotations

import asyncio
import http.cookiejar
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

import tornado.httpclient
import tornado.websocket

BASE = "https://127.0.0.1:8000"


class Client:
    """One browser of one user."""

    def __init__(self, user, base=BASE):
        self.user, self.base = user, base
        self.jar = http.cookiejar.CookieJar()
        context = ssl._create_unverified_context()
        self.opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(self.jar), urllib.request.HTTPSHandler(context=context)
        )

    def ask(self, path, form=None, document=None, method=None, headers=None):
        """Status, text and the path where redirections ended."""
        data = urllib.parse.urlencode(form).encode() if form is not None else None
        data = json.dumps(document).encode() if document is not None else data
        request = urllib.request.Request(self.base + path, data, headers or {}, method=method)
        try:
            with self.opener.open(request, timeout=120) as answer:
                return answer.status, answer.read().decode(), answer.url.removeprefix(self.base)
        except urllib.error.HTTPError as fault:
            return fault.code, fault.read().decode(), path

    def xsrf(self, path):
        """The value that a form below this path needs."""
        found = [one for one in self.jar if one.name == "_xsrf" and path.startswith(one.path)]
        return max(found, key=lambda one: len(one.path)).value

    def login(self, password):
        """Whether it went through."""
        self.ask("/hub/login")
        form = {"username": self.user, "password": password, "_xsrf": self.xsrf("/hub/")}
        _status, _text, path = self.ask("/hub/login", form)
        return "/hub/login" not in path

    def spawn(self, **choice):
        """Status and text of the form that was sent."""
        self.ask("/hub/spawn")
        return self.ask(f"/hub/spawn/{self.user}", choice | {"_xsrf": self.xsrf("/hub/")})[:2]

    def ready(self, limit_s=240):
        """Seconds until JupyterLab opens."""
        began = time.monotonic()
        while True:
            status, text, path = self.ask(f"/hub/spawn-pending/{self.user}")
            if path.startswith(f"/user/{self.user}/"):
                assert status == 200, (status, text)
                return time.monotonic() - began
            assert status < 400, (status, text)
            assert time.monotonic() < began + limit_s, (path, text)
            time.sleep(0.5)

    def kernel(self):
        """A new one's id."""
        self.ask(f"/user/{self.user}/lab")
        headers = {"X-XSRFToken": self.xsrf(f"/user/{self.user}/"), "Content-Type": "application/json"}
        status, text, _ = self.ask(f"/user/{self.user}/api/kernels", None, {"name": "python3"}, headers=headers)
        assert status == 201, (status, text)
        return json.loads(text)["id"]

    def cell(self, kernel, code):
        """What a cell printed."""
        return asyncio.run(self._cell(kernel, code))

    async def _cell(self, kernel, code):
        path = f"/user/{self.user}/api/kernels/{kernel}/channels"
        cookies = "; ".join(f"{one.name}={one.value}" for one in self.jar if path.startswith(one.path))
        request = tornado.httpclient.HTTPRequest(
            self.base.replace("https", "wss") + path, validate_cert=False,
            headers={"Cookie": cookies, "Origin": self.base},
        )  # fmt: skip
        socket = await tornado.websocket.websocket_connect(request)
        number, printed = uuid.uuid4().hex, ""
        header = {"msg_id": number, "msg_type": "execute_request", "username": "", "session": number,
                  "version": "5.3", "date": ""}  # fmt: skip
        content = {"code": code, "silent": False, "store_history": False, "user_expressions": {},
                   "allow_stdin": False, "stop_on_error": True}  # fmt: skip
        await socket.write_message(
            json.dumps({"header": header, "parent_header": {}, "metadata": {}, "channel": "shell", "content": content})
        )
        answered = idle = False  # on two channels, in any order
        while not (answered and idle):
            message = json.loads(await asyncio.wait_for(socket.read_message(), 180))
            if message["parent_header"].get("msg_id") != number:
                continue
            if message["msg_type"] == "stream":
                printed += message["content"]["text"]
            elif message["msg_type"] == "error":
                printed += "\n".join(message["content"]["traceback"])
            answered = answered or message["msg_type"] == "execute_reply"
            idle = idle or message["content"].get("execution_state") == "idle"
        return printed

    def stop(self):
        """Status of the request that ends the server."""
        headers = {"X-XSRFToken": self.xsrf("/hub/")}
        return self.ask(f"/hub/api/users/{self.user}/server", method="DELETE", headers=headers)[0]
