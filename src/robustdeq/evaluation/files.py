"""The files of a store, written as all files are that must be whole."""

from robustdeq.files import DiskFullError, remove_stale, write_atomically

__all__ = ["DiskFullError", "remove_stale", "write_atomically"]
