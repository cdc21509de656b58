"""Shapes that ONNX operators give to data which they cut, join, pick, stretch or arrange anew."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stead.readers.common.op_costs import Shape, elements
from stead.readers.onnx.site import Rule, Site, Unclear, axis_of, broadcast, rules


def _reshape(site: Site) -> Sequence[Shape]:
    data, target = site.shape(0), site.numbers(1, "shape")
    if not target and not site.has(1):
        raise Unclear
    keep_zero = bool(site.node.integer("allowzero", 0))
    sizes = [data[i] if size == 0 and not keep_zero else size for i, size in enumerate(target)]
    if -1 in sizes:
        rest = elements(size for size in sizes if size != -1)
        sizes[sizes.index(-1)] = elements(data) // rest
    if elements(sizes) != elements(data):
        raise Unclear
    return [tuple(sizes)]


def _flatten(site: Site) -> Sequence[Shape]:
    data = site.shape(0)
    axis = site.node.integer("axis", 1)
    axis = axis + len(data) if axis < 0 else axis
    return [(elements(data[:axis]), elements(data[axis:]))]


def _squeeze(site: Site) -> Sequence[Shape]:
    data = site.shape(0)
    axes = {axis % len(data) for axis in site.numbers(1, "axes")}
    if not axes:
        return [tuple(size for size in data if size != 1)]
    return [tuple(size for i, size in enumerate(data) if i not in axes)]


def _unsqueeze(site: Site) -> Sequence[Shape]:
    data, axes = site.shape(0), site.numbers(1, "axes")
    rank = len(data) + len(axes)
    new = {axis % rank for axis in axes}
    rest = iter(data)
    return [tuple(1 if i in new else next(rest, -1) for i in range(rank))]


def _transpose(site: Site) -> Sequence[Shape]:
    data = site.shape(0)
    order = site.node.integers("perm") or list(reversed(range(len(data))))
    if sorted(order) != list(range(len(data))):
        raise Unclear
    return [tuple(data[i] for i in order)]


def _tile(site: Site) -> Sequence[Shape]:
    data, repeats = site.shape(0), site.content(1).reshape(-1).tolist()
    return [tuple(size * count for size, count in zip(data, repeats, strict=True))]


def _concat_of(start: int, step: int) -> Rule:
    def rule(site: Site) -> Sequence[Shape]:
        shapes = [site.shape(i) for i in range(start, len(site.inputs), step)]
        first = list(shapes[0])
        axis = axis_of(site, 1, len(first))  # the default of the oldest version
        for shape in shapes[1:]:
            if shape[:axis] + shape[axis + 1 :] != shapes[0][:axis] + shapes[0][axis + 1 :]:
                raise Unclear
            first[axis] += shape[axis]
        return [tuple(first)]

    return rule


def _split(site: Site) -> Sequence[Shape]:
    data, count = site.shape(0), len(site.node.outputs)
    axis = axis_of(site, 0, len(data))
    parts = site.numbers(1, "split")
    if not parts:
        each = -(-data[axis] // count)
        parts = [max(0, min(each, data[axis] - i * each)) for i in range(count)]
    return [(*data[:axis], part, *data[axis + 1 :]) for part in parts]


def _slice(site: Site) -> Sequence[Shape]:
    data = list(site.shape(0))
    starts, ends = site.numbers(1, "starts"), site.numbers(2, "ends")
    axes = site.numbers(3, "axes") or list(range(len(starts)))
    steps = site.numbers(4, "steps") or [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        data[axis] = len(range(*slice(start, end, step).indices(data[axis])))
    return [tuple(data)]


def _gather(site: Site) -> Sequence[Shape]:
    data, indices = site.shape(0), site.shape(1)
    axis = axis_of(site, 0, len(data))
    return [(*data[:axis], *indices, *data[axis + 1 :])]


def _gather_nd(site: Site) -> Sequence[Shape]:
    data, indices = site.shape(0), site.shape(1)
    batch = site.node.integer("batch_dims", 0)
    return [(*indices[:-1], *data[batch + indices[-1] :])]


def _pad(site: Site) -> Sequence[Shape]:
    data = list(site.shape(0))
    pads = site.numbers(1, "pads") or site.node.integers("paddings")
    axes = site.numbers(3, "axes") or list(range(len(data)))
    if len(pads) != 2 * len(axes):
        raise Unclear
    for i, axis in enumerate(axes):
        data[axis] += pads[i] + pads[i + len(axes)]
    return [tuple(data)]


def _resize(site: Site) -> Sequence[Shape]:
    data = list(site.shape(0))
    if site.has(3) and elements(site.shape(3)):
        sizes = [float(size) for size in site.content(3).reshape(-1)]
        scales: list[float] = []
    else:
        at = 2 if site.has(2) else 1
        if site.node.kind == "Upsample" and not site.has(1):
            scales = [float(scale) for scale in site.node.attributes["scales"]]
        else:
            scales = [float(scale) for scale in site.content(at).reshape(-1)]
        sizes = []
    axes = [axis % len(data) for axis in site.node.integers("axes")] or list(range(len(data)))
    policy = site.node.text("keep_aspect_ratio_policy", "stretch")
    if sizes and policy != "stretch":
        ratios = [size / data[axis] for size, axis in zip(sizes, axes, strict=True)]
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        sizes = [float(int(data[axis] * ratio + 0.5)) for axis in axes]
    for i, axis in enumerate(axes):
        data[axis] = int(sizes[i]) if sizes else int(data[axis] * scales[i])
    return [tuple(data)]


def _depth_to_space(site: Site) -> Sequence[Shape]:
    (batch, channels, *sizes), block = site.shape(0), site.node.integer("blocksize", 1)
    return [(batch, channels // block ** len(sizes), *(size * block for size in sizes))]


def _space_to_depth(site: Site) -> Sequence[Shape]:
    (batch, channels, *sizes), block = site.shape(0), site.node.integer("blocksize", 1)
    return [(batch, channels * block ** len(sizes), *(size // block for size in sizes))]


def _one_hot(site: Site) -> Sequence[Shape]:
    indices = site.shape(0)
    rank = len(indices) + 1
    axis = axis_of(site, -1, rank)
    depth = int(site.content(1).reshape(-1)[0])
    return [(*indices[:axis], depth, *indices[axis:])]


def _range(site: Site) -> Sequence[Shape]:
    start, limit, delta = (float(site.content(i).reshape(-1)[0]) for i in range(3))
    return [(max(0, int(np.ceil((limit - start) / delta))),)]


def _shape_of(site: Site) -> Sequence[Shape]:
    start, end = site.node.attributes.get("start", 0), site.node.attributes.get("end")
    return [(len(site.shape(0)[start:end]),)]


def _non_zero(site: Site) -> Sequence[Shape]:
    data = site.shape(0)
    known = site.known(0).content
    return [(max(len(data), 1), elements(data) if known is None else int(np.count_nonzero(known)))]  # at most


def _unique(site: Site) -> Sequence[Shape]:
    data = site.shape(0)
    if "axis" not in site.node.attributes:
        return [(elements(data),)] * len(site.node.outputs)  # at most
    axis = axis_of(site, 0, len(data))
    return [data, *[(data[axis],)] * 3]


def _compress(site: Site) -> Sequence[Shape]:
    data, chosen = site.shape(0), site.known(1).content
    if "axis" not in site.node.attributes:
        return [(elements(data) if chosen is None else int(np.count_nonzero(chosen)),)]
    axis = axis_of(site, 0, len(data))
    count = data[axis] if chosen is None else int(np.count_nonzero(chosen))
    return [(*data[:axis], count, *data[axis + 1 :])]


def _center_crop_pad(site: Site) -> Sequence[Shape]:
    data = list(site.shape(0))
    target = site.content(1).reshape(-1).tolist()
    for axis, size in zip(site.node.integers("axes") or range(len(data)), target, strict=True):
        data[axis] = size
    return [tuple(data)]


def _col2im(site: Site) -> Sequence[Shape]:
    data, image, block = site.shape(0), site.content(1).tolist(), elements(site.content(2).tolist())
    return [(data[0], data[1] // block, *image)]


def _reorder_output(site: Site) -> Sequence[Shape]:
    """Back from the blocked layout that ONNX Runtime gives to convolutions."""
    data = site.shape(0)
    return [(data[0], site.node.integer("channels", data[1]), *data[2:])]


MOVING: dict[str, Rule] = {
    "ReorderInput": lambda site: [site.shape(0)],
    "ReorderOutput": _reorder_output,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Expand": lambda site: [broadcast(site.shape(0), tuple(site.content(1).reshape(-1).tolist()))],
    "Tile": _tile,
    "Concat": _concat_of(0, 1),
    "QLinearConcat": _concat_of(2, 3),
    "Split": _split,
    "Slice": _slice,
    "Gather": _gather,
    "GatherBlockQuantized": _gather,
    "GatherElements": lambda site: [site.shape(1)],
    "GatherND": _gather_nd,
    "Pad": _pad,
    **rules(_resize, "Resize Upsample"),
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "OneHot": _one_hot,
    "Range": _range,
    "ConstantOfShape": lambda site: [tuple(site.content(0).reshape(-1).tolist())],
    "Shape": _shape_of,
    "NonZero": _non_zero,
    "Unique": _unique,
    "Compress": _compress,
    "Where": lambda site: [broadcast(*(site.shape(i) for i in range(3)))],
    "CenterCropPad": _center_crop_pad,
    "Col2Im": _col2im,
}
