"""Page and hub together on one head, made by one deployment: one user's notebook is another's wait,
cookies, a hub that is restarted, a browser that goes away, notebooks that nobody uses, expired certificates,
users' names of their own."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Lab

from tests.support.browser import NEEDS_CHROMIUM, Browser
from tests.support.hub_lab import COUNT, PASSWORDS, STARTED, UNIT, clients, press, shows
from tests.support.lease_lab import json_in, left, run_as, shell, until
from tests.support.notebook_lab import TRAINS
from tests.support.page_pool import Client
from tests.support.tls_scan import STRONG, old_versions, suites
from toolkit.lab.inventory import POOL
from toolkit.page.http import BASE
from toolkit.pool_policy import LEAST_IDLE_MINUTES

pytestmark = [pytest.mark.rest, pytest.mark.usefixtures("nothing_left")]
HUB, PAGE = 8000, 8443
STOPS = "\nprint(json.dumps(alice.stop()))"
BOB_STARTED = STARTED.replace("alice", "bob").replace("ALICE", "BOB")
#: A cell that ends at once, and a thread of the kernel that copies 8 MiB to the GPU twice a second from then on.
COMPUTES = """import ctypes, threading, time
cuda, size, copies, codes = ctypes.CDLL("libcuda.so.1"), ctypes.c_size_t(8 << 20), 0, set()
def computes():
    global copies
    device, context, there = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    codes.update((cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0)))
    codes.update((cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), cuda.cuCtxSetCurrent(context)))
    codes.add(cuda.cuMemAlloc_v2(ctypes.byref(there), size))
    here = ctypes.create_string_buffer(size.value)
    while True:
        codes.add(cuda.cuMemcpyHtoD_v2(there, here, size))
        copies += 1
        time.sleep(0.5)
threading.Thread(target=computes, daemon=True).start()
"""
#: With one login, for few are let of one address in a minute.
GONE = """
alice = Client("alice")
assert alice.login(ALICE)
end = time.monotonic() + 300
while True:
    found = alice.ask("/hub/api/users/alice", headers={"X-XSRFToken": alice.xsrf("/hub/")})[1]
    if json.loads(found)["server"] is None or time.monotonic() > end:
        break
    time.sleep(1)
print(json.dumps(json.loads(found)["server"]))
"""
COMPUTES_STILL = "before = copies; time.sleep(3); print(codes, copies > before)"

#: A certificate of that key that ended yesterday.
EXPIRED = """set -e
openssl req -new -key {key} -subj /CN=head -out /root/request.pem
openssl x509 -req -in /root/request.pem -key {key} -days -1 -out {crt}
rm /root/request.pem
"""


@pytest.fixture
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Browser, Browser]]:
    """Browsers of alice and bob."""
    pair = Browser(tmp_path_factory.mktemp("alice")), Browser(tmp_path_factory.mktemp("bob"))
    for one in pair:
        one.call("Security.setIgnoreCertificateErrors", ignore=True)
    yield pair
    for one in pair:
        one.close()


def address(lab: Lab) -> str:
    return shell(lab, "head", "hostname -I").split()[0]


def log_in_to_page(browser: Browser, lab: Lab, user: str) -> None:
    browser.call("Page.navigate", url=f"https://{address(lab)}:{PAGE}/")
    shows(browser, "document.querySelector('input[name=password]')")
    fields = f"f.elements.user.value = {user!r}; f.elements.password.value = {PASSWORDS[user]!r}"
    browser.evaluate(f"f = document.querySelector('input[name=password]').form; {fields}; f.requestSubmit()")
    shows(browser, "document.querySelector('#live-gpus') && document.getElementById('live')?.textContent === 'Live'")


def log_in_to_hub(browser: Browser, lab: Lab, user: str) -> None:
    browser.call("Page.navigate", url=f"https://{address(lab)}:{HUB}/")
    fill_in_login(browser, user)


def fill_in_login(browser: Browser, user: str) -> None:
    shows(browser, "document.querySelector('#username_input')")
    browser.evaluate(
        f"username_input.value = {user!r}; password_input.value = {PASSWORDS[user]!r}; login_submit.click()"
    )
    shows(browser, "document.querySelector('#part')")


def ran(browser: Browser, code: str) -> bool:
    """Whether the first cell has printed. JupyterLab's own messages can take the focus: then it is begun anew."""
    cell, printed = (
        "document.querySelector('.jp-Notebook .cm-content')",
        "document.querySelector('.jp-OutputArea-output')",
    )
    browser.evaluate(f"{cell}.focus()")
    if not browser.evaluate(f"{cell}.innerText.trim()"):
        browser.call("Input.insertText", text=code)
    press(browser, "Enter", modifiers=8)  # Shift
    end = time.monotonic() + 30
    while not (there := browser.evaluate(f"Boolean({printed})")) and time.monotonic() < end:
        time.sleep(0.3)
    return bool(there)


