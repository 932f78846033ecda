"""Whether a file was made by this user in this folder: a keyed digest that only this user's key can make."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path


def origin(content: str) -> str | None:
    """A digest over the content and the current folder under this user's key; None if no key can be kept."""
    key = _key()
    if key is None:
        return None
    return hmac.new(key, f"{Path.cwd()}\n{content}".encode(), hashlib.sha256).hexdigest()


def is_from_here(content: str, claimed: object) -> bool:
    """Whether `origin(content)` was `claimed` by this user in the current folder."""
    expected = origin(content)
    return expected is not None and isinstance(claimed, str) and hmac.compare_digest(expected, claimed)


def _key() -> bytes | None:
    """This user's key, made at its first use."""
    with suppress(OSError, RuntimeError):  # no home folder, or one that cannot be written
        folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "robustdeq"
        path = folder / "key"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            aside = folder / f".key.{os.getpid()}.{secrets.token_hex(4)}"
            with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_bytes(32))
            try:
                os.link(aside, path)  # the first of several processes wins
            except FileExistsError:
                pass
            finally:
                aside.unlink()
        content = path.read_bytes()
        return content if len(content) == 32 else None
    return None
