"""Weights under the released code's names become a model that computes what the released evaluation does."""

import copy
import json
import re

import numpy as np
import pytest
import torch

import robustdeq as rd
from robustdeq.models.compat import infer_sizes, load_released, released_config, rename

RULES = [
    (r"encoder\.stem\.(.+)", r"downsample.\1"),
    (r"encoder\.injection\.(.+)", r"stage0.\1"),
    (r"dynamics\.blocks\.(\d+)\.(.+)", r"fullstage.branches.\1.blocks.0.\2"),
    (r"dynamics\.out_conv\.(\d+)\.(.+)", r"fullstage.post_fuse_layers.\1.conv.\2"),
    (r"head\.blocks\.(\d+)\.shortcut\.(.+)", r"incre_modules.\1.0.downsample.\2"),
    (r"head\.blocks\.(\d+)\.(.+)", r"incre_modules.\1.0.\2"),
    (r"head\.down\.(.+)", r"downsamp_modules.\1"),
    (r"head\.final\.(.+)", r"final_layer.\1"),
    (r"head\.linear\.(.+)", r"classifier.\1"),
]


def released_name(key):
    if match := re.fullmatch(r"dynamics\.up\.(\d)_(\d)\.(\d)\.(.+)", key):
        source, target, layer, rest = match.groups()
        return f"fullstage.fuse_layers.{target}.{source}.net.{('conv', 'gnorm')[int(layer)]}.{rest}"
    if match := re.fullmatch(r"dynamics\.down\.(\d)_(\d)\.(\d)\.(.+)", key):
        source, target, layer, rest = match.groups()
        k, kind = divmod(int(layer), 3)
        return f"fullstage.fuse_layers.{target}.{source}.net.{k}.{('conv', 'gnorm')[kind]}.{rest}"
    return next(m.expand(new) for pattern, new in RULES if (m := re.fullmatch(pattern, key)))


def released(model):
    config = model.config
    sizes = {
        name: getattr(config, name)
        for name in ("num_classes", "channels", "expansion", "head_channels", "final_channels")
    }
    settings = released_config(sizes, groups=config.groups, downsample=config.downsample, dropout=config.dropout)
    return settings, {released_name(k): v.clone() for k, v in model.state_dict().items()}


@pytest.fixture(params=[(2, 1), (4, 0), (2, 0)], ids=["2 scales, halved", "4 scales", "2 scales"])
def original(request, make_mdeq):
    scales, downsample = request.param
    return make_mdeq(scales=scales, downsample=downsample, dropout=0.2)


