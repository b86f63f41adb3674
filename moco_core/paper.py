"""Numbers that the authors of MoCo report, to stand beside measured ones, and the settings behind them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

SOURCE = "He et al. 2019, Momentum Contrast for Unsupervised Visual Representation Learning"

# Section 4.1, the momentum ablation at K = 4096: top-1 accuracy in %; None where training failed. As in the next
# lines: ImageNet, ResNet-50, linear probe.
MOMENTUM_ABLATION = MappingProxyType({0.0: None, 0.9: 55.2, 0.99: 57.8, 0.999: 59.0, 0.9999: 58.9})

# MoCo at two queue lengths, m = 0.999: K = 4096 from the same table, K = 65536 from Table 1. Figure 3, the paper's
# ablation of K, is a drawing, and rises between the two.
QUEUE_LENGTHS: Mapping[float, float | None] = MappingProxyType({4096: 59.0, 65536: 60.6})

# Section 4.1, the three ways to get negatives: what they cost against MoCo, in percentage points.
MEMORY_BANK_LOSS = 2.6  # at equal K
IN_BATCH_UNSCALED_LOSS = 2.0  # end-to-end at batch 1024 without linear learning-rate scaling, about


class TracePoint(NamedTuple):
    """What the authors' demo prints at the end of an epoch."""

    epoch: int
    loss: float | None  # mean over the epoch, nats
    knn: float  # accuracy in %: k = 200, τ = 0.1, on the 128-d embedding


# The output of the authors' CIFAR-10 demo, `moco_cifar10_demo.ipynb` of github.com/facebookresearch/moco (branch
# colab-notebook): one run of 200 epochs. Its accuracy is known for the last of them, its loss is not.
CIFAR10_TRACE = (
    TracePoint(1, 6.96, 32.0),
    TracePoint(5, 6.86, 38.0),
    TracePoint(10, 5.99, 48.0),
    TracePoint(20, 4.34, 61.4),
    TracePoint(50, 3.19, 73.3),
    TracePoint(100, 2.73, 78.1),
    TracePoint(200, None, 82.6),
)

# The authors' recipes, as far as they differ from the defaults of `TrainConfig`. Those for ImageNet are of 200
# epochs of its 1,281,167 images (5,004 steps each) and leave the folder of images to be named: v1 is He et al. 2019,
# v2 Chen et al. 2020. The one for CIFAR-10 is their demo, 200 epochs of 97 steps.
_IMAGENET: dict[str, Any] = {
    "image_size": 224,
    "encoder": "resnet50",
    "momentum": 0.999,
    "queue_size": 65536,
    "batch_size": 256,
    "batch_norm": "split",
    "steps": 200 * 5004,
    "lr": 0.03,
    "weight_decay": 1e-4,
    "knn_k": 200,
}
RECIPES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "moco-v1-imagenet": {
            **_IMAGENET,
            "head": "linear",
            "augmentation": "moco-v1",
            "temperature": 0.07,
            "lr_schedule": "step",
        },
        "moco-v2-imagenet": {**_IMAGENET, "augmentation": "moco-v2", "temperature": 0.2},
        "moco-cifar10": {
            "dataset": "cifar10",
            "encoder": "resnet18",
            "head": "linear",
            "momentum": 0.99,
            "queue_size": 4096,
            "temperature": 0.1,
            "batch_size": 512,
            "batch_norm": "split",
            "steps": 200 * 97,
            "lr": 0.06,
            "weight_decay": 5e-4,
            "knn_k": 200,
            "knn_temperature": 0.1,
            "bank_size": 50_000,
            "eval_size": 10_000,
        },
    }
)
