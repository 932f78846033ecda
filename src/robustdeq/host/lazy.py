"""Packages whose imports wait until a name is used, so that `robustdeq --help` does not wait for torch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any


def lazily(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__` (PEP 562): the imports under `if TYPE_CHECKING:` happen at first use.

    The imports are read from the package's own source, so that type checkers, editors and the running program share
    one list of names. Sub-packages can be reached as attributes too.
    """
    module = sys.modules[package]

    @cache
    def homes() -> dict[str, str]:
        """The module that each name is imported from."""
        import ast

        source = module.__spec__.loader.get_source(package)  # type: ignore[union-attr]
        if source is None:
            raise ImportError(f"{package} reads its list of names from its source, and this installation has none")
        blocks = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
        imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
        return {alias.name: str(node.module) for node in imports for alias in node.names}

    def get(name: str) -> Any:
        from importlib import import_module, util

        if name in homes():
            home = import_module(homes()[name])
            value = getattr(home, name) if hasattr(home, name) else import_module(f"{homes()[name]}.{name}")
        elif not name.startswith("_") and util.find_spec(f"{package}.{name}"):
            value = import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(module, name, value)
        return value

    return get, lambda: sorted({*vars(module), *homes()})
