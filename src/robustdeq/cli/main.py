"""The `robustdeq` command."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

import robustdeq
from robustdeq.cli import bench, convert


@dataclass(frozen=True)
class Verb:
    """A plain function, and how its parameters that are not options appear on the command line."""

    run: Callable[..., None]
    positionals: tuple[tuple[str, dict[str, Any]], ...] = ()
    renamed: tuple[tuple[str, str, dict[str, Any]], ...] = ()
    """(parameter, flag, keywords) where the flag is not the parameter's own name."""


VERBS = {
    "bench": Verb(
        bench.run,
        positionals=(("subject", {"nargs": "?", "default": "core", "type": bench.Subject, "help": "what to measure"}),),
        renamed=(("json_file", "--json", {"type": Path | None, "help": "write the records here as JSON"}),),
    ),
    "convert": Verb(
        convert.run, positionals=(("file", {"type": Path, "help": "a checkpoint of the paper's released code"}),)
    ),
}


def build_parser() -> ArgumentParser:
    """The parser, made from the verbs' signatures and docstrings."""
    parser = ArgumentParser(
        prog="robustdeq", description=robustdeq.__doc__, version=f"robustdeq {robustdeq.__version__}"
    )
    subcommands = parser.add_subcommands(required=True, dest="verb")
    for name, verb in VERBS.items():
        summary = (verb.run.__doc__ or "").splitlines()[0]
        sub = ArgumentParser(description=summary)
        for positional, options in verb.positionals:
            sub.add_argument(positional, **options)
        for parameter, flag, options in verb.renamed:
            sub.add_argument(flag, dest=parameter, **options)
        skip: set[str | int] = {*dict(verb.positionals), *(parameter for parameter, _, _ in verb.renamed)}
        sub.add_function_arguments(verb.run, as_positional=False, skip=skip)
        subcommands.add_subcommand(name, sub, help=summary)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb; a user's mistake is one line on standard error and exit code 1."""
    arguments = build_parser().parse_args(argv)
    options: Namespace = arguments[arguments.verb]
    try:
        VERBS[arguments.verb].run(**options.as_dict())
    except KeyboardInterrupt:
        print("robustdeq: interrupted", file=sys.stderr)  # noqa: T201
        return 130
    except (ValueError, TypeError, OSError, robustdeq.CheckpointError) as error:
        if os.environ.get("ROBUSTDEQ_TRACEBACK"):
            raise
        print(f"robustdeq: error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
