"""Flags may be spelt with dashes or with underscores: --batch-size and --batch_size are one."""

from __future__ import annotations

from jsonargparse import ArgumentParser


def accept_both_spellings(parser: ArgumentParser) -> None:
    """Know every flag by its other spelling too; the help shows dashes, and of a recipe's fields their YAML keys."""
    known = parser._option_string_actions
    for action in parser._actions:
        for option in [o for o in action.option_strings if o.startswith("--")]:
            dashes, underscores = "--" + option[2:].replace("_", "-"), "--" + option[2:].replace("-", "_")
            known.setdefault(dashes, action)
            known.setdefault(underscores, action)
            if "." not in option:
                action.option_strings = [dashes if o == option else o for o in action.option_strings]


def shown_flags(parser: ArgumentParser) -> list[str]:
    """Each flag once, as the help spells it."""
    return [option for action in parser._actions for option in action.option_strings if option.startswith("--")]


def flag_names(parser: ArgumentParser) -> dict[str, str]:
    """By parameter, the flag as the help spells it."""
    return {action.dest: action.option_strings[0] for action in parser._actions if action.option_strings}
