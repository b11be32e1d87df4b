"""The networks that are imported from PyTorch, and how each is made with random weights.

Kernels, tiles and the cost model's constants may be tuned on the networks of `TUNED`; all others are held out.
"""

import torch
import torchvision

CLASSIFIERS = """
alexnet
convnext_tiny convnext_small convnext_base convnext_large
densenet121 densenet161 densenet169 densenet201
efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3 efficientnet_b4 efficientnet_b5 efficientnet_b6 efficientnet_b7
efficientnet_v2_s efficientnet_v2_m efficientnet_v2_l
googlenet inception_v3
mnasnet0_5 mnasnet0_75 mnasnet1_0 mnasnet1_3
mobilenet_v2 mobilenet_v3_small mobilenet_v3_large
regnet_x_400mf regnet_x_800mf regnet_x_1_6gf regnet_x_3_2gf regnet_x_8gf regnet_x_16gf regnet_x_32gf
regnet_y_400mf regnet_y_800mf regnet_y_1_6gf regnet_y_3_2gf regnet_y_8gf regnet_y_16gf regnet_y_32gf regnet_y_128gf
resnet18 resnet34 resnet50 resnet101 resnet152
resnext50_32x4d resnext101_32x8d resnext101_64x4d
shufflenet_v2_x0_5 shufflenet_v2_x1_0 shufflenet_v2_x1_5 shufflenet_v2_x2_0
squeezenet1_0 squeezenet1_1
vgg11 vgg11_bn vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn
wide_resnet50_2 wide_resnet101_2
""".split()

SEGMENTERS = """
fcn_resnet50 fcn_resnet101 deeplabv3_resnet50 deeplabv3_resnet101 deeplabv3_mobilenet_v3_large lraspp_mobilenet_v3_large
""".split()

# The parts of detectors that are convolutional: feature pyramids of a backbone, and the features of SSD.
DETECTION_BACKBONES = """
fpn_resnet18 fpn_resnet34 fpn_resnet50 fpn_resnet101 fpn_resnet152 fpn_resnext50_32x4d fpn_resnext101_32x8d fpn_wide_resnet50_2
fpn_mobilenet_v2 fpn_mobilenet_v3_large fpn_mobilenet_v3_small ssd300_vgg16
""".split()

# One or two networks of each family that has only convolutions.
TIMM = """
timm/resnet26d timm/resnet50d timm/resnetv2_50 timm/seresnet50 timm/seresnext50_32x4d timm/ecaresnet50d timm/skresnet18 timm/resnest26d
timm/res2net50_26w_4s timm/gernet_s timm/darknet53 timm/cspresnet50 timm/dla34 timm/dpn68 timm/hrnet_w18 timm/hgnetv2_b0
timm/ghostnet_100 timm/repghostnet_100 timm/tf_efficientnet_b0 timm/efficientnet_lite0 timm/mixnet_s timm/tinynet_a timm/lcnet_100
timm/fbnetc_100 timm/semnasnet_100 timm/mobilenetv4_conv_small timm/rexnet_100 timm/repvgg_a2 timm/mobileone_s0 timm/ese_vovnet19b_dw
timm/selecsls42b timm/xception41 timm/inception_v4 timm/inception_resnet_v2 timm/convnext_atto timm/convnextv2_atto
timm/convmixer_768_32 timm/poolformer_s12 timm/fasternet_t0 timm/starnet_s1
""".split()

ALL = CLASSIFIERS + SEGMENTERS + DETECTION_BACKBONES + TIMM

TUNED = """
densenet121 densenet201 efficientnet_b0 googlenet inception_v3 mobilenet_v2 mobilenet_v3_large resnet18 resnet50 resnext50_32x4d
squeezenet1_1 vgg16
""".split()

# torchvision takes a MobileNet's backbone from another function than a ResNet's.
MOBILENET = "mobilenet_"


def image_size(name: str) -> int:
    """Height and width of a network's images."""
    return 300 if name.startswith("ssd300_") else 224


class OnlyTensors(torch.nn.Module):
    """A network whose results are tensors instead of a dictionary: the one named `key`, or all of them."""

    def __init__(self, model: torch.nn.Module, key: str | None = None) -> None:
        super().__init__()
        self.model = model
        self.key = key

    def forward(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        found = self.model(x)
        return tuple(found.values()) if self.key is None else found[self.key]


def feature_pyramid(backbone: str) -> torch.nn.Module:
    """The feature pyramid of a backbone, of which all layers are trainable."""
    from torchvision.models.detection import backbone_utils

    options = {"backbone_name": backbone, "weights": None, "norm_layer": torch.nn.BatchNorm2d}
    if backbone.startswith(MOBILENET):
        return backbone_utils.mobilenet_backbone(**options, fpn=True, trainable_layers=6)
    return backbone_utils.resnet_fpn_backbone(**options, trainable_layers=5)


def untrained(name: str) -> torch.nn.Module:
    """A network as its package makes it, without trained weights."""
    if name.startswith("timm/"):
        import timm

        return timm.create_model(name.removeprefix("timm/"), pretrained=False)
    if name.startswith("fpn_"):
        return OnlyTensors(feature_pyramid(name.removeprefix("fpn_")))
    if name == "ssd300_vgg16":
        detector = torchvision.models.detection.ssd300_vgg16(weights=None, weights_backbone=None)
        return OnlyTensors(detector.backbone)
    options = {"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}
    if name in SEGMENTERS:
        options["weights_backbone"] = None
    model = torchvision.models.get_model(name, weights=None, **options)
    return OnlyTensors(model, "out") if name in SEGMENTERS else model


def network(name: str, device: str) -> torch.nn.Module:
    """A network with random weights of which every layer matters, in evaluation mode.

    Norms and layer scales are in [0.5, 1.5], so that no branch is dead, and BatchNorms have the statistics of a pass in training mode.
    """
    torch.manual_seed(sum(name.encode()))
    model = untrained(name)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.uniform_(module.bias, -0.5, 0.5)
            module.momentum = 1.0
        if isinstance(module, torch.nn.LayerNorm):
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.uniform_(module.bias, -0.5, 0.5)
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    for parameter_name, parameter in model.named_parameters():
        # ConvNeXt's, as torchvision and timm call it.
        if parameter_name.endswith((".layer_scale", ".gamma")):
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    size = image_size(name)
    images = torch.randn(4, 3, size, size)
    model = model.to(device)
    model.train()
    with torch.no_grad():
        model(images.to(device))
    return model.eval()
