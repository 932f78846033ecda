"""Stores whose outcomes are known, written through the typed manifest."""

import json
from dataclasses import replace
from itertools import product

import numpy as np
import polars as pl
import torch

from robustdeq.evaluation import AttackSpec, Store
from robustdeq.evaluation.store.manifest import (
    AttackRecord,
    DataRecord,
    Manifest,
    ModelRecord,
    PredictorRecord,
    SuiteRequest,
)
from robustdeq.threat import Linf


def attack(name, group="grid", **changes):
    """An attack as a manifest lists it: its record by its name."""
    spec = {"attack": "pgd", "options": {"steps": 10}, "eps": 8 / 255, "oracle": "ready", "group": group, **changes}
    made = AttackSpec(name=name, **spec)
    return {name: AttackRecord(spec=made, hash=made.hash)}


def grid_attack(i, k, damping):
    options = {"state": i, "steps": k, "damping": damping, "form": "paper", "aware": False}
    return attack(f"pgd-i{i}-K{k}-l{damping:g}", oracle="unrolled", oracle_options=options)


def autoattack(name="aa", **changes):
    """AutoAttack with its standard budgets."""
    return attack(name, "autoattack", attack="autoattack", options={}, **changes)


def change(store, **fields):
    """Rewrite fields of a store's manifest."""
    store.write_manifest(replace(store.manifest, **fields))


SIGN = (("direction", "sign"),)


def predictor_record(
    weights, *, dynamic=True, depth=2, model="mdeq-nano", variant=None, every=2, steps=10, switches=SIGN
):
    """A model, behind an entropy reduction if there is a variant, read at its last state if it has states."""
    config = {"kind": "MDEQ", "architecture": model}
    if variant:
        reduction = {"kind": "EntropyReduction", "every": every, "variant": variant, "descent": {"steps": steps}}
        config = {**reduction, **({"switches": dict(switches)} if switches else {}), "predictor": config}
    if dynamic:
        config = {"kind": "EarlyState", "state": depth, "predictor": config}
    return PredictorRecord(
        deployed_state=str(depth) if dynamic else "final",
        states=[*map(str, range(1, depth + 1)), "final"] if dynamic else ["final"],
        config=config,
        weights_sha256=f"{weights} defended" if variant else weights,
    )


def make_store(
    folder,
    broken,
    *,
    specs,
    wrong=0,
    images=10,
    declared=None,
    defended=False,
    model="mdeq-nano",
    objective="trades",
    states="final",
    data="digits",
    eps=0.15,
    union=False,
    keep=False,
    dynamic=True,
    also=(),
    saves=(),
    depth=2,
    switches=SIGN,
    seed=None,
    command=None,
):
    """A store in which the first `wrong` images are misclassified, and an attack breaks the images `broken[name]`.

    Entropy is 0.1 t on clean images at state t, 0.5 more under attack, and 0.2 less than that where defended. The
    defences `also` (name, variant, T_f, R) are scored beside: no attack breaks the images that they save. With
    `declared`, the manifest claims that many images.
    """
    store = Store(folder)
    common = {"weights": f"{objective} {states}", "dynamic": dynamic, "depth": depth, "model": model}
    predictors = {"deployed": predictor_record(**common)}
    if defended:
        deployed = predictor_record(**common, variant="paper", switches=switches)
        predictors = {"deployed": deployed, "base": predictors["deployed"]}
    for name, *settings in also:
        named = dict(zip(("variant", "every", "steps"), settings, strict=False))
        predictors[name] = predictor_record(**common, **named)
    metadata = {"dataset": data, "eps": eps, "objective": objective, "states": states, "classes": list("0123456789")}
    store.write_manifest(
        Manifest(
            model=ModelRecord(
                name="runs/some/best",
                kind=model,
                hash="h",
                metadata=metadata if seed is None else {**metadata, "seed": seed},
                config=predictors["deployed"].config,
            ),
            predictors=predictors,
            dynamic=dynamic,
            data=DataRecord(
                name=data, split="test", images=declared or images, limit=images, sha256=f"{images} {data}"
            ),
            threat=Linf(eps),
            seed=0,
            dtype="float32",
            batch_size=100,
            shard_size=declared or max(images, 500),
            union=union,
            all_states=True,
            attacks=specs,
            suites=["grid"],
            asked=[SuiteRequest(suite="grid", command=command)],
            notes=["a note <&> to escape"],
            runs=[],
        )
    )
    place = torch.arange(images)
    pixels = torch.arange(images * 64, dtype=torch.float32).reshape(images, 1, 8, 8) / (images * 64)
    clean = _rows(predictors, images, set(range(wrong)), set(range(wrong)), 0.0)
    store.write(None, 0, clean.rename({"right": "correct"}), (place, 1 - pixels) if keep else None)
    frames = {}
    for name in specs:
        bad = frozenset({*range(wrong), *broken[name]})
        if bad not in frames:
            left = {*range(wrong), *(bad - {*saves})}
            frames[bad] = _rows(predictors, images, bad, left, 0.5).with_columns(
                clean_prediction=clean["prediction"],
                success=~pl.col("right"),
                queries=pl.lit(10),
                deviation=pl.lit(0.25, dtype=pl.Float32),
            )
        rows = frames[bad].filter(pl.col("image") < specs[name].spec.runs_on(declared or images))
        store.write(name, 0, rows, (place, pixels) if keep else None)
    return store


