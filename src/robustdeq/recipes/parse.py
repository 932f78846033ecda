"""Makes a typed configuration from nested dictionaries."""

from __future__ import annotations

from functools import cache
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser, set_parsing_settings

from robustdeq.training import TrainConfig

set_parsing_settings(docstring_parse_attribute_docstrings=True)


def parse_config(content: dict[str, Any]) -> TrainConfig:
    """Build the configuration; an unknown or ill-typed field is an error that names it."""
    parser = _parser()
    try:
        parsed = parser.parse_object({"config": content})
    except (ArgumentError, ValueError, TypeError) as error:
        raise ValueError(f"not a training configuration: {error}") from None
    config: TrainConfig = parser.instantiate(parsed).config
    config.objective.build()
    return config


@cache
def _parser() -> ArgumentParser:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(TrainConfig, "config")
    return parser
