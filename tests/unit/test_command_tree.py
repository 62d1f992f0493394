"""Every command of the toolkit, every option of it: help, words, and what all of them have in common."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.support.command_tree import PATHS, SCREEN, WIDE, toolkit, tree
from toolkit import command_table, loudness
from toolkit.command_class import _WORDS, Command, Group, command
from toolkit.commands.lease_shared import Duration
from toolkit.exits import ANY, MEANINGS
from toolkit.lease.client.keep_request import DEFAULT_S
from validation.plan.offered import SUITE_NAMES
from validation.plan.suites import SUITES

FUTURE = {
    "Use GPUs": ("jupyter",),
    "Day two": ("mirror",),
}
"""Commands that are to come; there has to be room for them."""
NO_VERBS = {
    *("a", "all", "also", "an", "as", "at", "but", "by", "each", "every", "folder", "for", "from", "how", "in", "it"),
    *(
        "its",
        "number",
        "of",
        "on",
        "once",
        "only",
        "or",
        "that",
        "the",
        "their",
        "these",
        "this",
        "those",
        "to",
        "what",
    ),
    *("when", "where", "which", "who", "whoever", "why", "with", "without"),
}
"""Words with which no sentence begins that says what an option does."""
DOCUMENTS = ("pydantic", "yaml")
WITH_DOCUMENTS = ("engine", "inventory", "lab", "pool")
"""Commands that import what reads documents beside their options; they end within the time all the same."""
SLOW = (
    *("ansible", "ansible_runner", "jinja2", "multiprocessing", "paramiko", "rich", "weasyprint"),
    *("validation.judging", "validation.measures", "validation.report", "validation.run.read"),
)
"""What takes a command tenths of a second to import, and explains nothing."""
LEAVES = [path for path in PATHS if not isinstance(tree()[path], click.Group)]
FOLDED = [path for path in PATHS if getattr(tree()[path], "front", None) is not None]


def helped(path: str, word: str = "--help", columns: int = WIDE) -> str:
    done = toolkit(*path.split(), word, columns=columns)
    assert done.exit_code == 0, done.output
    return done.output


def test_all_commands_stand_in_groups_that_a_person_can_look_through() -> None:
    groups = command_table.COMMANDS
    assert list(groups) == ["Site", "Measure and judge", "Hand over", "Use GPUs", "Day two", "Look up", "Lab"]
    assert all(len(entries) <= 9 for entries in groups.values())
    shown = helped("")
    for title, entries in groups.items():
        rows = [re.search(rf"^({title}|) +{name} +{re.escape(words)}$", shown, re.M) for name, words in entries.items()]
        assert all(rows), title
        assert sum(bool(row and row[1]) for row in rows) == 1, "the title stands at one of them"


def test_the_table_says_what_each_commands_own_help_says() -> None:
    for name in command_table.names():
        assert tree()[name].get_short_help_str(1000).rstrip(".") == command_table.words(name), name


@pytest.mark.parametrize("more", [{}, FUTURE], ids=["today", "with what is to come"])
def test_the_help_of_all_fits_a_screen_and_nothing_is_cut(
    more: dict[str, tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Descriptions as long as the longest of today."""
    groups = {title: dict(entries) for title, entries in command_table.COMMANDS.items()}
    longest = max((words for entries in groups.values() for words in entries.values()), key=len)
    for title, names in more.items():
        groups.setdefault(title, {}).update(dict.fromkeys(names, longest))
    monkeypatch.setattr(command_table, "COMMANDS", groups)
    assert len(groups) <= 7
    assert all(len(entries) <= 9 for entries in groups.values())
    lines = helped("").splitlines()
    assert len(lines) <= SCREEN
    assert max(map(len, lines)) <= WIDE
    assert "..." not in "".join(lines).replace("[ARGS]...", "")


