"""Random views of images: every sample its own draw, the whole batch at once, on the device it is on.

A view is a pure function of (images, seed, step, view): the numbers behind it come from a counter-based
generator on the CPU, one row a sample, so the same call gives the same pixels and any slice of a batch can
be augmented on its own.

An affine map (crop, flip, turn, shift) is sampled bilinearly; then the picture is blurred; then a linear map
of its colours is applied. Brightness scales, contrast stretches about the image's mean grey, saturation and
hue stretch and turn the chroma plane (YIQ): these four commute, so they need no order, and are clamped once
at the end. Values leave as (x/255 − ½)/½, in [−1, 1].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from moco_core.config import TrainConfig
from moco_core.data.draws import uniform

LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601, as Pillow's grey
YIQ = np.array([LUMA, [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]])
GREY = np.outer(np.ones(3), LUMA)  # every channel becomes the luma
CHROMA = np.eye(3) - GREY  # what is left
TURN = np.linalg.inv(YIQ) @ np.array([[0, 0, 0], [0, 0, -1], [0, 1, 0]]) @ YIQ  # chroma, a quarter turn on

COLUMNS = 16  # random numbers a sample
(AREA, ASPECT, LEFT, TOP, FLIP, ROTATE, SHIFT_X, SHIFT_Y,
 JITTER, BRIGHTNESS, CONTRAST, SATURATION, HUE, TO_GREY, BLUR, SIGMA) = range(COLUMNS)  # fmt: skip
VIEWS = 7  # views 0 … 6 of a step have their own draws
SECOND_VIEW = 2  # that of an evaluation set, at step 0; training uses 0 and 1


@dataclass(frozen=True)
class Preset:
    """How strongly each kind of change is drawn. Defaults change nothing."""

    scale: tuple[float, float] = (1.0, 1.0)  # of the image's area, kept by the crop
    aspect: float = 4 / 3  # the crop is at most this much wider or higher in proportion than the image
    flip: float = 0.0  # probability of a mirror image
    rotate: float = 0.0  # degrees, either way
    shift: float = 0.0  # of the side, either way; what is moved in is black
    jitter: float = 0.0  # probability of the next four together
    brightness: float = 0.0  # factor 1 ± this
    contrast: float = 0.0  # factor 1 ± this
    saturation: float = 0.0  # factor 1 ± this
    hue: float = 0.0  # turns of the colour circle, either way
    grey: float = 0.0  # probability of losing all colour
    blur: float = 0.0  # probability of a Gaussian blur
    sigma: tuple[float, float] = (0.1, 2.0)  # of the blur, in pixels of an image 224 pixels wide

    @property
    def warps(self) -> bool:
        """Whether pixels change place."""
        return self.scale != (1, 1) or self.flip > 0 or self.rotate > 0 or self.shift > 0

    def scaled(self, strength: float) -> Preset:
        """The same changes, drawn from ranges `strength` times as wide: 0 changes nothing, 1 is this preset.

        Probabilities and amounts are multiplied (a mirror image stays at most as likely as none), the crop's
        bounds on area and aspect are raised to that power, the blur's width stays.
        """
        low, high = self.scale
        return replace(
            self,
            scale=(low**strength, high**strength),
            aspect=self.aspect**strength,
            flip=min(0.5, self.flip * strength),
            rotate=self.rotate * strength,
            shift=self.shift * strength,
            jitter=min(1.0, self.jitter * strength),
            brightness=min(1.0, self.brightness * strength),
            contrast=min(1.0, self.contrast * strength),
            saturation=min(1.0, self.saturation * strength),
            hue=min(0.5, self.hue * strength),
            grey=min(1.0, self.grey * strength),
            blur=min(1.0, self.blur * strength),
        )


MOCO_V1 = Preset(
    scale=(0.2, 1), flip=0.5, jitter=1, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.4, grey=0.2
)
MOCO_V2 = Preset(
    scale=(0.2, 1),
    flip=0.5,
    jitter=0.8,
    brightness=0.4,
    contrast=0.4,
    saturation=0.4,
    hue=0.1,
    grey=0.2,
    blur=0.5,
)
MOCO_CIFAR = replace(MOCO_V2, scale=(0.08, 1), blur=0)
HANDWRITING = Preset(scale=(0.5, 1), rotate=15, shift=0.1, jitter=0.8, brightness=0.4, contrast=0.4)

# Handwriting is turned a little and never mirrored; the recipes for photographs are those of He et al. (2019),
# Chen et al. (2020, "Improved baselines with momentum contrastive learning") and the authors' CIFAR demo.
PRESETS = {
    "digits": HANDWRITING,
    "mnist": HANDWRITING,
    "fashion-mnist": Preset(scale=(0.3, 1), flip=0.5, jitter=0.8, brightness=0.4, contrast=0.4),
    "cifar10": MOCO_CIFAR,
    "cifar100": MOCO_CIFAR,
    "stl10": MOCO_V2,
    "moco-v1": MOCO_V1,
    "moco-v2": MOCO_V2,
}


def preset_for(name: str) -> Preset:
    """The preset of a data set, or the one of that name; folders of images get MoCo v2's."""
    return PRESETS.get(name, MOCO_V2)


