"""Images in memory, as uint8: data sets, their splits, the order of batches, augmentation."""

from robustdeq.data.augment import RandomCropFlip
from robustdeq.data.batches import batch_at, steps_per_epoch
from robustdeq.data.cifar10 import download_cifar10, load_cifar10
from robustdeq.data.dataset import Dataset, load_dataset
from robustdeq.data.digits import load_digits
from robustdeq.data.errors import DataError, DataNotFoundError, DownloadError
from robustdeq.data.folder import load_folder
from robustdeq.data.images import Images

__all__ = [
    "DataError",
    "DataNotFoundError",
    "Dataset",
    "DownloadError",
    "Images",
    "RandomCropFlip",
    "batch_at",
    "download_cifar10",
    "load_cifar10",
    "load_dataset",
    "load_digits",
    "load_folder",
    "steps_per_epoch",
]
