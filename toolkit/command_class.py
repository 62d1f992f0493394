"""What every command of the toolkit has: -h, -q, -v, help on one screen, did-you-mean, and errors that say what next.

Standard library and click only: machines of the pool import it.
"""

from __future__ import annotations

import contextlib
import difflib
import inspect
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

import click

from toolkit import loudness
from toolkit.errors import or_nearest
from toolkit.exits import brief, meanings_of

HELP_NAMES = ["-h", "--help"]
WIDEST = 80
_WORDS = re.compile(r"""(?:'[^']*'|"[^"]*"|\S)+""")
"""Words of a command line; a quoted one is one word."""
_ALL = "toolkit.help_all"
_LONGER = "The other options, examples and exit codes: {} --help-all"


class Misused(click.UsageError):
    """A usage error of click in the toolkit's own form: what, where, and which help explains it."""

    def __init__(self, fault: click.UsageError) -> None:
        """The same words."""
        words = fault.format_message()
        if isinstance(fault, click.NoSuchOption):  # click prints up to three options, in brackets
            near = difflib.get_close_matches(fault.option_name, fault.possibilities or (), n=1, cutoff=0.5)
            words = f"No such option: {fault.option_name}" + (f"; did you mean {near[0]}?" if near else "")
            if fault.ctx and any(param.name == "ansible_options" for param in fault.ctx.command.params) and not near:
                words += "; options of ansible-playbook follow after --"
        super().__init__(words, fault.ctx)

    def show(self, file: IO[Any] | None = None) -> None:
        """Print `error: message; see: toolkit COMMAND --help` on stderr."""
        words = " ".join(self.format_message().split()).rstrip(".")
        path = self.ctx.command_path if self.ctx is not None else "toolkit"
        click.echo(
            f"error: {words}{' ' if words.endswith('?') else '; '}see: {path} --help", file=file, err=file is None
        )


