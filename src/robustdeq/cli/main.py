"""The `robustdeq` command."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import robustdeq
from robustdeq.cli import bench, convert, evaluate, predict, quickstart, recipes, report, train
from robustdeq.cli.checkpoints import HELP as CKPT
from robustdeq.cli.errors import Parser, check_words
from robustdeq.cli.places import check_folder
from robustdeq.cli.spelling import accept_both_spellings
from robustdeq.training import TrainConfig


@dataclass(frozen=True)
class Verb:
    """A plain function, and how its parameters that are not options appear on the command line."""

    run: Callable[..., int | None]
    positionals: tuple[tuple[str, dict[str, Any]], ...] = ()
    renamed: tuple[tuple[str, str, dict[str, Any]], ...] = ()
    """(parameter, flag, keywords) where the flag is not the parameter's own name."""
    overrides: type | None = None
    """A configuration whose fields are flags too; those given are passed on as `overrides`."""


VERBS = {
    "quickstart": Verb(quickstart.run),
    "recipes": Verb(recipes.run),
    "train": Verb(
        train.run,
        renamed=(("data_root", "--data-root", {"type": Path | None, "help": "where the data are"}),),
        overrides=TrainConfig,
    ),
    "evaluate": Verb(
        evaluate.run,
        positionals=(("ckpt", {"type": str, "help": CKPT}),),
        renamed=(
            ("data_root", "--data-root", {"type": Path | None, "help": "where the data are"}),
            (
                "defence_variant",
                "--defence.variant",
                {"type": Literal["paper", "released"], "help": "whose algorithm; paper if not given"},
            ),
            *(
                (
                    f"defence_{name}",
                    f"--defence.{name}",
                    {"type": kind, "help": f"{what}; as the variant if not given"},
                )
                for name, kind, what in (
                    ("direction", Literal["gradient", "sign"], "along what the image moves"),
                    ("resolve", bool, "solve the state again with the moved image"),
                    ("history", Literal["kept", "restarted"], "the solver's factors at an intervention"),
                    ("handed_on", Literal["iterate", "lowest"], "the state that a segment hands on"),
                    ("final_input", Literal["purified", "received"], "the image that the final state is unrolled with"),
                )
            ),
            (
                "defence_every",
                "--defence.every",
                {"type": int, "help": "T_f, solver steps between interventions; 2 if not given"},
            ),
            (
                "defence_steps",
                "--defence.steps",
                {"type": int, "help": "R, inner iterations of an intervention; 10 if not given"},
            ),
            ("aware", "--aware", {"action": "store_true", "help": "also attack with gradients of the defended pass"}),
            ("union", "--union", {"action": "store_true", "help": "broken images leave: only the union, but faster"}),
            ("keep_images", "--keep-images", {"action": "store_true", "help": "store the adversarial images"}),
            (
                "sources",
                "--sources",
                {"type": Path, "nargs": "+", "help": "other stores, whose kept images are shown to this predictor"},
            ),
        ),
    ),
    "bench": Verb(
        bench.run,
        positionals=(("subject", {"nargs": "?", "default": "core", "type": bench.Subject, "help": "what to measure"}),),
        renamed=(
            ("json_file", "--json", {"type": Path | None, "help": "write the records here as JSON"}),
            (
                "compile",
                "--compile",
                {"action": "store_true", "help": "compile our side, which takes minutes (train)"},
            ),
        ),
    ),
    "convert": Verb(
        convert.run, positionals=(("file", {"type": Path, "help": "a checkpoint of the paper's released code"}),)
    ),
    "report": Verb(
        report.run,
        positionals=(
            ("dirs", {"type": Path, "nargs": "+", "help": "stores, training folders, or folders above them"}),
        ),
    ),
    "predict": Verb(
        predict.run,
        positionals=(
            ("ckpt", {"type": str, "help": CKPT}),
            ("image", {"type": Path, "nargs": "+", "help": "image files"}),
        ),
        renamed=(("as_json", "--json", {"action": "store_true", "help": "print JSON instead of a table"}),),
    ),
}


def build_parser() -> Parser:
    """The parser, made from the verbs' signatures and docstrings."""
    parser = Parser(prog="robustdeq", description=robustdeq.__doc__, version=robustdeq.__version__)
    subcommands = parser.add_subcommands(required=True, dest="verb")
    for name, verb in VERBS.items():
        summary = (verb.run.__doc__ or "").splitlines()[0]
        subcommands.add_subcommand(name, subparser(verb), help=summary)
    return parser


def subparser(verb: Verb) -> Parser:
    """The parser of one verb."""
    parser = Parser(description=inspect.cleandoc(verb.run.__doc__ or "").partition("\nArgs:")[0].strip())
    for positional, options in verb.positionals:
        parser.add_argument(positional, **options)
    for parameter, flag, options in verb.renamed:
        parser.add_argument(flag, dest=parameter, **options)
    skip: set[str | int] = {*dict(verb.positionals), *(parameter for parameter, _, _ in verb.renamed)}
    if verb.overrides is not None:
        skip.add("overrides")
    parser.add_function_arguments(verb.run, as_positional=False, skip=skip)
    if verb.overrides is not None:
        parser.add_class_arguments(verb.overrides)
    accept_both_spellings(parser)
    return parser


def parse(words: Sequence[str]) -> tuple[Verb, dict[str, Any]]:
    """The verb of a command line, and the parameters it gives."""
    check_words(words, {name: partial(subparser, verb) for name, verb in VERBS.items()})
    arguments = build_parser().parse_args(list(words), defaults=False)
    verb = VERBS[arguments.verb]
    options = arguments[arguments.verb].as_dict() if arguments.verb in arguments else {}
    if verb.overrides is not None:
        fields = {f for f in vars(verb.overrides)["__dataclass_fields__"] if f in options}
        options["overrides"] = {name: options.pop(name) for name in fields}
    return verb, options


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb; a user's mistake is one line on standard error and exit code 1."""
    try:
        verb, options = parse(sys.argv[1:] if argv is None else argv)
        if "out" in options:
            check_folder(options["out"], "--out")
        return verb.run(**options) or 0
    except KeyboardInterrupt:
        print("robustdeq: interrupted", file=sys.stderr)  # noqa: T201
        return 130
    except (ValueError, TypeError, OSError, RuntimeError) as error:
        if os.environ.get("ROBUSTDEQ_TRACEBACK"):
            raise
        print(f"robustdeq: error: {error}", file=sys.stderr)  # noqa: T201
        return 1


if __name__ == "__main__":
    sys.exit(main())
