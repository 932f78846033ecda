"""The sizes of an MDEQ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from robustdeq.models.checks import MOST_SCALES, check_sizes


@dataclass(frozen=True, kw_only=True)
class MDEQConfig:
    """The sizes of an MDEQ; the defaults are mdeq-large, the paper's DEQ-Large."""

    num_classes: int = 10
    in_channels: int = 3
    channels: Sequence[int] = (32, 64, 128, 256)
    """State channels per scale, fine to coarse; scale i has 1/2^i of the resolution of scale 0."""
    expansion: int = 5
    """Inner width of a block, as a multiple of its channels."""
    groups: int = 8
    """Number of GroupNorm groups; the last norm of f has half as many."""
    dropout: float = 0.22
    """Probability of dropping a channel, drawn once per forward pass in training mode."""
    head_channels: Sequence[int] = (14, 28, 56, 112)
    final_channels: int = 1680
    downsample: int = 0
    """Number of times the stem halves the resolution."""
    encoder_channels: Sequence[int] = ()
    """Channels after each convolution of the stem but the last, first to last; channels[0] where not given."""
    encoder_blocks: Sequence[int] = ()
    """Residual blocks after each convolution of the stem, first to last; none where not given. (1, 0) with downsample 2
    is one block at half the resolution of the image."""
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    """Pixel normalisation (x - mean) / std as the model's first layer; none by default."""

    def __post_init__(self) -> None:
        lists = ("channels", "head_channels", "encoder_channels", "encoder_blocks", "mean", "std")
        for name in lists:  # as JSON and YAML have them
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, tuple(value))
        check_sizes("channels and head_channels", self.channels, self.head_channels, most_entries=MOST_SCALES)
        for name in ("num_classes", "in_channels", "expansion", "groups", "final_channels"):
            check_sizes(name, [getattr(self, name)])
        if type(self.downsample) is not int or self.downsample > MOST_SCALES:
            raise ValueError(f"downsample must be a whole number up to {MOST_SCALES}, got {self.downsample!r}")
        if not self.channels or len(self.channels) != len(self.head_channels):
            raise ValueError(
                f"channels and head_channels need one entry per scale: got {self.channels} and {self.head_channels}"
            )
        if self.groups < 2 or any(c % self.groups for c in self.channels):
            raise ValueError(
                f"groups must be at least 2 and divide every scale's channels {self.channels}: {self.groups}"
            )
        convolutions = self.stem_convolutions
        check_sizes("encoder_channels", self.encoder_channels, most_entries=convolutions - 1)
        check_sizes("encoder_blocks", self.encoder_blocks, most_entries=convolutions, largest=1000)
        if min(self.encoder_blocks, default=0) < 0:
            raise ValueError(f"encoder_blocks has counts >= 0, got {self.encoder_blocks}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), got {self.dropout}")
        if (self.mean is None) != (self.std is None):
            raise ValueError("mean and std are given together or not at all")
        if self.mean is not None and self.std is not None and not len(self.mean) == len(self.std) == self.in_channels:
            raise ValueError(f"mean and std need one entry per input channel ({self.in_channels})")
        sizes = (self.num_classes, self.in_channels, self.expansion, self.final_channels, *self.channels)
        if min(*sizes, *self.head_channels, *self.encoder_channels) < 1 or self.downsample < 0:
            raise ValueError(f"every size must be positive: {self}")

    @property
    def stem_convolutions(self) -> int:
        """Number of 3x3 convolutions in the stem, without those of its residual blocks."""
        return max(2, self.downsample)

    @property
    def divisor(self) -> int:
        """The number that image height and width must be multiples of."""
        return int(2 ** (self.downsample + len(self.channels) - 1))