def preset_of(config: TrainConfig) -> Preset:
    """The preset of a run's views, as strong as its settings have it."""
    name = config.dataset if config.augmentation == "auto" else config.augmentation
    return preset_for(name).scaled(config.augmentation_strength)


def plain(images: Tensor) -> Tensor:
    """The evaluation view: uint8 B×C×H×W → float32 in [−1, 1], nothing else changed."""
    return images.to(torch.float32) / 127.5 - 1


def augment(images: Tensor, *, preset: Preset, seed: int, step: int, view: int, offset: int = 0) -> Tensor:
    """A random view of each image: uint8 B×C×H×W (C is 1 or 3) → float32 B×C×H×W in [−1, 1].

    Sample i draws from (seed, step, view, offset + i) alone: a process that holds rows [offset, offset + B)
    of a larger batch makes the same pixels as one that holds all of it. `view` tells the views of a step
    apart (0 … 6). Raises `ValueError` for other channel counts and views.
    """
    return augment_views(images, preset=preset, seed=seed, step=step, views=(view,), offset=offset)[0]


def augment_views(
    images: Tensor, *, preset: Preset, seed: int, step: int, views: Sequence[int], offset: int = 0
) -> tuple[Tensor, ...]:
    """Several views of the same images at once, each as `augment` makes it."""
    _, channels, height, width = images.shape
    if channels not in (1, 3):
        raise ValueError(f"images must have 1 or 3 channels, got {channels}")
    for view in views:
        if not 0 <= view < VIEWS:
            raise ValueError(f"view must be at least 0 and at most {VIEWS - 1}, got {view}")
    u = np.concatenate([uniform(seed, step << 3 | view, len(images), COLUMNS, offset) for view in views])
    affine = _affine(u, preset, height, width)
    colour, contrast = _colour(u, preset, channels)
    sigma = np.where(u[:, BLUR] < preset.blur, _between(u[:, SIGMA], *preset.sigma) * width / 224, 0)
    drawn = np.column_stack([affine.reshape(-1, 6), colour, contrast, sigma])
    parameters = _send(drawn, images.device)  # one transfer for all of them

    x = images.repeat(len(views), 1, 1, 1).to(torch.float32)
    if preset.warps:
        x = _warp(x, parameters[:, :6], padding="zeros" if preset.rotate or preset.shift else "border")
    if preset.blur:
        x = _blur(x, parameters[:, -1])
    return _recolour(x, parameters[:, 6:-2], parameters[:, -2]).chunk(len(views))


def _affine(u: np.ndarray, preset: Preset, height: int, width: int) -> np.ndarray:
    """Maps from output to input coordinates, B×2×3, both in [−1, 1]: mirror, turn, shrink to the crop, move.

    The crop follows the law of torchvision's RandomResizedCrop: area uniform, log aspect uniform, drawn
    again while it doesn't fit into the image. Here both are drawn at once from that law.
    """
    area = _fitting_area(u[:, AREA], preset.scale, preset.aspect)
    log_aspect = _between(u[:, ASPECT], -1, 1) * np.minimum(math.log(preset.aspect), -np.log(area))
    w, h = np.sqrt(area * np.exp(log_aspect)), np.sqrt(area / np.exp(log_aspect))
    x = (1 - w) * _between(u[:, LEFT], -1, 1) + 2 * preset.shift * _between(u[:, SHIFT_X], -1, 1)
    y = (1 - h) * _between(u[:, TOP], -1, 1) + 2 * preset.shift * _between(u[:, SHIFT_Y], -1, 1)
    mirror = np.where(u[:, FLIP] < preset.flip, -1, 1)
    angle = np.radians(preset.rotate) * _between(u[:, ROTATE], -1, 1)
    cos, sin = np.cos(angle), np.sin(angle)
    rows = [
        [w * mirror * cos, w * -sin * height / width, x],
        [h * mirror * sin * width / height, h * cos, y],
    ]
    return np.array(rows).transpose(2, 0, 1)


def _fitting_area(u: np.ndarray, scale: tuple[float, float], aspect: float) -> np.ndarray:
    """Uniform numbers as crop areas: of all areas in `scale`, those that fit with a random aspect."""
    if scale[0] == scale[1]:
        return np.full_like(u, scale[0])
    return np.interp(u, *_area_law(scale, aspect))


