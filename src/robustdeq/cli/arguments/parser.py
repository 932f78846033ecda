"""Command lines: the parser of a verb is made from the signature and the docstring of the verb's function `run`."""

from __future__ import annotations

import inspect
import re
import sys
from argparse import SUPPRESS
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, NoReturn, Union, Unpack, get_args, get_origin, get_type_hints

import docstring_parser
from jsonargparse import ArgumentParser, DefaultHelpFormatter, set_parsing_settings
from typing_extensions import override

import robustdeq
from robustdeq.cli.arguments.folders import check_folder
from robustdeq.host.options import choices, expected
from robustdeq.host.references import is_reference
from robustdeq.host.suggestions import did_you_mean
from robustdeq.host.terminal import complain

VERBS = (
    "quickstart", "recipes", "train", "evaluate", "report", "predict", "explore", "benchmark", "selftest", "bench",
    "convert",
)  # fmt: skip
"""Each verb is a module of this package with a function `run`."""
set_parsing_settings(docstring_parse_attribute_docstrings=True)


class _Help(DefaultHelpFormatter):
    """Help texts that say no type of Python's, and a default only where there is one."""

    @override
    def _get_help_string(self, action: Any) -> str:
        hint = getattr(action, "_typehint", action.type)
        takes = [] if hint in (None, bool, str) or choices(hint) else [expected(hint)]
        notes = ["required"] * action.required + takes
        if action.option_strings and action.nargs != 0 and action.default not in (None, "", SUPPRESS):
            notes.append("default: %(default)s")
        text = "Show this help message and exit." if action.dest == "help" else action.help or ""
        return f"{text} ({', '.join(notes)})" if notes else text


class Parser(ArgumentParser):
    """The parser of one verb: a wrong command line is one line on standard error and exit code 2."""

    def parse_words(self, words: Sequence[str]) -> dict[str, Any]:
        """The parameters that a command line gives; flags may be spelt with dashes or with underscores."""
        own: dict[str, dict[str, str]] = {}
        for kind in ("attack", "defence"):
            if f"--{kind}" in self._option_string_actions:
                words, found = _own_options(words, f"--{kind}")
                own |= {f"{kind}_own": found} if found else {}
        end = words.index("--") if "--" in words else len(words)
        known = [self._known(word) if word.startswith("--") else word for word in words[:end]]
        odd: list[str] = []
        safe = []
        for word in (*known, *words[end:]):
            flag, equals, value = word.partition("=") if word.startswith("--") and "=" in word else ("", "", word)
            if not _is_text(value) or value.startswith("\ue000"):
                odd.append(value)
                value = f"\ue000{len(odd) - 1}"
            safe.append(flag + equals + value)
        try:
            options: dict[str, Any] = self.parse_args(safe, defaults=False).as_dict()
        except OverflowError:
            refuse("a number on the command line is larger than any that a computer calculates with")
        restored = {name: _restored(value, odd) for name, value in options.items()}
        return restored | own

    def _known(self, word: str) -> str:
        """A flag as this parser spells it; an unknown one is refused with the closest known one."""
        flag, equals, value = word.partition("=")
        flags = {f.replace("_", "-"): f for f in self._option_string_actions if f.startswith("--")}
        if spelt := flags.get(flag.replace("_", "-")):
            return spelt + equals + value
        parent = flag.rpartition(".")[0]
        if (
            parent in flags.values()
            and get_origin(getattr(self._option_string_actions[parent], "_typehint", None)) is dict
        ):
            return word  # an entry of a dictionary, such as --model.options.dropout
        last = flag.lstrip("-").rpartition(".")[2]
        ends = [f for f in flags.values() if f.rpartition(".")[2] == last]  # --lr is --schedule.lr
        verb, otherwise = self.prog.split()[-1], f"'{self.prog} --help' lists them"
        hint = f"did you mean {ends[0]}?" if ends else did_you_mean(flag, flags.values(), otherwise)
        refuse(f"{verb} has no flag {flag}; {hint}")

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Refuse the command line, in a person's words rather than in those of jsonargparse."""
        text = " ".join(message.split())
        if found := re.search(r'"(?P<dest>[\w.]+)": .*(?:Got|Given) value: (?P<value>.*)', text):
            action = self._action(found["dest"])
            hint = getattr(action, "_typehint", None)
            known = choices(hint)
            meant = f"; {did_you_mean(found['value'], known, 'choose one of these')}" if len(known) > 1 else ""
            text = f"{_shown(action)}: expected {expected(hint)}, got {found['value']}{meant}"
        elif found := re.search(r"arguments are required: (?P<dests>.*)", text):
            needed = " and ".join(_shown(self._action(dest)) for dest in found["dests"].split(", "))
            text = f"{self.prog.split()[-1]} needs {needed}; '{self.prog} --help' says more"
        refuse(text)

    def _action(self, dest: str) -> Any:
        return next(action for action in self._actions if action.dest == dest)


