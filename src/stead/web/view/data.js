// @ts-check
// The view of a plan, decoded: what src/stead/report/columns.py describes, as typed arrays, lanes and boxes.

export const VERSION = 1;

/**
 * @typedef {{kind: 'op' | 'link', device: number, to: number, lo: number, hi: number, start: Uint32Array, dur: Uint32Array,
 *   flags: Uint8Array, runs: number, begins: Float64Array, ends: Float64Array, sums: Float64Array}} Lane  slices lo..hi-1 of columns;
 *   stretches without a gap are runs: run i is busy from begins[i] to ends[i], and sums[i] is the time of those before it
 * @typedef {{index: number, name: string, path: string, parent: number, depth: number, children: number[], layer: number, x: number,
 *   ops: number, crit: number, slack: number, weights: number, out: number, begin: number, end: number, seconds: Float32Array,
 *   total: number, open: boolean, run: boolean}} Box
 * @typedef {{source: number, target: number, bytes: number, cross: number}} Edge
 * @typedef {{devices: any[], rules: any[], exports: any[], links: any[], [name: string]: any}} Head
 * @typedef {{head: Head, col: Record<string, any>, unit: number, end: number, lanes: Lane[], boxes: Box[], edges: Edge[]}} View
 */

const TYPES = {u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f4: Float32Array, d4: Uint32Array};
export const CRITICAL = 1, NO_TIME = 2, BACKWARD = 4, UPDATE = 8, NO_MICROBATCH = 65535;

/** A view from the text of a page: base64 of zlib. @param {string} text @returns {Promise<View>} */
export async function fromBase64(text) {
  const packed = Uint8Array.from(atob(text.trim()), (sign) => sign.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  return decodeView(await new Response(stream).arrayBuffer());
}

/** A view from its bytes. @param {ArrayBuffer} buffer @returns {View} */
export function decodeView(buffer) {
  const {head, col} = unpacked(buffer);
  return assembled(head, col);
}

/** @param {ArrayBuffer} buffer */
export function unpacked(buffer) {
  const size = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  if (head.view !== VERSION) throw new Error(`This is a view of version ${head.view}, and version ${VERSION} is read: write it anew.`);
  /** @type {Record<string, any>} */
  const col = {};
  for (const [name, [offset, items, type]] of Object.entries(head.columns)) {
    const at = 4 + size + offset;
    if (type === 'utf8') lazily(col, name, () => new TextDecoder().decode(new Uint8Array(buffer, at, items)).split('\n').slice(0, -1));
    else col[name] = new TYPES[/** @type {'u1'} */ (type)](buffer, at, items);
    if (type === 'd4') for (let i = 1, a = col[name]; i < items; i++) a[i] += a[i - 1];
  }
  return {head, col};
}

/** @param {any} head @param {Record<string, any>} col @returns {View} */
export function assembled(head, col) {
  const unit = head.unit_ticks * 1e-12;
  return {head, col, unit, end: head.span_seconds / unit, lanes: lanesOf(head, col), boxes: boxesOf(head, col), edges: edgesOf(col)};
}

/** @param {Record<string, any>} target @param {string} name @param {() => any} make */
function lazily(target, name, make) {
  Object.defineProperty(target, name, {enumerable: true, configurable: true, get() {
    const value = make();
    Object.defineProperty(target, name, {enumerable: true, configurable: true, value});
    return value;
  }});
}

/** Lanes of devices in their order, then those of links. @param {any} head @param {Record<string, any>} col @returns {Lane[]} */
function lanesOf(head, col) {
  const lanes = [];
  for (let device = 0, i = 0; device < head.devices.length; device++) {
    const lo = i;
    while (i < col.op.length && col.dev[i] === device) i++;
    lanes.push(lane('op', device, -1, lo, i, col.start, col.dur, col.flags));
  }
  for (let i = 0; i < col.tten.length;) {
    const lo = i, from = col.tsrc[i], to = col.tdst[i];
    while (i < col.tten.length && col.tsrc[i] === from && col.tdst[i] === to) i++;
    lanes.push(lane('link', from, to, lo, i, col.tbeg, col.tdur, col.tflags));
  }
  return lanes;
}

/**
 * @param {'op' | 'link'} kind @param {number} device @param {number} to @param {number} lo @param {number} hi
 * @param {Uint32Array} start @param {Uint32Array} dur @param {Uint8Array} flags @returns {Lane}
 */
function lane(kind, device, to, lo, hi, start, dur, flags) {
  const begins = new Float64Array(hi - lo), ends = new Float64Array(hi - lo), sums = new Float64Array(hi - lo + 1);
  let runs = 0;
  for (let i = lo; i < hi; i++) {
    const end = start[i] + dur[i];
    if (runs && start[i] <= ends[runs - 1]) ends[runs - 1] = Math.max(ends[runs - 1], end);
    else if (dur[i]) { begins[runs] = start[i]; ends[runs] = end; runs++; }
  }
  for (let i = 0; i < runs; i++) sums[i + 1] = sums[i] + ends[i] - begins[i];
  return {kind, device, to, lo, hi, start, dur, flags, runs, begins, ends, sums};
}

/** @param {any} head @param {Record<string, any>} col @returns {Box[]} */
function boxesOf(head, col) {
  const devices = head.devices.length, names = col.boxes;
  /** @type {Box[]} */
  const boxes = [];
  for (let i = 0; i < names.length; i++) {
    const seconds = col.bsec.subarray(i * devices, (i + 1) * devices), parent = col.bparent[i], run = !!(col.bflags[i] & 2);
    const above = i ? boxes[parent].path : '';
    boxes.push({
      index: i, name: names[i], parent, run, path: i === 0 || run ? above : above ? `${above}.${names[i]}` : names[i],
      depth: i ? boxes[parent].depth + 1 : 0, children: [], layer: col.blayer[i], x: col.bx[i], ops: col.bops[i], crit: col.bcrit[i],
      slack: col.bslack[i], weights: col.bweights[i], out: col.bout[i], begin: col.bbegin[i], end: col.bend[i], seconds,
      total: seconds.reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, 0), open: !!(col.bflags[i] & 1),
    });
    if (i) boxes[parent].children.push(i);
  }
  return boxes;
}

/** @param {Record<string, any>} col @returns {Edge[]} */
function edgesOf(col) {
  return Array.from(col.esrc, (/** @type {number} */ source, /** @type {number} */ i) => (
    {source, target: col.edst[i], bytes: col.ebytes[i], cross: col.ecross[i]}));
}

/** Index of the first item of a[lo..hi) that is at least x. @param {ArrayLike<number>} a @param {number} lo @param {number} hi @param {number} x */
export function lower(a, lo, hi, x) {
  while (lo < hi) {
    const middle = (lo + hi) >> 1;
    if (a[middle] < x) lo = middle + 1;
    else hi = middle;
  }
  return lo;
}

/** Time a lane is busy before a moment: exact, one binary search. @param {Lane} lane @param {number} t */
export function busyBefore(lane, t) {
  const i = lower(lane.begins, 0, lane.runs, t);
  return i === 0 ? 0 : lane.sums[i - 1] + Math.min(t, lane.ends[i - 1]) - lane.begins[i - 1];
}

/** Whether a box is another one or lies within it. @param {View} view @param {number} box @param {number} within */
export function isWithin(view, box, within) {
  while (box > within) box = view.boxes[box].parent;
  return box === within;
}
