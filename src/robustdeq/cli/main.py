"""The `robustdeq` command. Starting it imports next to nothing: what a verb needs is imported when the verb runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb and return its exit code.

    A user's mistake is one line on standard error and exit code 1, or 2 if the command line itself is wrong. So is
    everything else that goes wrong. Ctrl-C is one line and exit code 130, at any moment. A reader who has seen enough
    (`robustdeq ... | head`) ends it quietly. With ROBUSTDEQ_TRACEBACK=1 an error shows its traceback.
    """
    from robustdeq.host.terminal import complain, escape_unknown_characters, leave_quietly

    try:
        escape_unknown_characters()
        words = list(sys.argv[1:] if argv is None else argv)
        if words == ["--version"]:
            from robustdeq import __version__

            print(f"robustdeq {__version__}")  # noqa: T201
            return 0
        from robustdeq.cli.arguments.parser import parse
        from robustdeq.host.references import current_folder_importable

        with current_folder_importable(first=False):  # a yaml.py there must not hide a library
            code = parse(words)() or 0
        sys.stdout.flush()
        return code
    except KeyboardInterrupt as stop:
        if os.environ.get("RANK", "0") == "0":  # the other processes of torchrun say nothing
            print(str(stop) or "Interrupted.", file=sys.stderr)  # noqa: T201
        return int(getattr(stop, "code", 130))
    except BrokenPipeError:
        leave_quietly()
        return 1
    except (SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a panic of polars is no Exception
        if os.environ.get("ROBUSTDEQ_TRACEBACK"):
            raise
        if _interrupted(error):
            print("Interrupted.", file=sys.stderr)  # noqa: T201
            return 130
        complain(_sentence(error))
        return 1


def _interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: packages that are interrupted while they are imported raise errors of all
    kinds.
    """
    return error is not None and (
        isinstance(error, KeyboardInterrupt) or _interrupted(error.__cause__ or error.__context__)
    )


def _sentence(error: BaseException) -> str:
    """The error in a line; one that nobody foresaw is named by its kind."""
    if isinstance(error, RecursionError | UnicodeError) or not isinstance(
        error, ValueError | TypeError | OSError | RuntimeError
    ):
        said = " ".join(str(error).split())
        return f"{type(error).__name__}{said and f': {said}'} (ROBUSTDEQ_TRACEBACK=1 shows where)"
    return str(error) or type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
