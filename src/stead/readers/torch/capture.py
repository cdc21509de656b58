"""Training graphs of any PyTorch module: one step, run on tensors without data and written down as it happens.

A dispatch mode sees every ATen operator of the forward pass, of the backward pass and of the update of the
parameters. Nothing is computed and no weight is allocated: tensors are on the `meta` device, or fake ones on the
CPU where `meta` does not do. The module itself stays as it is; a copy without data runs.

    tape = capture(module, (tokens,), cross_entropy, targets=(labels,), update="adam")
    model = tape.model()                                  # operators, weights, twins, colocation groups
    loss = tape.replay(module, (tokens,), (labels,)).loss     # the same step on real tensors
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args

from stead.errors import BadInput
from stead.files import collector_paused
from stead.printing.wording import one_line
from stead.readers.base import Model
from stead.readers.torch.exported import arguments_of, torch_package
from stead.readers.torch.recording import NeedsFake, Recording, Step
from stead.readers.torch.tape import UPDATES, Tape, Update

__all__ = ["Tape", "capture", "from_capture"]

Route = Literal["auto", "meta", "fake"]
ROUTES: tuple[Route, ...] = get_args(Route)


def from_capture(
    module: Any,
    inputs: Any,
    loss_fn: Callable[..., Any] | None = None,
    *,
    targets: Sequence[Any] = (),
    update: Update = "adam",
    route: Route = "auto",
    name: str = "",
) -> Model:
    """The graph of one training step, or of the forward pass without `loss_fn`; see `capture`."""
    tape = capture(module, inputs, loss_fn, targets=targets, update=update, route=route, name=name)
    return tape.model()


def capture(
    module: Any,
    inputs: Any,
    loss_fn: Callable[..., Any] | None = None,
    *,
    targets: Sequence[Any] = (),
    update: Update = "adam",
    route: Route = "auto",
    name: str = "",
) -> Tape:
    """One training step of a module, written down: forward, backward, update.

    Parameters
    ----------
    module, inputs
        What runs: `module(*inputs)`, or `module(**inputs)` for a mapping. Both may be on the `meta` device. The
        module runs in the mode it is in: dropout and batch normalisation as in training after `train()`.
    loss_fn, targets
        The loss is `loss_fn(output, *targets)`, a single number. Without `loss_fn` only the forward pass is written
        down, and no gradient is kept for it.
    update
        "sgd" (plain), "adam" (two more tensors for each parameter) or "none".
    route
        "meta" is faster, "fake" takes more models; "auto" tries one after the other.
    """
    for what, given, known in (("update", update, UPDATES), ("route", route, ROUTES)):
        if given not in known:
            raise BadInput(f"{what} is one of {', '.join(known)}, got {given!r}")
    torch = torch_package("capturing PyTorch modules")
    positional, named = arguments_of(torch, inputs)
    step = Step(module, positional, named, loss_fn, tuple(targets), update, name or type(module).__name__)
    if route != "fake":
        try:
            return _captured(torch, step, "meta")
        except (RuntimeError, NeedsFake) as error:
            if route == "meta":
                raise _refusal(torch, step, error) from error
    try:
        return _captured(torch, step, "fake")
    except RuntimeError as error:
        raise _refusal(torch, step, error) from error


# Running on tensors without data


def _captured(torch: Any, step: Step, device: str) -> Tape:
    fake = device == "fake"
    without_data = _fake_mode(torch) if fake else nullcontext()
    with collector_paused(), _settings(torch), without_data:
        recording = Recording(torch, step, "cpu" if fake else "meta")
        recording.run()
    return recording.tape


def _fake_mode(torch: Any) -> Any:
    return import_module("torch._subclasses.fake_tensor").FakeTensorMode(allow_non_fake_inputs=True)


@contextmanager
def _settings(torch: Any) -> Iterator[None]:
    """Without kernels that hide what a model does: mkldnn makes a whole LSTM one operator that cannot be replayed."""
    mkldnn = torch._C._get_mkldnn_enabled()
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch._C._set_mkldnn_enabled(False)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(mkldnn)
        torch.backends.mha.set_fastpath_enabled(fast_path)


def _refusal(torch: Any, step: Step, error: Exception) -> BadInput:
    """The error of a model as one line that names the line of the model."""
    ours = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(ours)
    ]
    place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    reason = one_line(str(error).strip().partition("\n")[0], 300) or type(error).__name__
    kind = type(error).__name__
    if "DataDependent" in kind or "cannot be called on meta tensors" in reason:
        reason = f"the model looks at the contents of a tensor, and there are none ({kind}: {reason})"
    return BadInput(f"{step.name}: cannot be captured{place}: {reason}")