def test_every_released_weight_is_loaded_under_our_name(original, make_images):
    config, weights = released(original)
    loaded = load_released(config, weights)
    assert loaded.config == original.config
    for key, value in original.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], value), key
        assert rename(released_name(key)) == key
    x = make_images(2, 3, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(loaded.truncated(x), original.truncated(x), rtol=0, atol=0)


def test_solver_tolerance_and_gradient_are_those_of_the_released_evaluation(model):
    loaded = load_released(*released(model))
    assert loaded.solver == rd.Broyden(max_steps=8, batch_coupled=True)
    assert loaded.tol == 1e-3
    assert loaded.gradient == rd.Phantom(9, 0.5)
    assert loaded.readout == "lowest"
    assert not loaded.training


def test_a_third_downsampling_is_found_by_its_name(make_mdeq):
    original = make_mdeq(scales=2, downsample=3)
    config, weights = released(original)
    named = {"downsample.6.": "downsample.DS3.", "downsample.7.": "downsample.DS3-BN."}
    by_name = {}
    for key, value in weights.items():
        start = next((start for start in named if key.startswith(start)), "")
        by_name[named.get(start, "") + key.removeprefix(start)] = value
    assert sum(key.startswith("downsample.DS3") for key in by_name) == 6
    loaded = load_released(config, by_name)
    assert all(torch.equal(loaded.state_dict()[key], value) for key, value in original.state_dict().items())


def test_a_configuration_may_be_json_also_as_numpy_stores_it(model):
    config, weights = released(model)
    for stored in (json.dumps(config), np.array(json.dumps(config))):
        assert load_released(stored, weights).config == model.config


def test_f_thres_is_the_number_of_steps(model):
    config, weights = released(model)
    assert load_released({**config, "DEQ": {"F_THRES": 5}}, weights).solver.max_steps == 5


def test_arrays_and_dataparallel_prefixes_are_accepted(model):
    config, weights = released(model)
    state = torch.get_rng_state()
    loaded = load_released(config, {f"module.{k}": np.asarray(v) for k, v in weights.items()})
    assert all(
        torch.equal(a, b) for a, b in zip(loaded.state_dict().values(), model.state_dict().values(), strict=True)
    )
    assert torch.equal(torch.get_rng_state(), state)


def test_a_loaded_model_can_be_saved_and_loaded(model, tmp_path, x):
    loaded = load_released(*released(model))
    loaded.save_pretrained(tmp_path)
    again = rd.load(tmp_path)
    assert again.solver == loaded.solver
    assert torch.equal(again(x), loaded(x))


def test_unknown_entries_are_refused(model):
    config, weights = released(model)
    weights["attention.0.weight"] = torch.zeros(1)
    with pytest.raises(ValueError, match=r"unknown entries attention\.0\.weight"):
        load_released(config, weights)


@pytest.mark.parametrize("key", ["classifier.bias", "fullstage.branches.0.blocks.0.conv1.weight_g"])
def test_missing_entries_are_refused(model, key):
    config, weights = released(model)
    del weights[key]
    with pytest.raises(ValueError, match="do not fit the configuration"):
        load_released(config, weights)


def test_entries_of_another_shape_are_refused(model):
    config, weights = released(model)
    config["MODEL"]["NUM_CLASSES"] = 9
    with pytest.raises(ValueError, match=r"do not fit the configuration[\s\S]*head\.linear\.weight"):
        load_released(config, weights)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("MODEL.WNORM", False),
        ("MODEL.NAME", "resnet"),
        ("MODEL.POST_GN_AFFINE", True),
        ("MODEL.BLOCK_GN_AFFINE", False),
        ("MODEL.FUSE_GN_AFFINE", False),
        ("MODEL.EXTRA.FULL_STAGE.NUM_MODULES", 2),
        ("MODEL.EXTRA.FULL_STAGE.BLOCK", "BOTTLENECK"),
        ("MODEL.EXTRA.FULL_STAGE.FUSE_METHOD", "CAT"),
        ("MODEL.EXTRA.FULL_STAGE.NUM_BLOCKS", [1, 2]),
        ("MODEL.EXTRA.FULL_STAGE.BIG_KERNELS", [0, 1]),
        ("DEQ.F_SOLVER", "anderson"),
        ("DEQ.STOP_MODE", "abs"),
    ],
)
def test_unsupported_values_are_refused(model, path, value):
    config, weights = released(model)
    config = copy.deepcopy({**config, "DEQ": {}})
    *sections, key = path.split(".")
    section = config
    for name in sections:
        section = section[name]
    section[key] = value
    with pytest.raises(ValueError, match=rf"{key} = .* is not supported, only "):
        load_released(config, weights)


@pytest.mark.parametrize("config", [{}, {"MODEL": None}, {"MODEL": {"EXTRA": {"FULL_STAGE": {}}}}])
def test_other_configurations_are_refused(model, config):
    with pytest.raises(ValueError, match="not a released configuration"):
        load_released(config, released(model)[1])


def test_sizes_are_recovered_from_the_weights(original):
    _, weights = released(original)
    sizes = infer_sizes({f"module.{k}": v for k, v in weights.items()})
    assert {k: getattr(original.config, k) for k in sizes} == sizes
    assert sizes.keys() == {
        "num_classes", "in_channels", "channels", "expansion", "head_channels", "final_channels",
    }  # fmt: skip
    config = original.config
    rebuilt = released_config(sizes, groups=config.groups, downsample=config.downsample, dropout=config.dropout)
    assert load_released(rebuilt, weights).config == config


@pytest.mark.parametrize("weights", [{}, {"layer1.0.conv1.weight": torch.zeros(4, 3, 3, 3)}])
def test_sizes_of_other_weights_are_refused(weights):
    with pytest.raises(ValueError, match="not weights of the released MDEQ"):
        infer_sizes(weights)
