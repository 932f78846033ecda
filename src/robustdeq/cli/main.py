"""The `robustdeq` command. Starting it imports next to nothing: what a verb needs is imported when the verb runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb and return its exit code.

    A user's mistake is one line on standard error and exit code 1, or 2 if the command line itself is wrong. Ctrl-C is
    one line and exit code 130, at any moment. With ROBUSTDEQ_TRACEBACK=1 an error shows its traceback.
    """
    try:
        words = list(sys.argv[1:] if argv is None else argv)
        if words == ["--version"]:
            from robustdeq import __version__

            print(f"robustdeq {__version__}")  # noqa: T201
            return 0
        from robustdeq.cli.parser import parse
        from robustdeq.host.references import current_folder_importable

        with current_folder_importable(first=False):  # a yaml.py there must not hide a library
            return parse(words)() or 0
    except KeyboardInterrupt as stop:
        if os.environ.get("RANK", "0") == "0":  # the other processes of torchrun say nothing
            print(str(stop) or "Interrupted.", file=sys.stderr)  # noqa: T201
        return int(getattr(stop, "code", 130))
    except (ValueError, TypeError, OSError, RuntimeError) as error:
        if os.environ.get("ROBUSTDEQ_TRACEBACK"):
            raise
        print(f"robustdeq: error: {error}", file=sys.stderr)  # noqa: T201
        return 1


if __name__ == "__main__":
    sys.exit(main())
