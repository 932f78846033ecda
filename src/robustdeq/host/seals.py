"""Digests that a file carries in itself: whether a byte of it has changed since it was written can be seen.

A format with room for a text, such as the metadata of Parquet and safetensors or the comment of a zip file, takes
`BLANK`; `sealed` replaces it by the SHA-256 of the whole content. The file stays an ordinary one of its format, and it
is checked before any parser sees it.
"""

from __future__ import annotations

import hashlib

MARK = b"robustdeq-sha256:"
BLANK = MARK + b"0" * 64
"""The text to write where the digest belongs."""


def sealed(content: bytes) -> bytes:
    """The content, with the SHA-256 of itself in place of the last `BLANK`."""
    place = content.rindex(BLANK) + len(MARK)
    return content[:place] + hashlib.sha256(content).hexdigest().encode() + content[place + 64 :]


def seal_holds(content: bytes) -> bool | None:
    """Whether the content is what was sealed; None if it carries no seal, as files of earlier versions."""
    place = content.rfind(MARK)
    if place < 0:
        return None
    place += len(MARK)
    blank = hashlib.sha256(content[:place] + b"0" * 64 + content[place + 64 :])
    return blank.hexdigest().encode() == content[place : place + 64]


def comment_holds(archive: bytes) -> bool:
    """Whether a zip file is what `with_comment` made; one without any comment, as of earlier versions, counts as whole.

    A seal whose own name is damaged is a comment still.
    """
    held = seal_holds(archive)
    return archive[-22:-18] == b"PK\5\6" if held is None else held


def with_comment(archive: bytes) -> bytes:
    """A zip file without a comment, such as torch.save writes, with a seal as its comment."""
    return sealed(archive[:-2] + len(BLANK).to_bytes(2, "little") + BLANK)
