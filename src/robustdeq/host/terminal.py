"""Text from elsewhere, such as a file's name, as a terminal may show it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import IO, Literal


def printable(text: object) -> str:
    """The text without anything that a terminal would act upon: control characters but line breaks become escapes."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in str(text))


def carries(stream: IO[str], text: str) -> bool:
    """Whether a stream's encoding has these characters; an ASCII terminal has no bars, for example."""
    try:
        text.encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def escape_unknown_characters() -> None:
    """Let standard output and error show characters that their encoding lacks as escapes, rather than fail."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def complain(message: object, kind: Literal["error", "warning"] = "error") -> None:
    """A line on standard error, if anybody still listens there."""
    with suppress(OSError, ValueError):
        print(f"robustdeq: {kind}: {printable(message)}", file=sys.stderr, flush=True)  # noqa: T201


def leave_quietly() -> None:
    """After a reader has gone: drop what is still to be written, which would fail again when the program ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            os.dup2(nowhere, stream.fileno())
