"""A user's own images in folders."""

import numpy as np
import pytest
import torch
from PIL import Image

from robustdeq.data import DataError, DataNotFoundError, load_folder

rng = np.random.default_rng(0)


def save(path, image):
    path.parent.mkdir(parents=True, exist_ok=True)
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(path)
    return path


def noise(height=6, width=5, channels=3):
    return rng.integers(0, 256, (height, width, channels), dtype=np.uint8)


@pytest.fixture
def root(tmp_path):
    """train: 20 zebras, 10 ants; test: 2 and 3; each image's first pixel is its label and number."""
    for part, counts in (("train", {"zebra": 20, "ant": 10}), ("test", {"zebra": 2, "ant": 3})):
        for name, count in counts.items():
            for i in range(count):
                pixels = noise()
                pixels[0, 0] = (name == "zebra", i, part == "test")
                save(tmp_path / part / name / f"{i:02d}.png", pixels)
    return tmp_path


def keys(images):
    return sorted(tuple(p) for p in images.pixels[:, :, 0, 0].tolist())


def test_images_have_the_label_of_their_folder_and_classes_are_sorted(root):
    for part in load_folder(root):
        assert part.classes == ("ant", "zebra")
        assert part.pixels.shape[1:] == (3, 6, 5)
        assert torch.equal(part.labels, part.pixels[:, 0, 0, 0].long())


def test_pixels_are_those_of_the_files(root):
    _, _, test = load_folder(root)
    for pixels in test.pixels:
        label, number, _ = pixels[:, 0, 0].tolist()
        with Image.open(root / "test" / ("ant", "zebra")[label] / f"{number:02d}.png") as image:
            assert np.array_equal(pixels.permute(1, 2, 0).numpy(), np.asarray(image))


def test_a_tenth_of_each_class_is_held_out_and_every_image_used_once(root):
    train, validation, test = load_folder(root)
    assert torch.bincount(validation.labels).tolist() == [1, 2]
    assert sorted(keys(train) + keys(validation)) == sorted(
        [(0, i, 0) for i in range(10)] + [(1, i, 0) for i in range(20)]
    )
    assert keys(test) == sorted([(0, i, 1) for i in range(3)] + [(1, i, 1) for i in range(2)])


@pytest.mark.parametrize(("held_out", "shares"), [(0, [0, 0]), (6, [2, 4]), (15, [5, 10])])
def test_as_many_are_held_out_as_asked_for(root, held_out, shares):
    assert torch.bincount(load_folder(root, held_out=held_out)[1].labels, minlength=2).tolist() == shares


def test_the_split_and_the_order_are_always_the_same(root):
    torch.manual_seed(1)
    first = load_folder(root)
    torch.manual_seed(2)
    for a, b in zip(first, load_folder(root), strict=True):
        assert torch.equal(a.pixels, b.pixels)


def test_the_first_images_are_not_all_of_one_class(root):
    train, _, test = load_folder(root)
    assert set(train.labels[:8].tolist()) == {0, 1}
    assert test.labels.tolist() != sorted(test.labels.tolist())


def test_a_validation_folder_is_used_where_there_is_one(root):
    save(root / "validation" / "ant" / "x.png", noise())
    train, validation, _ = load_folder(root)
    assert [len(train), len(validation)] == [30, 1]
    with pytest.raises(ValueError, match="has its own validation images: held_out=3 would not be used"):
        load_folder(root, held_out=3)


def one(tmp_path, name, image, **options):
    """The pixels of one file, as (H, W, C)."""
    for part in ("train", "test"):
        save(tmp_path / part / "a" / name, image)
    return load_folder(tmp_path, held_out=0, **options)[0].pixels[0].permute(1, 2, 0).numpy()


def test_greyscale_becomes_three_equal_channels(tmp_path):
    grey = noise()[:, :, 0]
    assert np.array_equal(one(tmp_path, "x.png", grey), np.stack([grey] * 3, 2))


def test_transparency_is_dropped(tmp_path):
    rgba = noise(channels=4)
    assert np.array_equal(one(tmp_path, "x.png", rgba), rgba[:, :, :3])


@pytest.mark.parametrize("options", [{}, {"transparency": 0}, {"transparency": bytes([0, 128, 255])}])
def test_palettes_are_resolved(tmp_path, options):
    image = Image.fromarray(np.array([[0, 1], [2, 1]], np.uint8), mode=None)
    image = image.convert("P")
    image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    image.putdata([0, 1, 2, 1])
    for part in ("train", "test"):
        path = tmp_path / part / "a" / "x.png"
        path.parent.mkdir(parents=True)
        image.save(path, **options)
    pixels = load_folder(tmp_path, held_out=0)[0].pixels[0].permute(1, 2, 0)
    assert pixels.tolist() == [[[10, 20, 30], [40, 50, 60]], [[70, 80, 90], [40, 50, 60]]]


