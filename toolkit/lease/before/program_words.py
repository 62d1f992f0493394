"""Which Python program a command line starts: through wrappers, launchers, shebangs and scripts of a shell."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

#: Programs that start another one: which of their options have a value of their own, and how many words come before
#: the program.
WRAPPERS: Mapping[str, tuple[tuple[str, ...], int]] = {
    "env": (("-u", "--unset", "-C", "--chdir"), 0),
    "nice": (("-n", "--adjustment"), 0),
    "ionice": (("-c", "-n", "--class", "--classdata"), 0),
    "nohup": ((), 0),
    "setsid": ((), 0),
    "time": (("-f", "-o"), 0),
    "stdbuf": (("-i", "-o", "-e"), 0),
    "timeout": (("-k", "-s", "--kill-after", "--signal"), 1),
    "taskset": ((), 1),
    "numactl": (("-N", "-m", "-C", "-i", "-p"), 0),
    "exec": ((), 0),
}
#: Programs that start one of an environment of theirs, after this word; of its Python nothing is known.
MANAGERS = {name: "run" for name in ("uv", "poetry", "pipenv", "conda", "mamba", "micromamba", "pixi", "rye", "hatch")}
_MANAGER_VALUES = ("-n", "--name", "-p", "--prefix", "--with", "--python", "--project", "--directory", "--extra", "-e")
_PYTHON = re.compile(r"(python|pypy)(\d+(\.\d+)*)?t?")
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
#: Options of Python that have a value: the next word, or the rest of theirs.
_PYTHON_VALUES = "XW"
#: Modules that start a program of their arguments in processes of their own.
LAUNCHING_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
#: The same as commands.
LAUNCHERS = {"torchrun": "torch", "accelerate": "accelerate", "accelerate-launch": "accelerate"}
#: No more of a file is read: it is a program, or none.
MOST_BYTES = 4 << 20


@dataclass(frozen=True)
class PythonProgram:
    """What Python is told to run. python: the interpreter, "" where it is not known. file or module or code: one of
    them, or none (a prompt, stdin). imports: what is imported whatever they say (a launcher's own). others: files of
    Python among its arguments, which tools as pytest run."""

    python: str = ""
    file: Path | None = None
    module: str = ""
    code: str = ""
    imports: tuple[str, ...] = ()
    others: tuple[Path, ...] = field(default=())


def _bare(word: str) -> str:
    return Path(word).name


def _after_options(tokens: Sequence[str], valued: Sequence[str]) -> int:
    """Index of the first word that is no option, nor a value of one, nor an assignment of a variable."""
    at = 0
    while at < len(tokens):
        word = tokens[at]
        if word == "--":
            return at + 1
        if word in valued:
            at += 2
        elif (word.startswith("-") and word != "-") or re.match(r"[A-Za-z_]\w*=", word):
            at += 1
        else:
            break
    return at


def unwrapped(argv: Sequence[str]) -> tuple[list[str], bool]:
    """The command line inside wrappers, and whether it is in an environment of a manager of such."""
    tokens, managed = list(argv), False
    while tokens:
        name = _bare(tokens[0])
        if re.match(r"[A-Za-z_]\w*=", tokens[0]):
            tokens = tokens[1:]
        elif name in WRAPPERS:
            valued, before = WRAPPERS[name]
            tokens = tokens[1:]
            tokens = tokens[_after_options(tokens, valued) :][before:]
        elif name in MANAGERS and MANAGERS[name] in tokens[1:3]:
            tokens = tokens[tokens.index(MANAGERS[name]) + 1 :]
            tokens, managed = tokens[_after_options(tokens, _MANAGER_VALUES) :], True
        else:
            break
    return tokens, managed


def _files(tokens: Sequence[str]) -> tuple[Path, ...]:
    return tuple(Path(word.partition("::")[0]) for word in tokens if re.search(r"\.py(::|$)", word))


def _there(paths: Sequence[Path]) -> tuple[Path, ...]:
    return tuple(path for path in paths if path.is_file())


def _launched(python: str, tokens: Sequence[str], imports: tuple[str, ...]) -> PythonProgram:
    """The program that a launcher starts: a module after -m, else the first file of Python."""
    for at, word in enumerate(tokens[:-1]):
        if word in ("-m", "--module") and not tokens[at + 1].startswith("-"):
            return PythonProgram(python, module=tokens[at + 1], imports=imports)
        if word.endswith(".py"):
            break
    files = _there(_files(tokens))
    return PythonProgram(python, file=files[0] if files else None, imports=imports)


def _of_python(python: str, tokens: Sequence[str]) -> PythonProgram:
    """By Python's own options."""
    at = 0
    while at < len(tokens) and tokens[at].startswith("-") and tokens[at] not in ("-", "--"):
        word = tokens[at]
        if word.startswith("--"):
            at += 2 if word == "--check-hash-based-pycs" else 1
            continue
        for place, letter in enumerate(word[1:], 1):
            if letter in "cm" + _PYTHON_VALUES:
                rest = word[place + 1 :]
                value = rest or (tokens[at + 1] if at + 1 < len(tokens) else "")
                after = list(tokens[at + (1 if rest else 2) :])
                if letter == "c":
                    return PythonProgram(python, code=value)
                if letter == "m" and value in LAUNCHING_MODULES:
                    return _launched(python, after, (value.partition(".")[0],))
                if letter == "m":
                    return PythonProgram(python, module=value, others=_there(_files(after)))
                at += 0 if rest else 1
                break
        at += 1
    rest_words = list(tokens[at:])
    if rest_words[:1] == ["--"]:
        rest_words = rest_words[1:]
    if not rest_words or rest_words[0] == "-":
        return PythonProgram(python)
    path = Path(rest_words[0])
    return PythonProgram(python, file=path / "__main__.py" if path.is_dir() else path)


def hides_engines(argv: Sequence[str]) -> str:
    """The option by which the Python of a command line reads no PYTHONPATH, and so finds no engine; "" for none."""
    words, _ = unwrapped(argv)
    if not words or not _PYTHON.fullmatch(_bare(words[0])):
        return ""
    at = 1
    while at < len(words) and words[at][:1] == "-" and words[at][1:2].isalpha():
        for place, letter in enumerate(words[at][1:], 1):
            if letter in "IE":
                return f"-{letter}"
            if letter in "cm":
                return ""
            if letter in _PYTHON_VALUES:
                at += 0 if words[at][place + 1 :] else 1
                break
        at += 1
    return ""


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(256)
    except OSError:
        return b""


def _lines(text: str) -> Iterator[list[str]]:
    """Commands of a shell's script, as far as they can be read without running it."""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        for part in re.split(r"&&|\|\||[;|&]|\bthen\b|\bdo\b", line):
            try:
                tokens = shlex.split(part, comments=True)
            except ValueError:
                continue
            if tokens:
                yield tokens


def _of_shell(text: str, managed: bool, depth: int) -> PythonProgram | None:
    found = (program_of(tokens, managed, depth + 1) for tokens in _lines(text) if not tokens[0].startswith("$"))
    return next((one for one in found if one is not None and one != PythonProgram(one.python)), None)


def _of_file(path: Path, tokens: Sequence[str], managed: bool, depth: int) -> PythonProgram | None:
    """A script, by its first line."""
    head = _head(path)
    if not head.startswith(b"#!"):
        return None
    try:
        first = shlex.split(head[2:].decode(errors="replace").partition("\n")[0])
    except ValueError:
        return None
    inner, _ = unwrapped([word for word in first if word != "-S"])
    if not inner:
        return None
    name = _bare(inner[0])
    if _PYTHON.fullmatch(name):
        python = "" if managed else shutil.which(inner[0]) or ""
        return PythonProgram(python, file=path, others=_there(_files(tokens)))
    if name in _SHELLS:
        # pip makes such a head where the interpreter's path is long: '''exec' /path/python "$0" "$@"
        text = path.read_bytes()[:MOST_BYTES].decode(errors="replace")
        long_path = re.match(r"#![^\n]*\n'''exec' \"?([^\"\n]+?)\"? \"\$0\"", text)
        if long_path:
            return PythonProgram("" if managed else long_path[1], file=path, others=_there(_files(tokens)))
        return _of_shell(text, managed, depth)
    return None


def program_of(argv: Sequence[str], managed: bool = False, depth: int = 0) -> PythonProgram | None:
    """The Python program of a command line; None where it starts none, as far as that can be read."""
    tokens, inside = unwrapped(argv)
    managed = managed or inside
    if not tokens or depth > 4:
        return None
    name = _bare(tokens[0])
    path = shutil.which(tokens[0]) or (tokens[0] if Path(tokens[0]).is_file() else "")
    if _PYTHON.fullmatch(name):
        return _of_python("" if managed else path, tokens[1:])
    if name in LAUNCHERS:
        script = _of_file(Path(path), [], managed, depth) if path else None
        return _launched(script.python if script else "", tokens[1:], (LAUNCHERS[name],))
    if name in _SHELLS:
        if "-c" in tokens[1:-1]:
            return _of_shell(tokens[tokens.index("-c") + 1], managed, depth)
        script_at = _after_options(tokens[1:], ("-o", "-O")) + 1
        if script_at < len(tokens) and Path(tokens[script_at]).is_file():
            text = Path(tokens[script_at]).read_bytes()[:MOST_BYTES].decode(errors="replace")
            return _of_shell(text, managed, depth)
        return None
    if managed and tokens[0].endswith(".py") and Path(tokens[0]).is_file():
        return PythonProgram("", file=Path(tokens[0]))
    return _of_file(Path(path), tokens[1:], managed, depth) if path else None


def script_of(argv: Sequence[str]) -> Path | None:
    """The file that the command line itself gives to Python in this folder; not one of a shell's, which may make it or
    go elsewhere first."""
    tokens, managed = unwrapped(argv)
    before = argv[: len(argv) - len(tokens)]
    elsewhere = any(re.match(r"-C|--chdir", word) for word in before)
    if managed or elsewhere or not tokens:
        return None
    name, rest = _bare(tokens[0]), tokens[1:]
    if name in LAUNCHERS:
        return _script_of_launcher(rest)
    if not _PYTHON.fullmatch(name):
        return None
    for at, word in enumerate(rest[:-1]):
        if not word.startswith("-"):
            break
        if word == "-m" and rest[at + 1] in LAUNCHING_MODULES:
            return _script_of_launcher(rest[at + 2 :])
    return _of_python("", rest).file


def _script_of_launcher(tokens: Sequence[str]) -> Path | None:
    """The first file of Python, unless a module or a file that is there may be the program."""
    files = _files(tokens)
    if "-m" in tokens or "--module" in tokens or _there(files):
        return None
    return files[0] if files else None
