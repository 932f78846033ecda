"""The multiscale DEQ classifier (MDEQ), section 1 of docs/method.md."""

from robustdeq.models.mdeq.config import MDEQConfig
from robustdeq.models.mdeq.model import MDEQ

__all__ = ["MDEQ", "MDEQConfig"]
