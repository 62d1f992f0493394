"""What is pinned for NCCL and UCX is found wherever it is set, and what names the fabric's ports is left alone."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.support.site import LAB, PLAN, criterion, healthy, judged, plan_of
from toolkit.lab.faults import FAULTS
from toolkit.lab.vmfaults import NODE_FAULTS, PROFILE
from validation.measures.node.ncclenv_table import PINS, pinned
from validation.probes import libenv
from validation.probes.tool import Ran
from validation.rules.fabric import load_fabric


def said(name, value="1", where="/etc/nccl.conf"):
    return {"name": name, "value": value, "where": where}


def of_gpu2(env, plan=PLAN, fabric="tcp10"):
    def change(m):
        return healthy(m, facts={"library_env": env}) if m.id == "facts.gpu2" else None

    found = criterion(judged(change, LAB, plan), "pf.ncclenv")
    return next(j for j in found.judgements if j.subject == "gpu2"), found


def test_nothing_set_and_ports_named_pass():
    ours = [said("NCCL_IB_HCA", "==mlx5_0,mlx5_1"), said("NCCL_SOCKET_IFNAME", "=fab0"), said("NCCL_IB_TC", "106")]
    ours += [said("UCX_NET_DEVICES", "mlx5_0:1"), said("UCX_IB_TRAFFIC_CLASS", "106"), said("NCCL_P2P_DISABLE", "0")]
    for env in ({"settings": []}, {"settings": ours}):
        judgement, found = of_gpu2(env)
        assert (judgement.verdict, found.verdict) == ("pass", "pass"), judgement.reason


def test_a_pinned_setting_fails_with_its_place_and_reason():
    judgement, found = of_gpu2({"settings": [said("NCCL_PROTO", "Simple", "login session")], "unread": "x"})
    assert (judgement.verdict, judgement.reason_code, found.verdict) == ("fail", "not-equal", "fail")
    assert "NCCL_PROTO=Simple (login session): one algorithm or protocol" in judgement.reason


@pytest.mark.parametrize(
    ("env", "words"),
    [(None, "the facts say nothing of what is set"), ({"settings": [], "unread": "login session: timed out"}, "timed")],
)
def test_what_could_not_be_read_is_not_passed(env, words):
    judgement, _ = of_gpu2(env)
    assert (judgement.verdict, judgement.reason_code) == ("not-measured", "missing-metric")
    assert words in judgement.reason


@pytest.mark.parametrize(
    ("name", "value", "anywhere", "on_rdma"),
    [
        ("NCCL_ALGO", "Ring", True, True),
        ("NCCL_MIN_NCHANNELS", "16", True, True),
        ("NCCL_P2P_LEVEL", "LOC", True, True),
        ("NCCL_P2P_LEVEL", "NVL", False, False),
        ("NCCL_SHM_DISABLE", "1", True, True),
        ("NCCL_SHM_DISABLE", "0", False, False),
        ("NCCL_NVLS_ENABLE", "0", True, True),
        ("NCCL_IB_DISABLE", "1", False, True),
        ("NCCL_NET", "Socket", False, True),
        ("NCCL_NET_GDR_LEVEL", "0", False, True),
        ("NCCL_NET_GDR_LEVEL", "loc", False, True),
        ("NCCL_NET_GDR_LEVEL", "PXB", False, False),
        ("NCCL_DMABUF_ENABLE", "0", False, True),
        ("UCX_TLS", "tcp,sm,self", False, True),
        ("UCX_TLS", "rc,sm,self", False, False),
        ("UCX_TLS", "sm,self,cuda_copy,cuda_ipc,tcp", False, True),
        ("UCX_TLS", "cuda_copy,ud_mlx5", False, False),
        ("UCX_TLS", "^tcp", False, False),
        ("NCCL_DEBUG", "INFO", False, False),
    ],
)
def test_which_settings_are_pins(name, value, anywhere, on_rdma):
    assert (pinned(name, value, rdma=False) is not None, pinned(name, value, rdma=True) is not None) == (
        anywhere,
        on_rdma,
    )


def test_the_fabric_decides_whether_rdma_may_be_off():
    env = {"settings": [said("NCCL_IB_DISABLE")]}
    assert of_gpu2(env)[0].verdict == "pass"
    assert load_fabric("roce40").transport == "roce"
    plan = plan_of(LAB, ("preflight",), "roce40")
    from tests.support.site import results_of, verdict_of

    results = results_of(plan, lambda m: healthy(m, facts={"library_env": env}) if m.kind == "facts" else None)
    assert criterion(verdict_of(LAB, plan, results, fabric="roce40"), "pf.ncclenv").verdict == "fail"


def test_files_and_session_are_read(tmp_path, monkeypatch):
    for name, text in {
        "etc/nccl.conf": "# NCCL_ALGO=Tree\nNCCL_IB_HCA==mlx5_0\n",
        "etc/environment": 'PATH="/bin"\nexport NCCL_PROTO="LL128"\nMY_NCCL_ALGO=Ring\n',
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    session = Ran([], 0, "HOME=/\nNCCL_P2P_DISABLE=1\n", "")
    monkeypatch.setattr(libenv, "run_tool", lambda *_args, **_more: session)
    assert libenv.collect(tmp_path) == {
        "settings": [
            said("NCCL_IB_HCA", "=mlx5_0"),
            said("NCCL_PROTO", "LL128", "/etc/environment"),
            said("NCCL_P2P_DISABLE", "1", "login session"),
        ],
        "unread": "",
    }
    monkeypatch.setattr(libenv, "run_tool", lambda *_args, **_more: Ran(["runuser"], 1, "", "This account is locked"))
    assert "This account is locked" in libenv.collect(tmp_path)["unread"]


def test_a_real_session_of_this_machine_begins_empty(monkeypatch):
    monkeypatch.setenv("NCCL_ALGO", "Ring")  # of who runs this, and no setting of the machine
    text, why = libenv.session()
    assert why == ""
    assert "PATH=" in text
    assert "NCCL_ALGO" not in text


def test_the_planted_fault_is_what_the_probe_finds(tmp_path):
    fault = NODE_FAULTS["nccl-pinned"]
    assert not FAULTS["nccl-pinned"].vm_only
    file = tmp_path / "fault.sh"
    for script, there in ((fault.plant, True), (fault.clear, False), (fault.clear, False)):
        subprocess.run(["sh", "-eu", "-c", script.replace(PROFILE, str(file))], check=True)
        assert file.exists() == there
        if there:
            clean = {"PATH": os.environ["PATH"]}
            shown = subprocess.run(
                ["sh", "-c", f". {file}; env"], check=True, capture_output=True, text=True, env=clean
            ).stdout
            found = libenv.settings(shown, "login session")
            assert {s["name"] for s in found if pinned(s["name"], s["value"], rdma=False)} == {
                "NCCL_PROTO",
                "NCCL_P2P_DISABLE",
            }


def test_every_pin_says_why_and_by_whom():
    assert all(pin.why and pin.source for pin in PINS)
