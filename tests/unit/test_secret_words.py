"""What -v shows of commands and errors: every form of a secret is hidden, and what is none is still there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from toolkit import loudness
from toolkit.command_class import command
from validation.base.secret_words import hidden_text, hidden_words, looks_like

ROOT = Path(__file__).parents[2]
WORD = "hunter2hunter"
TOKEN = "ghp_" + "a1" * 18


@pytest.mark.parametrize(
    "words",
    [
        ("ansible-playbook", "site.yml", "-e", f"vault_pass={WORD}"),
        ("ansible-playbook", "-e", f'{{"db": "{WORD}"}}'),
        ("ansible-playbook", f"--extra-vars=db={WORD} other={WORD}"),
        ("ansible-playbook", f"-edb={WORD}"),
        ("docker", "run", "--env", f"ANY={WORD}", "image"),
        ("python3", "train.py", "--password", WORD),
        ("python3", "train.py", f"--wandb-api-key={WORD}"),
        ("python3", "train.py", "--hf_token", WORD),
        ("env", f"DB_PASSWORD={WORD}", "train"),
        ("sshpass", "-p", WORD, "ssh", "gpu1"),
        ("sshpass", f"-p{WORD}", "ssh", "gpu1"),
        ("ssh", "gpu1", f"sudo program --password '{WORD}' now"),
        ("curl", f"https://user:{WORD}@example.com/x"),
        ("curl", "-H", f"Authorization: Bearer {WORD}"),
        ("git", "clone", TOKEN),
        ("sh", "-c", f"-----BEGIN OPENSSH PRIVATE KEY-----\n{WORD}\n{WORD}\n-----END OPENSSH PRIVATE KEY-----"),
        ("sh", "-c", f"$ANSIBLE_VAULT;1.1;AES256 {WORD}"),
    ],
)
def test_no_secret_of_a_command_line_is_shown(words: tuple[str, ...]) -> None:
    shown = hidden_words(words)
    assert len(shown) == len(words)
    assert WORD not in " ".join(shown)
    assert TOKEN not in " ".join(shown)
    assert shown[0] == words[0]
    assert not any(looks_like(word.encode()) for word in shown if "PRIVATE KEY" not in word)


@pytest.mark.parametrize(
    "words",
    [
        ("ansible-playbook", "site.yml", "-e", "@vars.yml", "--vault-password-file", "/root/vault", "--tags", "slurm"),
        ("ssh", "-i", "/root/.ssh/id_ed25519", "-o", "PasswordAuthentication=no", "gpu1", "cat /etc/hosts"),
        ("ssh-keygen", "-Y", "sign", "-f", "~/.ssh/id", "-n", "elastic-ai-rehearsal"),
        ("squeue", "--noheader", "--me", "--name=elastic-ai-lease", "--format=%A"),
        ("train", "--tokens=4096", "--token-file", "/run/x"),
        ("a", "bad\udcff", "", "x=y"),
    ],
)
def test_what_is_none_is_shown_as_it_is(words: tuple[str, ...]) -> None:
    assert [word for word in hidden_words(words) if word != "--tokens=..."] == [
        w for w in words if w != "--tokens=4096"
    ]


def test_text_of_several_lines_keeps_the_others() -> None:
    shown = hidden_text(
        f"Traceback:\n  x = 1\nCalledProcessError: ['a', '--password', '{WORD}']\nDB_PASSWORD: {WORD}\nend"
    )
    assert WORD not in shown
    assert shown.startswith("Traceback:\n  x = 1\n")
    assert shown.endswith("\nend")


def test_verbose_hides_them_and_still_says_what_runs() -> None:
    @command()
    def one() -> None:
        subprocess.run([sys.executable, "-c", "pass", "--password", WORD], check=True)
        loudness.ran(["ansible-playbook", "-e", f"a={WORD}"])
        loudness.detail(f"RuntimeError: --token {WORD}")

    done = CliRunner().invoke(one, ["-v"])
    loudness.reset()
    assert done.exit_code == 0, done.output
    assert WORD not in done.output
    assert f"runs {sys.executable} -c pass --password ..." in done.stderr
    assert "runs ansible-playbook -e a=..." in done.stderr


def test_it_needs_the_standard_library_alone() -> None:
    code = "import sys, validation.base.secret_words; print({'pydantic', 'yaml', 'click'} & {*sys.modules} or [])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
