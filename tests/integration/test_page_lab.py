"""The page of the pool on the lab: real Slurm, PAM and TLS; a user sees the place in the queue, another gives back."""

from __future__ import annotations

import json
import threading
import time

import pytest
from conftest import Lab

from tests.support.browser import NEEDS_CHROMIUM, Browser
from tests.support.hub_lab import PASSWORDS, shows
from tests.support.lease_lab import json_in, run_as, shell, until
from tests.support.page_pool import Client
from toolkit.page.http import BASE

pytestmark = pytest.mark.rest
PORT = 8443
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]"


def client_of(lab: Lab, user: str) -> Client:
    client = Client(PORT, shell(lab, "head", "hostname -I").split()[0])
    assert client.send("GET", "/pool.json")[0] in (303, 403), "reading needs a login"
    assert client.log_in(user, "wrong") == 403
    assert client.log_in(user, PASSWORDS[user]) == 303
    return client


def uses(client: Client) -> list[str]:
    return [use["user"] for gpu in json.loads(client.get("/pool.json"))["gpus"] for use in gpu["uses"]]


@pytest.mark.usefixtures("nothing_left")
def test_bob_sees_the_part_taken_and_his_place_and_alice_gives_it_back_by_a_click(web: Lab) -> None:
    alice, bob = client_of(web, "alice"), client_of(web, "bob")
    code, said = run_as(web, "alice", "toolkit lease request -p 1/3 --time 10m --json")
    assert code == 0, said
    number = json_in(said)["lease"]
    until(lambda: uses(bob), ["alice"])
    code, said = run_as(web, "bob", "toolkit gpus --json", "head")
    assert code == 0, said
    assert json.loads(bob.get("/pool.json"))["gpus"] == json_in(said)["gpus"]
    assert f"Release lease {number}" not in bob.get("/")
    secret = bob.secret("/")
    bob.send("POST", f"/leases/{number}/release", {"form": secret})
    assert uses(bob) == ["alice"], "of another user"

    everything = len(json_in(said)["gpus"])
    code, said = run_as(web, "bob", f"toolkit lease request -n {everything} --time 10m --no-wait --json")
    assert code == 0, said
    waits = json_in(said)["lease"]
    until(lambda: "place 1 in the queue" in bob.get("/"), True, 60)

    events, ended = bob.events(), threading.Event()
    seen: list[float] = []

    def watch() -> None:
        for _ in events:
            if "alice" not in uses(bob):
                seen.append(time.monotonic())
                break
        ended.set()

    threading.Thread(target=watch, daemon=True).start()
    secret = alice.secret("/")
    began = time.monotonic()
    assert alice.send("POST", f"/leases/{number}/release", {"form": secret})[0] == 303
    clicked = time.monotonic()
    assert ended.wait(30)
    print(f"released {clicked - began:.1f} s after the click, seen by another {seen[0] - began:.1f} s after it")
    assert run_as(web, "bob", f"toolkit lease release {waits}")[0] == 0


@NEEDS_CHROMIUM
def test_a_browser_logs_in_and_shows_the_servers(web: Lab, browser: Browser) -> None:
    address = shell(web, "head", "hostname -I").split()[0]
    browser.call("Security.setIgnoreCertificateErrors", ignore=True)
    browser.call("Page.navigate", url=f"https://{address}:{PORT}{BASE}/")
    shows(browser, "document.querySelector('input[name=password]')")
    fields = f"f.elements.user.value = 'alice'; f.elements.password.value = {PASSWORDS['alice']!r}"
    browser.evaluate(f"f = document.querySelector('input[name=password]').form; {fields}; f.requestSubmit()")
    shows(browser, "document.querySelector('#live-gpus')?.innerText.includes('gpu2')")
    shows(browser, PAINT)
    print(f"first paint {browser.evaluate(f'{PAINT}.startTime'):.0f} ms after the navigation")
    shown = browser.evaluate("document.body.innerText")
    assert "gpu1" in shown
    assert "My leases" in shown
