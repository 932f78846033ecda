"""Stores with outcomes that are known."""

from itertools import product

import numpy as np
import polars as pl
import torch

from robustdeq.evaluation import AttackSpec, Store

LARGE = {"channels": [32, 64, 128, 256]}
NANO = {"channels": [16, 32]}


def attack(name, group="grid", **changes):
    """An attack's entry of the manifest."""
    spec = {"attack": "pgd", "options": {"steps": 10}, "eps": 8 / 255, "oracle": "ready", "group": group, **changes}
    return {name: AttackSpec(name=name, **spec).as_json()}


def grid_attack(i, k, damping):
    options = {"state": i, "steps": k, "damping": damping, "form": "paper", "aware": False}
    return attack(f"pgd-i{i}-K{k}-l{damping:g}", oracle="unrolled", oracle_options=options)


def make_store(
    folder,
    broken,
    *,
    wrong=0,
    images=10,
    declared=None,
    defended=False,
    model=NANO,
    objective="trades",
    states="final",
    data="digits",
    eps=0.15,
    union=False,
    specs=None,
    keep=False,
    dynamic=True,
    also=(),
    saves=(),
    depth=2,
    switches=(),
    seed=None,
):
    """A store in which the first `wrong` images are misclassified, and an attack breaks the images `broken[name]`.

    Entropy is 0.1 t on clean images at state t, 0.5 more under attack, and 0.2 less than that where defended. The
    defences `also` (name, variant, T_f, R) are scored beside: no attack breaks the images that they save.
    """
    store = Store(folder)
    config = {"kind": "MDEQ", "architecture": "mdeq", "options": model}
    at, names = (str(depth), (*map(str, range(1, depth + 1)), "final")) if dynamic else ("final", ("final",))

    def described(variant=None, every=2, steps=10, **switches):
        weights = f"{objective} {states}" + (" defended" if variant else "")
        settings = {"kind": "EntropyReduction", "every": every, "variant": variant, "descent": {"steps": steps}}
        settings |= {"switches": switches} if switches else {}
        inner = settings | {"predictor": config} if variant else config
        whole = {"kind": "EarlyState", "state": depth, "predictor": inner} if dynamic else inner
        return {"deployed_state": at, "states": list(names), "config": whole, "weights_sha256": weights}

    deployed = described("paper", **dict(switches)) if defended else described()
    predictors = {"deployed": deployed, "base": described()} if defended else {"deployed": deployed}
    predictors |= {name: described(*settings) for name, *settings in also}
    defences = [p for p, d in predictors.items() if "defended" in d["weights_sha256"]]
    store.write_manifest(
        {
            "format": "robustdeq-evaluation",
            "format_version": 1,
            "model": {
                "name": "runs/some/best",
                "hash": "h",
                "metadata": {
                    "dataset": data,
                    "eps": eps,
                    "objective": objective,
                    "states": states,
                    "classes": list("0123456789"),
                    **({} if seed is None else {"seed": seed}),
                },
                "config": predictors["deployed"]["config"],
            },
            "predictors": predictors,
            "dynamic": dynamic,
            "data": {"name": data, "split": "test", "images": images, "limit": images, "sha256": f"{images} {data}"},
            "threat": {"norm": "Linf", "eps": eps},
            "shard_size": max(images, 500),
            "union": union,
            "all_states": True,
            "attacks": specs,
            "suites": ["grid"],
            "notes": ["a note <&> to escape"],
            "runs": [],
        }
    )
    if declared is not None:  # as if more images had been evaluated: what a comparison with the paper asks for
        manifest = store.read_manifest()
        manifest["data"]["images"] = manifest["shard_size"] = declared
        store.write_manifest(manifest)
    index = np.arange(images)
    label = index % 10

    def rows(predictor, state, bad, added):
        t = 3 if state == "final" else int(state)
        right = ~np.isin(index, bad)
        change = added - (0.2 if predictor in defences and added else 0)
        return pl.DataFrame(
            {
                "image": index,
                "label": label,
                "prediction": np.where(right, label, (label + 1) % 10),
                "margin": np.where(right, 1.0, -1.0) - 0.01 * index,
                "entropy": np.full(images, 0.1 * t + change),
                "loss": np.ones(images),
                "right": right,
            }
        ).with_columns(
            predictor=pl.lit(predictor),
            state=pl.lit(state),
            deployed=pl.lit(state == at),
            residual=pl.lit(0.01, dtype=pl.Float32),
        )

    every = [(p, s) for p in predictors for s in names]
    clean = pl.concat([rows(p, s, range(wrong), 0.0) for p, s in every])
    pixels = torch.arange(images * 64, dtype=torch.float32).reshape(images, 1, 8, 8) / (images * 64)
    place = torch.arange(images)
    store.write_clean(0, clean.rename({"right": "correct"}), (place, 1 - pixels) if keep else None)
    for name in specs:
        bad = sorted({*range(wrong), *broken[name]})
        left = sorted({*range(wrong), *(set(bad) - set(saves))})
        frame = pl.concat([rows(p, s, left if p in defences else bad, 0.5) for p, s in every]).with_columns(
            clean_prediction=pl.lit(0),
            success=~pl.col("right"),
            queries=pl.lit(10),
            deviation=pl.lit(0.25, dtype=pl.Float32),
        )
        store.write_attack(name, 0, frame, (place, pixels) if keep else None)
    return store


def grid_of(depth):
    """Every attack of the grid of so many states."""
    specs = {}
    for i, k, damping in product(range(1, depth + 1), range(1, 10), (0.5, 1.0)):
        specs |= grid_attack(i, k, damping)
    return specs


def whole_grid(folder, **changes):
    """The paper's 144 attacks, which break the first image."""
    specs = grid_of(8)
    return make_store(folder, {name: [0] for name in specs}, specs=specs, depth=8, **changes)


def two_attacks(folder, *, whole=False, **changes):
    """90% clean; 60% and 50% under two attacks of the grid, 40% under both; 80% under the ready-made one.

    The rest of the grid, if it is to be whole, breaks nothing.
    """
    rest = grid_of(2) if whole else {}
    specs = rest | grid_attack(1, 3, 0.5) | grid_attack(2, 1, 1.0) | attack("pgd-ready", "ready", diagnostics=True)
    broken = {"pgd-i1-K3-l0.5": [1, 2, 3], "pgd-i2-K1-l1": [2, 3, 4, 5], "pgd-ready": [1]}
    return make_store(folder, {name: [] for name in rest} | broken, wrong=1, specs=specs, **changes)
