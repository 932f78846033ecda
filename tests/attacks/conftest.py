"""What the tests of attacks and oracles share."""

from ..defences.conftest import as_installed

__all__ = ["as_installed"]
