"""What can be wrong with data."""


class DataError(RuntimeError):
    """Data that are there but cannot be used, with the file and what to do."""


class DataNotFoundError(FileNotFoundError):
    """Data that are not there, with where they were looked for and how to get them."""


class DownloadError(DataError):
    """A download that did not end with the file that was asked for."""
