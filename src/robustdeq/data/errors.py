"""Errors about data."""


class DataError(RuntimeError):
    """Data are there but cannot be used; the message names the file and what to do."""


class DataNotFoundError(FileNotFoundError):
    """Data are missing; the message says where they were looked for and how to get them."""


class DownloadError(DataError):
    """A download failed, or gave another file than the one asked for."""