def run_cell(browser: Browser, code: str) -> str:
    """What the first cell of a new notebook prints."""
    shows(browser, "document.querySelector('.jp-LauncherCard')", 240)
    browser.evaluate("document.querySelector('.jp-LauncherCard').click()")
    shows(browser, "document.querySelector('.jp-Notebook .cm-content')")
    shows(browser, "document.querySelector('[data-status=idle]')")
    until(lambda: ran(browser, code), True, 150)
    return str(browser.evaluate("document.querySelector('.jp-OutputArea-output').innerText"))


@NEEDS_CHROMIUM
def test_alice_trains_by_a_click_and_bob_waits_for_his_turn_and_sees_it(web: Lab, two: tuple[Browser, Browser]) -> None:
    alice, bob = two
    log_in_to_page(bob, web, "bob")
    log_in_to_hub(alice, web, "alice")
    trains = alice.evaluate("[...environment.options].some(one => one.value === 'PyTorch')")
    if trains:
        alice.evaluate("environment.value = 'PyTorch'")
    began = time.monotonic()
    alice.evaluate("part.value = '1/3'; part.form.requestSubmit()")
    code, wanted = (TRAINS, "trained to") if trains else (COUNT, "0 0 1")
    assert wanted in run_cell(alice, code)
    print(f"{'trained' if trains else 'first cell'} {time.monotonic() - began:.1f} s after the click")

    shows(bob, "document.querySelector('#live-gpus').innerText.includes('alice')", 40)
    gpus = len(json_in(run_as(web, "bob", "toolkit gpus --json", "head")[1])["gpus"])
    code_, said = run_as(web, "bob", f"toolkit lease request -n {gpus} --time 10m --no-wait --json")
    assert code_ == 0, said
    waits = json_in(said)["lease"]
    shows(bob, "document.querySelector('#mine').innerText.includes('place 1 in the queue')", 60)

    log_in_to_page(alice, web, "alice")
    release = "document.querySelector('#mine form[action$=\"/release\"]')"
    assert alice.evaluate(f"document.querySelectorAll('#mine li').length === 1 && Boolean({release})")
    began = time.monotonic()
    alice.evaluate(f"{release}.requestSubmit()")
    shows(bob, "document.querySelector('#mine').innerText.includes('running')", 90)
    print(f"bob's page shows that his turn has come {time.monotonic() - began:.1f} s after alice's click")
    assert "alice" not in bob.evaluate("document.querySelector('#live-gpus').innerText")
    assert run_as(web, "bob", f"toolkit lease release {waits}")[0] == 0


