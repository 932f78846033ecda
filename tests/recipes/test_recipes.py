"""Every shipped recipe parses and builds; what a user writes is read the same way, or refused by name."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

import robustdeq as rd
from robustdeq.recipes import list_recipes, load_recipe, merge, parse_config, read_recipe
from robustdeq.threat import Linf
from robustdeq.training import PGDAT, TRADES, Final, RandomState, TrainConfig

WANTED = [
    *(
        f"cifar10-{size}-{kind}{states}"
        for size in ("large", "tiny")
        for kind in ("pgdat", "trades")
        for states in ("", "-random")
    ),
    *(f"cifar10-{model}-{kind}" for model in ("large-resnet18", "tiny-resnet") for kind in ("pgdat", "trades")),
    *(f"digits-nano-{kind}{states}" for kind in ("pgdat", "trades") for states in ("", "-random")),
    *(f"cifar10-{size}-trades-jacobian{weight}" for size in ("large", "tiny") for weight in ("0.4", "2.0")),
    *(f"cifar10-{size}-pgdat-jacobian0.4" for size in ("large", "tiny")),
    "cifar10-tiny-pgdat-jacobian2.0",
]


RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize(
    "path",
    sorted(RESULTS.glob("**/recipes/*.yaml")),
    ids=lambda path: f"{path.parts[-3]}-{path.stem}",
)
def test_a_recipe_of_the_results_builds_a_model_of_at_most_400_000_parameters(path):
    config = parse_config(read_recipe(str(path)))
    config.objective.build()
    model = rd.create_model(config.model.name, **config.model.options)
    assert sum(p.numel() for p in model.parameters()) <= 400_000
    assert config.description


def test_the_recipes_are_the_promised_ones():
    assert list_recipes() == sorted(WANTED)


@pytest.mark.parametrize("name", WANTED)
def test_a_shipped_recipe_builds_what_its_name_says_and_describes_its_cost(name):
    config = load_recipe(name)
    objective = config.objective.build()
    assert type(objective) is (PGDAT if "pgdat" in name else TRADES)
    assert objective.states == (RandomState("paper") if "random" in name else Final())
    assert config.data.name == name.split("-")[0]
    assert config.model.name in rd.list_models()
    assert ("resnet" in config.model.name) == ("resnet" in name)
    with torch.device("meta"):  # the sizes alone: large ones take seconds to fill
        model = rd.create_model(config.model.name, **config.model.options)
    assert isinstance(model, rd.DEQ) == ("resnet" not in name)
    if "jacobian" in name:
        assert config.jacobian.weight == float(name.partition("jacobian")[2])
    description = config.description
    assert any(unit in description for unit in ("minute", "hour", "day"))
    assert ("GPU" in description) == ("large" in name)
    assert ("random" in description) == ("random" in name)


@pytest.mark.parametrize(("kind", "weight"), [("pgdat", 2.0), ("trades", 0.4)])
def test_the_large_recipes_have_the_paper_s_values(kind, weight):
    config = load_recipe(f"cifar10-large-{kind}")
    objective, schedule = config.objective.build(), config.schedule
    assert (objective.threat, objective.steps, objective.step_size) == (Linf(8 / 255), 10, 2 / 255)
    assert (schedule.epochs, schedule.batch_size, schedule.pretrain_steps) == (210, 96, 16000)
    assert (schedule.lr, schedule.final_lr, schedule.weight_decay, schedule.warmup_steps) == (1e-3, 1e-6, 0, 0)
    assert (config.jacobian.weight, config.jacobian.probability, config.jacobian.until_epoch) == (weight, 0.02, 90)
    assert (config.data.padding, config.data.flip) == (4, True)
    assert config.model.name == "mdeq-large"
    if kind == "trades":
        assert objective.beta == 6.0


@pytest.mark.parametrize("name", ["digits-nano-trades", "cifar10-large-pgdat", "cifar10-large-trades"])
def test_a_random_recipe_differs_from_its_base_in_the_states_alone(name):
    base, random = read_recipe(name), read_recipe(f"{name}-random")
    assert random["description"] != base["description"]
    assert merge(base, {"description": random["description"], "objective": {"states": "random"}}) == random


@pytest.mark.parametrize("kind", ["pgdat", "trades"])
def test_the_tiny_recipes_share_all_but_their_subject_and_their_length(kind):
    base, random, resnet = (load_recipe(f"cifar10-tiny-{name}") for name in (kind, f"{kind}-random", f"resnet-{kind}"))
    assert replace(random.objective, states="final") == base.objective
    assert replace(resnet.objective, inner="carried", unroll=base.objective.unroll) == base.objective
    for other in (random, resnet):
        assert (other.data, other.jacobian, other.seed) == (base.data, base.jacobian, base.seed)
        assert replace(other.schedule, steps=base.schedule.steps) == base.schedule
        assert other.schedule.steps > base.schedule.steps  # cheaper steps: more of them in the same time
    for config in (base, random, resnet):
        assert config.schedule.steps == 4 * config.validation.every
    assert random.model == base.model


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ({"sched": {"lr": 0.1}}, "sched"),
        ({"schedule": {"learning_rate": 0.1}}, "learning_rate"),
        ({"schedule": {"lr": "fast"}}, "lr"),
        ({"objective": {"kind": "fgsm"}}, "kind"),
        ({"schedule": {"epochs": 2.5}}, "epochs"),
        ({"precision": "8-true"}, "precision"),
    ],
)
def test_an_unknown_or_ill_typed_field_is_an_error_that_names_it(content, field):
    with pytest.raises(ValueError, match=field):
        parse_config(content)


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ({"schedule": {"epochs": 0}}, "epochs"),
        ({"schedule": {"batch_size": 0}}, "batch_size"),
        ({"checkpoint_every": 0}, "checkpoint_every"),
        ({"validation": {"images": 0}}, "images"),
        ({"objective": {"steps": -1}}, "steps"),
        ({"objective": {"eps": "8/0"}}, "8/0"),
        ({"objective": {"eps": "wide"}}, "wide"),
        ({"objective": {"eps": -0.1}}, "eps"),
        ({"objective": {"inner_first": 0}}, "inner_first"),
        ({"objective": {"inner_damping": 2.0}}, "inner_damping"),
        ({"objective": {"inner_handed_on": True, "states": "random"}}, "inner_handed_on"),
        ({"objective": {"label_smoothing": 1.0}}, "label_smoothing"),
        ({"seed": -1}, "seed"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_before_anything_runs(content, field):
    with pytest.raises(ValueError, match=field):
        parse_config(content)


@pytest.mark.parametrize(("written", "value"), [("8/255", 8 / 255), (0.1, 0.1), (1, 1.0), ("0.1", 0.1), ("1e-2", 0.01)])
def test_budgets_may_be_fractions(written, value):
    objective = parse_config({"objective": {"eps": written, "step_size": written}}).objective.build()
    assert objective.threat.eps == value
    assert objective.step_size == value


def test_a_length_in_epochs_takes_the_place_of_one_in_steps(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("extends: cifar10-tiny-trades\nschedule: {epochs: 20}\n")
    for config in (load_recipe("cifar10-tiny-trades", schedule={"epochs": 20}), load_recipe(file)):
        assert (config.schedule.epochs, config.schedule.steps, config.validation.every) == (20, None, None)
    kept = load_recipe("cifar10-tiny-trades", schedule={"lr": 0.001})
    assert kept.schedule.steps == load_recipe("cifar10-tiny-trades").schedule.steps


def test_a_model_of_another_name_takes_over_neither_options_nor_unrolling():
    config = load_recipe("cifar10-tiny-trades", model={"name": "my_deq:conv_deq"})
    assert (config.model.options, config.objective.unroll) == ({}, None)
    assert load_recipe("cifar10-tiny-trades").objective.unroll == 2


def test_an_empty_recipe_is_the_default_configuration():
    assert parse_config({}) == TrainConfig()


def test_merging_goes_section_by_section_and_leaves_its_arguments_alone():
    base = {"a": {"b": 1, "c": 2}, "d": 3}
    assert merge(base, {"a": {"c": 4}, "e": {"f": 5}}) == {"a": {"b": 1, "c": 4}, "d": 3, "e": {"f": 5}}
    assert base == {"a": {"b": 1, "c": 2}, "d": 3}


def test_a_user_s_own_file_may_extend_a_shipped_recipe(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("extends: digits-nano-trades-random\nschedule: {lr: 1e-3}\nmodel: {options: {dropout: 0.1}}\n")
    config, base = load_recipe(file), load_recipe("digits-nano-trades-random")
    assert config.schedule.lr == 1e-3
    assert config.schedule.epochs == base.schedule.epochs
    assert config.objective == base.objective
    assert config.model.options == {"dropout": 0.1}
    assert load_recipe(str(file)) == config


def test_a_user_s_own_file_may_stand_alone(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump({"data": {"name": "digits"}, "model": {"name": "mdeq-nano"}}))
    assert load_recipe(file).schedule == TrainConfig().schedule


@pytest.mark.parametrize("text", ["- a\n- list\n", "", "a: [1,\n"])
def test_a_file_that_is_no_recipe_is_refused_with_its_path(tmp_path, text):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"mine\.yaml"):
        read_recipe(file)


def test_an_unknown_name_is_refused_with_a_suggestion():
    with pytest.raises(ValueError, match="did you mean digits-nano-trades") as error:
        read_recipe("digit-nano-trades")
    assert "\n" not in str(error.value)
