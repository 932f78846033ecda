"""Hints for mistyped names."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str], otherwise: str | None = None, *, quoted: bool = False) -> str:
    """The end of an error message: the known names closest to `word`.

    If none is close, it is `otherwise`, by default the list of all known names.
    """
    from difflib import get_close_matches  # needed only once something is wrong

    names = list(known)
    close = get_close_matches(word, names, n=2)
    if not close:
        return f"known are {', '.join(sorted(names))}" if otherwise is None else otherwise
    return f"did you mean {' or '.join(map(repr, close) if quoted else close)}?"