@NEEDS_CHROMIUM
def test_a_notebook_server_gets_no_cookie_of_the_page(web: Lab, two: tuple[Browser, Browser]) -> None:
    """Browsers send cookies to all ports of a name; below /user/alice/ is a program of alice's."""
    _, bob = two
    assert clients(web, STARTED + "print(json.dumps(1))") == 1
    log_in_to_page(bob, web, "bob")
    log_in_to_hub(bob, web, "bob")
    bob.events.clear()
    bob.call("Page.navigate", url=f"https://{address(web)}:{HUB}/user/alice/lab")
    shows(bob, "document.readyState === 'complete'")
    asked = {  # redirections have the number of the first
        event["params"]["requestId"]
        for event in bob.events
        if event.get("method") == "Network.requestWillBeSent" and "/user/alice/" in event["params"]["request"]["url"]
    }
    there = [
        event["params"]["headers"]
        for event in bob.events
        if event.get("method") == "Network.requestWillBeSentExtraInfo" and event["params"]["requestId"] in asked
    ]
    assert there, "the browser asked alice's server"
    assert not [headers for headers in there if "elastic-ai" in json.dumps(headers)]
    cookies = bob.call("Network.getAllCookies")["cookies"]
    assert {one["path"] for one in cookies if "elastic-ai" in one["name"]} == {f"{BASE}/"}
    assert [one["name"] for one in cookies if not one["secure"]] == [], "_xsrf of the hub too"
    assert clients(web, STARTED + STOPS) in (202, 204)
    until(lambda: left(web), {}, 60)


def hub_answers(lab: Lab) -> bool:
    return '"version"' in shell(lab, "head", f"curl -sk https://127.0.0.1:{HUB}/hub/api || true")


def test_a_server_that_waits_is_given_up_where_the_hub_is_restarted(web: Lab) -> None:
    """Nobody would find it, and it would hold GPUs once its turn came."""
    code, said = run_as(web, "bob", "toolkit lease request -p 1/3 --time 10m --json")
    assert code == 0, said
    taken = json_in(said)["lease"]
    gpus = len(json_in(run_as(web, "bob", "toolkit gpus --json", "head")[1])["gpus"])
    lines = f"""
alice = Client("alice")
assert alice.login(ALICE)
assert alice.spawn(**(THIRD | {{"gpus": "{gpus}", "part": "1"}}))[0] == 200
print(json.dumps(1))
"""
    clients(web, lines)
    waiting = "squeue --noheader --user alice --states PENDING --format %i | wc -l"
    until(lambda: shell(web, "head", waiting).strip(), "1", 60)
    shell(web, "head", f"systemctl restart {UNIT}")
    until(lambda: hub_answers(web), True, 90)
    until(lambda: shell(web, "head", waiting).strip(), "0", 90)
    assert run_as(web, "bob", f"toolkit lease release {taken}")[0] == 0
    assert clients(web, STARTED + STOPS) in (202, 204), "alice starts another"


def test_a_browser_that_goes_away_takes_nothing_with_it(web: Lab) -> None:
    """In the middle of a cell, without a word; another browser goes on."""
    lines = """
import threading, os
kernel = alice.kernel()
alice.cell(kernel, "x = 41")
threading.Thread(target=alice.cell, args=(kernel, "import time; time.sleep(4); x += 1"), daemon=True).start()
time.sleep(2)
print(json.dumps(kernel), flush=True)
os._exit(0)
"""
    kernel = clients(web, STARTED + lines)
    assert clients(web, f"{STARTED}\nprint(json.dumps(alice.cell({kernel!r}, 'print(x)')))").strip() == "42"
    assert clients(web, STARTED + STOPS) in (202, 204)


def policy(lab: Lab, *more: str) -> None:
    """Bring the pool's policy to the servers."""
    done = lab.playbook(*more, name="playbooks/remoting.yml")
    assert done.returncode == 0, done.stdout[-6000:]


def users(lab: Lab) -> set[str]:
    """Who has GPUs."""
    code, said = run_as(lab, "bob", "toolkit gpus --json", "head")
    assert code == 0, said
    return {use["user"] for gpu in json_in(said)["gpus"] for use in gpu["uses"]}


