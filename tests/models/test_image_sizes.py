"""Images of every size that the scales divide are accepted; others are refused with a reason."""

import pytest
import torch
from torch import nn

import robustdeq as rd


@pytest.mark.parametrize("scales", [1, 2, 3, 4])
@pytest.mark.parametrize("downsample", [0, 1, 2, 3])
def test_every_number_of_scales_and_downsamplings_works_on_non_square_images(
    make_mdeq, make_images, scales, downsample
):
    model = make_mdeq(scales=scales, downsample=downsample, solver=rd.Broyden(max_steps=2), gradient=rd.OneStep())
    unit = 2 ** (downsample + scales - 1)
    assert model.config.divisor == unit
    height, width = 2 * unit, 4 * unit
    images = make_images(2, 3, height, width)
    with torch.no_grad():
        assert model(images).isfinite().all()
        f, z0 = model.begin(images)
    shapes = [tuple(m.shape[1:]) for m in f.unpack(z0)]
    resolution = height >> downsample, width >> downsample
    assert shapes == [(c, resolution[0] >> i, resolution[1] >> i) for i, c in enumerate(model.config.channels)]


@pytest.mark.parametrize("scales", [1, 2, 3, 4])
@pytest.mark.parametrize("downsample", [0, 1, 2, 3])
def test_the_injection_convolution_is_absent_only_without_downsampling_and_with_at_most_two_scales(
    make_mdeq, scales, downsample
):
    model = make_mdeq(scales=scales, downsample=downsample)
    absent = downsample == 0 and scales <= 2
    assert isinstance(model.encoder.injection, nn.Identity) == absent
    strides = [m.stride[0] for m in model.encoder.stem if isinstance(m, nn.Conv2d)]
    assert strides == {0: [1, 1], 1: [2, 1], 2: [2, 2], 3: [2, 2, 2]}[downsample]


@pytest.mark.parametrize(("channels", "classes"), [(1, 2), (4, 1), (7, 100)])
def test_any_number_of_channels_and_classes_works(make_mdeq, make_images, channels, classes):
    model = make_mdeq(in_channels=channels, num_classes=classes, solver=rd.Picard(max_steps=2))
    with torch.no_grad():
        assert model(make_images(2, channels, 4, 6)).shape == (2, classes)


def test_one_pixel_per_coarsest_scale_is_enough(make_mdeq, make_images):
    with torch.no_grad():
        assert make_mdeq(scales=3)(make_images(2, 3, 4, 4)).isfinite().all()


@pytest.mark.parametrize("batch", [1, 3])
def test_one_value_per_group_is_enough(make_mdeq, make_images, batch):
    model = make_mdeq(scales=3, channels=(4, 4, 4), groups=4)
    images = make_images(3, 3, 4, 4)
    with torch.no_grad():
        expected = model(images)
        assert expected.isfinite().all()
        torch.testing.assert_close(model(images[:batch]), expected[:batch], rtol=0, atol=1e-12)


def test_normalisation_is_a_layer_of_the_model(make_mdeq, make_images):
    images = make_images(2, 3, 4, 4)
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)
    plain, normalised = make_mdeq(), make_mdeq(mean=mean, std=std)
    normalised.load_state_dict(plain.state_dict())
    shifted = (images - images.new_tensor(mean)[:, None, None]) / images.new_tensor(std)[:, None, None]
    with torch.no_grad():
        torch.testing.assert_close(normalised(images), plain(shifted), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 3, 9, 8), "image size 9x8 does not fit: height and width must be multiples of 2"),
        ((2, 3, 8, 7), "image size 8x7 does not fit"),
        ((2, 3, 0, 8), "does not fit"),
        ((2, 1, 8, 8), r"expected images of shape \(batch, 3, height, width\), got \(2, 1, 8, 8\)"),
        ((3, 8, 8), r"expected images of shape .* got \(3, 8, 8\)"),
        ((0, 3, 8, 8), "at least one image"),
    ],
)
def test_images_that_do_not_fit_are_refused(model, shape, message):
    with pytest.raises(ValueError, match=message):
        model(torch.zeros(shape, dtype=torch.float64))
    with pytest.raises(ValueError, match=message):
        model.trajectory(torch.zeros(shape, dtype=torch.float64))


