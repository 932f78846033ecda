"""The paper's numbers: CIFAR-10, 10,000 test images, mdeq-large, L-infinity 8/255 (percent unless said otherwise)."""

from __future__ import annotations

BASE, ENTROPY, RANDOM, BOTH = "baseline", "+ Sec. 3.2", "+ Sec. 3.3", "+ Sec. 3.2 & 3.3"
METHODS = (BASE, ENTROPY, RANDOM, BOTH)

Key = tuple[str, str]

TABLE_1: dict[Key, tuple[float, float | None, float]] = {
    ("PGD-AT", "no dynamics"): (82.52, 53.58, 48.51),
    ("PGD-AT", BASE): (77.89, 49.45, 47.58),
    ("PGD-AT", ENTROPY): (77.51, 51.62, 49.31),
    ("PGD-AT", RANDOM): (78.93, 48.18, 48.09),
    ("PGD-AT", BOTH): (80.63, 49.22, 43.79),
    ("TRADES", "no dynamics"): (81.47, None, 49.14),
    ("TRADES", BASE): (74.92, 50.46, 50.33),
    ("TRADES", ENTROPY): (73.80, 51.41, 50.52),
    ("TRADES", RANDOM): (77.64, 51.10, 49.64),
    ("TRADES", BOTH): (78.89, 55.18, 51.50),
}
"""Clean, worst of the 144 PGD attacks, AutoAttack."""

AS_PUBLISHED = (79.67, 47.12, 48.37)
"""Table 1's row of a DEQ with PGD-AT as Yang et al. (2022) published it; `TABLE_1` has the paper's own rerun."""

TABLE_2: dict[Key, tuple[float, float]] = {
    ("PGD-AT", BASE): (50.55, 49.45),
    ("PGD-AT", ENTROPY): (53.01, 51.62),
    ("PGD-AT", RANDOM): (51.05, 48.18),
    ("PGD-AT", BOTH): (54.91, 49.22),
    ("TRADES", BASE): (51.92, 50.46),
    ("TRADES", ENTROPY): (53.74, 51.41),
    ("TRADES", RANDOM): (52.67, 51.10),
    ("TRADES", BOTH): (56.09, 55.18),
}
"""PGD-10 at the final state, and at the worst intermediate one."""

TABLE_3: dict[tuple[str, str], float] = {
    (target, source): value
    for target, row in {
        BASE: (50.46, 50.73, 56.66, 57.37),
        ENTROPY: (51.58, 51.41, 55.60, 56.09),
        RANDOM: (60.00, 60.24, 51.10, 52.89),
        BOTH: (59.87, 60.06, 55.19, 55.18),
    }.items()
    for source, value in zip(METHODS, row, strict=True)
}
"""TRADES: accuracy of a target under attacks made against a source."""

TABLE_4: dict[str, dict[tuple[int, int], float]] = {
    "pgd": {(3, 5): 55.18, (3, 4): 55.36, (3, 6): 55.24, (3, 7): 55.35, (4, 5): 55.24, (5, 5): 55.53, (6, 5): 55.59},
    "apgd": {(3, 5): 53.29, (3, 4): 56.75, (3, 6): 56.95, (3, 7): 57.07, (4, 5): 53.38, (5, 5): 53.92, (6, 5): 53.91},
    "square": {(3, 5): 67.00, (3, 4): 67.23, (3, 6): 67.28, (3, 7): 67.13, (4, 5): 66.65, (5, 5): 67.00, (6, 5): 66.75},
}
"""TRADES with both methods, by (i, K_a); Square on 1,000 images."""

TABLE_5: dict[tuple[int, int], float] = {
    (every, steps): value
    for every, row in {
        1: (54.67, 54.96, 55.07, 55.03),
        2: (54.15, 55.05, 55.18, 55.23),
        4: (53.39, 54.80, 54.85, 54.85),
        8: (52.85, 52.80, 52.83, 52.81),
    }.items()
    for steps, value in zip((1, 5, 10, 20), row, strict=True)
}
"""TRADES + Sec. 3.3: worst PGD by (T_f, R)."""

TABLE_6: dict[Key, tuple[float, float, float]] = {
    ("PGD-AT", BASE): (78.26, 72.98, 85.53),
    ("PGD-AT", RANDOM): (78.39, 68.79, 83.77),
    ("TRADES", BASE): (81.46, 75.88, 87.99),
    ("TRADES", RANDOM): (82.34, 76.63, 88.58),
}
"""Share of images whose clean entropy is lower than the attacked one: mean, lowest, highest over the 144 attacks."""

TABLE_7: dict[Key, tuple[float, float, float]] = {
    ("PGD-AT", BASE): (-0.1948, -0.2133, -0.1156),
    ("PGD-AT", RANDOM): (-0.1027, -0.1337, -0.0612),
    ("TRADES", BASE): (-0.1174, -0.1368, -0.0769),
    ("TRADES", RANDOM): (-0.1179, -0.1445, -0.0836),
}
"""Mean of clean minus attacked entropy, nats: mean, lowest, highest over the 144 attacks."""

TABLE_9: dict[Key, float] = {
    ("PGD-AT", BASE): 30.2,
    ("PGD-AT", RANDOM): 39.9,
    ("TRADES", BASE): 24.0,
    ("TRADES", RANDOM): 30.6,
}
"""Samples per second of training."""

TABLE_10: dict[tuple[int, int], float] = {
    (every, steps): value
    for every, row in {
        1: (94.9, 32.1, 11.8, 8.6, 6.5),
        2: (94.9, 42.6, 20.5, 11.7, 7.5),
        4: (94.9, 48.6, 29.9, 18.6, 12.8),
        8: (94.9, 49.6, 33.1, 26.6, 17.6),
    }.items()
    for steps, value in zip((0, 1, 5, 10, 20), row, strict=True)
}
"""Samples per second of a prediction by (T_f, R); R = 0 is undefended."""

TABLE_8: dict[float, tuple[tuple[int, float], ...]] = {
    1.0: tuple((1, v) for v in (64.05, 63.32, 61.53, 60.84, 59.77, 60.00, 59.14, 59.20)),
    0.5: ((8, 55.65), (7, 55.54), (5, 55.18), (5, 55.24), (5, 55.53), (5, 55.59), (4, 55.54), (5, 55.68)),
}
"""TRADES with both methods: by lambda and state i = 1..8 the strongest K_a and the accuracy under it."""
