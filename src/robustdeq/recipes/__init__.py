"""The shipped training recipes, which are the YAML files in this folder."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser, set_parsing_settings

from robustdeq.host.suggestions import did_you_mean
from robustdeq.host.yaml_files import read_yaml
from robustdeq.training import TrainConfig

set_parsing_settings(docstring_parse_attribute_docstrings=True)

FOLDER = Path(__file__).parent


def list_recipes() -> list[str]:
    """Names for `robustdeq train --recipe`."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read_recipe(name: str | Path, folder: Path = Path(), extended: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A shipped recipe by name, or a YAML file, as nested dictionaries.

    `extends: NAME` starts from another recipe; a file's path is relative to `folder`, that of the extending file.
    `extended` are the files that extend this one.
    """
    path = FOLDER / f"{name}.yaml"
    if not path.is_file():
        path = folder / name
    if not path.is_file():
        hint = did_you_mean(str(name), list_recipes(), "'robustdeq recipes' lists them")
        raise ValueError(f"no recipe named {name}, and no such file; {hint}")
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a recipe: expected a mapping at the top")
    base = content.pop("extends", None)
    if base is None:
        return content
    if not isinstance(base, str):
        raise ValueError(f"{path}: extends: expected the name of a recipe or a file, got {base!r}")
    if path.resolve() in extended:
        raise ValueError(f"{path} extends itself, by way of {', '.join(map(str, extended))}")
    return _extend(read_recipe(base, path.parent, (*extended, path.resolve())), content)


def merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with `changes` applied, section by section."""
    result = dict(base)
    for key, value in changes.items():
        nested = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merge(result[key], value) if nested else value
    return result


def with_overrides(recipe: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """A recipe with other values; another model does not take over options and unrolling of the recipe's model."""
    name = overrides.get("model", {}).get("name")
    model = recipe.get("model", {})
    if name is not None and name != model.get("name"):
        recipe = merge({**recipe, "model": {"name": name}}, {"objective": {"unroll": None}})
    return _extend(recipe, overrides)


def _extend(recipe: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The recipe with other values; a length in epochs takes the place of one in steps."""
    schedule = changes.get("schedule")
    if isinstance(schedule, dict) and "epochs" in schedule and "steps" in recipe.get("schedule", {}):
        recipe = merge(recipe, {"schedule": {"steps": None}, "validation": {"every": None}})
    return merge(recipe, changes)


def default_recipe(overrides: dict[str, Any]) -> str:
    """The recipe of a training that names none: TRADES for the data set."""
    return "digits-nano-trades" if overrides.get("data", {}).get("name") == "digits" else "cifar10-tiny-trades"


def load_recipe(name: str | Path, **overrides: Any) -> TrainConfig:
    """A recipe as a typed configuration; an unknown or ill-typed field is an error.

    Args:
        name: A shipped recipe, or a YAML file.
        overrides: Other values, section by section, such as model={"name": "my_deq:conv_deq"} or seed=1.
    """
    return parse_config(with_overrides(read_recipe(name), overrides))


def parse_config(content: dict[str, Any]) -> TrainConfig:
    """Build a configuration from nested dictionaries; an unknown or ill-typed field is an error that names it."""
    parser = _parser()
    for field in fields(TrainConfig):
        if is_dataclass(field.default_factory) and not isinstance(content.get(field.name, {}), dict):
            raise ValueError(
                f"not a training configuration: {field.name}: expected a mapping, got {content[field.name]!r}"
            )
    try:
        parsed = parser.parse_object({"config": content})
        config: TrainConfig = parser.instantiate(parsed).config
    except (ArgumentError, ValueError, TypeError, ArithmeticError, AttributeError) as error:
        raise ValueError(f"not a training configuration: {' '.join(str(error).split())}") from None
    config.objective.build()
    return config


@cache
def _parser() -> ArgumentParser:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(TrainConfig, "config")
    return parser
