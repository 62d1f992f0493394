"""Figures of the engine `torch`: the model, what the tables say of a document, and the document that is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import torch_tables
from benchmarks.torch_model import WITHIN, Costs, Link, Step, off_by, predicted_s

ROOT = Path(__file__).parents[2]
FREE = Costs(issue_s=0, serve_s=0, wait_s=0, up_s=0, down_s=0)
STEP = Step(native_s=0.010, messages=300, waits=2, bytes_up=1e6, bytes_down=4)


@pytest.mark.parametrize(
    ("costs", "link", "seconds"),
    [
        (FREE, "0", 0.010),
        (FREE, "0.5", 0.011),  # each wait costs a round trip
        (Costs(2e-6, 1e-6, 50e-6, 0, 0), "0", 0.010 + 300e-6 + 100e-6),  # issuing hides behind the server
        (Costs(50e-6, 1e-6, 0, 0, 0), "0", 0.015),  # or the server behind issuing
        (Costs(0, 0, 0, 1e-9, 0.25), "0", 0.011 + 1.0),
        (FREE, "0/1", 0.010 + 8e-3 + 32e-9),  # a megabyte by 1 Gbit/s
    ],
)
def test_a_step_is_what_it_asks_for(costs: Costs, link: str, seconds: float) -> None:
    assert predicted_s(STEP, costs, Link.of(link)) == pytest.approx(seconds)


def test_what_is_sent_ahead_hides_behind_computing() -> None:
    ahead = Step(native_s=0.010, messages=0, waits=0, bytes_up=0, bytes_down=0, bytes_ahead=1e6)
    assert predicted_s(ahead, FREE, Link(0, 1)) == pytest.approx(0.010)
    assert predicted_s(ahead, FREE, Link(0, 0.1)) == pytest.approx(0.080)


@pytest.mark.parametrize("name", ["0", "0.5", "0.5/1"])
def test_a_link_is_named_as_it_is_asked_for(name: str) -> None:
    assert Link.of(name).name == name


SPIKE = Costs(issue_s=2e-6, serve_s=3e-6, wait_s=45e-6, up_s=1 / 2.7e9, down_s=1 / 0.5e9)


@pytest.mark.parametrize(
    ("step", "ratios"),
    [
        (Step(4.48e-3, 28, 1, 128 * 784 * 4, 4), {0: 0.94, 0.5: 0.82, 5: 0.45}),
        (Step(181e-3, 468, 1, 4 * 3 * 64 * 64 * 4, 4), {0: 0.955, 0.5: 0.951, 5: 0.911}),
        (Step(37.2e-3, 300, 1, 8 * 65 * 8, 4), {0: 1.01, 0.5: 0.97, 5: 0.86}),
    ],
)
def test_it_explains_what_the_first_trial_of_the_engine_measured(step: Step, ratios: dict[float, float]) -> None:
    """MLP, ResNet-50 and GPT on loopback, at three delays, before the engine was written."""
    for delay_ms, ratio in ratios.items():
        assert abs(off_by(predicted_s(step, SPIKE, Link(delay_ms)), step.native_s / ratio)) <= WITHIN


def document(**more: Any) -> dict[str, Any]:
    """Of one round, in which everything is as simple as possible."""
    counts = {"calls": 100, "waits": 1, "bytes_sent": 4000, "bytes_up": 0, "bytes_down": 4, "bytes_ahead": 0}

    def run(step_s: float) -> dict[str, Any]:
        return {"step_s": [step_s, 2 * step_s], "cpu_s": [0.001], "per_step": counts}

    call = {"issued_us": 1.0, "cpu_us": 1.0, "done_us": 1.0}
    calls = {"calls": {"add_": call}, "synchronize_us": 50.0, "item_us": 60.0}
    turn = {
        "load_1min": 1.0,
        "programs": {
            name: {
                "native": run(0.010),
                "0": run(0.010),
                "0.5": run(0.0105),
                "unread": run(0.009),
                torch_tables.NOTHING: run(0.002),
            }
            for name in torch_tables.PROGRAMS
        },
        "calls": {"native": calls, "0": calls},
        "copies": {"up_gb_s": [1.0, 3.0, 2.0], "down_gb_s": [1.0]},
        "iperf_up_gb_s": 4.0,
        "iperf_down_gb_s": 1.0,
    }
    machine = {"processor": "One", "cores": 2, "torch": "2.13.0"}
    return {
        "machine": machine, "date": "2026-11-26T00:00:00", "steps": 2, "links": ["0", "0.5"], "rounds": [turn], **more
    }  # fmt: skip


def test_the_tables_say_what_the_document_says() -> None:
    text = torch_tables.tables(document())
    assert "| mlp | 10.00 | 1.000 | 0.952 | >= 0.95 | 100, 1.0, 4.0 | 1.00 | 9.00 |" in text
    assert "| 64 MiB up, GB/s | 2.00 | 2.00 | 2.00 |  |" in text
    assert "| up of iperf3 | 0.50 | 0.50 | 0.50 | >= 0.9 |" in text
    assert "| gpt: round trips that +0.5 ms costs | 1.00 | 1.00 | 1.00 | <= 1.1 |" in text
    assert "| decode | +0 ms | 10.05 | 10.00 | +1% |" in text
    assert "| resnet50 | 2.00 | 1.00 | <= 3 |" in text


def test_a_prediction_that_is_off_is_said_to_be() -> None:
    one = document()
    one["rounds"][0]["programs"]["gpt"]["0.5"]["step_s"] = [0.020]
    assert "| gpt | +0.5 ms | 10.55 | 20.00 | -47%, not within 15% |" in torch_tables.tables(one)


def test_of_a_busy_machine_no_time_on_the_wall_is_a_figure() -> None:
    one = document()
    one["rounds"][0]["load_1min"] = 2.5
    text = torch_tables.tables(one)
    assert "| mlp | 10.00 | busy | busy | >= 0.95 | 100, 1.0, 4.0 |" in text
    assert "not measured" in text
    assert "of iperf3" not in text


def test_the_shortest_step_of_all_rounds_counts() -> None:
    one = document()
    slow = json.loads(json.dumps(one["rounds"][0]).replace("0.01,", "0.5,"))
    one["rounds"].insert(0, slow)
    assert torch_tables.least_s(one, "mlp", "native") == 0.010


def test_the_kept_document_is_whole_and_the_page_has_its_tables() -> None:
    """Each program at each delay, with counts; and no figure of the page is written by hand."""
    kept = json.loads((ROOT / "benchmarks/torch_engine.json").read_text())
    assert {"processor", "cores", "system", "python", "torch"} <= set(kept["machine"])
    assert len(kept["tree"]) == 40
    assert kept["rounds"]
    ways = ["native", *kept["links"]]
    for turn in kept["rounds"]:
        for program in torch_tables.programs(kept):
            assert {*ways, "unread"} == set(turn["programs"][program]) - {torch_tables.NOTHING}
            assert all(len(turn["programs"][program][way]["step_s"]) == kept["steps"] for way in ways)
        assert min(*turn["copies"]["up_gb_s"], turn["iperf_up_gb_s"], turn["iperf_down_gb_s"]) > 0
    assert len(torch_tables.programs(kept)) >= 4
    assert kept["model"] == torch_tables.model(kept)
    page = (ROOT / "benchmarks/README.md").read_text()
    assert torch_tables.written(page, kept) == page
