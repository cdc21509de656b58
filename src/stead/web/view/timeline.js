// @ts-check
// When: lanes of devices and links, and memory on the same axis. Wheel and drag, keys, critical path, arrows of the selection.

import {lower} from 'stead/data';
import {Coverage, drawLane, drawTurns, turnsOf} from 'stead/lanes';
import {drawMemory, memoryDevices} from 'stead/memory';
import {timeMarks} from 'stead/scale';
import {SMALL, colour, deviceColour, fitted, fittedText} from 'stead/theme';
import {count, counted, seconds} from 'stead/units';

/** @typedef {import('stead/lanes').Frame} Frame */

const OP = 26, LINK = 11, GAP = 3, MEMORY = 54, MOST_LINKS = 24, NONE = 2 ** 32 - 1;

export class Timeline {
  /**
   * @param {HTMLCanvasElement} canvas @param {import('stead/state').Store} store @param {import('stead/scale').Camera} camera
   * @param {{tip: (e: PointerEvent | null, lines: string[]) => void, moved: () => void, signal: AbortSignal}} host
   */
  constructor(canvas, store, camera, host) {
    this.canvas = canvas; this.store = store; this.view = store.view; this.camera = camera; this.host = host;
    this.rows = new Coverage(); this.drawn = 0;
    const links = this.view.lanes.filter((lane) => lane.kind === 'link'), busiest = [...links].sort((a, b) => b.sums[b.runs] - a.sums[a.runs]).slice(0, MOST_LINKS);
    this.hidden = links.length - busiest.length;
    const used = this.view.lanes.filter((lane) => lane.kind === 'op' && (lane.hi > lane.lo || this.view.head.devices.length <= 8));
    this.lanes = [...used, ...links.filter((lane) => busiest.includes(lane))].map((lane) => ({lane, y: 0, h: lane.kind === 'op' ? OP : LINK}));
    this.turns = this.view.col.micro ? new Map(used.map((lane) => [lane, turnsOf(this.view, lane)])) : null;
    this.critical = criticalSlices(this.view);
    this.listen();
  }

  get left() { return this.canvas.clientWidth < 560 ? 76 : 136; }

  draw() {
    const {view, camera} = this, {state} = this.store, width = this.canvas.clientWidth, left = this.left, memories = memoryDevices(view);
    let height = 4;
    for (const row of this.lanes) { row.y = height; height += row.h + GAP; }
    const more = this.hidden ? 16 : 0, lower = height + more + 4;
    const c = fitted(this.canvas, width, lower + memories.length * (MEMORY + 8) + 22), wide = Math.max(10, width - left - 2);
    const chosen = state.box > 0 ? chosenBoxes(view, state.box) : null;
    const f = {c, view, left, width: wide, t0: camera.t0, k: wide / camera.span, dim: state.dim, chosen, slice: state.slice, rows: this.rows};
    const foot = lower + memories.length * (MEMORY + 8), ticks = timeMarks(camera, view.unit, wide);
    this.grid(f, ticks, foot);
    this.drawn = 0;
    for (const {lane, y, h} of this.lanes) {
      this.label(c, lane, y, h, left);
      this.drawn += drawLane(f, lane, y, h);
      const turns = this.turns?.get(lane);
      if (turns) drawTurns(f, turns, y, h);
    }
    c.font = SMALL;
    if (more) { c.fillStyle = colour.soft; c.textAlign = 'left'; c.fillText(`+${this.hidden} links that carry less`, left, height + 7); }
    this.memories = memories.map((/** @type {number} */ d, /** @type {number} */ i) => ({d, y: lower + i * (MEMORY + 8)}));
    for (const {d, y} of this.memories) drawMemory(f, d, y, MEMORY);
    this.axis(f, ticks, foot);
    if (state.slice >= 0) this.arrows(f);
  }

  /** @param {CanvasRenderingContext2D} c @param {import('stead/data').Lane} lane @param {number} y @param {number} h @param {number} left */
  label(c, lane, y, h, left) {
    const devices = this.view.head.devices, from = devices[lane.device];
    c.font = SMALL;
    c.textAlign = 'right';
    c.fillStyle = lane.kind === 'op' ? colour.ink : colour.soft;
    if (lane.kind === 'link') { c.fillText(`${from.letter} → ${devices[lane.to].letter}`, left - 8, y + h / 2 + 0.5); return; }
    const name = left > 100 ? fittedText(c, from.name, left - 36) : from.letter;
    c.fillText(name, left - 8, y + h / 2);
    c.fillStyle = deviceColour(lane.device);
    c.fillRect(4, y + h / 2 - 8, 16, 16);
    c.fillStyle = '#fff';
    c.textAlign = 'center';
    c.fillText(from.letter, 12, y + h / 2 + 0.5);
  }

