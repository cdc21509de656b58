"""A process that loads an exported model onto virtual devices, runs it and writes down what happened.

    python -m stead.export.hf_check JOB.json       # by hf_verify; writes answer.json beside it
"""

from __future__ import annotations

import importlib.util
import json
import sys
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from stead.export.check_process import answer_job
from stead.testing.virtual_devices import VirtualDevices, VirtualOutOfMemory, virtual_devices

TRANSFERS = ("_to_copy", "copy_", "lift_fresh", "detach")  # which come and go between devices, or do nothing
NEW_TOKENS = 5


def main(path: str) -> None:
    """Do a job and write its answer."""
    job = json.loads(Path(path).read_text())
    answer_job(path, _answer(job))


def _answer(job: dict[str, Any]) -> dict[str, Any]:
    for package in ("torch", "transformers", "accelerate"):
        if importlib.util.find_spec(package) is None:
            return {"missing": f'the check needs {package}: pip install "stead[hf]"'}
    warnings.simplefilter("ignore")
    import_module("transformers").logging.set_verbosity_error()
    check = Check(job)
    try:
        return check.run()
    except Exception as error:
        full = error if isinstance(error, VirtualOutOfMemory) else check.devices.refused  # which packages may hide
        if full is not None:
            return {"full": {"device": full.device, "text": str(full)}}
        return {"error": f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"}


class Check:
    """One model, once as it is and once as it was exported."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job, self.note = job, ""
        self.torch = import_module("torch")
        self.dtype = getattr(self.torch, job["dtype"])  # as planned; numbers are compared in single precision
        limits = [None] * len(job["limits"]) if self._runs_twice() else job["limits"]
        self.devices: VirtualDevices = virtual_devices(limits)
        self.torch.manual_seed(0)
        self.torch.set_num_threads(1)
        transformers = import_module("transformers")
        _load_without_warming_up()
        config = transformers.AutoConfig.from_pretrained(job["model"])
        kind = getattr(transformers, config.architectures[0])
        self.whole = kind.from_pretrained(job["model"], dtype=self.torch.float32).eval()
        self.config = self.whole.config

    def _runs_twice(self) -> bool:
        """Whether memory is looked at in a run of its own: in another precision, or with full caches."""
        return bool(self.dtype != self.torch.float32 or self.job["cached"])

    def run(self) -> dict[str, Any]:
        torch, job = self.torch, self.job
        given = self.inputs()
        with torch.no_grad():
            wanted = self.whole(**given)
        prompt = {key: value for key, value in given.items() if not key.startswith("decoder")}
        generates = getattr(self.whole, "can_generate", lambda: False)()
        self.whole.eval()
        written = self._generated(self.whole, prompt) if generates else None
        names = {name for name, _ in (*self.whole.named_parameters(), *self.whole.named_buffers())}
        del self.whole
        model = _loader(job["work"]).load(job["model"], dtype=torch.float32)
        if not hasattr(model, "_hf_hook"):  # all of it on one device: nobody but the user brings the inputs there
            at = next(model.parameters()).device
            given, prompt = ({key: value.to(at) for key, value in one.items()} for one in (given, prompt))
        seen = _Watch(torch, model)
        loading = list(self.devices.peak_bytes)
        self.devices.clear()
        with torch.no_grad(), seen.mode():
            got = model(**given)
        peaks = [max(pair) for pair in zip(loading, self.devices.peak_bytes, strict=True)]
        seen.end()
        self.devices.limits = (None,) * len(self.devices)  # what is written is longer than what was planned
        again = self._generated(model, prompt) if generates else None
        on_cpu = _on_cpu(model)
        if self._runs_twice():
            del model
            peaks = self.peaks(given, job["limits"])
        return {
            "difference": _difference(torch, got, wanted),
            "generated": None if again is None else {
                "same": bool(torch.equal(again.cpu(), written)), "count": int(again.shape[-1])
            },
            "note": self.note, "peaks": peaks, "cached": self._fills_caches(), "uncovered": self._uncovered(names),
            "on_cpu": on_cpu, **seen.compared(job["planned"]),
        }  # fmt: skip

    def peaks(self, given: Mapping[str, Any], limits: Sequence[int | None]) -> list[int]:
        """The most bytes of every device while the model is loaded and run as it was planned, within limits."""
        self.devices = virtual_devices(limits)
        model = _loader(self.job["work"]).load(self.job["model"], dtype=self.dtype)
        placed = {
            key: one.cpu().to(self.dtype) if one.is_floating_point() else one.cpu() for key, one in given.items()
        }
        if not hasattr(model, "_hf_hook"):
            at = next(model.parameters()).device
            placed = {key: one.to(at) for key, one in placed.items()}
        with self.torch.no_grad():
            if self._fills_caches():
                return self._peaks_of_step(model, placed["input_ids"], limits)
            model(**placed)
        return list(self.devices.peak_bytes)

    def _fills_caches(self) -> bool:
        """Whether a step with full caches is looked at; what else such a step needs is known for decoders alone."""
        config = self.config
        several = getattr(config, "is_encoder_decoder", False) or getattr(config, "vision_config", None) is not None
        return bool(self.job["cached"]) and not several

    def _peaks_of_step(self, model: Any, like: Any, limits: Sequence[int | None]) -> list[int]:
        """The most bytes while the model was loaded, and while it writes one token with full caches.

        How the caches were filled, which takes more than a step, has no limit and does not count.
        """
        loading = list(self.devices.peak_bytes)
        self.devices.limits = (None,) * len(self.devices)
        words = like[:, :1].repeat(1, self.job["cached"])
        caches = model(input_ids=words[:, :-1], use_cache=True).past_key_values
        self.devices.clear()
        self.devices.limits = tuple(limits)
        model(input_ids=words[:, -1:], past_key_values=caches, use_cache=True)
        return [max(pair) for pair in zip(loading, self.devices.peak_bytes, strict=True)]

    def _generated(self, model: Any, prompt: Mapping[str, Any]) -> Any:
        return model.generate(**prompt, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, do_sample=False)

    def inputs(self) -> dict[str, Any]:
        """Something to run on: as many tokens as the plan has, with an image where the model looks at one."""
        torch, job, config = self.torch, self.job, self.config
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        words = int(getattr(text, "vocab_size", 0) or config.vocab_size)
        tokens = torch.randint(3, max(4, words - 8), (job["batch"], job["tokens"]))
        given = {"input_ids": tokens}
        if getattr(config, "is_encoder_decoder", False):
            given["decoder_input_ids"] = torch.randint(3, max(4, words - 8), (job["batch"], job["tokens"]))
        if getattr(config, "vision_config", None) is not None:
            self._look(given)
        return given

    def _look(self, given: dict[str, Any]) -> None:
        """Put an image before the text, where it is known how such a model takes one."""
        torch, config, eye = self.torch, self.config, self.config.vision_config
        mark = getattr(config, "image_token_id", None)
        size, patch = getattr(eye, "image_size", None), getattr(eye, "patch_size", None)
        if config.model_type != "llava" or mark is None or not size or not patch:
            self.note = "; the model ran on text alone, as it is not known how to show it an image"
            return
        count, batch = (size // patch) ** 2, given["input_ids"].shape[0]
        words = given["input_ids"][:, min(count, given["input_ids"].shape[1] - 1) :]  # together as many as planned
        given["input_ids"] = torch.cat([torch.full((batch, count), mark), words], dim=1)
        given["pixel_values"] = torch.randn(batch, eye.num_channels, size, size)

    def _uncovered(self, names: set[str]) -> list[str]:
        """Parameters and buffers that no key of the map stands for."""
        planned = json.loads(next(Path(self.job["work"]).glob("device_map*.json")).read_text())
        return sorted(
            name for name in names if not any(name == key or name.startswith(f"{key}.") for key in planned)
        )


def _load_without_warming_up() -> None:
    """Keep transformers from asking for all weights of a device at once, which only fills the cache of an allocator.

    On real cards it asks for no more than they have; devices that it does not know would fail there already, before a
    single weight is loaded.
    """
    modeling: Any = import_module("transformers.modeling_utils")
    modeling.caching_allocator_warmup = lambda *_: None


def _loader(work: str) -> Any:
    """The exported load.py as a module."""
    spec = importlib.util.spec_from_file_location("load", Path(work) / "load.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _difference(torch: Any, got: Any, wanted: Any) -> float:
    """The largest difference of what both models give first: logits, or hidden states."""
    a, b = (next(one for one in run.values() if isinstance(one, torch.Tensor)) for run in (got, wanted))
    return float((a.cpu().float() - b.float()).abs().max())


def _on_cpu(model: Any) -> int:
    """Modules that the hooks of accelerate keep computing on the CPU, with their weights there."""
    count = 0
    for module in model.modules():
        hook = getattr(module, "_hf_hook", None)
        at = getattr(hook, "execution_device", None)
        if str(at) == "cpu" and not getattr(hook, "offload", False) and not any(p.is_meta for p in module.parameters()):
            count += 1
    return count


class _Watch:
    """Which module ran what on which device."""

    def __init__(self, torch: Any, model: Any) -> None:
        self.torch = torch
        self.path: list[str] = [""]
        self.ran: Counter[tuple[str, str, str]] = Counter()  # module, operation, device
        self.handles = []
        for name, module in model.named_modules():
            self.handles.append(module.register_forward_pre_hook(self._entering(name)))
            self.handles.append(module.register_forward_hook(lambda *_: self._left(), always_call=True))

    def _entering(self, name: str) -> Any:
        return lambda *_: self.path.append(name)

    def _left(self) -> None:
        self.path.pop()

    def end(self) -> None:
        """Stop watching."""
        for handle in self.handles:
            handle.remove()

    def mode(self) -> Any:
        """A context in which everything that runs is written down."""
        watch, torch = self, self.torch
        tree = import_module("torch.utils._pytree")
        base = import_module("torch.utils._python_dispatch").TorchDispatchMode

        class Mode(base):  # type: ignore[misc, valid-type]
            def __torch_dispatch__(self, function: Any, kinds: Any, arguments: Any = (), named: Any = None) -> Any:
                result = function(*arguments, **(named or {}))
                name = function._schema.name.removeprefix("aten::")
                if name not in TRANSFERS:
                    tensors = [one for one in tree.tree_leaves(result) if isinstance(one, torch.Tensor)]
                    if tensors and max(one.numel() for one in tensors) > 1:
                        at = tensors[0].device
                        watch.ran[watch.path[-1], name, "cpu" if at.type == "cpu" else str(at.index)] += 1
                return result

        return Mode()

    def compared(self, planned: Mapping[str, int | str]) -> dict[str, Any]:
        """What ran in modules of the plan, and what of it elsewhere than planned."""
        wrong, by_device, modules = [], Counter[str](), set()
        for (module, operation, at), count in self.ran.items():
            key = _key(module, planned)
            if not key:
                continue
            modules.add(key)
            by_device[at] += count
            wanted = planned[key]
            if str(wanted) != at:
                wrong.append({"module": module or "the model", "operation": operation, "at": at, "planned": wanted})
        for key, wanted in planned.items():  # between modules things run where their inputs are; some of it as planned
            if key.startswith("=") and not any((one, at) == (key[1:], str(wanted)) for one, _, at in self.ran):
                wrong.append({"module": key[1:], "operation": "nothing", "at": str(wanted), "planned": wanted})
        loose = [key for key in planned if not key.startswith("=") and key not in modules]
        return {
            "wrong": wrong, "by_device": dict(by_device), "ran": sum(by_device.values()), "modules": len(modules),
            "silent": [key for key in loose if key.rpartition(".")[2].isdigit()],
        }  # fmt: skip


def _key(module: str, planned: Mapping[str, int | str]) -> str:
    parts = module.split(".")
    return next((key for i in range(len(parts), 0, -1) if (key := ".".join(parts[:i])) in planned), "")


if __name__ == "__main__":
    main(sys.argv[1])
