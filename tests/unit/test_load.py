"""results.jsonl and JSON documents: torn tails are told, damage elsewhere is refused with its line."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.site import lab, plan_of, results_of
from validation.model import Plan
from validation.model.load import ConfigError, load_json, load_yaml, read_results, read_source

PLAN = plan_of(lab())
RESULTS = [r for r in results_of(PLAN) if not r.measurement.startswith("cabling")][:6]
TEXT = "".join(r.model_dump_json() + "\n" for r in RESULTS)


def test_whole_file(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text(TEXT)
    assert read_results(path, PLAN.run) == (RESULTS, None)
    assert read_results(tmp_path / "none.jsonl", PLAN.run) == ([], None)


@settings(max_examples=60, deadline=None)
@given(share=st.floats(0, 1))
def test_cut_anywhere_loses_at_most_the_last_line(tmp_path_factory, share):
    path = tmp_path_factory.mktemp("cut") / "results.jsonl"
    cut = TEXT[: int(share * len(TEXT))]
    path.write_text(cut)
    results, torn = read_results(path, PLAN.run)
    assert results == RESULTS[: cut.count("\n")]
    assert (torn is not None) == (cut != "" and not cut.endswith("\n"))


def test_a_last_line_cut_in_the_middle_is_dropped_and_told(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text(TEXT + '{"measurement": "facts.gp\n')
    results, torn = read_results(path, PLAN.run)
    assert results == RESULTS
    assert "results.jsonl:7: torn last line" in torn


def test_a_bad_line_elsewhere_is_refused(tmp_path):
    path = tmp_path / "results.jsonl"
    lines = TEXT.splitlines()
    path.write_text("\n".join([lines[0], lines[1][:40], *lines[2:]]) + "\n")
    with pytest.raises(ConfigError, match=r"results\.jsonl:2: "):
        read_results(path, PLAN.run)
    path.write_text("\n".join([*lines, lines[0].replace('"ok"', '"fine"')]) + "\n")
    with pytest.raises(ConfigError, match=r"results\.jsonl:7: status: "):
        read_results(path, PLAN.run)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda line: line.replace('"run":"run-1"', '"run":"run-2"'), "run: is 'run-2', but this run is 'run-1'"),
        (lambda line: line.replace('"run":"run-1",', ""), "run: is missing"),
        (lambda line: line.replace('"value":9000.0', '"value":"9000.0"'), "samples.0.value: "),
        (lambda line: line.replace('"value":9000.0', '"value":true'), "samples.0.value: "),
        (lambda line: line.replace('"value":9000.0', '"value":Infinity'), "samples.0.value: "),
        (lambda line: line.replace('"value":9000.0', '"value":NaN'), "samples.0.value: "),
        (lambda line: line.replace('"value":9000.0', '"value":1500.0,"value":9000.0'), "duplicate key: value"),
        (lambda line: line.replace('"status":"ok"', '"status":"failed","status":"ok"'), "duplicate key: status"),
        (lambda line: line.replace('"duration_s":1.0', '"duration_s":"1.0"'), "provenance.duration_s: "),
    ],
)
def test_a_line_of_another_run_or_with_something_that_is_no_number_is_refused(tmp_path, edit, words):
    path = tmp_path / "results.jsonl"
    lines = TEXT.splitlines()
    at = next(i for i, line in enumerate(lines) if "path-mtu" in line)
    assert edit(lines[at]) != lines[at]
    path.write_text("\n".join([*lines[:at], edit(lines[at]), *lines[at + 1 :]]) + "\n")
    with pytest.raises(ConfigError, match=rf"results\.jsonl:{at + 1}: {re.escape(words)}"):
        read_results(path, PLAN.run)


def test_a_key_that_stands_twice_in_a_document_is_refused(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(PLAN.model_dump_json(indent=2).replace('"fabric": ', '"run": "other",\n  "fabric": ', 1))
    with pytest.raises(ConfigError, match=r"plan\.json:3: duplicate key: run"):
        load_json(path, Plan)


def test_json_document(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(PLAN.model_dump_json(indent=2))
    assert load_json(path, Plan) == PLAN
    path.write_text(PLAN.model_dump_json(indent=2).replace('"suite": "preflight"', '"sweet": "preflight"', 1))
    with pytest.raises(ConfigError, match=r"plan\.json:\d+: measurements\.0\.sweet: unknown key"):
        load_json(path, Plan)
    path.write_text(PLAN.model_dump_json(indent=2)[:100])
    with pytest.raises(ConfigError, match=r"plan\.json:\d+: not valid JSON"):
        load_json(path, Plan)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", r":1: nothing is in this file"),
        (b"- a\n", r":1: a mapping of keys is expected"),
        (b"\xff\xfe", "not UTF-8"),
        (b"a: b: c\n", r":1: not valid YAML"),
        (b"a: !!python/object:os.system x\n", r":1: not valid YAML"),
    ],
)
def test_files_that_are_no_yaml_document(tmp_path, content, words):
    path = tmp_path / "x.yml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        load_yaml(path, Plan)


def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "punch.yml")
    with pytest.raises(ConfigError, match=r"punch\.yml: is a named pipe"):
        read_source(tmp_path / "punch.yml")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:  # below /dev, and no shell's
        os.mkfifo(f"{memory}/punch.yml")
        with pytest.raises(ConfigError, match=r"punch\.yml: is a named pipe"):
            read_source(Path(memory) / "punch.yml")
    reading, writing = os.pipe()  # a shell's: <(command)
    try:
        os.write(writing, b"key: 1\n")
        os.close(writing)
        assert read_source(Path(f"/dev/fd/{reading}")).text == "key: 1\n"
    finally:
        os.close(reading)


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        load_yaml(tmp_path / "x.yml", Plan)
    with pytest.raises(ConfigError, match="is a directory"):
        load_yaml(tmp_path, Plan)
