"""A folder of images through an encoder from elsewhere, as a person does it."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms

from moco_core.config import ConfigError, TrainConfig
from moco_core.dashboard.loaders import same_directions
from moco_core.data.augment import MOCO_V2, augment
from moco_core.interop.embed import Preparation, embed_folder
from moco_core.interop.imported import VectorsError
from moco_core.interop.weights import WeightsError
from moco_core.nets.encoder import build_encoder
from moco_core.runs import RunStore, RunWriter, schema
from moco_core.runs.verify import damage
from tests.data.files import write_images
from tests.interop import checkpoints
from tests.synthetic import unit

SIZE = 64
READ = round(SIZE * 256 / 224)
EVALUATION = transforms.Compose(
    [
        transforms.Resize(READ),
        transforms.CenterCrop(SIZE),
        transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ]
)


@pytest.fixture
def images(tmp_path):
    """Seven pictures of two classes that need no resizing."""
    folder = tmp_path / "pictures"
    names = [f"{kind}/{i}.png" for kind, count in (("cat", 4), ("dog", 3)) for i in range(count)]
    write_images(folder, *names, size=(READ, READ))
    return folder


@pytest.fixture
def weights(tmp_path):
    return checkpoints.moco(tmp_path / "moco_v2.pth.tar", checkpoints.mlp())


def embedded(root, weights, images, **more):
    path = embed_folder(root, weights, images, **{"arch": "resnet18", "image_size": SIZE} | more)
    return RunStore(root)[path.name]


def pictures(folder, names):
    return torch.stack([EVALUATION(Image.open(folder / name)) for name in names])


@torch.no_grad()
def test_a_run_holds_what_the_encoder_itself_makes_of_the_images(tmp_path, images, weights, capsys):
    run = embedded(tmp_path / "runs", weights, images, batch_size=3)
    assert run.problem is None
    assert list(damage(run)) == []
    found = run.eval_set
    assert found.names == (
        "cat/0.png",
        "cat/1.png",
        "cat/2.png",
        "cat/3.png",
        "dog/0.png",
        "dog/1.png",
        "dog/2.png",
    )
    assert found.class_names == ("cat", "dog")
    assert found.labels.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert found.sample_ids.tolist() == list(range(7))

    (step,) = run.steps
    expected = checkpoints.features(pictures(images, found.names))
    np.testing.assert_allclose(step.features, expected.numpy(), atol=1e-5)
    np.testing.assert_allclose(step.query, unit(checkpoints.mlp()(expected).numpy()), atol=1e-5)

    thumbnail = np.asarray(Image.open(images / "dog/1.png"))[4 : 4 + SIZE, 4 : 4 + SIZE]
    np.testing.assert_array_equal(found.thumbnails[5], thumbnail)

    source = run.info["source"]
    assert source["kind"] == "embed"
    assert source["file"] == "moco_v2.pth.tar"
    assert source["format"] == "PyTorch"
    assert len(source["sha256"]) == 64
    assert (source["arch"], source["prefix"]) == ("resnet18", "state_dict.module.encoder_q.")
    assert (source["matched"], source["missing"], source["unexpected"]) == (100, 0, 0)
    assert (source["images"], source["images_there"], source["left_out"]) == (str(images), 7, 0)
    assert run.name == "moco_v2 on pictures"
    assert not same_directions(run)
    assert (
        "all 100 tensors of resnet18 under prefix 'state_dict.module.encoder_q.'" in capsys.readouterr().err
    )


@torch.no_grad()
def test_second_views_are_the_projects_own_and_go_by_the_seed(tmp_path, images, weights):
    run = embedded(tmp_path / "runs", weights, images, batch_size=3, seed=5)
    pixels = torch.from_numpy(run.eval_set.thumbnails).permute(
        0, 3, 1, 2
    )  # at 64 pixels they are what is seen
    view = augment(pixels, preset=MOCO_V2, seed=5, step=0, view=2)
    mean, std = (torch.tensor(v)[:, None, None] for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    seen = checkpoints.mlp()(checkpoints.features(((view + 1) / 2 - mean) / std))
    np.testing.assert_allclose(run.steps[0].second_view, unit(seen.numpy()), atol=1e-5)
    assert run.steps[0].metrics["alignment"]["value"] > 0
    assert run.steps[0].metrics["knn"]["leave_one_out"]
    other = embedded(tmp_path / "runs", weights, images, seed=6)
    assert not np.allclose(other.steps[0].second_view, run.steps[0].second_view, atol=1e-3)
    np.testing.assert_allclose(other.steps[0].query, run.steps[0].query, atol=1e-6)


@torch.no_grad()
def test_without_a_head_the_features_are_what_is_looked_at(tmp_path, images):
    run = embedded(tmp_path / "runs", checkpoints.plain(tmp_path / "resnet.pt"), images, name="mine")
    expected = checkpoints.features(pictures(images, run.eval_set.names)).numpy()
    np.testing.assert_allclose(run.steps[0].features, expected, atol=1e-5)
    np.testing.assert_allclose(run.steps[0].query, unit(expected), atol=1e-5)
    assert (run.name, run.info["source"]["head"], run.config.dim) == ("mine", "", 512)
    assert same_directions(run)


def test_a_run_that_was_trained_here_brings_its_architecture_and_preparation(tmp_path):
    folder = tmp_path / "greys"
    write_images(folder, *(f"{kind}/{i}.png" for kind in "ab" for i in range(3)), size=(16, 16), mode="L")
    torch.manual_seed(0)
    encoder = build_encoder("small-cnn", 1, 16, 8).eval()
    config = TrainConfig(
        dataset=f"folder:{folder}", image_size=16, encoder="small-cnn", dim=8, name="trained"
    )
    writer = RunWriter.create(tmp_path / "runs", config)
    thumbnails = np.zeros((2, 16, 16, 1), np.uint8)
    writer.write_eval_set(
        {"thumbnails": thumbnails, "labels": np.zeros(2, int), "sample_ids": np.arange(2)}, "a"
    )
    state = {f"query.{name}": tensor.numpy() for name, tensor in encoder.state_dict().items()}
    writer.write_step(400, {schema.WEIGHTS_FILE: state}, {})

    path = writer.path / "step-00000400" / schema.WEIGHTS_FILE
    run = embedded(tmp_path / "runs", path, folder, arch="", image_size=0)
    with torch.no_grad():
        pixels = [np.asarray(Image.open(folder / name)) for name in run.eval_set.names]
        view = torch.from_numpy(np.stack(pixels)[:, None]).float() / 127.5 - 1
        features, query = encoder(view)
    np.testing.assert_allclose(run.steps[0].features, features.numpy(), atol=1e-5)
    np.testing.assert_allclose(run.steps[0].query, query.numpy(), atol=1e-5)
    assert run.name == "trained on greys"
    source = run.info["source"]
    assert (source["arch"], source["image_size"], source["mean"], source["head"]) == (
        "small-cnn",
        16,
        [0.5],
        "query.head",
    )
    assert run.eval_set.thumbnails.shape == (6, 16, 16, 1)

    elsewhere = tmp_path / "moved.safetensors"
    elsewhere.write_bytes(path.read_bytes())
    with pytest.raises(ConfigError, match="grey images: --mean and --std must be one number each"):
        embedded(tmp_path / "runs", elsewhere, folder, arch="small-cnn", image_size=16)


def test_files_that_cant_be_read_are_named_and_counted(tmp_path, images, weights, capsys):
    (images / "cat" / "broken.jpg").write_text("no image")
    run = embedded(tmp_path / "runs", weights, images, batch_size=2)
    assert len(run.eval_set) == 7
    assert "cat/broken.jpg" not in run.eval_set.names
    assert run.info["source"]["left_out"] == 1
    assert run.info["source"]["images_there"] == 8
    assert "left out, as unreadable: 1 file (cat/broken.jpg: not an image)" in capsys.readouterr().err


def test_a_limit_takes_the_same_share_of_every_class(tmp_path, images, weights):
    write_images(images, *(f"bird/{i}.png" for i in range(14)), size=(READ, READ))
    runs = [embedded(tmp_path / "runs", weights, images, limit=6, seed=seed) for seed in (0, 0, 1)]
    for run in runs:
        counts = np.bincount(run.eval_set.labels, minlength=3)  # bird, cat, dog: 14, 4 and 3
        assert counts.sum() == 6
        assert counts[0] == 4
    assert runs[0].eval_set.names == runs[1].eval_set.names != runs[2].eval_set.names


def test_images_of_every_size_and_kind_may_be_mixed(tmp_path, weights):
    folder = tmp_path / "mixed"
    for size, mode, name in (
        ((9, 200), "RGB", "a.png"),
        ((300, 40), "L", "b.png"),
        ((50, 50), "RGBA", "c.png"),
    ):
        write_images(folder, name, size=size, mode=mode)
    write_images(folder, "d.jpg", size=(64, 64))
    run = embedded(tmp_path / "runs", weights, folder)
    assert run.eval_set.labels.tolist() == [-1] * 4
    assert run.eval_set.class_names == ()
    assert "knn" not in run.steps[0].metrics


def test_nothing_is_left_behind_when_something_is_wrong(tmp_path, images, weights):
    root = tmp_path / "runs"
    empty = tmp_path / "empty"
    empty.mkdir()
    broken = tmp_path / "broken"
    broken.mkdir()
    for i in range(5):
        (broken / f"{i}.png").write_text("no image")
    weights_alone = {n: t for n, t in checkpoints.backbone().items() if not n.endswith("num_batches_tracked")}
    state = {"state_dict": {n: t * float("nan") for n, t in weights_alone.items()}}
    torch.save(state, tmp_path / "nan.pt")
    cases = (
        (VectorsError, "holds no images", {"images": empty}),
        (VectorsError, "there is no folder", {"images": tmp_path / "absent"}),
        (VectorsError, r"at least 2 readable images, got 0 \(0.png: not an image", {"images": broken}),
        (WeightsError, "doesn't hold the weights of resnet50", {"arch": "resnet50"}),
        (FileNotFoundError, "absent.pt", {"weights": tmp_path / "absent.pt"}),
        (WeightsError, r"not finite, in 100 of its tensors \(conv1.weight", {"weights": tmp_path / "nan.pt"}),
        (ConfigError, "limit must be at least 2", {"limit": 1}),
        (ConfigError, "batch_size at least 1", {"batch_size": 0}),
        (ConfigError, "image_size must be at least 8", {"image_size": 4}),
        (ConfigError, r"mean must be 1 or 3 finite numbers.*\(0.1, 0.2\)", {"mean": (0.1, 0.2)}),
        (ConfigError, "std must be above 0", {"std": (0.1, 0.0, 1.0)}),
    )
    for kind, sentence, words in cases:
        given = {"weights": weights, "images": images} | words
        with pytest.raises(kind, match=sentence):
            embedded(root, given.pop("weights"), given.pop("images"), **given)
    assert not root.exists()
    with pytest.raises(VectorsError, match=r"nan\.pt is no folder that can be written to: choose another"):
        embedded(tmp_path / "nan.pt" / "runs", weights, images)


def test_the_centre_is_cut_as_evaluation_on_imagenet_does():
    assert Preparation().read_size == 256
    assert replace(Preparation(), crop=1).read_size == 224
    pixels = torch.arange(256.0).to(torch.uint8).expand(1, 3, 256, 256)
    assert Preparation().cut(pixels, 3)[0, 0, 0].tolist() == list(range(16, 240))
    assert Preparation().cut(pixels, 1).shape == (1, 1, 224, 224)
    assert Preparation().cut(pixels, 1)[0, 0, 0].tolist() == list(range(16, 240))


def moco(*words):
    command = [sys.executable, "-m", "moco_core", *map(str, words)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)


def test_the_command(tmp_path, command, images, weights):
    words = (
        "embed",
        "--weights",
        weights,
        "--images",
        images,
        "--image-size",
        SIZE,
        "--runs",
        tmp_path / "runs",
    )
    done = moco(*words, "--arch", "resnet18", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert (
        json.loads((tmp_path / "runs" / "moco-v2-on-pictures" / "run.json").read_text())["source"]["dim"] == 8
    )
    assert line == str(tmp_path / "runs" / "moco-v2-on-pictures")
    refused = command(*words, "--arch", "resnet34")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("error: ")
    assert "they fit --arch resnet18" in refused.stderr
    assert "Traceback" not in refused.stderr
    unnamed = command(*words)
    assert unnamed.returncode == 2
    assert "its weights fit --arch resnet18" in unnamed.stderr


def test_ctrl_c_leaves_no_run_and_no_traceback(tmp_path, weights):
    folder = tmp_path / "many"
    write_images(folder, *(f"{i}.png" for i in range(400)), size=(READ, READ))
    words = ("--weights", weights, "--images", folder, "--arch", "resnet18", "--runs", tmp_path / "runs")
    command = [sys.executable, "-m", "moco_core", "embed", *map(str, words), "--batch-size", "2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    seen = b""
    while b" 2/400" not in seen:  # the progress bar, after the first batch
        seen += started.stderr.read1()
        assert started.poll() is None, seen.decode()
    started.send_signal(signal.SIGINT)
    out, rest = started.communicate(timeout=120)
    assert (started.returncode, out) == (130, b"")
    assert b"Traceback" not in seen + rest
    assert rest.rstrip().endswith(b"error: stopped")
    assert not (tmp_path / "runs").exists()
