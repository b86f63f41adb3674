"""Weights of every origin end up in the right place, or nowhere."""

import os
import pickle
import sys
import types
import warnings
import zipfile
from pathlib import Path

import pytest
import torch
import torchvision
from torch import nn
from torch.nn.functional import relu

from moco_core.config import ConfigError
from moco_core.interop.architectures import builds
from moco_core.interop.encoder import load_encoder
from moco_core.interop.weights import Weights, WeightsError, read_weights
from moco_core.nets.encoder import build_encoder
from tests.interop import checkpoints

IMAGES = torch.randn(3, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def loaded(path, arch="resnet18", prefix=""):
    return load_encoder(read_weights(path), arch, prefix, 64)


def held(state):
    """Weights as if a file had held them."""
    return Weights(Path("weights.pt"), "PyTorch", "", dict(state))


def seen(encoder):
    with torch.inference_mode():
        return encoder(IMAGES)


@pytest.mark.parametrize(
    ("save", "prefix", "unexpected"),
    [
        (checkpoints.plain, "", 2),
        (checkpoints.old, "", 2),
        (checkpoints.wrapped, "model.module.", 2),
        (checkpoints.lightning, "state_dict.model.", 2),
        (checkpoints.lightly, "state_dict.backbone.", 0),
        (checkpoints.safetensors, "encoder.", 0),
    ],
)
def test_the_backbone_is_found_in_every_format(tmp_path, save, prefix, unexpected):
    encoder = loaded(save(tmp_path / "weights"))
    features, projections = seen(encoder)
    torch.testing.assert_close(features, checkpoints.features(IMAGES), atol=1e-5, rtol=0)
    assert projections is features
    assert encoder.facts == {
        "arch": "resnet18",
        "prefix": prefix,
        "matched": 100,
        "missing": 0,
        "unexpected": unexpected,
        "head": "",
        "features": 512,
        "dim": 512,
    }
    where = f"under prefix {prefix!r}" if prefix else "at its top level"
    assert f"all 100 tensors of resnet18 {where}, " in encoder.sentence


@pytest.mark.parametrize(
    ("save", "head", "name"),
    [
        (lambda p: checkpoints.moco(p, checkpoints.linear()), checkpoints.linear, "module.encoder_q.fc"),
        (lambda p: checkpoints.moco(p, checkpoints.mlp()), checkpoints.mlp, "module.encoder_q.fc"),
        (checkpoints.solo_learn, checkpoints.mlp, "projector"),
    ],
    ids=["MoCo v1", "MoCo v2", "solo-learn"],
)
def test_the_projection_head_comes_along(tmp_path, save, head, name):
    encoder = loaded(save(tmp_path / "weights.pth.tar"))
    features, projections = seen(encoder)
    expected = checkpoints.features(IMAGES)
    torch.testing.assert_close(features, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(projections, head()(expected), atol=1e-5, rtol=0)
    assert encoder.facts["head"] == f"state_dict.{name}"
    assert encoder.facts["dim"] == 8


def test_lightlys_moco_head_is_one_too(tmp_path):
    encoder = loaded(checkpoints.lightly_moco(tmp_path / "weights"))
    assert encoder.facts["head"] == "projection_head.layers"
    torch.testing.assert_close(seen(encoder)[1], checkpoints.mlp()(checkpoints.features(IMAGES)))


def test_the_trained_encoder_comes_before_its_slow_copy_which_can_be_asked_for(tmp_path):
    path = checkpoints.moco(tmp_path / "moco", checkpoints.linear())
    assert "--prefix also takes state_dict.module.encoder_k." in loaded(path).sentence
    for prefix in ("state_dict.module.encoder_k", "state_dict.module.encoder_k."):
        slow = loaded(path, prefix=prefix)
        assert slow.facts["prefix"] == "state_dict.module.encoder_k."
        assert not seen(slow)[0].any()
    with pytest.raises(
        WeightsError, match=r"nothing of resnet18 under prefix 'encoder_q\.'.*encoder_k.*encoder_q"
    ):
        loaded(path, prefix="encoder_q")


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [32, 128])
@pytest.mark.parametrize("head", ["mlp", "linear"])
def test_the_weights_say_which_stem_and_head_of_ours_they_are_for(channels, size, head):
    ours = build_encoder("resnet18", channels, size, 6, head=head).eval()
    encoder = load_encoder(held(checkpoints.named("query.", ours.state_dict())), "resnet18", "", size)
    assert encoder.channels == channels
    assert encoder.facts["head"] == "query.head"
    images = torch.randn(2, channels, size, size)
    with torch.inference_mode():
        for mine, theirs in zip(encoder(images), ours(images), strict=True):
            torch.testing.assert_close(nn.functional.normalize(mine), nn.functional.normalize(theirs))


@pytest.mark.parametrize(
    "arch", ["vit_b_32", "convnext_tiny", "regnet_y_400mf", "squeezenet1_1", "mobilenet_v3_small"]
)
def test_torchvisions_models_lose_their_last_layer_alone(arch):
    net = torchvision.models.get_model(arch, weights=None).eval()
    encoder = load_encoder(held(net.state_dict()), arch, "", 224)
    last = [m for m in net.modules() if isinstance(m, nn.Linear | nn.Conv2d)][-1]
    met = []
    last.register_forward_hook(lambda module, inputs, output: met.append(inputs[0]))
    images = torch.randn(1, 3, 224, 224)
    with torch.inference_mode():
        net(images)
        (features, _), (before,) = encoder(images), met
    if arch == "squeezenet1_1":  # pooled after its classifier
        before = relu(before).mean(dim=(2, 3))
    torch.testing.assert_close(features, before.flatten(1), atol=1e-5, rtol=1e-4)


def test_timms_models_go_by_their_names(tmp_path):
    timm = pytest.importorskip("timm")
    net = timm.create_model("resnet18", num_classes=7).eval()
    torch.save({"state_dict": net.state_dict()}, tmp_path / "w")
    features, _ = seen(loaded(tmp_path / "w", "timm:resnet18"))
    with torch.inference_mode():
        expected = net.forward_head(net.forward_features(IMAGES), pre_logits=True)
    torch.testing.assert_close(features, expected, atol=1e-5, rtol=0)
    with pytest.raises(ConfigError, match="timm has no model 'resnet19'; did you mean 'resnet1"):
        builds("timm:resnet19")[0]()
    with pytest.raises(ConfigError, match="timm has no model 'resnet19'"):
        loaded(tmp_path / "w", "timm:resnet19")


@pytest.mark.parametrize(
    ("there", "asked", "sentence"),
    [
        (
            "resnet18",
            "resnet50",
            r"closest is prefix '' with 77 of 265 tensors \(165 are missing.*--arch resnet18",
        ),
        ("resnet34", "resnet18", r"100 of 100 tensors \(96 belong to another, as layer1.2.*--arch resnet34"),
        ("resnet18", "resnet34", r"100 of 180 tensors \(80 are missing, as layer1.2.*--arch resnet18"),
        ("resnet18", "vgg11", r"holds no weight of vgg11: its 122 tensors are .*--arch resnet18"),
    ],
)
def test_another_architecture_is_refused_and_the_right_one_named(there, asked, sentence):
    with torch.device("meta"):
        state = torchvision.models.get_model(there, weights=None).state_dict()
    with pytest.raises(WeightsError, match=sentence):
        load_encoder(held(state), asked, "", 64)


@pytest.mark.parametrize(
    "names",
    [
        ("resnet.embedder.embedder.convolution.weight", "classifier.1.weight", "classifier.1.bias"),
        ("vit.embeddings.cls_token", "vit.embeddings.patch_embeddings.projection.weight"),
        ("embeddings.mask_token", "encoder.layer.0.attention.attention.query.weight"),
    ],
)
def test_names_of_transformers_are_refused_with_what_goes_instead(names):
    state = {name: torch.zeros(10, 512, device="meta") for name in names}
    with pytest.raises(
        WeightsError, match=rf"holds no weight of resnet18: its {len(names)} tensors are .* --arch timm:NAME$"
    ):
        load_encoder(held(state), "resnet18", "", 64)


def test_a_backbone_that_lacks_one_tensor_is_refused():
    state = dict(checkpoints.resnet18().state_dict())
    del state["layer3.0.conv1.weight"]
    with pytest.raises(
        WeightsError, match=r"99 of 100 tensors \(1 are missing, as layer3\.0\.conv1\.weight\)$"
    ):
        load_encoder(held(state), "resnet18", "", 64)
    state["layer3.0.conv1.weight"] = torch.zeros(2, 2)
    with pytest.raises(WeightsError, match=r"layer3\.0\.conv1\.weight is 2×2 where 256×128×3×3 is expected"):
        load_encoder(held(state), "resnet18", "", 64)


def test_counters_of_batch_norm_may_be_absent():
    state = {n: t for n, t in checkpoints.backbone().items() if not n.endswith("num_batches_tracked")}
    encoder = load_encoder(held(state), "resnet18", "", 64)
    torch.testing.assert_close(seen(encoder)[0], checkpoints.features(IMAGES))


@pytest.mark.parametrize(
    ("change", "form"),
    [
        (lambda weight: torch.quantize_per_tensor(weight, 0.1, 0, torch.qint8), "qint8"),
        (lambda weight: (100 * weight).to(torch.int8), "int8"),
        (lambda weight: weight.to(torch.float8_e4m3fn), "float8_e4m3fn"),
        (lambda weight: weight.to(torch.complex64), "complex64"),
        (torch.Tensor.to_sparse, "float32, sparse"),
        (lambda weight: weight.to("meta"), "float32, without values"),
    ],
)
def test_weights_that_are_no_plain_floats_are_refused(change, form):
    state = {n: change(t) if t.is_floating_point() else t for n, t in checkpoints.backbone().items()}
    with pytest.raises(
        WeightsError, match=rf"holds 100 tensors in a form that isn't read \(conv1.weight is {form}\)"
    ):
        load_encoder(held(state), "resnet18", "", 64)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_any_precision_are_computed_with_as_float32(kind):
    state = {n: t.to(kind) if t.is_floating_point() else t for n, t in checkpoints.backbone().items()}
    encoder = load_encoder(held(state), "resnet18", "", 64)
    assert {parameter.dtype for parameter in encoder.backbone.parameters()} == {torch.float32}
    torch.testing.assert_close(seen(encoder)[0], checkpoints.features(IMAGES), rtol=0.1, atol=0.1)


def test_architectures_that_are_unknown_or_not_named(tmp_path):
    path = checkpoints.plain(tmp_path / "w.pt")
    with pytest.raises(ConfigError, match="got 'resnet81'; did you mean 'resnet18'"):
        loaded(path, "resnet81")
    with pytest.raises(
        ConfigError, match=r"--arch must name the architecture of w\.pt; its weights fit --arch resnet18"
    ):
        loaded(path, "")


def test_a_size_that_the_architecture_doesnt_take():
    state = torchvision.models.vit_b_32(weights=None).state_dict()
    with pytest.raises(WeightsError, match=r"vit_b_32 takes no images of 64 pixels: .*224"):
        load_encoder(held(state), "vit_b_32", "", 64)


class Trap:
    """Pickled, it would write a file when it is read."""

    def __init__(self, path, call):
        self.path, self.call = path, call

    def __reduce__(self):
        return self.call, (f"touch {self.path}",) if self.call is os.system else (str(self.path), "w")


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(("call", "name"), [(os.system, "posix.system"), (open, "open")])
def test_a_file_that_would_run_code_is_refused_and_runs_nothing(tmp_path, zipped, call, name):
    content = {"state_dict": checkpoints.backbone(), "config": Trap(tmp_path / "caught", call)}
    torch.save(content, tmp_path / "w", _use_new_zipfile_serialization=zipped)
    with pytest.raises(
        WeightsError, match=rf"holds more than tensors \(.*{name}\).*torch\.save\(model\.state_dict"
    ):
        read_weights(tmp_path / "w")
    assert not (tmp_path / "caught").exists()


def test_a_plain_pickle_that_would_run_code_runs_nothing(tmp_path):
    (tmp_path / "w").write_bytes(pickle.dumps({"x": Trap(tmp_path / "caught", os.system)}, protocol=2))
    with pytest.raises(WeightsError):
        read_weights(tmp_path / "w")
    assert not (tmp_path / "caught").exists()


def test_a_whole_model_is_refused_with_what_to_save_instead(tmp_path):
    torch.save(checkpoints.resnet18(), tmp_path / "w")
    with pytest.raises(WeightsError, match=r"torch\.nn\.modules.* and 4 more\).*save its weights alone"):
        read_weights(tmp_path / "w")


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x)