def _rows(predictors, images, bad, bad_defended, added):
    """The rows of every predictor at every state, wrong on the `bad` images, on `bad_defended` if it is defended."""
    index = np.arange(images)
    label = index % 10
    frames = []
    for name, record in predictors.items():
        defended = record.entropy is not None
        right = ~np.isin(index, [*(bad_defended if defended else bad)])
        for state in record.states:
            t = 3 if state == "final" else int(state)
            frames.append(
                pl.DataFrame(
                    {
                        "image": index,
                        "label": label,
                        "predictor": [name] * images,
                        "state": [state] * images,
                        "deployed": [state == record.deployed_state] * images,
                        "prediction": np.where(right, label, (label + 1) % 10),
                        "margin": np.where(right, 1.0, -1.0) - 0.01 * index,
                        "entropy": np.full(images, 0.1 * t + added - (0.2 if defended and added else 0)),
                        "loss": np.ones(images),
                        "right": right,
                        "residual": np.full(images, 0.01, dtype=np.float32),
                    }
                )
            )
    return pl.concat(frames)


def grid_of(depth):
    """Every attack of the grid for a model of so many states."""
    specs = {}
    for i, k, damping in product(range(1, depth + 1), range(1, 10), (0.5, 1.0)):
        specs |= grid_attack(i, k, damping)
    return specs


def whole_grid(folder, **changes):
    """The paper's 144 attacks, which break the first image."""
    specs = grid_of(8)
    return make_store(folder, {name: [0] for name in specs}, specs=specs, depth=8, **changes)


def write_audit(store, **probes):
    """What an audit leaves in a store, with verdict and flags that are judged again when it is read."""
    measured = {"images": 10, "random": 0.0, "batch": 0.0, "vanishing": 0.0, "cost": 40.0, "base_cost": 9.0, **probes}
    kept = {"verdict": "masked", "flags": [{"name": "more-steps-hurt"}], "probes": measured, "seconds": 1.0}
    (store.folder / "audit.json").write_text(json.dumps({**kept, "base_seconds": None}))


def two_attacks(folder, *, whole=False, **changes):
    """90% clean; 60% and 50% under two attacks of the grid, 40% under both; 80% under the ready-made one.

    With `whole`, the other attacks of the grid are there too and break nothing.
    """
    rest = grid_of(2) if whole else {}
    specs = rest | grid_attack(1, 3, 0.5) | grid_attack(2, 1, 1.0) | attack("pgd-ready", "ready", diagnostics=True)
    broken = {"pgd-i1-K3-l0.5": [1, 2, 3], "pgd-i2-K1-l1": [2, 3, 4, 5], "pgd-ready": [1]}
    return make_store(folder, {name: [] for name in rest} | broken, wrong=1, specs=specs, **changes)