def test_16_bits_become_8_without_clipping(tmp_path):
    values = np.array([[0, 257, 25700], [40000, 65535, 128]], np.uint16)
    found = one(tmp_path, "x.png", values, channels=1)
    assert found[:, :, 0].tolist() == [[0, 1, 100], [156, 255, 0]]


def test_one_channel_is_the_luminance(tmp_path):
    rgb = noise()
    expected = np.asarray(Image.fromarray(rgb).convert("L"))
    assert np.array_equal(one(tmp_path, "x.png", rgb, channels=1)[:, :, 0], expected)


def test_a_photo_is_turned_as_its_exif_says(tmp_path):
    rgb = noise(4, 6)
    exif = Image.Exif()
    exif[0x0112] = 6  # shown turned by 90 degrees clockwise
    for part in ("train", "test"):
        path = tmp_path / part / "a" / "x.png"
        path.parent.mkdir(parents=True)
        Image.fromarray(rgb).save(path, exif=exif)
    found = load_folder(tmp_path, held_out=0)[0].pixels[0].permute(1, 2, 0).numpy()
    assert np.array_equal(found, np.rot90(rgb, k=-1))


@pytest.mark.parametrize("name", ["x.jpg", "x.JPEG", "x.bmp", "x.webp", "x.gif", "x.tif"])
def test_other_formats_are_read(tmp_path, name):
    assert one(tmp_path, name, np.full((4, 4, 3), 128, np.uint8)) == pytest.approx(128, abs=3)


def test_other_files_are_passed_over(root):
    for name in ("Thumbs.db", "notes.txt", ".hidden.png"):
        (root / "train" / "ant" / name).write_text("not an image")
    (root / "train" / ".cache").mkdir()
    assert len(load_folder(root, held_out=0)[0]) == 30


@pytest.mark.parametrize(("size", "shape"), [(8, (8, 8)), ((4, 9), (4, 9))])
def test_size_resizes_everything(root, size, shape):
    save(root / "train" / "ant" / "large.png", noise(30, 40))
    for part in load_folder(root, size=size):
        assert part.pixels.shape[2:] == shape


def test_images_of_several_sizes_are_an_error_that_names_one_and_says_what_to_do(root):
    save(root / "test" / "ant" / "large.png", noise(30, 40))
    with pytest.raises(DataError, match=r"large\.png is 30x40, others are 6x5: give size="):
        load_folder(root)


@pytest.mark.parametrize("content", [b"", b"not an image", "cut"])
def test_an_unreadable_file_is_named(root, content):
    path = root / "train" / "zebra" / "broken.png"
    if content == "cut":
        save(path, noise(50, 50))
        content = path.read_bytes()[:3000]
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"zebra.broken\.png (cannot be read as an image|is not an image)"):
        load_folder(root, size=6)


def test_floating_point_pixels_are_an_error(tmp_path):
    with pytest.raises(DataError, match=r"x\.tif has floating-point pixels"):
        one(tmp_path, "x.tif", np.zeros((3, 3), np.float32))


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_missing_part_is_an_error_that_shows_the_layout(tmp_path, part):
    save(tmp_path / {"train": "test", "test": "train"}[part] / "a" / "x.png", noise())
    with pytest.raises(DataNotFoundError, match=f"no images at .*{part}: expected one folder per class"):
        load_folder(tmp_path)


def test_a_class_without_images_is_an_error(root):
    (root / "train" / "bee").mkdir()
    with pytest.raises(DataNotFoundError, match="bee holds no images"):
        load_folder(root)


def test_a_class_known_to_test_alone_is_an_error(root):
    save(root / "test" / "bee" / "x.png", noise())
    with pytest.raises(DataError, match=r"test has classes that .*train does not have: bee"):
        load_folder(root)


def test_a_class_that_test_lacks_is_not(root):
    save(root / "train" / "bee" / "1.png", noise())
    save(root / "train" / "bee" / "2.png", noise())
    parts = load_folder(root, held_out=3)
    assert all(p.classes == ("ant", "bee", "zebra") for p in parts)
    assert set(parts[2].labels.tolist()) == {0, 2}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"root": None}, "needs root"),
        ({"size": 0}, "size must be positive"),
        ({"held_out": 30}, r"0\.\.29"),
        ({"held_out": 29}, "would take all"),
    ],
)
def test_impossible_options_are_refused(root, options, message):
    with pytest.raises(ValueError, match=message):
        load_folder(**{"root": root, **options})
