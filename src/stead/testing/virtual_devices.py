"""Named torch devices with memory limits on a machine that has none: `vdev:0`, `vdev:1`, ...

    devices = virtual_devices([2**20, None])       # vdev:0 holds a MiB, vdev:1 all that there is
    x = torch.ones(4, device="vdev:0")
    (x + x).device, devices.log[-1].operation      # vdev:0, "add.Tensor"
    x + torch.ones(4, device="vdev:1")             # RuntimeError, as on two graphics cards

Real packages run on them as on accelerators: every operation computes on the CPU, is logged with its device, and is
refused where its tensors are on several devices. A ledger counts the bytes of live storages; beyond a limit stands an
error that names tensors. torch learns of such devices once in a process and for good: use a process of its own.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from stead.errors import MissingExtra, SteadError

NAME = "vdev"
_CROSSING = {"copy_", "_to_copy"}  # tensors of two devices are what these are for
_CPU_INDICES = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}  # take indices from the CPU
_FUSED = ("scaled_dot_product_attention",)  # one kernel on accelerators, which never holds all scores at once
_MOST_NAMED = 8  # tensors in a message


@dataclass(frozen=True, slots=True)
class Ran:
    """One operation that ran."""

    operation: str  # such as "add.Tensor"
    device: int
    inside: str  # the label that was set at the time, such as the path of a module


@dataclass(frozen=True, slots=True)
class Crossed:
    """One tensor that went from a device to another; -1 is the CPU."""

    source: int
    target: int
    size_bytes: int
    inside: str


class VirtualOutOfMemory(RuntimeError):
    """A virtual device holds more than it may; says which tensors are alive there."""

    def __init__(self, device: int, needed: int, limit: int, alive: Sequence[tuple[str, int]]) -> None:
        self.device, self.needed_bytes, self.limit_bytes, self.alive = device, needed, limit, tuple(alive)
        named = ", ".join(f"{name} ({size} bytes)" for name, size in self.alive[:_MOST_NAMED])
        more = f" and {len(self.alive) - _MOST_NAMED} more" if len(self.alive) > _MOST_NAMED else ""
        super().__init__(
            f"{NAME}:{device} is out of memory: {needed} bytes are needed, {limit} are there; alive: {named}{more}"
        )


@dataclass(slots=True)
class _Held:
    """A storage in the ledger."""

    device: int
    size_bytes: int
    what: str
    holders: int = 0


@dataclass(slots=True)
class VirtualDevices:
    """What the virtual devices of this process did since they were set up or cleared."""

    limits: tuple[int | None, ...]
    log: list[Ran] = field(default_factory=list)
    crossings: list[Crossed] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)  # [device]
    refused: VirtualOutOfMemory | None = None  # the last lack of memory, also where a package hides the error
    _held: dict[int, _Held] = field(default_factory=dict)
    _live: list[int] = field(default_factory=list)
    _inside: list[str] = field(default_factory=lambda: [""])
    _lock: Any = field(default_factory=threading.RLock)  # tensors die in any thread, even in the middle of a count

    def __post_init__(self) -> None:
        self._live = [0] * len(self.limits)
        self.peak_bytes = [0] * len(self.limits)

    def __len__(self) -> int:
        return len(self.limits)

    @property
    def live_bytes(self) -> tuple[int, ...]:  # [device]
        """Bytes of live storages, each counted once."""
        return tuple(self._live)

    def clear(self) -> None:
        """Forget what ran and what crossed; peaks begin with what is alive."""
        self.log.clear()
        self.crossings.clear()
        self.refused = None
        self.peak_bytes[:] = self._live

    @contextmanager
    def inside(self, label: str) -> Iterator[None]:
        """Operations meanwhile are logged under a label."""
        self.enter(label)
        try:
            yield
        finally:
            self.leave()

    def enter(self, label: str) -> None:
        """Operations from here on are logged under a label, until `leave`."""
        self._inside.append(label)

    def leave(self) -> None:
        """Back to the label before."""
        self._inside.pop()

    @property
    def label(self) -> str:
        """The label of operations that run now."""
        return self._inside[-1]

    def histogram(self) -> dict[tuple[str, int], int]:
        """How often every operation ran on every device."""
        counts: dict[tuple[str, int], int] = {}
        for one in self.log:
            counts[one.operation, one.device] = counts.get((one.operation, one.device), 0) + 1
        return counts

    def alive(self, device: int) -> list[tuple[str, int]]:
        """Tensors of a device with their bytes, largest first; parameters and buffers by their names."""
        with self._lock:
            held = {key: (one.what, one.size_bytes) for key, one in self._held.items() if one.device == device}
        names = _names_of_storages()
        return sorted(((names.get(key, what), size) for key, (what, size) in held.items()), key=lambda one: -one[1])

    # For the tensors themselves

    def hold(self, wrapper: Any, inner: Any, device: int, what: str) -> None:
        """Count the storage of a new tensor, until the last tensor on it is gone."""
        storage = inner.untyped_storage()
        key = storage._cdata
        with self._lock:
            held = self._held.get(key)
            if held is None:
                size = storage.nbytes()
                limit, needed = self.limits[device], self._live[device] + size
                if limit is not None and needed > limit:
                    gc.collect()  # what only cycles keep alive would be gone on a real device, too
                    needed = self._live[device] + size
                    if needed > limit:
                        described = (f"{what} {list(inner.shape)}, which is asked for", size)
                        told = device, needed, limit, [described, *self.alive(device)]
                        self.refused = VirtualOutOfMemory(*told)  # what is raised keeps tensors alive by its traceback
                        raise VirtualOutOfMemory(*told)
                held = self._held[key] = _Held(device, size, f"{what} {list(inner.shape)}")
                self._live[device] += size
                self.peak_bytes[device] = max(self.peak_bytes[device], self._live[device])
            held.holders += 1
        weakref.finalize(wrapper, self._let_go, key).atexit = False

    def _let_go(self, key: int) -> None:
        with self._lock:
            held = self._held[key]
            held.holders -= 1
            if held.holders == 0:
                del self._held[key]
                self._live[held.device] -= held.size_bytes


def _names_of_storages() -> dict[int, str]:
    """Names of parameters and buffers of all modules that are alive, by storage; the longest is the fullest."""
    torch = import_module("torch")
    names: dict[int, str] = {}
    for module in [one for one in gc.get_objects() if isinstance(one, torch.nn.Module)]:
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            inner = vars(tensor).get("inner")  # of plain tensors that is a product
            if inner is not None:
                key = inner.untyped_storage()._cdata
                names[key] = max(names.get(key, ""), name, key=len)
    return names


class _Process:
    """The devices of this process; torch can be told of them once."""

    devices: VirtualDevices | None = None


def current() -> VirtualDevices:
    """The virtual devices of this process."""
    if _Process.devices is None:
        raise SteadError("this process has no virtual devices; call virtual_devices() first")
    return _Process.devices


def virtual_devices(limits: Sequence[int | None]) -> VirtualDevices:
    """Set up one device for each limit in bytes, None for no limit; again, to begin anew with other limits."""
    try:
        torch = import_module("torch")
    except ImportError:
        raise MissingExtra("torch", "torch", "virtual devices") from None
    first = _Process.devices is None
    _Process.devices = VirtualDevices(tuple(limits))
    if first:
        _register(torch)
    return _Process.devices


def _register(torch: Any) -> None:
    registration = import_module("torch.utils.backend_registration")
    setup = getattr(registration, "_setup_privateuseone_for_python_backend", None)
    if setup is None:
        raise SteadError(f"torch {torch.__version__} has no backends in Python; virtual devices need torch 2.13")

    class Module(registration._DummyBackendModule):  # type: ignore[misc, name-defined]
        def device_count(self) -> int:
            return len(current())

        def memory_allocated(self, device: Any = None) -> int:
            return current().live_bytes[_index(torch, device)]

        memory_reserved = memory_allocated

        def mem_get_info(self, device: Any = None) -> tuple[int, int]:
            limit = current().limits[_index(torch, device)]
            total = 2**62 if limit is None else limit
            return total - self.memory_allocated(device), total

        def synchronize(self, device: Any = None) -> None:
            """Nothing is ever under way."""

        def empty_cache(self) -> None:
            """Nothing is kept."""

    class Hook(registration._DummyPrivateUse1Hook):  # type: ignore[misc, name-defined]
        def device_count(self) -> int:
            return len(current())

        def current_device(self) -> int:
            return 0

    setup(NAME, Module(), Hook())
    _Kernels(torch).register()


def _index(torch: Any, device: Any) -> int:
    if device is None or isinstance(device, int):
        return device or 0
    return torch.device(device).index or 0


class _Kernels:
    """Tensors of virtual devices and what runs on them."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.pytree = import_module("torch.utils._pytree")
        self.kind = _tensor_kind(torch, self)

    def register(self) -> None:
        """Kernels that make tensors from nothing, and those that torch would take apart for an unknown device.

        Everything else begins with a tensor and is dispatched by it.
        """
        library = self.torch.library.Library("aten", "IMPL")
        for name in (
            "empty.memory_format", "empty_strided", "zeros", "ones", "full", "scalar_tensor", "eye", "eye.m",
            "linspace", "arange", "arange.start", "arange.start_step", "tril_indices", "triu_indices",
        ):  # fmt: skip
            packet, _, overload = name.partition(".")
            function = getattr(getattr(self.torch.ops.aten, packet), overload or "default")
            library.impl(name, self._factory(function), "PrivateUse1")
        for name in ("_to_copy", "copy_", *_FUSED):
            function = getattr(self.torch.ops.aten, name).default
            library.impl(name, self._dispatched(function), "PrivateUse1")
        self.library = library  # kernels live as long as it does

    def _factory(self, function: Any) -> Any:
        def made(*arguments: Any, device: Any = None, **named: Any) -> Any:
            index = _index(self.torch, device)
            named.pop("pin_memory", None)
            return self.wrap(function(*arguments, device="cpu", **named), index, function)

        return made

    def _dispatched(self, function: Any) -> Any:
        return lambda *arguments, **named: self.run(function, arguments, named)

    def wrap(self, inner: Any, device: int, function: Any) -> Any:
        """A tensor of a device, with its operation in the log and its storage in the ledger."""
        devices = current()
        if device >= len(devices):
            raise RuntimeError(f"there is no {NAME}:{device}; the virtual devices are {NAME}:0..{len(devices) - 1}")
        devices.log.append(Ran(_name(function), device, devices.label))
        return self.kind(inner, device, _name(function))

    def run(self, function: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """An operation on the device of its tensors."""
        name = function._schema.name.removeprefix("aten::")
        if name == "_to_copy":
            return self._moved(function, arguments, dict(named))
        if name == "copy_":
            return self._copied(function, arguments, named)
        device = self._device(function, name, (arguments, named))
        if name == "_assert_tensor_metadata":
            return self._asserted(function, arguments, dict(named))
        named = {key: value for key, value in named.items() if key != "pin_memory"}
        if named.get("device") is not None:
            wanted = self.torch.device(named["device"])
            device = _index(self.torch, wanted) if wanted.type == NAME else -1
            named["device"] = "cpu"
        plain, plain_named = self._plain((tuple(arguments), named))
        if name == "histc" and not plain[0].is_floating_point():  # models ask for it off the CPU, which lacks it
            plain = (plain[0].float(), *plain[1:])
        result = function(*plain, **plain_named)
        if device < 0:
            return result
        current().log.append(Ran(_name(function), device, current().label))
        return self._wrapped(function, arguments, named, result, device)

    def _device(self, function: Any, name: str, given: Any) -> int:
        """The one device of all tensors, or an error as on real devices."""
        tensors = [one for one in self.pytree.tree_leaves(given) if isinstance(one, self.torch.Tensor)]
        found = {one.index for one in tensors if isinstance(one, self.kind)}
        loose = [one for one in tensors if not isinstance(one, self.kind) and one.dim() > 0]
        if name in _CPU_INDICES and isinstance(given[0][0], self.kind):
            loose = []
        if len(found) > 1 or loose:
            on = [f"{NAME}:{one}" for one in sorted(found)] + ([str(loose[0].device)] if loose else [])
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found {', '.join(on)} (in {_name(function)})"
            )
        return int(found.pop()) if found else -1

    def _asserted(self, function: Any, arguments: Sequence[Any], named: dict[str, Any]) -> None:
        wanted, tensor = named.pop("device", None), arguments[0]
        if wanted is not None and self.torch.device(wanted) != tensor.device:
            raise RuntimeError(f"Tensor device mismatch! Expected: {wanted}, got: {tensor.device}")
        function(*self._plain(tuple(arguments)), **named)

    def _moved(self, function: Any, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
        source, wanted = arguments[0], named.pop("device", None)
        named.pop("non_blocking", None)
        named.pop("pin_memory", None)
        target = source.device if wanted is None else self.torch.device(wanted)
        inner = source.inner if isinstance(source, self.kind) else source
        if target.type == "meta":
            return function(inner, device="meta", **named)
        copied = function(inner, device="cpu", **named)
        start = source.index if isinstance(source, self.kind) else -1
        end = _index(self.torch, target) if target.type == NAME else -1
        if start != end:
            self._cross(start, end, copied)
        return copied if end < 0 else self.wrap(copied, end, function)

    def _copied(self, function: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        target, source = arguments[0], arguments[1]
        plain = self._plain(tuple(arguments))
        function(*plain, **named)
        start = source.index if isinstance(source, self.kind) else -1
        end = target.index if isinstance(target, self.kind) else -1
        if start != end:
            self._cross(start, end, plain[1])
        if end >= 0:
            current().log.append(Ran(_name(function), end, current().label))
        return target

    def _cross(self, start: int, end: int, tensor: Any) -> None:
        devices = current()
        devices.crossings.append(Crossed(start, end, tensor.numel() * tensor.element_size(), devices.label))

    def _plain(self, given: Any) -> Any:
        return self.pytree.tree_map(lambda one: one.inner if isinstance(one, self.kind) else one, given)

    def _wrapped(
        self, function: Any, arguments: Sequence[Any], named: Mapping[str, Any], result: Any, device: int
    ) -> Any:
        """Results as tensors of the device; what was written into stays the object that it was."""
        schema = function._schema
        written = {}
        for position, argument in enumerate(schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                given = arguments[position] if position < len(arguments) else named.get(argument.name)
                written[frozenset(argument.alias_info.before_set)] = given
        several = isinstance(result, tuple | list) and len(schema.returns) > 1
        results = list(result) if several else [result]
        made = []
        for one, said in zip(results, schema.returns, strict=True):
            into = written.get(frozenset(said.alias_info.before_set)) if said.alias_info is not None else None
            made.append(into if into is not None else self._each(one, device, _name(function)))
        return type(result)(made) if several else made[0]

    def _each(self, result: Any, device: int, name: str) -> Any:
        if isinstance(result, self.torch.Tensor):
            return self.kind(result, device, name)
        if isinstance(result, tuple | list):
            return type(result)([self._each(one, device, name) for one in result])
        return result


def _name(function: Any) -> str:
    overload = "" if function._overloadname == "default" else f".{function._overloadname}"
    return f"{function._schema.name.removeprefix('aten::')}{overload}"


def _tensor_kind(torch: Any, kernels: _Kernels) -> Any:
    """The class of tensors on virtual devices; made late, as it needs torch."""

    class VirtualTensor(torch.Tensor):  # type: ignore[misc]
        inner: Any
        index: int

        @staticmethod
        def __new__(cls: Any, inner: Any, device: int = -1, what: str = "", *, requires_grad: bool = False) -> Any:
            if device < 0:  # packages make parameters by the class of a parameter
                return torch.nn.Parameter(inner, requires_grad)
            made = torch.Tensor._make_wrapper_subclass(
                cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype,
                device=torch.device(NAME, device), requires_grad=inner.requires_grad,
            )  # fmt: skip
            made.inner, made.index = inner.detach(), device
            current().hold(made, inner, device, what)
            return made

        def __init__(self, inner: Any, device: int = -1, what: str = "", *, requires_grad: bool = False) -> None:
            """Everything is done when it is made."""

        def __repr__(self, *, tensor_contents: Any = None) -> str:
            return f"VirtualTensor({self.inner!r}, device='{NAME}:{self.index}')"

        def data_ptr(self) -> int:
            """That of the contents: packages tell tied weights by it."""
            return int(self.inner.data_ptr())

        def tolist(self) -> Any:
            """Its numbers."""
            return self.inner.tolist()

        def untyped_storage(self) -> Any:
            """That of the contents, for the same reason."""
            return self.inner.untyped_storage()

        @classmethod
        def __torch_dispatch__(
            cls, function: Any, kinds: Any, arguments: Any = (), named: Mapping[str, Any] | None = None
        ) -> Any:
            return kernels.run(function, arguments, named or {})

    VirtualTensor.__torch_function__ = torch._C._disabled_torch_function_impl
    return VirtualTensor