def test_a_notebook_that_nobody_uses_is_ended_by_the_pool_s_time_and_one_that_computes_goes_on(web: Lab) -> None:
    """The shortest time that a policy can have, by the site's own variable; bob's notebook is there before alice's."""
    everyday = POOL["users"]["everyday"] | {"idle_minutes": LEAST_IDLE_MINUTES}
    policy(web, "-e", json.dumps({"slurm_pool": POOL | {"users": POOL["users"] | {"everyday": everyday}}}))
    try:
        lines = "kernel = bob.kernel()\nbob.cell(kernel, {!r})\nprint(json.dumps(kernel))"
        computes = clients(web, BOB_STARTED + lines.format(COMPUTES))
        began = time.monotonic()
        lines = "kernel = alice.kernel()\nalice.cell(kernel, COUNT)\nprint(json.dumps(kernel))"
        kernel = clients(web, STARTED + lines)
        assert users(web) == {"alice", "bob"}
        until(lambda: users(web), {"bob"}, 60 * LEAST_IDLE_MINUTES + 240)
        taken = time.monotonic()
        print(f"GPUs of the idle notebook were taken back {taken - began:.0f} s after its start was asked for")
        assert taken - began >= 60 * LEAST_IDLE_MINUTES
        printed = f"print(json.dumps(alice.cell({kernel!r}, 'print(6 * 7)')))"
        assert "42" in clients(web, STARTED + printed), "the server is there a little longer, for saving"
        assert clients(web, GONE) is None
        print(f"the hub shows the server's end {time.monotonic() - taken:.0f} s later")
        still = f"{BOB_STARTED}\nprint(json.dumps(bob.cell({computes!r}, {COMPUTES_STILL!r})))"
        assert clients(web, still).split() == ["{0}", "True"]
        assert users(web) == {"bob"}
    finally:
        policy(web)
    assert clients(web, BOB_STARTED + "\nprint(json.dumps(bob.stop()))") in (202, 204)


@pytest.mark.parametrize("port", [PAGE, HUB])
def test_old_versions_and_weak_suites_of_tls_are_refused(web: Lab, port: int) -> None:
    assert old_versions(address(web), port) == set()
    assert suites(address(web), port) == STRONG


def served_until(lab: Lab, port: int) -> float:
    """When the certificate that a port has ends, in seconds of Unix time."""
    ask = f"openssl s_client -connect 127.0.0.1:{port} </dev/null 2>/dev/null | openssl x509 -noout -enddate"
    return ssl.cert_time_to_seconds(shell(lab, "head", ask).strip().removeprefix("notAfter="))


def test_certificates_that_have_expired_are_named_and_renewed_by_a_deployment(web: Lab) -> None:
    both = {
        PAGE: ("/etc/elastic-ai/page/tls.crt", "/etc/elastic-ai/page/tls.key"),
        HUB: ("/etc/elastic-ai/jupyterhub/tls/certificate.pem", "/etc/elastic-ai/jupyterhub/tls/key.pem"),
    }
    for crt, key in both.values():
        shell(web, "head", EXPIRED.format(crt=crt, key=key))
    shell(web, "head", f"systemctl restart {UNIT}-proxy")
    until(lambda: served_until(web, PAGE) < time.time(), True, 90)
    until(lambda: served_until(web, HUB) < time.time(), True, 90)
    until(lambda: hub_answers(web), True, 30)
    bob = Client(PAGE, address(web))
    assert bob.log_in("bob", PASSWORDS["bob"]) == 303
    until(lambda: "The certificate of this page has expired" in bob.get("/"), True, 90)
    done = web.playbook("-e", "pool_page=true", "-e", "jupyterhub=true", "--tags", "page,jupyterhub")
    assert done.returncode == 0, done.stdout[-6000:]
    for port in both:
        until(lambda port=port: served_until(web, port) > time.time() + 300 * 86400, True, 90)
    assert bob.log_in("bob", PASSWORDS["bob"]) == 303  # a deployment that restarts the page ends its logins
    until(lambda: "certificate" in bob.get("/"), False, 90)


