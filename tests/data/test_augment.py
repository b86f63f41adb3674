"""Views: purity, slices, and each kind of change against an independent computation.

What a view did to an image is read from pixels alone: in a picture whose brightness is its x coordinate, a
view shows where each of its pixels came from.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage, stats
from torch import Tensor
from torchvision.transforms import RandomResizedCrop, v2

from moco_core.data.augment import PRESETS, VIEWS, Preset, augment, augment_views, plain, preset_for

SIDE = 64
RAMP = (torch.arange(SIDE) * 4).to(torch.uint8)


def noise(batch: int, channels: int, size: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (batch, channels, size, size), dtype=torch.uint8, generator=generator)


def calm(batch: int, channels: int, seed: int = 0) -> Tensor:
    """Colours far enough from black and white that no jitter of a fifth is clamped."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(90, 150, (batch, channels, 8, 8), dtype=torch.uint8, generator=generator)


def view(images: Tensor, preset: Preset, **where: int) -> Tensor:
    return augment(images, preset=preset, **{"seed": 0, "step": 1, "view": 0} | where)


def bytes_of(x: Tensor) -> Tensor:
    return (x + 1) * 127.5


def origins(preset: Preset, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each output pixel came from, B×H×W in pixels: (x, y)."""
    x = RAMP.expand(batch, 1, SIDE, SIDE)
    across, down = view(x, preset), view(x.mT, preset)
    return (bytes_of(across)[:, 0] / 4).numpy(), (bytes_of(down)[:, 0] / 4).numpy()


# Purity


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("channels", [1, 3])
def test_same_call_same_bits(name, channels):
    images = noise(16, channels, 20)
    first = view(images, PRESETS[name])
    torch.rand(10)  # the global generator has no say
    assert view(images, PRESETS[name]).equal(first)
    assert first.dtype == torch.float32
    assert first.shape == images.shape
    assert first.min() >= -1
    assert first.max() <= 1


def test_bits_dont_depend_on_the_number_of_threads():
    images = noise(64, 3, 40)
    before = torch.get_num_threads()
    views = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        views.append(view(images, PRESETS["stl10"]))
    torch.set_num_threads(before)
    assert views[0].equal(views[1])
    assert views[0].equal(views[2])


@pytest.mark.parametrize("name", sorted({"digits", "fashion-mnist", "cifar10", "stl10"}))
def test_samples_views_steps_and_seeds_draw_for_themselves(name):
    images = noise(1, 3, 16).expand(8, -1, -1, -1)
    calls = [
        view(images, PRESETS[name], seed=seed, step=step, view=v)
        for seed in (0, 1)
        for step in (1, 2)
        for v in range(VIEWS)
    ]
    different = {x.numpy().tobytes() for call in calls for x in call}
    assert len(different) == 2 * 2 * VIEWS * 8


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(PRESETS)),
    st.sampled_from([1, 3]),
    st.sampled_from([8, 13, 28, 32]),
    st.integers(1, 24),
    st.data(),
)
def test_a_slice_of_a_batch_gets_the_pixels_of_the_whole(name, channels, size, batch, data):
    start = data.draw(st.integers(0, batch - 1))
    stop = data.draw(st.integers(start + 1, batch))
    images = noise(batch, channels, size)
    whole = view(images, PRESETS[name])
    part = view(images[start:stop], PRESETS[name], offset=start)
    assert part.equal(whole[start:stop])


@pytest.mark.parametrize("name", ["fashion-mnist", "stl10"])
def test_memory_layout_changes_no_pixel(name):
    images = noise(8, 3, 16)
    other = images.to(memory_format=torch.channels_last)
    torch.testing.assert_close(view(other, PRESETS[name]), view(images, PRESETS[name]))


# Where pixels come from


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("channels", [1, 3])
def test_several_views_at_once_are_those_made_alone(name, channels):
    images = noise(6, channels, 20)
    together = augment_views(images, preset=PRESETS[name], seed=0, step=1, views=(0, 1, 5), offset=3)
    for number, made in zip((0, 1, 5), together, strict=True):
        assert made.equal(view(images, PRESETS[name], view=number, offset=3))


def test_no_changes_give_the_plain_view():
    images = noise(4, 3, 9)
    torch.testing.assert_close(view(images, Preset()), plain(images))
    assert plain(torch.tensor([[[[0, 255]]]], dtype=torch.uint8)).flatten().tolist() == [-1, 1]


@pytest.mark.parametrize("name", PRESETS)
def test_strength_0_is_the_plain_view_and_1_the_preset(name):
    images = noise(4, 3, 9)
    assert PRESETS[name].scaled(1) == PRESETS[name]
    torch.testing.assert_close(view(images, PRESETS[name].scaled(0)), plain(images))


def test_strength_widens_every_range_and_stays_within_what_can_be_drawn():
    preset = Preset(scale=(0.25, 0.81), rotate=10, flip=0.4, hue=0.4, jitter=0.8, brightness=0.3, blur=0.2)
    half, double = preset.scaled(0.5), preset.scaled(2)
    assert half.scale == (0.5, 0.9)
    assert half.aspect == pytest.approx((4 / 3) ** 0.5)
    assert (half.rotate, half.flip, half.blur) == (5, 0.2, 0.1)
    assert (double.rotate, double.brightness, double.blur) == (20, 0.6, 0.4)
    assert (double.flip, double.hue, double.jitter) == (0.5, 0.5, 1.0)


def test_a_crop_that_always_takes_all_moves_nothing():
    images = noise(16, 3, 9)
    still = Preset(scale=(0.9999999, 1), aspect=1)
    torch.testing.assert_close(view(images, still), plain(images), atol=1e-4, rtol=0)


def test_flips_are_exact_and_as_frequent_as_said():
    images = noise(2000, 1, 6)
    flipped = view(images, Preset(flip=0.3))
    straight, mirrored = plain(images), plain(images.flip(-1))
    same = (flipped - straight).abs().amax(dim=(1, 2, 3)) < 1e-3
    mirror = (flipped - mirrored).abs().amax(dim=(1, 2, 3)) < 1e-3
    assert (same ^ mirror).all()
    assert abs(mirror.float().mean() - 0.3) < 6 * math.sqrt(0.3 * 0.7 / 2000)


@pytest.mark.parametrize("scale", [(0.2, 1.0), (0.08, 1.0), (0.5, 0.8)])
def test_crops_follow_the_law_of_random_resized_crop(scale):
    """Our boxes as read from pixels, theirs drawn one by one on an image too large for rounding to show."""
    count, large = 3000, 8000
    across, down = origins(Preset(scale=scale), count)
    low, high = SIDE // 4, 3 * SIDE // 4
    w, h = ((x[:, high] - x[:, low]) / (high - low) for x in (across[:, 32], down[:, :, 32]))
    middle = SIDE // 2  # half a pixel right of the centre, in output and input
    x, y = ((c[:, middle, middle] + 0.5 - 0.5 * s) / SIDE for c, s in ((across, w), (down, h)))
    mine = {"area": w * h, "aspect": np.log(w / h), "x": x, "y": y}

    torch.manual_seed(0)
    image = torch.zeros(1).expand(1, large, large)
    draws = [RandomResizedCrop.get_params(image, scale, (3 / 4, 4 / 3)) for _ in range(count)]
    top, left, height, width = np.array(draws).T / large
    theirs = {
        "area": width * height,
        "aspect": np.log(width / height),
        "x": left + width / 2,
        "y": top + height / 2,
    }
    for name in mine:
        assert stats.ks_2samp(mine[name], theirs[name]).statistic < 0.05, name  # chance: 1 % reach 0.042
    assert mine["area"].min() > scale[0] - 0.02
    assert mine["area"].max() < scale[1] + 0.02


@pytest.mark.parametrize("seed", range(3))
def test_a_crop_equals_torchvisions_resized_crop_inside(seed):
    """The box that one view took, cut out and enlarged by torchvision: the same picture but for its rim."""
    size = 32
    smooth = ndimage.gaussian_filter(noise(1, 3, size, seed).numpy().astype(float), (0, 0, 3, 3)) * 3 % 256
    picture = torch.from_numpy(smooth).to(torch.uint8)
    preset = Preset(scale=(0.3, 0.9))
    ramp = (torch.arange(size) * 8).to(torch.uint8).expand(1, 1, size, size)
    at = {"step": seed + 1}
    x, y = (bytes_of(view(r, preset, **at))[0, 0] / 8 for r in (ramp, ramp.mT))
    w, h = ((c[24, 24] - c[8, 8]).item() * size / 16 for c in (x, y))
    left, top = (c[16, 16].item() + 0.5 - 16.5 / size * s for c, s in ((x, w), (y, h)))
    zoom = 16  # so that whole pixels can name the box
    enlarged = picture.repeat_interleave(zoom, dim=2).repeat_interleave(zoom, dim=3).float()
    box = [round(v * zoom) for v in (top, left, h, w)]
    theirs = v2.functional.resized_crop(enlarged, *box, size=[size, size], antialias=True)
    mine = bytes_of(view(picture, preset, **at))
    assert (mine - theirs)[..., 2:-2, 2:-2].abs().mean() < 1.5
    assert (mine - plain(picture)).abs().mean() > 5


def test_turns_are_rigid_and_within_their_bounds():
    across, down = origins(Preset(rotate=30), 500)
    inner = slice(SIDE // 4, 3 * SIDE // 4)
    dx = np.gradient(across[:, inner, inner], axis=(1, 2))
    dy = np.gradient(down[:, inner, inner], axis=(1, 2))
    cos, sin = dx[1].mean(axis=(1, 2)), dy[1].mean(axis=(1, 2))
    np.testing.assert_allclose(dy[0].mean(axis=(1, 2)), cos, atol=1e-3)
    np.testing.assert_allclose(dx[0].mean(axis=(1, 2)), -sin, atol=1e-3)
    np.testing.assert_allclose(cos**2 + sin**2, 1, atol=1e-3)
    degrees = np.degrees(np.arctan2(sin, cos))
    assert stats.kstest(degrees, stats.uniform(-30, 60).cdf).pvalue > 0.001
    np.testing.assert_allclose(across[:, 32, 32], 32, atol=0.6)  # about the centre


def test_turns_of_images_that_arent_square_are_rigid_too():
    wide = (torch.arange(60) * 4).to(torch.uint8).expand(50, 1, 20, 60)
    x = bytes_of(view(wide, Preset(rotate=20)))[:, 0].numpy() / 4
    steps = np.gradient(x[:, 8:12, 25:35], axis=(1, 2))
    length = np.hypot(steps[0].mean(axis=(1, 2)), steps[1].mean(axis=(1, 2)))
    np.testing.assert_allclose(length, 1, atol=1e-3)


def test_shifts_are_within_their_bounds_and_bring_in_black():
    across, down = origins(Preset(shift=0.125), 500)
    for axis in (across[:, 32, 32], down[:, 32, 32]):
        assert stats.kstest(axis - 32, stats.uniform(-8, 16).cdf).pvalue > 0.001
    white = torch.full((500, 1, 16, 16), 255, dtype=torch.uint8)
    moved = view(white, Preset(shift=0.25))
    assert (moved.amin(dim=(1, 2, 3)) == -1).float().mean() > 0.9
    assert (moved[:, :, 8, 8] == 1).all()


def test_crops_of_photographs_bring_in_nothing():
    white = torch.full((200, 3, 16, 16), 255, dtype=torch.uint8)
    cropped = view(white, Preset(scale=(0.2, 1), flip=0.5))
    torch.testing.assert_close(cropped, torch.ones_like(cropped))


# Colours


def test_brightness_scales():
    images = calm(500, 3)
    bright = bytes_of(view(images, Preset(jitter=1, brightness=0.4)))
    factor = bright.mean(dim=(1, 2, 3)) / images.float().mean(dim=(1, 2, 3))
    torch.testing.assert_close(bright, images * factor[:, None, None, None], atol=2e-3, rtol=1e-4)
    assert stats.kstest(factor.numpy(), stats.uniform(0.6, 0.8).cdf).pvalue > 0.001


@pytest.mark.parametrize(
    ("field", "theirs"),
    [("contrast", v2.functional.adjust_contrast), ("saturation", v2.functional.adjust_saturation)],
)
def test_contrast_and_saturation_equal_torchvisions(field, theirs):
    images = calm(300, 3)
    changed = bytes_of(view(images, Preset(jitter=1, **{field: 0.2}))) / 255
    original = images.float() / 255
    extreme = theirs(original, 0.0)  # where a factor of 0 leads
    away, moved = original - extreme, changed - extreme
    factor = (moved * away).sum(dim=(1, 2, 3)) / away.square().sum(dim=(1, 2, 3))
    expected = torch.stack([theirs(x, f.item()) for x, f in zip(original, factor, strict=True)])
    torch.testing.assert_close(changed, expected, atol=2e-4, rtol=0)  # their luma weights are rounded
    assert stats.kstest(factor.numpy(), stats.uniform(0.8, 0.4).cdf).pvalue > 0.001


def test_contrast_of_one_channel_turns_about_its_mean():
    images = calm(100, 1).float()
    changed = bytes_of(view(images.to(torch.uint8), Preset(jitter=1, contrast=0.2)))
    centred, original = (x - images.mean(dim=(1, 2, 3), keepdim=True) for x in (changed, images))
    factor = (centred * original).sum(dim=(1, 2, 3)) / original.square().sum(dim=(1, 2, 3))
    torch.testing.assert_close(centred, original * factor[:, None, None, None], atol=2e-3, rtol=0)
    assert ((factor > 0.8) & (factor < 1.2)).all()


def test_hue_keeps_the_grey_and_the_amount_of_colour():
    yiq = torch.tensor([[0.299, 0.587, 0.114], [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]])
    images = calm(400, 3)
    turned = bytes_of(view(images, Preset(jitter=1, hue=0.25)))
    before, after = (torch.einsum("ij,bjhw->bihw", yiq, x.float()) for x in (images, turned))
    torch.testing.assert_close(after[:, 0], before[:, 0], atol=0.02, rtol=0)
    torch.testing.assert_close(after[:, 1:].norm(dim=1), before[:, 1:].norm(dim=1), atol=0.02, rtol=0)
    z0, z1 = (torch.complex(x[:, 1], x[:, 2]) for x in (before, after))
    turns = ((z1 * z0.conj()).sum(dim=(1, 2)).angle() / (2 * math.pi)).numpy()
    assert stats.kstest(turns, stats.uniform(-0.25, 0.5).cdf).pvalue > 0.001


def test_hue_turns_red_towards_green_where_torchvision_does():
    red = torch.tensor([150, 100, 100], dtype=torch.uint8).view(1, 3, 1, 1).expand(64, 3, 4, 4)
    turned = bytes_of(view(red, Preset(jitter=1, hue=0.1)))[:, :, 0, 0]
    greener = turned[:, 1] > turned[:, 2]
    theirs = v2.functional.adjust_hue(red[:1].float() / 255, 0.05)[0, :, 0, 0]
    assert theirs[1] > theirs[2]
    assert greener.any()
    assert (~greener).any()


def test_grey_is_the_luma_in_every_channel_for_the_share_said():
    images = calm(2000, 3)
    changed = bytes_of(view(images, Preset(grey=0.2)))
    grey = (changed.amax(dim=1) - changed.amin(dim=1)).amax(dim=(1, 2)) < 1e-2
    assert abs(grey.float().mean() - 0.2) < 6 * math.sqrt(0.2 * 0.8 / 2000)
    expected = v2.functional.rgb_to_grayscale(images.float(), num_output_channels=3)
    torch.testing.assert_close(changed[grey], expected[grey], atol=0.05, rtol=0)
    torch.testing.assert_close(changed[~grey], images[~grey].float(), atol=1e-2, rtol=0)


def test_jitter_spares_the_share_said():
    images = calm(2000, 1)
    changed = view(images, Preset(jitter=0.8, brightness=0.4, contrast=0.4))
    spared = (changed - plain(images)).abs().amax(dim=(1, 2, 3)) < 1e-5
    assert abs(spared.float().mean() - 0.2) < 6 * math.sqrt(0.2 * 0.8 / 2000)


def test_values_are_clamped_not_wrapped():
    images = (
        torch.tensor([0, 255], dtype=torch.uint8)
        .repeat_interleave(32)
        .view(1, 1, 8, 8)
        .expand(50, -1, -1, -1)
    )
    changed = view(images, Preset(jitter=1, brightness=0.9, contrast=0.9))
    assert changed.max() == 1
    assert changed.min() >= -1
    assert (changed.amax(dim=(1, 2, 3)) >= changed.amin(dim=(1, 2, 3))).all()


def test_blur_is_a_gaussian_away_from_the_border():
    images = noise(3, 3, 40)
    sigma = 1.7
    blurred = bytes_of(view(images, Preset(blur=1, sigma=(sigma * 224 / 40,) * 2)))
    expected = ndimage.gaussian_filter(images.double().numpy(), sigma, axes=(2, 3), truncate=9)
    inner = slice(10, 30)
    np.testing.assert_allclose(blurred[..., inner, inner], expected[..., inner, inner], atol=0.02)


def test_blur_keeps_flat_images_and_spares_the_share_said():
    flat = torch.full((4, 1, 16, 16), 77, dtype=torch.uint8)
    torch.testing.assert_close(view(flat, Preset(blur=1, sigma=(20, 20))), plain(flat))
    images = noise(1000, 1, 12)
    blurred = view(images, Preset(blur=0.5, sigma=(15, 30)))
    spared = (blurred - plain(images)).abs().amax(dim=(1, 2, 3)) < 1e-5
    assert abs(spared.float().mean() - 0.5) < 6 * math.sqrt(0.25 / 1000)


# Presets


def test_handwriting_is_never_mirrored():
    for name in ("digits", "mnist"):
        assert preset_for(name).flip == 0
        assert preset_for(name).rotate > 0
        assert preset_for(name).shift > 0


def test_folders_get_a_recipe_for_photographs():
    assert preset_for("folder:/somewhere") == PRESETS["moco-v2"]
    assert preset_for("cifar10").scale[0] < preset_for("stl10").scale[0]


@pytest.mark.parametrize(
    "field", [f.name for f in fields(Preset) if f.name not in ("aspect", "sigma", "scale")]
)
def test_every_knob_of_a_preset_changes_pixels(field):
    colour_on = {"jitter": 1.0} if field in ("brightness", "contrast", "saturation", "hue") else {}
    on = replace(Preset(sigma=(20, 20)), **colour_on | {field: 0.4 if field != "rotate" else 20})
    if field == "jitter":
        on = replace(on, brightness=0.5)
    images = noise(32, 3, 16)
    assert (view(images, on) - plain(images)).abs().max() > 0.05


@pytest.mark.parametrize(
    ("images", "v", "sentence"),
    [
        (noise(2, 2, 8), 0, "images must have 1 or 3 channels, got 2"),
        (noise(2, 3, 8), 7, "view must be at least 0 and at most 6, got 7"),
        (noise(2, 3, 8), -1, "view must be at least 0 and at most 6, got -1"),
    ],
)
def test_what_cant_be_augmented_is_refused(images, v, sentence):
    with pytest.raises(ValueError, match=sentence):
        view(images, Preset(), view=v)