  /** Lines behind everything: over bars they would look like gaps. @param {Frame} f @param {{at: number}[]} ticks @param {number} y */
  grid(f, ticks, y) {
    f.c.fillStyle = colour.line;
    for (const {at} of ticks) f.c.fillRect(Math.round(f.left + (at - f.t0) * f.k), 0, 1, y);
  }

  /** @param {Frame} f @param {{at: number, text: string}[]} ticks @param {number} y */
  axis({c, left, width, t0, k}, ticks, y) {
    c.font = SMALL;
    c.fillStyle = colour.soft;
    c.textAlign = 'center';
    for (const {at, text} of ticks) {
      const x = left + (at - t0) * k, half = c.measureText(text).width / 2;
      if (x + half < left + width + 2) c.fillText(text, Math.max(x, left + half), y + 9);
    }
  }

  /** Transfers into and out of the selected slice. @param {Frame} f */
  arrows(f) {
    const {c, view, left, t0, k} = f, {col} = view, own = this.store.state.slice, place = new Map(this.lanes.map(({lane, y, h}) => [lane, {y, h}]));
    const spot = (/** @type {number} */ slice, /** @type {boolean} */ end) => {
      const row = place.get(view.lanes[col.dev[slice]]);
      return row ? [left + (col.start[slice] + (end ? col.dur[slice] : 0) - t0) * k, row.y + row.h / 2] : null;
    };
    c.save();
    c.beginPath();
    c.rect(left, 0, f.width, 1e5);
    c.clip();
    c.strokeStyle = colour.ink;
    c.lineWidth = 1.3;
    for (let i = 0; i < col.tten.length; i++) {
      if (col.tfrom[i] !== own && col.tto[i] !== own) continue;
      const a = spot(col.tfrom[i], true), b = col.tto[i] === NONE ? null : spot(col.tto[i], false);
      if (!a || !b) continue;
      c.beginPath();
      c.moveTo(a[0], a[1]);
      c.bezierCurveTo(a[0] + 24, a[1], b[0] - 24, b[1], b[0], b[1]);
      c.moveTo(b[0] - 6, b[1] - 4);
      c.lineTo(b[0], b[1]);
      c.lineTo(b[0] - 6, b[1] + 4);
      c.stroke();
    }
    c.restore();
  }

  /** What lies under the pointer. @param {PointerEvent | MouseEvent} e */
  hit(e) {
    const r = this.canvas.getBoundingClientRect(), x = e.clientX - r.left, y = e.clientY - r.top, k = (r.width - this.left - 2) / this.camera.span;
    const t = this.camera.t0 + (x - this.left) / k;
    const memory = this.memories?.find((/** @type {{y: number}} */ m) => y >= m.y && y < m.y + MEMORY);
    if (memory) return {memory: memory.d, t};
    const row = this.lanes.find((one) => y >= one.y - 1 && y < one.y + one.h + 2);
    if (!row || x < this.left) return null;
    const {lane} = row, after = lower(lane.start, lane.lo, lane.hi, t + 1);
    for (let i = after - 1; i >= Math.max(lane.lo, after - 40); i--) if (t <= lane.start[i] + lane.dur[i] + 2 / k) return {lane, i, t};
    return null;
  }

  /** @param {import('stead/data').Lane} lane @param {number} i */
  described(lane, i) {
    const {col, head, unit, boxes} = this.view, when = `${seconds(lane.dur[i] * unit)} from ${seconds(lane.start[i] * unit)}`, critical = lane.flags[i] & 1 ? ' · on the critical path' : '';
    if (lane.kind === 'link') return [col.tensors[col.tten[i]], `${head.devices[lane.device].name} → ${head.devices[lane.to].name}`, `${when}${critical}`];
    const micro = col.micro && col.micro[i] !== 65535 ? ` · micro-batch ${col.micro[i] + 1}` : '';
    return [col.names[col.op[i]], [boxes[col.box[i]].path, col.kinds[col.kind[i]], head.devices[lane.device].name].filter(Boolean).join(' · '), `${when}${micro}${critical}`];
  }

