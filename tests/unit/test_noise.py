"""What is told apart from noise: documents by their form, a command's answer by its marks, the line that tells why."""

from __future__ import annotations

import subprocess
import sys

import pytest

from toolkit.commands import lease_shared
from validation.base import noise

BEFORE = ["", "echo motd;", "printf 'no end';", "echo '{}'; printf '[1]\\n{\"a\":';", r"printf 'a\r\nb\r';", "set -x;"]
BESIDE = ["", "(sleep 0.05; echo late; echo '{}') &"]


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("said", ["", "x", "x\n", "\n", "a\nb\n\n", '{"jobs": []}\n', "\u00e9\r\n"])
def test_an_answer_is_what_the_command_printed_byte_for_byte(before: str, said: str) -> None:
    marked = noise.Marked(["printf", "%s", said])
    done = subprocess.run(["bash", "-c", f"{before} {marked.line}; echo logout"], capture_output=True, check=True)
    assert marked.answer(done.stdout) == said.encode()


def test_an_answer_keeps_its_exit_status_and_what_never_ran_has_none() -> None:
    marked = noise.Marked(["sh", "-c", "echo half; exit 7"])
    done = subprocess.run(["sh", "-c", marked.line], capture_output=True, check=False)
    assert (done.returncode, marked.answer(done.stdout)) == (7, b"half\n")
    assert marked.answer(b"This account is not available\n") == b""
    assert noise.Marked(["true"]).line != noise.Marked(["true"]).line, "nobody knows the next mark"
    echoed = f"running {marked.line}\n".encode()
    assert marked.answer(echoed + done.stdout) == b"half\n"


@pytest.mark.parametrize("before", BEFORE)
def test_what_is_passed_on_from_the_head_is_its_commands_alone(before: str, capfdbinary: object) -> None:
    marked = noise.Marked([sys.executable, "-c", "print('{\"gpus\": []}'); print(); print('end'); raise SystemExit(3)"])

    where = ["bash", "-c", f'{before} eval "$0"; code=$?; echo logout; exit $code']
    assert lease_shared.pass_on(where, marked) == 3
    out = capfdbinary.readouterr().out  # type: ignore[attr-defined]
    assert out == b'{"gpus": []}\n\nend\n'


def test_documents_are_whole_lines_whatever_stands_around_them() -> None:
    said = b'\xef\xbb\xbf{"a": 1}\r\n\x1b[0m{"b": 2}\x1b[m\n{"c":\n[1]\nnull\n"{}"\n'
    said += b'\x1b]0;t\x07{"d": {"e": 1}}\nx {"f": 1}\n{"g": 1'
    assert noise.documents(said) == [{"a": 1}, {"b": 2}, {"d": {"e": 1}}]
    assert noise.documents(b'{"a":' * 100_000 + b"\n") == []


def test_the_line_that_tells_is_no_warning() -> None:
    warning = "bash: warning: setlocale: LC_ALL: cannot change locale (xx_XX.UTF-8)"
    assert noise.last_words(f"sudo: a password is required\n{warning}\n") == "sudo: a password is required"
    assert (
        noise.last_words(f"quota exceeded\nWarning: Permanently added 'x' to the list\n\n{warning}") == "quota exceeded"
    )
    assert noise.last_words(warning) == warning
    assert noise.last_words("\x1b[31mred\x1b[0m\n \n") == "red"
    assert noise.last_words("") == ""
