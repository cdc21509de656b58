"""Whether transformers and accelerate do what a `device_map` was planned for: they run, on virtual devices."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stead.cluster import Device
from stead.errors import BadInput
from stead.export.base import Answer, Bundle, Result, Verification, did_not_run, unseen
from stead.export.check_process import told_by, write_files
from stead.export.hf_attention import attentions
from stead.export.hf_charges import ROOM
from stead.export.hf_modules import Modules
from stead.graph import Graph
from stead.plan import Plan
from stead.printing.wording import shown_path

if TYPE_CHECKING:
    from stead.export.hf import HuggingFaceMap

TOLERANCE = 1e-5  # of logits, against the model on one device
OFFLINE = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
MOST_CACHED = 8192  # tokens
SHORT = 8  # tokens of a run where the plan does not say how many
WEIGHTS = ("*.safetensors", "*.bin")  # files that transformers loads
DTYPES = {"fp16": "float16", "bf16": "bfloat16"}
UNSEEN: Result = "not checkable here"


def verified(target: HuggingFaceMap, plan: Plan, bundle: Bundle) -> Verification:
    """The verdict on an exported plan."""
    if not target.model:
        return unseen("the folder of the model is not given; add it as the option model=FOLDER")
    folder = Path(target.model)
    if not (folder / "config.json").is_file():
        raise BadInput(f"{shown_path(folder)} has no config.json; give the folder that the model was planned from")
    if not any(next(folder.glob(pattern), None) for pattern in WEIGHTS):
        return unseen(f"{shown_path(folder)} has no weights to load ({', '.join(WEIGHTS)})")
    with tempfile.TemporaryDirectory(prefix="stead-hf-") as work:
        write_files(bundle, Path(work))
        told = told_by("stead.export.hf_check", job_of(target, plan, work, folder), work, OFFLINE)
    if "missing" in told:
        return unseen(told["missing"])
    if "full" in told:
        return Verification(
            Answer(UNSEEN, "it ran out of memory"), Answer(UNSEEN, "it ran out of memory"),
            Answer("failed", _named(plan, told["full"])),
        )  # fmt: skip
    if "error" in told:
        return did_not_run(told["error"])
    return Verification(_outputs(told), _placed(told), _memory(target, plan, told))


def job_of(target: HuggingFaceMap, plan: Plan, work: str, folder: Path) -> dict[str, Any]:
    """What the process that checks an export is told: files, limits, and what is planned where."""
    from stead.export.hf import OFFLOAD, accelerate_name, main_device

    problem = plan.problem
    names = [accelerate_name(problem.cluster, d) for d in range(len(problem.cluster))]
    main = names[main_device(problem.cluster)]
    runs_on = [main if name == "cpu" and target.cpu_means == OFFLOAD else name for name in names]
    limits: list[int | None] = [None] * (1 + max((one for one in names if isinstance(one, int)), default=0))
    for d, name in enumerate(names):
        if isinstance(name, int):
            limits[name] = limit_of(problem.cluster.devices[d])
    modules = Modules(problem.graph)
    planned = {key: runs_on[int(plan.placement.devices[v])] for key, v in modules.named.items()}
    for v, key in enumerate(modules.keys):
        if not key and problem.graph.modules[v]:
            planned.setdefault(f"={problem.graph.modules[v]}", runs_on[int(plan.placement.devices[v])])
    batch, tokens = _sizes(problem.graph)
    return {
        "work": work, "model": str(folder), "limits": limits, "planned": planned, "batch": batch, "tokens": tokens,
        "dtype": _dtype(problem.graph), "cached": _cached(problem.graph),
    }  # fmt: skip


def limit_of(device: Device) -> int:
    """Bytes that a run may use: what the plan may, and the room that was set aside for what comes beside it."""
    room = device.alias.get(ROOM, 0)
    return device.usable_bytes + (room if isinstance(room, int) else 0)


def _sizes(graph: Graph) -> tuple[int, int]:
    """Sequences and tokens of one run, as the plan has them; a decoding step is tried with a short prompt."""
    for v, kind in enumerate(graph.kinds):
        if kind == "Embedding":
            shape = graph.tensor_shapes[graph.tensor_first[v]]
            if len(shape) == 3:
                return shape[0], shape[1] if shape[1] > 1 else SHORT
    return 1, SHORT


def _dtype(graph: Graph) -> str:
    """What torch calls the numbers that most weights of a plan are in; what it has no floats for runs in single."""
    sizes: dict[str, int] = {}
    for dtype, size in zip(graph.dtypes, graph.parameter_bytes.tolist(), strict=True):
        sizes[dtype] = sizes.get(dtype, 0) + size
    return DTYPES.get(max(sizes, key=lambda name: sizes[name], default=""), "float32")


def _cached(graph: Graph) -> int:
    """Tokens that caches hold after a step that writes one token; 0 for other plans, and where that takes too long."""
    looked_at = max((one.looked_at for one in attentions(graph)), default=0.0) if decodes(graph) else 0.0
    return round(looked_at) if 2 <= looked_at <= MOST_CACHED else 0


def decodes(graph: Graph) -> bool:
    """Whether a plan is for a step that writes one token."""
    for v, kind in enumerate(graph.kinds):
        if kind == "Embedding":
            shape = graph.tensor_shapes[graph.tensor_first[v]]
            return len(shape) == 3 and shape[1] == 1 and graph.kv_cache_bytes > 0
    return False


def _named(plan: Plan, full: dict[str, Any]) -> str:
    """An out-of-memory message with the plan's name of the device."""
    from stead.export.hf import accelerate_name

    cluster = plan.problem.cluster
    name = next(one for d, one in enumerate(cluster.names) if accelerate_name(cluster, d) == full["device"])
    return f"{name} is full: {full['text']}"


