"""Small files in the formats that data sets come in."""

from __future__ import annotations

import gzip
import hashlib
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def write_idx(path: Path, array: np.ndarray, *, zipped: bool) -> Path:
    """An IDX file of unsigned bytes, with `.gz` added to its name when zipped."""
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    content = header + array.astype(np.uint8).tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    if zipped:
        path = path.with_name(path.name + ".gz")
        content = gzip.compress(content)
    path.write_bytes(content)
    return path


def write_mnist(
    folder: Path, *, train: int = 12, test: int = 5, zipped: bool = True
) -> dict[str, np.ndarray]:
    """The four files of MNIST with few images of noise."""
    generator = np.random.default_rng(0)
    arrays = {
        "train-images-idx3-ubyte": generator.integers(0, 256, (train, 28, 28)),
        "train-labels-idx1-ubyte": generator.integers(0, 10, train),
        "t10k-images-idx3-ubyte": generator.integers(0, 256, (test, 28, 28)),
        "t10k-labels-idx1-ubyte": generator.integers(0, 10, test),
    }
    for name, array in arrays.items():
        write_idx(folder / name, array, zipped=zipped)
    return arrays


def write_pickle(path: Path, content: Any) -> str:
    """A pickled object; returns the MD5 sum of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content))
    return hashlib.md5(path.read_bytes()).hexdigest()


def write_cifar10(root: Path, *, train: int = 40, test: int = 10) -> dict[str, Any]:
    """Files in the format of CIFAR-10, of noise; returns the attributes by which torchvision's class finds them."""
    generator = np.random.default_rng(1)
    folder = root / "cifar-10-batches-py"
    sums = {}
    for name, count in (("data_batch_1", train), ("test_batch", test)):
        pixels = generator.integers(0, 256, (count, 3 * 32 * 32), dtype=np.uint8)
        content = {"data": pixels, "labels": [i % 10 for i in range(count)]}
        sums[name] = write_pickle(folder / name, content)
    meta = write_pickle(folder / "batches.meta", {"label_names": [f"class {i}" for i in range(10)]})
    return {
        "train_list": [["data_batch_1", sums["data_batch_1"]]],
        "test_list": [["test_batch", sums["test_batch"]]],
        "meta": {"filename": "batches.meta", "key": "label_names", "md5": meta},
    }


def write_images(root: Path, *names: str, size: tuple[int, int] = (12, 12), mode: str = "RGB") -> None:
    """An image of noise, different in each, under every name."""
    for i, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(i).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)
        Image.fromarray(pixels).convert(mode).save(path)