def test_the_help_of_all_imports_no_command() -> None:
    code = (
        "import sys; from toolkit.cli import cli\n"
        "try: cli.main(['--help'], prog_name='toolkit')\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if name.startswith(('toolkit.commands.', 'rich', 'pydantic', 'yaml'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "validate" in done.stdout


def test_no_help_imports_what_measures_judges_or_provisions() -> None:
    """Of all commands in one process: what none of them imports, no single one does."""
    code = (
        "import sys; from toolkit.cli import cli; from toolkit import command_table\n"
        "import contextlib, io\n"
        f"slow, documents, known = {SLOW}, {DOCUMENTS}, {WITH_DOCUMENTS}\n"
        "for name in sorted(command_table.names(), key=lambda name: name in known):\n"
        "    with contextlib.redirect_stdout(io.StringIO()):\n"
        "        cli.main([name, '--help'], prog_name='toolkit', standalone_mode=False)\n"
        "    found = [one for one in (*slow, *(documents if name not in known else ())) if one in sys.modules]\n"
        "    assert not found, f'toolkit {name} --help imports {found}'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_help_lists_the_suites_that_are_found() -> None:
    assert tuple(SUITES) == SUITE_NAMES


def test_completion_of_commands_imports_none() -> None:
    code = (
        "import sys; from toolkit.cli import cli; import click\n"
        "found = cli.shell_complete(click.Context(cli), 'val')\n"
        "print([one.value for one in found], [m for m in sys.modules if m.startswith('toolkit.commands.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['validate'] []\n"


def test_the_first_page_has_no_exit_codes_of_a_command() -> None:
    assert "Exit codes" not in helped("")
    assert "criterion failed" not in helped("")


@pytest.mark.parametrize("path", PATHS)
def test_every_help_fits_a_screen(path: str) -> None:
    lines = helped(path).splitlines()
    assert len(lines) <= SCREEN, "\n".join(lines)
    assert max(map(len, lines)) <= WIDE, max(lines, key=len)
    _, _, rows = "\n".join(lines).partition("Options:")
    assert not re.search(r"[a-z]\.\.\.$", rows, re.M), "cut"
    narrow = helped(path, columns=40).splitlines()
    assert [one for one in narrow if len(one) > 40 and max(map(len, _WORDS.findall(one))) < 18] == [], "no long word"


@pytest.mark.parametrize("path", PATHS)
def test_every_command_has_the_common_options_and_short_help_is_the_help(path: str) -> None:
    command = tree()[path]
    assert isinstance(command, (Command, Group))
    given = helped(path)
    assert helped(path, "-h") == given
    for option in ("-q, --quiet", "-v, --verbose", "-h, --help"):
        assert option in given


@pytest.mark.parametrize("path", LEAVES)
def test_every_command_has_an_example_of_itself(path: str) -> None:
    usage, _, rest = helped(path).partition("Options:")
    assert f"toolkit {path}" in usage.split("\n", 1)[1], rest


@pytest.mark.parametrize("path", PATHS)
def test_every_row_of_a_help_says_something(path: str) -> None:
    """Some releases of click list arguments without a word beside them."""
    rows = helped(path).partition("Options:\n")[2].split("\n\n")[0].splitlines()
    for row, below in zip(rows, [*rows[1:], ""], strict=True):
        name = re.match(r"  (\S.*?)(?=  |$)", row)
        if name and row.strip() == name[1].strip():
            assert below.startswith("     "), f"{path}: {row}"


@pytest.mark.parametrize("path", PATHS)
def test_optional_arguments_stand_in_brackets(path: str) -> None:
    for param in tree()[path].params:
        if isinstance(param, click.Argument) and not param.required:
            usage = param.make_metavar(click.Context(tree()[path]))
            assert usage.startswith("["), f"{path}: {usage}"
        if isinstance(param, click.Argument):
            assert "{" not in param.make_metavar(click.Context(tree()[path])), path


@pytest.mark.parametrize("path", PATHS)
def test_every_option_is_explained_in_a_sentence(path: str) -> None:
    for param in tree()[path].params:
        if not isinstance(param, click.Option):
            continue
        sentence = re.sub(r" *\[[^\[]*\]$", "", param.help or "")
        first = sentence.split(" ")[0]
        assert re.match(r"[A-Z]", sentence), (param.opts, sentence)
        assert sentence.endswith("."), (param.opts, sentence)
        assert len(sentence.split()) > 2, (param.opts, sentence)
        assert first.strip(",:").lower() not in NO_VERBS, (param.opts, sentence)


@pytest.mark.parametrize("path", PATHS)
def test_every_short_option_has_a_long_one(path: str) -> None:
    for param in tree()[path].params:
        if isinstance(param, click.Option):
            assert any(name.startswith("--") for name in param.opts), param.opts


@pytest.mark.parametrize("path", FOLDED)
def test_what_is_left_out_of_a_help_comes_with_help_all(path: str) -> None:
    short, whole = helped(path), helped(path, "--help-all")
    assert "--help-all" in short
    for param in tree()[path].params:
        if isinstance(param, click.Option) and not param.hidden:
            assert param.opts[-1] in whole
    assert len(whole.splitlines()) > len(short.splitlines())
    if path in MEANINGS:
        for code, text in {**MEANINGS[path], **ANY}.items():
            assert f"{int(code)} " in " ".join(short.split("Exit codes:")[1].split())
            assert " ".join(text.split()) in " ".join(whole.split())


@pytest.mark.parametrize("path", [path for path in PATHS if path in MEANINGS])
def test_a_command_tells_its_own_exit_codes_and_no_others(path: str) -> None:
    told = " ".join(helped(path).split("Exit codes:")[1].split())
    assert {*map(int, re.findall(r"(?:^|; )(\d+) ", told))} >= {*map(int, MEANINGS[path]), *map(int, ANY)}
    for code, text in MEANINGS[path].items():
        assert f"{int(code)} {re.split('[;,:(]', text)[0].strip()}" in told


def test_options_of_a_program_that_is_run_are_its_own() -> None:
    """What stands behind the program's name is never taken for an option of ours, be it -h, -q or -v."""
    with_program = [
        path for path in LEAVES for p in tree()[path].params if isinstance(p.type, click.types.UnprocessedParamType)
    ]
    assert {"run", "narrow", "lab ssh", "deploy", "teardown"} <= set(with_program)
    for path in with_program:
        settings = tree()[path].context_settings
        assert not settings.get("ignore_unknown_options"), path
        assert path in ("deploy", "teardown", "restore") or settings.get("allow_interspersed_args") is False, path


@pytest.mark.parametrize("path", LEAVES)
def test_every_command_tells_what_it_ends_with(path: str) -> None:
    told = " ".join(helped(path).split("Exit codes:")[1].split())
    assert {0, 2, 70} <= {*map(int, re.findall(r"(?:^|; )(\d+) ", told))}
    parent = path.rpartition(" ")[0]
    if path not in MEANINGS and parent in MEANINGS:
        assert all(f"{int(code)} " in told for code in MEANINGS[parent])


def test_one_thing_has_one_word() -> None:
    """What would be done is `--dry-run` everywhere, a time is `--time`, the runs are in `--runs-dir`."""
    options = {name for path in PATHS for p in tree()[path].params if isinstance(p, click.Option) for name in p.opts}
    assert not options & {"--plan", "--plan-only", "--what-if", "--no-act"}
    with_check = [path for path in PATHS if any("--check" in p.opts for p in tree()[path].params)]
    assert with_check, "Ansible's word"
    for path in with_check:
        assert any({"--check", "--dry-run"} <= set(p.opts) for p in tree()[path].params), path
    for path in PATHS:
        limits = [p for p in tree()[path].params if isinstance(p, click.Option) and "--limit" in p.opts]
        assert all(p.metavar == "NODES" or "nodes" in (p.help or "") for p in limits), path
        times = [p for p in tree()[path].params if isinstance(p, click.Option) and {"--time", "--grace"} & set(p.opts)]
        assert all(isinstance(p.type, Duration) for p in times), path
        writes = [p for p in tree()[path].params if isinstance(p, click.Option) and "--output" in p.opts]
        assert all("--out" in p.opts for p in writes), path
    assert not {"reference", "trace", "train"} & set(PATHS)


def test_quiet_and_verbose_exclude_each_other_and_last_no_longer_than_their_command() -> None:
    done = toolkit("fabrics", "-q", "-v")
    assert (done.exit_code, "exclude each other" in done.stderr) == (2, True)
    assert toolkit("fabrics", "-v").exit_code == 0
    assert toolkit("fabrics").stderr == ""
    assert not loudness.quiet()
    assert not loudness.verbose()


def test_verbose_tells_what_is_read_and_where_an_error_came_from() -> None:
    plain = toolkit("fabrics", "show", "tcp1")
    assert "Traceback" not in plain.output
    for words in (
        ("-v", "fabrics", "show", "tcp1"),
        ("fabrics", "-v", "show", "tcp1"),
        ("fabrics", "show", "tcp1", "-v"),
    ):
        told = toolkit(*words)
        assert told.exit_code == 2
        assert "Traceback" in told.stderr
        assert told.stderr.splitlines()[-1] == plain.stderr.splitlines()[-1], "the error stays the last line"
    read = toolkit("fabrics", "show", "tcp10", "--json", "--verbose")
    assert re.search(r"reads .*fabrics/tcp10\.yml", read.stderr)
    assert read.stdout == toolkit("fabrics", "show", "tcp10", "--json").stdout, "answers are the same"


def test_quiet_hides_progress_and_leaves_answers_and_errors() -> None:
    @command()
    def work() -> None:
        """Work."""
        loudness.progress("going on")
        click.echo("drawn", file=loudness.progress_stream())
        click.echo("a note", err=True)
        click.echo("the answer")

    for words, told in ((["-q"], "a note\n"), ([], "going on\ndrawn\na note\n"), (["--quiet"], "a note\n")):
        done = CliRunner().invoke(work, words)
        assert (done.stdout, done.stderr) == ("the answer\n", told)
        loudness.reset()


def test_verbose_names_what_is_run_and_written(tmp_path: Path) -> None:
    @command()
    def work() -> None:
        """Work."""
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        (tmp_path / "new").write_text("x")
        (tmp_path / "new").rename(tmp_path / "made")

    done = CliRunner().invoke(work, ["-v"])
    loudness.reset()
    assert f"runs {sys.executable} -c pass" in done.stderr
    assert f"writes {tmp_path / 'made'}" in done.stderr
    assert CliRunner().invoke(work, []).stderr == ""


def test_help_explains_commands_and_the_first_hour() -> None:
    assert toolkit("help").output == helped("")
    assert toolkit("help", "lab", "fault").output == helped("lab fault")
    hour = toolkit("help", "first-hour").output
    for words in re.findall(r"^  toolkit (.+?)(?:   .*)?$", hour, re.M):
        named = [word for word in words.split() if not word.startswith("-")]
        assert named[0] in command_table.names(), words
    assert max(map(len, hour.splitlines())) <= 110


def test_the_short_help_stays_where_something_else_looked_at_the_command_first() -> None:
    """Click keeps the help option of the first context that asks, and a context by hand has --help only."""
    one = Command("one", callback=lambda: None)
    one.get_params(click.Context(one))
    done = CliRunner().invoke(one, ["-h"])
    assert done.exit_code == 0, done.output
    assert "-h, --help" in done.output


@pytest.mark.parametrize("words", [("validate", "x"), ("lab", "fault", "set", "x")])
def test_help_of_what_has_no_commands_names_none(words: tuple[str, ...]) -> None:
    done = toolkit("help", *words)
    assert done.exit_code == 2
    assert f"toolkit {' '.join(words[:-1])} has no commands of its own; see: " in done.output


def test_each_command_states_its_own_time() -> None:
    kept, ran = (" ".join(helped(path).split()) for path in ("lease request", "run"))
    assert f"or 2h. [default: {DEFAULT_S // 3600}h]" in kept
    assert "or 2h. [default: as the pool allows]" in ran
