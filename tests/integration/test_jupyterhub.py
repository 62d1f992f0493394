"""Notebooks by a click on the lab: login, a part of a GPU, a cell, a hub that is killed, and whom it refuses."""

from __future__ import annotations

import time

import pytest
from conftest import Lab

from tests.support.browser import NEEDS_CHROMIUM, Browser
from tests.support.hub_lab import COUNT, PASSWORDS, STARTED, UNIT, clients, press, shows
from tests.support.lease_lab import json_in, left, run_as, shell, until

pytestmark = pytest.mark.rest


def test_a_click_gives_a_part_of_a_gpu_which_others_see_taken_and_its_end_gives_it_back(web: Lab) -> None:
    lines = "cell = alice.cell(alice.kernel(), COUNT)\nprint(json.dumps([cell, time.monotonic() - began]))"
    found = clients(web, STARTED + lines)
    assert found[0].split() == ["0", "0", "1"], "the kernel has the lease's GPU"
    print(f"first cell {found[1]:.1f} s after the form was sent")
    code, said = run_as(web, "bob", "toolkit gpus --json", "head")
    assert code == 0, said
    uses = [(use["user"], use["shards"] / gpu["of"]) for gpu in json_in(said)["gpus"] for use in gpu["uses"]]
    assert uses == [("alice", 1 / 3)]
    assert clients(web, STARTED + "\nprint(json.dumps(alice.stop()))") in (202, 204)
    until(lambda: left(web), {}, 60)


@NEEDS_CHROMIUM
def test_in_a_browser_a_user_logs_in_clicks_and_a_cell_of_jupyterlab_has_the_gpu(web: Lab, browser: Browser) -> None:
    address = shell(web, "head", "hostname -I").split()[0]
    browser.call("Security.setIgnoreCertificateErrors", ignore=True)
    browser.call("Page.navigate", url=f"https://{address}:8000/")
    shows(browser, "document.querySelector('#username_input')")
    login = f"username_input.value = 'alice'; password_input.value = {PASSWORDS['alice']!r}; login_submit.click()"
    browser.evaluate(login)
    shows(browser, "document.querySelector('#part')")
    labels = browser.evaluate("[...document.querySelectorAll('form label')].map(one => one.innerText)")
    assert labels == ["GPUs", "Part of each GPU", "Class", "Hours, at most", "Environment"]
    began = time.monotonic()
    browser.evaluate("part.value = '1/3'; part.form.requestSubmit()")
    shows(browser, "document.querySelector('.jp-LauncherCard')", 240)
    print(f"JupyterLab {time.monotonic() - began:.1f} s after the click")
    browser.evaluate("document.querySelector('.jp-LauncherCard').click()")
    shows(browser, "document.querySelector('.jp-Notebook .cm-content')")
    shows(browser, "document.querySelector('[data-status=idle]')")
    browser.evaluate("document.querySelector('.jp-Notebook .cm-content').focus()")
    browser.call("Input.insertText", text=COUNT)
    press(browser, "Enter", modifiers=8)  # Shift
    shows(browser, "document.querySelector('.jp-OutputArea-output')")
    assert browser.evaluate("document.querySelector('.jp-OutputArea-output').innerText").split() == ["0", "0", "1"]
    print(f"first cell {time.monotonic() - began:.1f} s after the click")
    assert clients(web, STARTED + "\nprint(json.dumps(alice.stop()))") in (202, 204)
    until(lambda: left(web), {}, 60)


def test_a_hub_that_is_killed_or_restarted_leaves_notebooks_as_they_are(web: Lab) -> None:
    kept = clients(web, STARTED + "kernel = alice.kernel()\nalice.cell(kernel, 'x = 41')\nprint(json.dumps(kernel))")
    for how in (f"systemctl kill --signal KILL {UNIT}", f"systemctl restart {UNIT}"):
        shell(web, "head", how)
        until(lambda: "6.1.1" in shell(web, "head", "curl -sk https://127.0.0.1:8000/hub/api || true"), True, 90)
        lines = f"{STARTED}\nprint(json.dumps(alice.cell({kept!r}, 'print(x + 1)')))"
        assert clients(web, lines).strip() == "42", how
    assert clients(web, STARTED + "\nprint(json.dumps(alice.stop()))") in (202, 204)
    until(lambda: left(web), {}, 60)