def test_integer_pixels_are_refused(model):
    with pytest.raises(TypeError, match=r"floating-point pixels in \[0, 1\], got torch.uint8"):
        model(torch.zeros(2, 3, 8, 8, dtype=torch.uint8))


def test_images_of_another_precision_are_refused(make_mdeq):
    model = make_mdeq(dtype=torch.float32)
    with pytest.raises(TypeError, match=r"images are torch.float64 on cpu, the model is torch.float32"):
        model(torch.zeros(2, 3, 8, 8, dtype=torch.float64))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_non_finite_image_is_contained(model, x, bad):
    spoilt = x.clone()
    spoilt[1, 0, 2, 3] = bad
    with torch.no_grad():
        logits, clean = model(spoilt), model(x)
        trajectory, undisturbed = model.trajectory(spoilt), model.trajectory(x)
    others = [0, 2]
    assert logits[1].isnan().all()
    torch.testing.assert_close(logits[others], clean[others], rtol=0, atol=1e-10)
    assert trajectory.status[1] == rd.Status.NON_FINITE
    assert (trajectory.status[others] == undisturbed.status[others]).all()
    torch.testing.assert_close(trajectory.states[:, others], undisturbed.states[:, others], rtol=0, atol=1e-10)


def test_residual_blocks_of_the_encoder_stand_where_they_are_asked_for_and_keep_the_resolution(make_mdeq, make_images):
    plain, model = make_mdeq(downsample=2), make_mdeq(downsample=2, encoder_blocks=[2, 1])
    kinds = [type(m).__name__ for m in model.encoder.stem]
    assert kinds == [
        *["Conv2d", "BatchNorm2d", "ReLU"],
        *["BasicBlock"] * 2,
        *["Conv2d", "BatchNorm2d", "ReLU"],
        "BasicBlock",
    ]
    x = make_images(2, 3, 16, 16)
    assert model.encoder(x).shape == plain.encoder(x).shape
    encoder, _ = model.inference_parts()
    torch.testing.assert_close(encoder(x), model.encoder(x), rtol=1e-12, atol=1e-12)  # folded or not


def test_an_encoder_may_be_narrower_before_its_last_convolution(make_mdeq, make_images):
    plain, model = make_mdeq(downsample=3), make_mdeq(downsample=3, encoder_channels=[5], encoder_blocks=[1])
    width = plain.config.channels[0]
    convolutions = [m for m in model.encoder.stem if type(m).__name__ == "Conv2d"]
    assert [m.out_channels for m in convolutions] == [5, width, width]  # what is not given has the state's width
    assert model.encoder.stem[3].conv1.in_channels == 5
    x = make_images(2, 3, 16, 16)
    assert model.encoder(x).shape == plain.encoder(x).shape
    encoder, _ = model.inference_parts()
    torch.testing.assert_close(encoder(x), model.encoder(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"encoder_blocks": (1, 1, 1)}, "encoder_blocks: expected whole numbers up to 1,000, at most 2"),
        ({"encoder_blocks": (-1,)}, "encoder_blocks has counts >= 0"),
        ({"encoder_channels": (4, 4)}, "encoder_channels: expected whole numbers up to 1,048,576, at most 1"),
        ({"encoder_channels": (0,)}, "every size must be positive"),
        ({"encoder_channels": ("4",)}, "encoder_channels: expected whole numbers"),
    ],
)
def test_an_encoder_that_the_stem_has_no_place_for_is_refused(make_mdeq, options, words, as_installed):
    with pytest.raises(ValueError, match=words):
        make_mdeq(downsample=2, **options)