def save_script(path):
    torch.jit.save(torch.jit.script(Small()), path)
    return torch.jit.load(path).state_dict()


def save_exported(path):
    torch.export.save(torch.export.export(Small(), (torch.ones(1, 3),)), path)
    return torch.export.load(path).state_dict


@pytest.mark.parametrize(
    ("save", "writer"), [(save_script, r"torch\.jit"), (save_exported, r"torch\.export")]
)
def test_a_model_saved_with_its_code_is_told_from_a_damaged_file(tmp_path, save, writer):
    weights = save(tmp_path / "model.pt2")
    with pytest.raises(
        WeightsError, match=rf"is a program of .*{writer}.*torch\.save\({writer}\.load\(path\)"
    ):
        read_weights(tmp_path / "model.pt2")
    torch.save(weights, tmp_path / "weights.pt")  # as the sentence says
    assert set(read_weights(tmp_path / "weights.pt").tensors) == {"layer.weight", "layer.bias"}


@pytest.mark.parametrize("share", [0, 0.001, 0.5, 0.99])
@pytest.mark.parametrize("save", [checkpoints.plain, checkpoints.old, checkpoints.safetensors])
def test_a_file_cut_short_is_refused(tmp_path, save, share):
    path = save(tmp_path / "w")
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(WeightsError, match="damage"):
        read_weights(path)