  listen() {
    const {canvas, camera, host, store} = this, {signal} = host;
    /** @type {{x: number, t0: number, far: number} | null} */
    let drag = null;
    const wide = () => Math.max(10, canvas.clientWidth - this.left - 2), at = (/** @type {MouseEvent} */ e) => camera.t0 + ((e.clientX - canvas.getBoundingClientRect().left - this.left) / wide()) * camera.span;
    canvas.addEventListener('wheel', (e) => {
      if (!e.ctrlKey && !e.metaKey && Math.abs(e.deltaX) < Math.abs(e.deltaY) && document.activeElement !== canvas) return; // the page scrolls until the time line has the focus
      e.preventDefault();
      if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) camera.pan((e.deltaX / wide()) * camera.span);
      else camera.zoom(Math.exp(e.deltaY * 0.0015), at(e));
      host.moved();
    }, {passive: false, signal});
    canvas.addEventListener('pointerdown', (e) => { drag = {x: e.clientX, t0: camera.t0, far: 0}; canvas.setPointerCapture(e.pointerId); }, {signal});
    canvas.addEventListener('pointermove', (e) => {
      if (!drag) {
        const hit = this.hit(e);
        host.tip(e, !hit ? [] : hit.lane ? this.described(hit.lane, hit.i) : [`Memory of ${this.view.head.devices[/** @type {number} */ (hit.memory)].name}`, 'Click: what lives at the peak']);
        return;
      }
      drag.far = Math.max(drag.far, Math.abs(e.clientX - drag.x));
      if (drag.far < 4) return;
      const t0 = drag.t0 + ((drag.x - e.clientX) / wide()) * camera.span;
      camera.show(t0, t0 + camera.span);
      host.moved();
    }, {signal});
    canvas.addEventListener('pointerup', (e) => {
      const far = drag?.far ?? 99, hit = far < 4 ? this.hit(e) : null;
      drag = null;
      if (far >= 4) return;
      if (hit?.memory !== undefined) store.set({device: store.state.device === hit.memory ? -1 : hit.memory});
      else store.selectSlice(hit?.lane?.kind === 'op' ? hit.i ?? -1 : -1);
    }, {signal});
    canvas.addEventListener('pointercancel', () => { drag = null; }, {signal});
    canvas.addEventListener('pointerleave', () => host.tip(null, []), {signal});
    canvas.addEventListener('dblclick', (e) => { camera.zoom(0.4, at(e)); host.moved(); }, {signal});
    canvas.addEventListener('keydown', (e) => { if (this.key(e)) { e.preventDefault(); e.stopPropagation(); } }, {signal});
  }

  /** @param {KeyboardEvent} e */
  key(e) {
    const {camera} = this, middle = (camera.t0 + camera.t1) / 2;
    if (e.ctrlKey || e.metaKey || e.altKey) return false;
    if (e.key === 'ArrowLeft' || e.key === 'a') camera.pan(-0.15 * camera.span);
    else if (e.key === 'ArrowRight' || e.key === 'd') camera.pan(0.15 * camera.span);
    else if (e.key === '+' || e.key === '=' || e.key === 'w') camera.zoom(0.7, middle);
    else if (e.key === '-' || e.key === 's') camera.zoom(1 / 0.7, middle);
    else if (e.key === 'f') camera.fit();
    else if (e.key === 'n' || e.key === 'p') this.step(e.key === 'n' ? 1 : -1);
    else return false;
    this.host.moved();
    return true;
  }

  /** Go to the next or the previous critical step. @param {number} way */
  step(way) {
    const {critical, store, view, camera} = this, now = critical.indexOf(store.state.slice);
    if (!critical.length) return;
    const next = now < 0 ? (way > 0 ? 0 : critical.length - 1) : Math.max(0, Math.min(critical.length - 1, now + way)), slice = critical[next];
    const begin = view.col.start[slice], end = begin + view.col.dur[slice], span = Math.max(Math.min(camera.span, (end - begin) * 30), (end - begin) * 1.2);
    if (begin < camera.t0 || end > camera.t1 || camera.span > span) camera.show((begin + end - span) / 2, (begin + end + span) / 2);
    store.selectSlice(slice);
  }

  /** One sentence for whoever does not see the picture. */
  summary() {
    const {head, col} = this.view;
    return `${counted(col.op.length, 'run')} of operators on ${counted(head.devices.length, 'device')} and ${counted(col.tten.length, 'transfer')} within ${seconds(head.span_seconds)}; ${count(this.critical.length)} of them form the critical path.`;
  }
}

/** Slices on the critical path, by time. @param {import('stead/data').View} view */
function criticalSlices(view) {
  const {start, flags} = view.col, found = [];
  for (let i = 0; i < flags.length; i++) if (flags[i] & 1) found.push(i);
  return found.sort((a, b) => start[a] - start[b] || a - b);
}

/** Which boxes lie in a selected one. @param {import('stead/data').View} view @param {number} box */
export function chosenBoxes(view, box) {
  const chosen = new Uint8Array(view.boxes.length);
  for (const one of view.boxes) chosen[one.index] = one.index === box || (one.index > 0 && chosen[one.parent]) ? 1 : 0;
  return chosen;
}
