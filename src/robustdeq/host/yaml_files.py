"""YAML files that somebody else wrote, read without executing, overwriting or unpacking anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from robustdeq.host.files import read_regular

LARGEST = 2**20
"""Bytes of a file."""
MOST = 20_000
"""Values of a file, with all that its aliases repeat."""
DEEPEST = 50
"""Levels of nesting."""


class YamlError(ValueError):
    """A file that is not YAML, or more than YAML should be; the message names it."""


def read_yaml(path: Path) -> Any:
    """The content of a YAML or JSON file.

    Keys that stand there twice, aliases that contain themselves or repeat more than a file should hold, and files of
    other encodings are errors.
    """
    try:
        size = path.stat().st_size if path.is_file() else 0
        if size > LARGEST:
            raise YamlError(f"{path} has {size:,} bytes, more than a YAML file of settings ({LARGEST:,})")
        text = read_regular(path).decode()
        depth = 0
        for event in yaml.parse(text, yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise YamlError(f"{path}, line {event.start_mark.line + 1}: nested deeper than {DEEPEST} levels")
        node = yaml.compose(text, yaml.SafeLoader)
        if node is None:
            return None
        _Check(path).check(node, ())
        return yaml.safe_load(text)
    except UnicodeDecodeError as error:
        raise YamlError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start})") from None
    except YamlError:
        raise
    except (yaml.YAMLError, ValueError, TypeError, ArithmeticError) as error:
        raise YamlError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None


class _Check:
    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 0

    def check(self, node: yaml.Node, above: tuple[yaml.Node, ...]) -> None:
        self.count += 1
        line = f"{self.path}, line {node.start_mark.line + 1}"
        if any(node is outer for outer in above):
            raise YamlError(f"{line}: an alias stands for something that contains it")
        if self.count > MOST or len(above) > DEEPEST:
            raise YamlError(f"{line}: more than {MOST:,} values or {DEEPEST} levels, with what aliases repeat")
        inside = (*above, node)
        if isinstance(node, yaml.MappingNode):
            known = set()
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                    if (key.tag, key.value) in known:
                        raise YamlError(
                            f"{self.path}, line {key.start_mark.line + 1}: {key.value} stands there twice, "
                            "and only one of them would count: remove the other"
                        )
                    known.add((key.tag, key.value))
                self.check(key, inside)
                self.check(value, inside)
        elif isinstance(node, yaml.SequenceNode):
            for value in node.value:
                self.check(value, inside)