def test_damage_inside_a_zip_is_noticed(tmp_path):
    path = checkpoints.plain(tmp_path / "w")
    with zipfile.ZipFile(path) as archive:
        place = archive.infolist()[0].header_offset
    content = bytearray(path.read_bytes())
    content[place + 200 : place + 260] = b"\xff" * 60  # within data.pkl
    path.write_bytes(content)
    with pytest.raises(WeightsError):
        read_weights(path)


def test_files_without_tensors(tmp_path):
    torch.save({"epoch": 3, "lr": 0.1}, tmp_path / "w")
    with pytest.raises(WeightsError, match="holds no named tensors but keys epoch, lr"):
        read_weights(tmp_path / "w")
    torch.save([torch.zeros(2)], tmp_path / "w")
    with pytest.raises(WeightsError, match="holds no named tensors but a list"):
        read_weights(tmp_path / "w")
    for content, sentence in (({}, "but a dict:"), (torch.zeros(2), "but a Tensor:")):
        torch.save(content, tmp_path / "w")
        with pytest.raises(WeightsError, match=f"holds no named tensors {sentence}"):
            read_weights(tmp_path / "w")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (tmp_path / "w").write_bytes(pickle.dumps({"x": 1}, protocol=4))  # not torch's protocol
        with pytest.raises(WeightsError):
            read_weights(tmp_path / "w")
    accepted = (
        "a whole file is accepted that torch.save or safetensors wrote, such as a state dict or a checkpoint"
    )
    (tmp_path / "w").write_text("just some words, no weights at all")
    with pytest.raises(WeightsError, match=f"w is damaged, or holds no weights: {accepted}$"):
        read_weights(tmp_path / "w")
    (tmp_path / "w").write_bytes((50).to_bytes(8, "little") + b"{" + b" " * 60)
    with pytest.raises(WeightsError, match=f"w is damaged: {accepted}$"):
        read_weights(tmp_path / "w")
    with pytest.raises(FileNotFoundError):
        read_weights(tmp_path / "absent")


def test_settings_of_packages_that_are_not_here_are_passed_over(tmp_path, monkeypatch):
    module = types.ModuleType("omegaconf.dictconfig")
    exec("class DictConfig:\n    def __setstate__(self, state): raise RuntimeError('this ran')", vars(module))
    monkeypatch.setitem(sys.modules, "omegaconf", types.ModuleType("omegaconf"))
    monkeypatch.setitem(sys.modules, "omegaconf.dictconfig", module)
    module.DictConfig.__module__ = "omegaconf.dictconfig"
    settings = module.DictConfig()
    settings.lr = torch.ones(1)
    torch.save({"model": checkpoints.backbone(), "hyper_parameters": settings}, tmp_path / "w")
    assert set(read_weights(tmp_path / "w").tensors) == set(
        checkpoints.named("model.", checkpoints.backbone())
    )


def test_what_lies_beside_the_weights_is_left_unread(tmp_path):
    weights = read_weights(checkpoints.lightning(tmp_path / "w"))
    assert all(name.startswith("state_dict.model.") for name in weights.tensors)
    assert weights.format == "PyTorch"
    assert len(weights.sha256) == 64
