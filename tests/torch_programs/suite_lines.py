"""A plug-in of pytest for torch's own device-generic suite, whose lines tests/support/torch_suite.py reads.

A JSON line as each test begins and ends, and a limit for each; it begins behind ELASTIC_AI_SUITE_AFTER, a test that
ended the process.
"""

import json
import os
import signal
import sys

import pytest

LIMIT_S = int(os.environ.get("ELASTIC_AI_SUITE_LIMIT_S", "60"))
OUT = os.fdopen(os.dup(1), "w", buffering=1)
GONE = ("closed", "connection", "reset by peer", "broken pipe", "is gone")


def say(**line):
    print("@" + json.dumps(line), file=OUT, flush=True)


def late(signum, frame):
    raise TimeoutError(f"no end within {LIMIT_S} s")


def pytest_collection_modifyitems(config, items):
    after = os.environ.get("ELASTIC_AI_SUITE_AFTER")
    names = [item.nodeid for item in items]
    if after:
        items[:] = items[names.index(after) + 1 :]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    say(begin=item.nodeid)
    signal.signal(signal.SIGALRM, late)
    signal.alarm(LIMIT_S)
    yield
    signal.alarm(0)


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        text = getattr(getattr(report.longrepr, "reprcrash", None), "message", "") or str(report.longrepr or "")
        xfailed = hasattr(report, "wasxfail")
        state = "skipped" if xfailed and report.outcome == "skipped" else report.outcome
        say(name=report.nodeid, state=state, text=" ".join(text.split())[:300])
        if report.outcome == "failed" and (
            text.startswith("TimeoutError") or any(word in text.lower() for word in GONE)
        ):
            import torch

            try:
                torch.cuda.synchronize()
            except Exception:
                say(gone=report.nodeid)
                sys.stdout.flush()
                os._exit(3)


def pytest_sessionfinish(session):
    say(end=1)