def test_a_name_that_no_certificate_has_leads_to_hub_and_notebook_too(web: Lab) -> None:
    """Such as an alias of the head in the site's name server: the browser warns of the certificate, if at all."""
    alias = "https://pool.example.org:8000"
    ask = f"curl -sk -o /dev/null -w '%{{http_code}} ' --resolve pool.example.org:8000:127.0.0.1 {alias}"
    assert clients(web, STARTED + "print(json.dumps(1))") == 1
    assert shell(web, "head", f"{ask}/hub/api; {ask}/user/alice/api").split() == ["200", "200"]
    assert clients(web, STARTED + "\nprint(json.dumps(alice.stop()))") in (202, 204)
    until(lambda: left(web), {}, 60)


def test_another_s_notebook_is_refused(web: Lab) -> None:
    lines = f"""{STARTED}
bob = Client("bob")
assert bob.login(BOB)
seen = [bob.ask(path)[0] for path in ("/user/alice/api/kernels", "/hub/api/users/alice", "/hub/api/proxy")]
seen.append(bob.ask("/hub/api/users/alice/server", method="DELETE", headers={{"X-XSRFToken": bob.xsrf("/hub/")}})[0])
token = {{"Authorization": "token 0123"}}
seen.append(Client("bob").ask("/user/alice/api/kernels", headers=token)[0])
print(json.dumps(seen))
"""
    assert [status for status in clients(web, lines) if status not in (403, 404)] == []
    port = shell(web, "head", "cat /home/alice/.local/state/elastic-ai/hub/*/port").strip()
    code, said = run_as(web, "bob", f"curl --silent --insecure https://127.0.0.1:{port}/user/alice/api/kernels", "head")
    assert code != 0 or "Forbidden" in said, said
    code, said = run_as(web, "bob", "sh -c 'cat /home/alice/.local/state/elastic-ai/hub/*/key.pem'", "head")
    assert code != 0
    assert "PRIVATE" not in said
    journal = shell(web, "head", f"journalctl -o cat -u {UNIT} -u {UNIT}-proxy -u {UNIT}-keys")
    assert "PRIVATE KEY" not in journal
    assert PASSWORDS["alice"] not in journal
    assert not [line for line in shell(web, "head", "ps -eo args").splitlines() if "API_TOKEN" in line]
    assert clients(web, STARTED + "\nprint(json.dumps(alice.stop()))") in (202, 204)
    until(lambda: left(web), {}, 60)


def test_wrong_passwords_and_choices_that_nobody_offers_are_refused(web: Lab) -> None:
    lines = """
seen = [Client(user).login(password) for user, password in (("bob", "x"), ("root", "x"), ("nobody", ""))]
bob = Client("bob")
assert bob.login(BOB)
status, text = bob.spawn(**(THIRD | {"environment": "<script>alert(1)</script>"}))
seen += ["<script>alert(1)" in text, bob.ask("/hub/api/users/bob/server", None, {"part": "$(id)"},
         headers={"X-XSRFToken": bob.xsrf("/hub/"), "Content-Type": "application/json"})[0] >= 400]
print(json.dumps(seen))
"""
    assert clients(web, lines) == [False, False, False, False, True]


@pytest.mark.parametrize(
    "words",
    [
        "-u alice id", "-u root /usr/lib/elastic-ai/jupyterhub/bin/look 0123456789ab",
        "/usr/lib/elastic-ai/jupyterhub/bin/look 0123456789ab", "-u alice -s",
        "-u alice LD_PRELOAD=/tmp/x.so /usr/lib/elastic-ai/jupyterhub/bin/start",
        "-u alice /usr/lib/elastic-ai/jupyterhub/bin/start --x", "-u alice /usr/lib/elastic-ai/jupyterhub/bin/serve /",
    ],
)  # fmt: skip
def test_the_hub_s_user_can_do_nothing_else(web: Lab, words: str) -> None:
    code, said = run_as(web, "elastic-ai-hub", f"sudo -n {words}", "head")
    assert code != 0, said
    assert "password is required" in said or "not allowed" in said, said


def test_what_it_costs(web: Lab) -> None:
    clients(web, f"{STARTED}\nprint(json.dumps(1))")
    for unit in (UNIT, f"{UNIT}-proxy"):
        pid = shell(web, "head", f"systemctl show --value --property MainPID {unit}").strip()
        rss = int(shell(web, "head", f"awk '/VmRSS/ {{print $2}}' /proc/{pid}/status"))
        print(f"{unit}: {rss / 1024:.0f} MiB")
        assert rss < 400 * 1024
    assert clients(web, STARTED + "\nprint(json.dumps(alice.stop()))") in (202, 204)