@lru_cache
def _area_law(scale: tuple[float, float], aspect: float) -> tuple[np.ndarray, np.ndarray]:
    """The cumulative law of the crop's area and the areas it is tabulated at.

    A crop of area a fits when |log aspect| ≤ −log a, which has probability min(1, −log a / log aspect).
    """
    areas = np.linspace(*scale, 4097)
    density = np.minimum(1, -np.log(areas) / max(math.log(aspect), 1e-12))
    cumulative = np.concatenate([[0], np.cumsum(density[1:] + density[:-1])])
    return cumulative / cumulative[-1], areas


def _colour(u: np.ndarray, preset: Preset, channels: int) -> tuple[np.ndarray, np.ndarray]:
    """The colour matrices, B×C², and the weights of the mean grey that contrast keeps in place, B.

    Both are in units that take bytes to [−1, 1] up to the constant −1.
    """
    jittered = u[:, JITTER] < preset.jitter

    def factor(column: int, spread: float) -> np.ndarray:
        return np.where(jittered, 1 + spread * _between(u[:, column], -1, 1), 1)

    brightness = factor(BRIGHTNESS, preset.brightness) / 127.5
    contrast = factor(CONTRAST, preset.contrast)
    gain, of_mean = brightness * contrast, brightness * (1 - contrast)
    if channels == 1:
        return gain[:, None], of_mean
    saturation = factor(SATURATION, preset.saturation) * (u[:, TO_GREY] >= preset.grey)
    angle = np.where(jittered, 2 * np.pi * preset.hue * _between(u[:, HUE], -1, 1), 0)
    chroma = np.multiply.outer(saturation * np.cos(angle), CHROMA)
    turned = np.multiply.outer(saturation * np.sin(angle), TURN)
    return gain[:, None] * (GREY + chroma + turned).reshape(-1, 9), of_mean


def _between(u: np.ndarray, low: float, high: float) -> np.ndarray:
    return low + (high - low) * u


def _send(values: np.ndarray, device: torch.device) -> Tensor:
    """Values as float32 on the device, without waiting for it."""
    tensor = torch.from_numpy(values.astype(np.float32))
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _warp(x: Tensor, affine: Tensor, padding: str) -> Tensor:
    """Sample B×C×H×W at affine positions (B×6), bilinearly.

    The positions are built by elementwise arithmetic, whose bits don't depend on the size of the batch; as
    complex numbers x + iy, because that fills the grid of pairs in one pass.
    """
    _, _, height, width = x.shape
    across, down = _centres(width, x.device), _centres(height, x.device)
    a, b, c, d, e, f = affine[:, :, None].unbind(1)
    columns = torch.complex(a * across, d * across)  # B×W
    rows = torch.complex(b * down + c, e * down + f)  # B×H
    grid = torch.view_as_real(rows[:, :, None] + columns[:, None])  # B×H×W×2
    return torch.nn.functional.grid_sample(x, grid, padding_mode=padding, align_corners=False)


@lru_cache
def _centres(n: int, device: torch.device) -> Tensor:
    """Pixel centres of a side of n pixels that spans [−1, 1]."""
    return (torch.arange(n, dtype=torch.float32, device=device) * 2 + 1) / n - 1


def _blur(x: Tensor, sigma: Tensor) -> Tensor:
    """Gaussian blur of B×C×H×W with a σ a sample in pixels (B); 0 leaves it as it is."""
    height, width = x.shape[2:]
    across = _gaussian(width, sigma)
    down = across if height == width else _gaussian(height, sigma)
    x = torch.bmm(x.flatten(1, 2), across.mT).view_as(x)
    return down[:, None] @ x


def _gaussian(n: int, sigma: Tensor) -> Tensor:
    """Rows of Gaussian weights that sum to 1 over the n pixels there are, B×n×n."""
    place = torch.arange(n, dtype=sigma.dtype, device=sigma.device)
    apart = (place[:, None] - place).square()  # n×n
    return (apart * (-0.5 / sigma.clamp(min=1e-3).square())[:, None, None]).softmax(dim=-1)


def _recolour(x: Tensor, matrix: Tensor, of_mean: Tensor) -> Tensor:
    """Bytes B×C×H×W → [−1, 1]: a colour matrix (B×C²), and `of_mean` (B) of the image's mean grey added."""
    batch, channels, height, width = x.shape
    mean = x.mean(dim=(2, 3))  # B×C
    if channels == 3:
        red, green, blue = (m * float(w) for m, w in zip(mean.unbind(1), LUMA, strict=True))
        mean = (red + green + blue)[:, None]
    bias = of_mean[:, None] * mean - 1  # B×1
    if channels == 1:
        return torch.addcmul(bias[:, :, None, None], x, matrix[:, :, None, None]).clamp_(-1, 1)
    mixed = torch.baddbmm(bias[:, :, None], matrix.view(batch, 3, 3), x.flatten(2))
    return mixed.clamp_(-1, 1).view(batch, channels, height, width)