class _Formatter(click.HelpFormatter):
    """As wide as the terminal, at most 80 columns, and no wider than a narrow one."""

    def __init__(self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None) -> None:
        """`width` and `max_width` are click's."""
        columns = shutil.get_terminal_size((WIDEST, 24)).columns
        # of a word that has to be broken click puts one character beyond the line
        super().__init__(indent_increment, width or max(min(columns - (columns < WIDEST), max_width or WIDEST), 30))

    def write_dl(self, rows: Any, col_max: int = 30, col_spacing: int = 2) -> None:
        """Two columns; on a narrow terminal the first one takes less than half."""
        super().write_dl(rows, min(col_max, self.width * 2 // 5), col_spacing)

    def write_text(self, text: str) -> None:
        """Paragraphs; lines of examples that are too long go on below, where a shell would read them the same."""
        width = self.width - self.current_indent
        super().write_text("\n\n".join(_narrowed(paragraph, width) for paragraph in text.split("\n\n")))


def _narrowed(paragraph: str, width: int) -> str:
    if not paragraph.startswith("\b\n"):
        return paragraph
    return "\n".join(part for line in paragraph.split("\n") for part in _example(line, width))


def _example(line: str, width: int) -> list[str]:
    """`command   what it does` in lines of at most `width`, where words allow it."""
    if len(line) <= width:
        return [line]
    command, *words = re.split(r"\s{2,}", line.strip(), maxsplit=1)
    lines = [""]
    for word in _WORDS.findall(command):
        if lines[-1] and len(lines[-1]) + len(word) + 3 > width and lines[-1].strip():
            lines[-1] += " \\"
            lines.append(f"    {word}")
        else:
            lines[-1] += f" {word}" if lines[-1] else word
    below = textwrap.wrap(words[0], width - 4, initial_indent="    ", subsequent_indent="    ") if words else []
    return [*lines, *below]


class _Context(click.Context):
    formatter_class = _Formatter


class _Word(click.Choice):  # type: ignore[type-arg,unused-ignore]  # no generic in the click of the nodes
    """One of several words; the nearest is offered for another one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The word."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            known = [str(choice) for choice in self.choices]
            hint = or_nearest(str(value), known)
            words = f"is not one of: {', '.join(known)}" if hint.startswith("there") else f"is not known; {hint}"
            self.fail(f"{value!r} {words}", param, ctx)


def _loud(name: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    def chosen(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            loudness.choose(**{name: True})

    return chosen


def _print_all(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def _flag(names: list[str], words: str, callback: Callable[..., Any]) -> click.Option:
    return click.Option(names, is_flag=True, expose_value=False, is_eager=True, callback=callback, help=words)


_COMMON = (
    _flag(["-q", "--quiet"], "Print results and errors, and no progress.", _loud("quiet")),
    _flag(["-v", "--verbose"], "Also print what is run, read and written, and tracebacks.", _loud("verbose")),
)
_HELP_ALL = _flag(["--help-all"], "Show all options, examples and exit codes.", _print_all)


@contextlib.contextmanager
def _in_our_form(ctx: click.Context | None = None) -> Iterator[None]:
    """A usage error of click becomes one of ours; the help of a group that was called without a command stays.

    ctx: of the command whose words are read, which click does not say of an option without its value.
    """
    try:
        yield
    except click.UsageError as fault:
        if isinstance(fault, Misused) or type(fault).__name__ == "NoArgsIsHelpError":
            raise
        fault.ctx = fault.ctx or ctx
        raise Misused(fault) from None


class _Common(click.Command):
    """`front`: the options that --help shows; the others come with --help-all. None: all of them.

    What stands after a form feed in the docstring comes with --help-all, too.
    """

    context_class = _Context

    def __init__(self, *args: Any, front: Iterable[str] | None = None, **more: Any) -> None:
        """As click's."""
        more["context_settings"] = {"help_option_names": HELP_NAMES, **(more.get("context_settings") or {})}
        super().__init__(*args, **more)
        self.front = None if front is None else frozenset(front)
        for param in self.params:
            if type(param.type) is click.Choice:
                param.type = _Word(param.type.choices, param.type.case_sensitive)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Its own, then those that all commands have."""
        ctx.help_option_names = list(HELP_NAMES)  # click keeps the option of the context that asks first
        params = super().get_params(ctx)
        own = len(self.params)
        return [*params[:own], *_COMMON, *([] if self.front is None else [_HELP_ALL]), *params[own:]]

    def folded(self, ctx: click.Context) -> bool:
        """Whether only a part is shown."""
        return self.front is not None and not ctx.meta.get(_ALL)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The docstring; all of it, or what stands before the form feed."""
        text, _, rest = (self.help or "").partition("\f")
        if self.front is None or not rest:
            super().format_help_text(ctx, formatter)
            return
        whole = inspect.cleandoc(text if self.folded(ctx) else f"{text.rstrip()}\n{rest}")
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(whole)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options that are to be shown, then the commands of a group."""
        always = {"--help", "--help-all", "--quiet", "--verbose"}
        rows = []
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None or (isinstance(param, click.Argument) and not record[1]):
                continue  # an argument without words of its own is in the usage line; some click repeat it here
            if self.folded(ctx) and self.front is not None and not (self.front | always).intersection(param.opts):
                continue
            rows.append(record)
        if rows:
            with formatter.section("Options"):
                formatter.write_dl(rows)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The exit codes: in a few words where the rest of the help is elsewhere."""
        name = " ".join(ctx.command_path.split()[1:])
        folded = self.folded(ctx)
        if isinstance(self, click.Group) or (self.epilog and not folded):
            super().format_epilog(ctx, formatter)
        else:
            formatter.write_paragraph()
            formatter.write_text(brief(meanings_of(name)))
        if folded:
            if isinstance(self, click.Group):
                formatter.write_paragraph()
            formatter.write_text(_LONGER.format(ctx.command_path))

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        """Read the command line."""
        with _in_our_form():
            return super().make_context(*args, **more)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the command line apart."""
        with _in_our_form(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        with _in_our_form():
            return super().invoke(ctx)


class Command(_Common):
    """A command."""


class Group(_Common, click.Group):
    """A group of commands. A word that is none of them is refused with the nearest."""

    command_class = Command
    group_class = type

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each command with the whole first sentence of its help."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, one.get_short_help_str(1000).rstrip("."))
            for name, one in found
            if one is not None and not one.hidden
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first word names."""
        word = str(args[0])
        if self.get_command(ctx, word) is None and not ctx.resilient_parsing and not re.match(r"\W", word):
            ctx.fail(f"there is no command {word!r}; {or_nearest(word, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)


def command(name: str | None = None, **settings: Any) -> Callable[[Callable[..., Any]], Command]:
    """`click.command`, of the toolkit's own kind."""
    return click.command(name, cls=Command, **settings)


def group(name: str | None = None, **settings: Any) -> Callable[[Callable[..., Any]], Group]:
    """`click.group`, of the toolkit's own kind."""
    return click.group(name, cls=Group, **settings)