def _outputs(told: dict[str, Any]) -> Answer:
    difference, tokens = told["difference"], told["generated"]
    text = f"logits differ by {difference:.1e} at most"
    if tokens is not None:
        text += f", {tokens['count']} generated tokens {'identical' if tokens['same'] else 'differ'}"
    good = difference <= TOLERANCE and (tokens is None or tokens["same"])
    return Answer("passed" if good else "failed", f"{text}{told['note']}")


def _placed(told: dict[str, Any]) -> Answer:
    wrong, ran = told["wrong"], told["ran"]
    if told["uncovered"]:
        return Answer("failed", f"the map leaves out {', '.join(told['uncovered'][:3])}")
    if wrong:
        first = "; ".join(f"{one['module']} ran {one['operation']} on {one['at']}, planned {one['planned']}"
                          for one in wrong[:3])  # fmt: skip
        return Answer("failed", f"{first}{f'; and {len(wrong) - 3} more' if len(wrong) > 3 else ''}")
    if told["silent"]:
        return Answer("failed", f"nothing ran in {', '.join(told['silent'][:3])}")
    held = ", ".join(f"{device} {count}" for device, count in sorted(told["by_device"].items()))
    hooks = f"; {told['on_cpu']} modules compute on the CPU" if told["on_cpu"] else ""
    return Answer("passed", f"{ran} operations of {told['modules']} modules, all where planned ({held}){hooks}")


def _memory(target: HuggingFaceMap, plan: Plan, told: dict[str, Any]) -> Answer:
    from stead.export.hf import accelerate_name

    cluster = plan.problem.cluster
    words = []
    for d, device in enumerate(cluster):
        name = accelerate_name(cluster, d)
        if isinstance(name, int):
            peak, planned = told["peaks"][name], int(plan.trace.peak_bytes[d])
            words.append(f"{device.name} {peak} of {limit_of(device)} bytes (planned {planned})")
    text = "; ".join(words) or "everything is on the CPU"
    if decodes(plan.problem.graph) and not told["cached"]:
        caches = plan.problem.graph.kv_cache_bytes
        return Answer(UNSEEN, f"the plan holds {caches} bytes of caches, the run did not; {text}")
    return Answer("passed" if words else UNSEEN, text)
