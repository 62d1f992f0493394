"""What root's programs on a server say: to its journal, and to whoever runs them by hand."""

from __future__ import annotations

import sys
import syslog

from validation.base.counting import number_of

#: Of one line, and of what is told in one: users can see to it that there is much to tell.
MOST_CHARACTERS, MOST_WORDS = 4000, 20


def _plain(words: str) -> str:
    """One line, and all of it can be written: what others have named may hold anything."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in words)
    more = len(text) - MOST_CHARACTERS
    return text if more <= 0 else f"{text[:MOST_CHARACTERS]}... ({number_of(more, 'character')} more)"


def tell(words: str) -> None:
    """To the journal, and to whoever runs this by hand."""
    words = _plain(words)
    syslog.openlog("elastic-ai-lease", syslog.LOG_PID, syslog.LOG_DAEMON)
    syslog.syslog(words)
    print(words, file=sys.stderr)


def tell_all(what: str, words: list[str]) -> None:
    """`tell`, where there is something to tell."""
    if words:
        more = [f"and {len(words) - MOST_WORDS} more"] if len(words) > MOST_WORDS else []
        tell(f"{what}: {'; '.join([*words[:MOST_WORDS], *more])}")
