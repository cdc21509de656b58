"""The models of the truth table: small enough that a step takes 20 to 150 ms on one core."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Subject:
    """A model of the zoo, and what it stands for."""

    name: str
    zoo: str
    quick: bool = False

    @property
    def is_training(self) -> bool:
        """Whether a step ends with an update of the weights."""
        return "phase=train" in self.zoo

    @property
    def runs_on_openvino(self) -> bool:
        """Whether it is also run by OpenVINO: inference, and no loop that was unrolled."""
        return not self.is_training and "rnnlm" not in self.zoo


_GPT = "layers={},width={},heads={},length={},vocabulary={}"
SUBJECTS = (
    Subject("branching CNN", "zoo:amoebanet?batch=1,side=128,repeats=1", quick=True),
    Subject("ResNet-50", "zoo:resnet-50?batch=1,side=192"),
    Subject("Inception-v3", "zoo:inception-v3?batch=1,side=192"),
    Subject("BERT-like", "zoo:bert-base?batch=1,inner=2048," + _GPT.format(4, 512, 8, 64, 8000)),
    Subject("GPT-like", "zoo:gpt2-small?batch=1," + _GPT.format(4, 512, 8, 64, 8000), quick=True),
    Subject("RNN", "zoo:rnnlm-2?steps=10,batch=16,hidden=512,vocabulary=4000"),
    Subject(
        "GPT-like, training",
        "zoo:gpt2-small?batch=2,phase=train,update=sgd," + _GPT.format(2, 256, 4, 128, 4000),
        quick=True,
    ),
    Subject("RNN, training", "zoo:rnnlm-2?steps=6,batch=16,hidden=256,vocabulary=2000,phase=train,update=sgd"),
)  # fmt: skip


def openvino_file(subject: Subject, folder: Path) -> Path:
    """The model as OpenVINO's own file at the sizes of its inputs, written once."""
    import openvino as ov
    import torch

    from stead.workloads import parse

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{subject.name.lower().replace(' ', '-')}.xml"
    if not path.exists():
        module, inputs, _ = parse(subject.zoo).torch(device="cpu")
        with torch.no_grad():
            model = ov.convert_model(module, example_input=inputs)
        model.reshape({i: list(one.shape) for i, one in enumerate(inputs)})  # else every size is left open
        ov.save_model(model, path, compress_to_fp16=False)
    return path
