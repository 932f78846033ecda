"""Parameter counts, state dimensions and names."""

import pytest
import torch

import robustdeq as rd


def count(*modules):
    return sum(p.numel() for module in modules for p in module.parameters())


def test_mdeq_large_has_the_papers_parameters_part_by_part():
    model = rd.create_model("mdeq-large")
    parts = {
        "stem": count(model.encoder.stem),
        "injection": count(model.encoder.injection),
        "f": count(model.dynamics),
        "head bottlenecks": count(model.head.blocks),
        "head downs": count(model.head.down),
        "final conv": count(model.head.final),
        "linear": count(model.head.linear),
    }
    assert parts == {
        "stem": 10_208,
        "injection": 1_088,
        "f": 8_715_232,
        "head bottlenecks": 408_660,
        "head downs": 1_187_760,
        "final conv": 757_680,
        "linear": 16_810,
    }
    assert count(model) == 11_097_438


def test_mdeq_large_has_a_state_of_61440_and_the_papers_settings():
    model = rd.create_model("mdeq-large", num_classes=10)
    with torch.no_grad():
        _, z0 = model.begin(torch.zeros(1, 3, 32, 32))
    assert z0.shape == (1, 61_440)
    assert not z0.any()
    assert model.config.dropout == 0.22
    assert model.solver == rd.Broyden(max_steps=8)
    assert model.gradient == rd.Phantom(steps=5, damping=0.5)
    assert model.tol == 1e-3


def test_resnet18_has_11_2_million_parameters():
    assert count(rd.create_model("resnet18")) == pytest.approx(11.2e6, rel=0.005)


def test_the_models_of_the_tiny_recipes_are_of_equal_size():
    assert count(rd.create_model("mdeq-thin")) == 348_130
    assert count(rd.create_model("resnet-thin")) == 348_850


def test_a_preset_is_known_by_all_its_sizes():
    thin = dict(rd.create_model("mdeq-thin", num_classes=5, dropout=0.3).architecture.options)
    assert rd.create_model("mdeq", **thin).model_name == "mdeq-thin"
    assert rd.create_model("mdeq", **thin | {"encoder_channels": (16,)}).model_name == "mdeq"
    assert rd.create_model("mdeq-thin", encoder_channels=(16,)).model_name == "mdeq"
    assert rd.create_model("mdeq-tiny", groups=8).model_name == "mdeq"
    assert rd.create_model("resnet18", blocks=(1, 1, 1, 1)).model_name == "resnet"


def test_list_models_filters_by_pattern():
    assert {
        "mdeq-large",
        "mdeq-small",
        "mdeq-tiny",
        "mdeq-thin",
        "mdeq-nano",
        "resnet18",
        "resnet-tiny",
        "resnet-thin",
    } <= set(rd.list_models())
    assert rd.list_models("resnet*") == ["resnet", "resnet-thin", "resnet-tiny", "resnet18"]
    assert rd.list_models("nothing-*") == []


@pytest.mark.parametrize("name", ["mdeq-tiny", "mdeq-thin", "mdeq-nano", "resnet-tiny", "resnet-thin"])
def test_options_override_the_named_model(name):
    model = rd.create_model(name, num_classes=7, in_channels=2).eval()
    with torch.no_grad():
        assert model(torch.rand(2, 2, 16, 16)).shape == (2, 7)


def test_solver_and_gradient_are_options_too():
    model = rd.create_model("mdeq-nano", solver=rd.Anderson(max_steps=3), gradient=rd.OneStep(), tol=0.1)
    assert (model.solver, model.gradient, model.tol) == (rd.Anderson(max_steps=3), rd.OneStep(), 0.1)


def test_unknown_name_is_an_error_with_a_suggestion():
    with pytest.raises(ValueError, match="unknown model 'mdeq-lrage'; did you mean 'mdeq-large'"):
        rd.create_model("mdeq-lrage")


@pytest.mark.parametrize(
    ("name", "option", "meant"),
    [("mdeq-tiny", "num_clases", "num_classes"), ("resnet18", "width", "widths"), ("mdeq-nano", "solvr", "solver")],
)
def test_misspelt_option_is_an_error_with_a_suggestion(name, option, meant):
    with pytest.raises(TypeError, match=f"has no option '{option}'; did you mean .*'{meant}'"):
        rd.create_model(name, **{option: 1})


def test_a_name_cannot_be_registered_twice():
    for name in ("mdeq", "mdeq-large"):
        with pytest.raises(ValueError, match=f"'{name}' is registered already"):
            rd.register_model(name)(lambda: None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channels": (8, 16), "head_channels": (4,)}, "one entry per scale"),
        ({"channels": (), "head_channels": ()}, "one entry per scale"),
        ({"groups": 3}, "divide every scale's channels"),
        ({"groups": 1}, "at least 2"),
        ({"dropout": 1.0}, "dropout must lie in"),
        ({"mean": (0.5,)}, "together"),
        ({"mean": (0.5, 0.5), "std": (1.0, 1.0)}, "one entry per input channel"),
        ({"num_classes": 0}, "must be positive"),
        ({"downsample": -1}, "must be positive"),
    ],
)
def test_impossible_sizes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        rd.create_model("mdeq-nano", **options)


def test_registering_without_a_name_is_an_error(as_installed):
    with pytest.raises(TypeError, match="give the model a name"):
        rd.register_model(lambda: None)
