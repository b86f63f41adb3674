"""Numbers that He et al. 2019 report, to stand beside measured ones. All on ImageNet, ResNet-50, linear probe."""

from types import MappingProxyType

SOURCE = "He et al. 2019, Momentum Contrast for Unsupervised Visual Representation Learning"

# Section 4.1, the momentum ablation at K = 4096: top-1 accuracy in %; None where training failed.
MOMENTUM_ABLATION = MappingProxyType({0.0: None, 0.9: 55.2, 0.99: 57.8, 0.999: 59.0, 0.9999: 58.9})

# Section 4.1, the three ways to get negatives: what they cost against MoCo, in percentage points.
MEMORY_BANK_LOSS = 2.6  # at equal K
IN_BATCH_UNSCALED_LOSS = 2.0  # end-to-end at batch 1024 without linear learning-rate scaling, about
