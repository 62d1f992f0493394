"""Networks of the documents by each framework: what holds for the programs of all. The documents are a lab's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.load_documents import Recorded
from validation.kinds import parse
from validation.measures.remoting.train import RemoteTrainFacts
from validation.probes import remoting_program


@pytest.mark.parametrize(
    ("recorded", "engine", "framework", "thin"),
    [
        ("torch-load-train.json", "torch", "PyTorch", 8),
        ("tensorflow-load-train.json", "tensorflow", "TensorFlow", 8),
    ],
)
def test_a_lab_s_document_says_engine_and_network_and_that_both_ways_have_the_same_bits(
    recorded: str, engine: str, framework: str, thin: int
) -> None:
    of = Recorded(recorded)
    samples, facts = parse("remoting-train", of.document(), of.params)
    assert isinstance(facts, RemoteTrainFacts)
    assert (facts.engine, facts.framework, facts.network) == (engine, framework, "alexnet")
    assert (facts.side, facts.thin) == (63, thin)
    assert facts.title == "AlexNet (images of 63 x 63, 1/8 of the channels)"
    assert (samples[0].metric, samples[0].value) == ("differing_runs", 0)
    assert {run.host for run in facts.of("native", 4)} == {"gpu1"}
    assert {run.host for run in facts.of("remote", 4)} == {"client1"}
    assert len(facts.rates("remote", 16)) == 2 * (int(of.params["steps"]) - 1)


@pytest.mark.parametrize(
    ("load", "first", "stands_for"),
    [
        (["--network", "alexnet"], "torch", ()),
        (["--framework", "tensorflow", "--network", "alexnet"], "tensorflow", ("numpy",)),
    ],
)
def test_the_program_comes_to_a_server_as_text_and_starts_there(
    tmp_path: Path, load: list[str], first: str, stands_for: tuple[str, ...]
) -> None:
    """With stand-ins for the framework: that the texts import each other, and nothing else of ours, can break."""
    for name in stands_for:
        (tmp_path / f"{name}.py").write_text("")
    (tmp_path / f"{first}.py").write_text(f"raise SystemExit('{first} was imported')\n")
    words = remoting_program.there(load, ["GPU-7"], emulated=True)
    texts = words[words.index("-c") + 2 :]
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{texts[0]}", *texts[1:]],
        capture_output=True, text=True, check=False, env={"PYTHONPATH": ""}, cwd="/",
    )  # fmt: skip
    assert run.stderr.strip() == f"{first} was imported"
    assert max(map(len, words)) < 1 << 17, "what the kernel takes as one word"