NAME = "hub.elastic-ai.test"
#: In a page of the hub: a token of the user's, for programs.
TOKEN = """fetch('/hub/api/users/bob/tokens', {
    method: 'POST', headers: {'X-XSRFToken': jhdata.xsrf_token, 'Content-Type': 'application/json'},
    body: JSON.stringify({note: 'a program'})
}).then(one => one.json()).then(one => one.token ?? JSON.stringify(one))"""


def status(lab: Lab, name: str, path: str, token: str = "") -> int:
    """Of a question by a program on the head, which believes the role's own certificate alone."""
    words = f"--resolve {name}:{HUB}:127.0.0.1 --cacert /etc/elastic-ai/jupyterhub/tls/certificate.pem"
    words += f" --header 'Authorization: token {token}'" if token else ""
    return int(shell(lab, "head", f"curl -s -o /dev/null -w '%{{http_code}}' {words} https://{name}:{HUB}{path}"))


@pytest.fixture
def named(web: Lab) -> Iterator[Lab]:
    """The hub with a name below which each user has one; afterwards it has none, as before."""
    wanted = ["-e", "jupyterhub=true", "-e", f"jupyterhub_subdomain_host=https://{NAME}:{HUB}"]
    try:
        done = web.playbook(*wanted, name="playbooks/jupyterhub.yml")
        assert done.returncode == 0, done.stdout[-6000:]
        until(lambda: status(web, NAME, "/hub/api"), 200, 90)
        yield web
    finally:
        done = web.playbook("-e", "jupyterhub=true", name="playbooks/jupyterhub.yml")
    assert done.returncode == 0, done.stdout[-6000:]
    until(lambda: hub_answers(web), True, 90)


@NEEDS_CHROMIUM
def test_each_user_has_a_name_below_the_hub_s(named: Lab, tmp_path: Path) -> None:
    """Start, cell, token and routes; a page of one user's notebook is of another origin than the hub. bob's, for
    JupyterLab shows alice what she had open last."""
    kernels, there = "/user/bob/api/kernels", f"bob.{NAME}"
    rules = f"MAP {NAME} {address(named)}, MAP *.{NAME} {address(named)}"
    browser = Browser(tmp_path / "profile", f"--host-resolver-rules={rules}")
    try:
        browser.call("Security.setIgnoreCertificateErrors", ignore=True)
        browser.call("Page.navigate", url=f"https://{NAME}:{HUB}/")
        fill_in_login(browser, "bob")
        browser.evaluate("part.value = '1/3'; part.form.requestSubmit()")
        assert run_cell(browser, COUNT).split() == ["0", "0", "1"]
        assert browser.evaluate("location.host") == f"{there}:{HUB}"
        read = f"fetch('https://{NAME}:{HUB}/hub/api/user', {{credentials: 'include'}})"
        assert browser.evaluate(f"{read}.then(one => one.status, one => 'refused')") == "refused"
        browser.call("Page.navigate", url=f"https://{NAME}:{HUB}/hub/home")
        shows(browser, "document.querySelector('#stop')")
        token = browser.evaluate(TOKEN)
        seen = {
            "with the token": status(named, there, kernels, token),
            "without": status(named, there, kernels),
            "with another": status(named, there, kernels, "0" * 32),
            "by the hub's name": status(named, NAME, kernels, token),
            "by another user's": status(named, f"alice.{NAME}", kernels, token),
        }
        assert seen.pop("with the token") == 200
        assert [how for how, code in seen.items() if code == 200] == [], seen
        browser.evaluate("document.querySelector('#stop').click()")
        until(lambda: left(named), {}, 60)
    finally:
        browser.close()