def _is_text(word: str) -> bool:
    """Whether a word has bytes that are text only; file names may have others, which parsers of YAML refuse."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _restored(value: Any, odd: Sequence[str]) -> Any:
    """The value with the words that no parser takes in the places of their stand-ins."""
    if isinstance(value, list):
        return [_restored(part, odd) for part in value]
    if isinstance(value, dict):
        return {name: _restored(part, odd) for name, part in value.items()}
    if isinstance(value, str | Path) and str(value).startswith("\ue000"):
        return type(value)(odd[int(str(value)[1:])])
    return value


def refuse(message: str) -> NoReturn:
    """Leave with exit code 2, the code of a wrong command line."""
    complain(message)
    sys.exit(2)


def _own_options(words: Sequence[str], flag: str) -> tuple[list[str], dict[str, str]]:
    """The words without the options of an attack or defence of one's own (`flag`.NAME), and these options."""
    end = words.index("--") if "--" in words else len(words)
    named = [b if a == flag else a.partition("=")[2] for a, b in pairwise((*words[:end], "")) if _flag(a) == flag]
    if not (named and is_reference(named[-1])):
        return [*words], {}
    rest, own = [], {}
    given = iter(words[:end])
    for word in given:
        if _flag(word).startswith(f"{flag}."):
            name = _flag(word).removeprefix(f"{flag}.").replace("-", "_")
            found = word.partition("=")[2] if "=" in word else next(given, None)
            if found is None:
                refuse(f"there is nothing after {word}")
            own[name] = found
        else:
            rest.append(word)
    return [*rest, *words[end:]], own


def _flag(word: str) -> str:
    return word.partition("=")[0]


def _shown(action: Any) -> str:
    return action.option_strings[0] if action.option_strings else action.dest.upper()


def parse(words: Sequence[str]) -> Callable[[], int | None]:
    """The call that a command line asks for; a wrong command line and --help end the program here."""
    for before, word in pairwise(("robustdeq", *words)):
        if not word or (word.startswith("--") and word.endswith("=")):
            refuse(f"there is nothing after {word or before}: is a variable of the shell not set?")
    if not words:
        refuse("say what to do; 'robustdeq --help' lists the commands")
    verb, *rest = words
    if verb in ("-h", "--help"):
        return partial(print, overview())
    if verb not in VERBS:
        refuse(f"no command {verb}; " + did_you_mean(verb, VERBS, f"there are {', '.join(VERBS)}"))
    run = import_module(f"robustdeq.cli.{verb}").run
    options = verb_parser(verb).parse_words(rest)
    if "out" in options:
        check_folder(options["out"], "--out")
    parameters = inspect.signature(run).parameters
    if "overrides" in parameters:
        options["overrides"] = {name: options.pop(name) for name in [*options] if name not in parameters}
    if "command" in parameters:
        options["command"] = words
    return partial(run, **options)


def overview() -> str:
    """The text of `robustdeq --help`."""
    summaries = {verb: (import_module(f"robustdeq.cli.{verb}").run.__doc__ or "").splitlines()[0] for verb in VERBS}
    lines = [f"  {verb:<12}{summary}" for verb, summary in summaries.items()]
    usage = "usage: robustdeq [--version] [--help] COMMAND ...\n\n"
    return f"{usage}{robustdeq.__doc__}\n\ncommands ('robustdeq COMMAND --help' says more):\n" + "\n".join(lines)


def verb_parser(verb: str) -> Parser:
    """The parser of a verb: parameters before the `*` are positional, the others are flags of the same name."""
    run = import_module(f"robustdeq.cli.{verb}").run
    documented = docstring_parser.parse(run.__doc__ or "")
    description = "\n\n".join(filter(None, (documented.short_description, documented.long_description)))
    parser = Parser(prog=f"robustdeq {verb}", description=description, formatter_class=_Help)
    helps = _helps(run)
    hints = get_type_hints(run, include_extras=True)
    for parameter in inspect.signature(run).parameters.values():
        name, hint = parameter.name, hints[parameter.name]
        if get_origin(hint) is Annotated:
            parser.add_class_arguments(get_args(hint)[1])
        elif get_origin(hint) is Unpack:
            (shared,) = get_args(hint)
            for flag, text in _helps(shared).items():
                _add(
                    parser,
                    inspect.Parameter(flag, parameter.KEYWORD_ONLY, default=None),
                    get_type_hints(shared)[flag],
                    text,
                )
        elif name != "command" and not name.endswith("_own"):
            _add(parser, parameter, hint, helps.get(name))
    return parser


def _helps(documented: Any) -> dict[str, str | None]:
    """The descriptions of the arguments in a docstring."""
    return {p.arg_name: p.description for p in docstring_parser.parse(documented.__doc__ or "").params}


def _add(parser: Parser, parameter: inspect.Parameter, hint: Any, text: str | None) -> None:
    """One parameter of `run`: a list takes several words, a bool that is False is a switch, None means not given."""
    name, given = parameter.name, parameter.default is not parameter.empty
    options: dict[str, Any] = {"help": text}
    if given and parameter.default is not None:
        options["default"] = parameter.default
    if NoneType in get_args(hint):
        hint = Union[tuple(part for part in get_args(hint) if part is not NoneType)]  # noqa: UP007
    if get_origin(hint) is list:
        options |= {"type": get_args(hint)[0], "nargs": "+"}
    elif hint is bool and parameter.default is False:
        options["action"] = "store_true"
    else:
        options["type"] = hint
    if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
        parser.add_argument(name, **({"nargs": "?", **options} if given else options))
        return
    flag = {"as_json": "json", "json_file": "json", "imports": "import"}.get(
        name, name.replace("defence_", "defence.", 1)
    )
    flag = flag if "." in flag else flag.replace("_", "-")
    parser.add_argument(f"--{flag}", dest=name, required=not given, **options)
