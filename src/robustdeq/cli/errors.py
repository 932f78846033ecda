"""A wrong command line: one line that says what was meant."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NoReturn

from jsonargparse import ArgumentParser

from robustdeq.cli.spelling import flag_names, shown_flags


class Parser(ArgumentParser):
    """A parser whose errors are one line on standard error, and exit code 2."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Say it and leave."""
        refuse(_readable(message if ex is None else str(ex), flag_names(self)))


def refuse(message: str) -> NoReturn:
    """Exit code 2, as command lines that are wrong have it."""
    print(f"robustdeq: error: {message}", file=sys.stderr)  # noqa: T201
    sys.exit(2)


def suggestion(word: str, known: Iterable[str], otherwise: str) -> str:
    """The end of an error message: what may have been meant, or else where to look."""
    close = difflib.get_close_matches(word, list(known), n=2)
    return f"did you mean {' or '.join(close)}?" if close else otherwise


def check_words(words: Sequence[str], verbs: dict[str, Callable[[], Parser]]) -> None:
    """Refuse an unknown verb or flag before parsing, which would stumble over what follows it instead.

    And an empty word, which as a path would be the current folder.
    """
    _refuse_empty(words)
    verb = next((word for word in words if not word.startswith("-")), None)
    if verb is None:
        return
    if verb not in verbs:
        refuse(f"no command {verb}; " + suggestion(verb, verbs, f"there are {', '.join(verbs)}"))
    after = words[words.index(verb) + 1 :]
    given = [word for word in after[: after.index("--") if "--" in after else None] if word.startswith("--")]
    if not given:
        return
    parser = verbs[verb]()
    flags = list(parser._option_string_actions)
    for word in given:
        flag = word.split("=")[0].removesuffix("+")
        if flag not in flags and not _is_entry(flag, flags):
            hint = _suggest_flag(flag, shown_flags(parser), f"'robustdeq {verb} --help' lists them")
            refuse(f"{verb} has no flag {flag}; {hint}")


def _refuse_empty(words: Sequence[str]) -> None:
    for before, word in pairwise(("robustdeq", *words)):
        if not word:
            refuse(f"there is an empty word after {before}: is a variable of the shell not set?")
        if word.startswith("--") and word.endswith("="):
            refuse(f"there is nothing after {word}: is a variable of the shell not set?")


def _is_entry(flag: str, flags: list[str]) -> bool:
    """--model.options.dropout: an entry of a dictionary, which has no fields of its own."""
    parent = flag.rpartition(".")[0]
    return parent in flags and not any(f.startswith(f"{parent}.") for f in flags)


def _suggest_flag(flag: str, flags: list[str], otherwise: str) -> str:
    """Closest by name, or by the last part alone: --lr is --schedule.lr."""
    ends = [f for f in flags if f.rpartition(".")[2] == flag.removeprefix("--").rpartition(".")[2]]
    return f"did you mean {' or '.join(ends[:2])}?" if ends else suggestion(flag, flags, otherwise)


def _readable(message: str, flags: dict[str, str]) -> str:
    message = " ".join(message.split())
    if found := re.search(r'Parser key "(?P<key>[^"]+)": (?P<rest>.*)', message):
        key = found["key"].rpartition(" ")[2]
        return f"{flags.get(key) or _spelled(key)}: {_expectation(found['rest'])}"
    if found := re.search(r"arguments are required: (?P<keys>.*)", message):
        verbs = {key.split(".")[0] for key in found["keys"].split(", ")}
        needed = " and ".join(_spelled(key.partition(".")[2]) for key in found["keys"].split(", "))
        return f"{' '.join(verbs)} needs {needed}; 'robustdeq {' '.join(verbs)} --help' says more"
    if 'expected "verb"' in message:
        return "say what to do; 'robustdeq --help' lists the commands"
    if found := re.search(r"[Uu]nrecognized arguments: (?P<words>.*)", message):
        return f"unexpected: {found['words']}; 'robustdeq --help' says what a command takes"
    return message


def _spelled(key: str) -> str:
    return key.upper() if key in ("ckpt", "image", "file", "dirs", "subject") else f"--{key}"


def _expectation(text: str) -> str:
    """What jsonargparse says of a type, as a person would say it."""
    if found := re.search(r"Subtypes: \[(?P<kinds>.*)\] Errors: .*Given value: (?P<value>.*)", text):
        kinds = re.findall(r"<class '\w+'>|typing\.Literal\[[^\]]*\]", found["kinds"])
        named = [_named(kind) for kind in kinds if "NoneType" not in kind]
        return f"expected {' or '.join(named)}, got {found['value']}"
    if found := re.fullmatch(r"Expected an? (?P<kind>.*?)\. Got value: (?P<value>.*)", text):
        kind, value = found["kind"], found["value"]
        known = _choices(kind)
        hint = f"; {suggestion(value, known, 'choose one of these')}" if known else ""
        return f"expected {_named(kind)}, got {value}{hint}"
    return text


def _choices(kind: str) -> list[str]:
    found = re.search(r"Literal\[(?P<values>[^\]]*)\]", kind)
    return [choice.strip("' ") for choice in found["values"].split(",")] if found else []


def _named(kind: str) -> str:
    known = _choices(kind)
    if known:
        return f"one of {', '.join(known)}" if len(known) > 1 else known[0]
    name = kind.removeprefix("<class '").removesuffix("'>")
    return {"float": "a number", "int": "a whole number", "bool": "true or false", "str": "text"}.get(name, name)
