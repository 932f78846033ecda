"""The kinds of hostile cases: images, checkpoints, configurations, suites, stores, trainings, flags, API arguments."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from PIL import Image, features

import robustdeq as rd
from robustdeq.cli.main import main
from robustdeq.data.photos import read_photo
from robustdeq.evaluation import Store, evaluate, metrics
from robustdeq.evaluation.suites.read import read_suite
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.evaluation.suites.suite import Context
from robustdeq.recipes import parse_config, read_recipe
from robustdeq.threat import Linf
from robustdeq.training.checkpoint import TrainingState, load_state, record_start, save_state
from robustdeq.training.logs import COLUMNS, read_log
from tests.evaluation.predictors import EPS, images, short, small_deq
from tests.hostile import damage
from tests.hostile.campaign import Case, Generator, Lost, Silent

Rng = np.random.Generator


def odd_images(folder: Path, rng: Rng) -> Iterator[Case]:
    """Image files of every kind that Pillow writes, damaged."""
    kinds = [
        "PNG",
        "JPEG",
        "GIF",
        "BMP",
        "TIFF",
        "WEBP",
        "PPM",
        "ICO",
        "TGA",
        "PCX",
        "SGI",
        "DDS",
        "JPEG2000",
        "SPIDER",
    ]
    kinds += ["AVIF"] * bool(features.check("avif"))
    files = []
    for kind in kinds:
        for mode in ("RGB", "L", "RGBA", "P", "I;16", "CMYK", "F"):
            image = Image.fromarray(rng.integers(0, 256, (20, 12, 3), dtype=np.uint8)).convert(mode.split(";")[0])
            buffer = io.BytesIO()
            with contextlib.suppress(Exception):
                image.save(buffer, format=kind)
                files.append(buffer.getvalue())
    path = folder / "image"
    while True:
        content = files[int(rng.integers(len(files)))]
        path.write_bytes(damage.damaged(content, rng) if rng.random() < 0.95 else rng.bytes(200))
        channels = int(rng.choice([1, 3]))

        def case(channels: int = channels) -> None:
            if read_photo(path, (channels, 8, 8)).pixels.shape != (channels, 8, 8):
                raise Silent("pixels of another shape")

        yield case


def checkpoints(folder: Path, rng: Rng) -> Iterator[Case]:
    """Checkpoints whose weights or configuration are damaged."""
    sizes = {"num_classes": 3, "in_channels": 1, "channels": (2, 2), "expansion": 1, "groups": 2}
    model = rd.create_model("mdeq", **sizes, head_channels=(1, 1), final_channels=2)
    model.save_pretrained(folder)
    config, weights = folder / "config.json", folder / "model.safetensors"
    text, content, expected = config.read_bytes(), weights.read_bytes(), model.state_dict()
    while True:
        config.write_bytes(text)
        weights.write_bytes(content)
        match int(rng.integers(3)):
            case 0:
                weights.write_bytes(damage.damaged(content, rng))
            case 1:
                config.write_bytes(damage.damaged(text, rng))
            case _:
                changed = damage.mutated(json.loads(text), rng)
                if rng.random() < 0.5 and isinstance(changed, dict):
                    changed.pop("weights_sha256", None)
                config.write_bytes(damage.as_json(changed))

        def case() -> None:
            found = rd.load(folder).state_dict()
            if found.keys() != expected.keys() or not all(torch.equal(found[k], expected[k]) for k in expected):
                raise Silent("other weights")

        yield case


RECIPE = "extends: digits-nano-trades\nmodel: {options: {dropout: 0.1}}\nschedule: {epochs: 2, lr: 1e-3}\nseed: 3\n"


def recipes(folder: Path, rng: Rng) -> Iterator[Case]:
    """Recipes with damaged text and with values that mean nothing."""
    whole = read_recipe("digits-nano-trades-random")
    path = folder / "recipe.yaml"
    while True:
        if rng.random() < 0.5:
            path.write_bytes(damage.damaged(yaml.safe_dump(whole).encode(), rng))
        else:
            path.write_bytes(damage.as_json(damage.mutated(whole, rng)))

        def case() -> None:
            parse_config(read_recipe(path))

        yield case


SUITE: dict[str, Any] = {
    "name": "mine",
    "include": ["quick"],
    "keep_images": True,
    "also": {"mine": {"every": 2, "steps": 3}},
    "attacks": [
        {"name": "far", "attack": "pgd", "options": {"steps": 3, "step_size": "2/255"}, "eps": "8/255", "limit": 4},
        {"name": "near", "attack": "apgd", "oracle": "unrolled", "oracle_options": {"state": 1, "steps": 2}},
        {"name": "black", "attack": "square", "oracle": "direct", "options": {"n_queries": 5}, "every_image": False},
    ],
}


def suites(folder: Path, rng: Rng) -> Iterator[Case]:
    """Suite files, read and built for a predictor."""
    from robustdeq.evaluation.suites.build import check_buildable

    context = Context(Subject(small_deq()), Linf(EPS), classes=10)
    path = folder / "suite.yaml"
    while True:
        if rng.random() < 0.4:
            path.write_bytes(damage.damaged(yaml.safe_dump(SUITE).encode(), rng))
        else:
            path.write_bytes(damage.as_json(damage.mutated(SUITE, rng)))

        def case() -> None:
            check_buildable(read_suite(path, context).specs, context.subject, 0, 10)

        yield case


def stores(folder: Path, rng: Rng) -> Iterator[Case]:
    """Stores in which one file is damaged, exchanged or missing, or whose manifest means nothing."""
    whole, broken = folder / "whole", folder / "broken"
    for place in (whole, broken):
        shutil.rmtree(place, ignore_errors=True)
    evaluate(small_deq(), images(8), short, whole, threat=Linf(EPS), batch_size=4, shard_size=4, keep_images=True)
    shutil.copytree(whole, broken)
    manifest = (whole / "manifest.json").read_bytes()
    files = [p.relative_to(whole) for p in sorted(whole.rglob("*")) if p.suffix in (".parquet", ".safetensors")]

    def numbers() -> dict[str, Any]:
        store = Store(broken)
        found = {"clean": str(metrics.clean_accuracy(store)), "union": str(metrics.union_accuracy(store))}
        found |= {name: str(share) for name, share in metrics.attack_shares(store).items()}
        kept = [store.images(name, shard) for name in store.attacks for shard in store.shards(name)]
        store.times()
        return {**found, "pixels": float(sum(pixels.sum() for _, pixels in kept)), "rows": len(store.rows().collect())}

    expected = numbers()
    file = files[0]
    while True:
        shutil.copyfile(whole / file, broken / file)
        (broken / "manifest.json").write_bytes(manifest)
        file, other = (files[int(rng.integers(len(files)))] for _ in range(2))
        kind, missing = rng.random(), False
        if kind < 0.7:
            (broken / file).write_bytes(damage.damaged((whole / file).read_bytes(), rng))
        elif kind < 0.8:
            shutil.copyfile(whole / other, broken / file)
        elif kind < 0.85:
            (broken / file).unlink()
            missing = True
        else:
            (broken / "manifest.json").write_bytes(damage.as_json(damage.mutated(json.loads(manifest), rng)))
        numeric = kind < 0.8

        def case(numeric: bool = numeric, missing: bool = missing) -> None:
            found = numbers()
            if numeric and found != expected:
                raise (Lost if found["rows"] < expected["rows"] else Silent)(f"{found} instead of {expected}")
            store = Store(broken)
            if missing and found["rows"] < expected["rows"] and all(map(store.complete, (None, *store.attacks))):
                raise Lost("rows of a missing file are missing, and the store counts as complete")

        yield case


def trainings(folder: Path, rng: Rng) -> Iterator[Case]:
    """What a training resumes from, damaged."""
    weights = torch.arange(400.0)
    state = TrainingState(
        step=7, model={"w": weights}, optimizer={"state": {}}, average=None, best=0.25, config={"seed": 0}
    )
    save_state(folder, state)
    record_start(folder, {"seed": 0}, {"commit": None}, None)
    row = ",".join("3" if name != "phase" else "train" for name in COLUMNS)
    (folder / "metrics.csv").write_text(",".join(COLUMNS) + f"\n{row}\n{row}\n")
    names = ("state.pt", "state.pt", "run.json", "metrics.csv")
    contents = {name: (folder / name).read_bytes() for name in names}
    while True:
        for name, content in contents.items():
            (folder / name).write_bytes(content)
        name = names[int(rng.integers(len(names)))]
        (folder / name).write_bytes(damage.damaged(contents[name], rng))

        def case() -> None:
            found = load_state(folder)
            if found is None or (found.step, found.best) != (7, 0.25) or not torch.equal(found.model["w"], weights):
                raise Silent("another state")
            record_start(folder, {"seed": 0}, {"commit": None}, 7)
            read_log(folder)

        yield case


def places(folder: Path, rng: Rng) -> Iterator[Case]:
    """Pipes, devices, folders and links that lead nowhere or in circles, where a file is expected."""
    context = Context(Subject(small_deq()), Linf(EPS), classes=10)
    rd.create_model("mdeq-nano").save_pretrained(folder / "model")
    evaluate(small_deq(), images(8), short, folder / "store", threat=Linf(EPS), batch_size=8, shard_size=8)
    state = TrainingState(step=7, model={}, optimizer={"state": {}}, average=None, best=0.25, config={"seed": 0})
    save_state(folder, state)
    record_start(folder, {"seed": 0}, {"commit": None}, None)
    (folder / "metrics.csv").write_text(",".join(COLUMNS) + "\n")
    (folder / "suite.yaml").write_text(yaml.safe_dump(SUITE))
    (folder / "recipe.yaml").write_text(RECIPE)
    Image.new("L", (8, 8)).save(folder / "image.png")

    def rows() -> None:
        store = Store(folder / "store")
        store.times()
        if len(store.clean().collect()) != expected:
            raise Lost("clean predictions")

    doors: dict[str, Case] = {
        "model/config.json": lambda: rd.load(folder / "model"),
        "model/model.safetensors": lambda: rd.load(folder / "model"),
        "store/manifest.json": rows,
        "store/clean/shard-0000.parquet": rows,
        "store/times-0.jsonl": rows,
        "state.pt": lambda: load_state(folder),
        "run.json": lambda: record_start(folder, {"seed": 0}, {"commit": None}, 7),
        "metrics.csv": lambda: read_log(folder),
        "suite.yaml": lambda: read_suite(folder / "suite.yaml", context),
        "recipe.yaml": lambda: parse_config(read_recipe(folder / "recipe.yaml")),
        "image.png": lambda: read_photo(folder / "image.png", (1, 8, 8)),
    }
    expected = len(Store(folder / "store").clean().collect())
    aside = folder / "aside"
    odd: list[Callable[[Path], None]] = [
        os.mkfifo,
        Path.mkdir,
        Path.touch,
        lambda path: path.symlink_to(path),
        lambda path: path.symlink_to(folder / "nowhere"),
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to("/dev/null"),
        lambda path: path.symlink_to(aside),  # the file itself, by another way
    ]
    names = list(doors)
    path = folder / names[0]
    path.rename(aside)
    while True:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        path.unlink(missing_ok=True)
        aside.rename(path)
        path = folder / names[int(rng.integers(len(names)))]
        path.rename(aside)
        odd[int(rng.integers(len(odd)))](path)
        yield doors[str(path.relative_to(folder))]


WORDS = {
    "evaluate": ["--out", "--suite", "--eps", "--norm", "--limit", "--defence", "--state", "--budget", "--batch-size"],
    "predict": ["--defence", "--state", "--json"],
    "train": ["--recipe", "--out", "--seed", "--schedule.lr", "--objective.eps", "--model.options", "--data.name"],
    "report": ["--out"],
    "convert": ["--out", "--config", "--eps", "--groups"],
}


def flags(folder: Path, rng: Rng) -> Iterator[Case]:
    """Command lines of odd words; every one ends with an exit code and, if it fails, a sentence."""
    known = [w for words in WORDS.values() for w in words]
    while True:
        verb = list(WORDS)[int(rng.integers(len(WORDS)))]
        words = [verb]
        for _ in range(int(rng.integers(0, 6))):
            kind = rng.random()
            choice = WORDS[verb] if kind < 0.5 else known
            flag = choice[int(rng.integers(len(choice)))]
            odd = str(damage.value(rng)).replace("\0", "")
            words += [flag, odd] if kind < 0.6 else [f"{flag}={odd}"] if kind < 0.75 else [odd]
        words += ["--out", str(folder / "missing" / "out")] if rng.random() < 0.3 else []

        def case(words: list[str] = words) -> None:
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    code = main(words)
                except SystemExit as stop:
                    code = int(stop.code or 0)
            if "Traceback" in err.getvalue() or "shows where" in err.getvalue() or "\x1b" in err.getvalue():
                raise AssertionError(f"{words}: {err.getvalue()[-300:]}")
            if code not in (0, 1, 2) or (code and "robustdeq: error: " not in err.getvalue()):
                raise AssertionError(f"{words}: code {code}, {err.getvalue()[-300:]!r}")

        yield case


def api(folder: Path, rng: Rng) -> Iterator[Case]:
    """Calls from Python with arguments that are not what they should be."""
    model = small_deq()
    x, y = images(4)
    pixels: list[Any] = [
        x, x.clone().requires_grad_(), x.float(), (255 * x).to(torch.uint8), 255 * x, -x, x[:0],
        x.numpy(), x.tolist(), None, "x", x * torch.nan, x.half(), x.bool(), x.to_sparse(),
        x.to(torch.complex64), 3,
    ]  # fmt: skip
    labels: list[Any] = [
        y, y + 10, y - 10, y.float(), y.int(), y[:2], y[:, None], y[:0], y.numpy(), y.tolist(), None, "y", y * 10**9,
        torch.nn.functional.one_hot(y, 10), y.bool(), 3, y.to(torch.uint8), torch.tensor(3),
    ]  # fmt: skip
    numbers = [1, 2, 0, -1, 0.01, float("inf"), float("nan"), None, "2", 10**400, True, [1], 1e-300]

    counts = [n for n in numbers if n != 10**400]  # a number of steps that is asked for is taken

    def pick(choices: list[Any], usual: float = 0.4) -> Any:
        return choices[0] if rng.random() < usual else choices[int(rng.integers(len(choices)))]

    while True:
        a, b, n, m = pick(pixels), pick(labels), pick(counts, 0.6), pick(numbers, 0.8)
        kind = int(rng.integers(9))

        def case(kind: int = kind, a: Any = a, b: Any = b, n: Any = n, m: Any = m) -> None:
            match kind:
                case 0:
                    rd.PGD(rd.Linf(EPS), steps=n, step_size=m)(rd.oracles.Direct(model), a, b)
                case 1:
                    rd.PGD(rd.Linf(m), steps=2)(rd.UnrolledState(model, state=n, steps=1, damping=1.0), a, b)
                case 2:
                    rd.APGD(rd.L2(EPS), n_iter=2, restarts=n)(rd.oracles.Direct(model), a, b)
                case 3:
                    evaluate(model, (a, b), short, folder / "never", threat=rd.Linf(EPS), budget=0, batch_size=n)
                case 4:
                    model(a)
                case 5:
                    rd.EarlyState(model, state=n)(a)
                case 6:
                    rd.EntropyReduction(model, every=n, steps=1, step_size=m, radius=0.1).trajectory(a)
                case 7:
                    rd.create_model("mdeq-nano", num_classes=n, dropout=m)
                case _:
                    rd.Broyden(max_steps=n)
                    rd.Phantom(steps=m, damping=n)
            shutil.rmtree(folder / "never", ignore_errors=True)

        yield case


KINDS: dict[str, Generator] = {
    "images": odd_images,
    "checkpoints": checkpoints,
    "recipes": recipes,
    "suites": suites,
    "stores": stores,
    "trainings": trainings,
    "places": places,
    "flags": flags,
    "api": api,
}
SHARES = {
    "images": 0.43, "checkpoints": 0.08, "recipes": 0.04, "suites": 0.08, "stores": 0.08, "trainings": 0.16,
    "places": 0.01, "flags": 0.04, "api": 0.08,
}  # fmt: skip
"""Share of a campaign's cases: kinds whose cases take milliseconds have more."""
