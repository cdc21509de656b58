// @ts-check
// One lane of the time line: rectangles where there is room, else the exact share of every pixel that is busy.

import {BACKWARD, CRITICAL, NO_MICROBATCH, UPDATE, busyBefore, lower} from 'stead/data';
import {SMALL, colour, deviceColour, deviceRgb, fittedText, hatch} from 'stead/theme';

/** @typedef {import('stead/data').Lane} Lane */

/**
 * @typedef {{c: CanvasRenderingContext2D, view: import('stead/data').View, left: number, width: number, t0: number, k: number, dim: boolean,
 *   chosen: Uint8Array | null, slice: number, rows: Coverage}} Frame  k: pixels per unit; chosen[box]: whether a box is selected
 * @typedef {{begin: number, end: number, micro: number, back: boolean}} Turn  a stretch of one micro-batch
 */

const DENSE = 1.5, LABEL = 46, FAINT = 0.22;

/** Lines of pixels that are stretched over lanes: one image for all of them, made once per width. */
export class Coverage {
  constructor() { this.canvas = document.createElement('canvas'); this.width = 0; }

  /** @param {number} width */
  resize(width) {
    if (width === this.width) return;
    this.width = this.canvas.width = width;
    this.canvas.height = 1;
    this.context = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext('2d'));
    this.image = this.context.createImageData(width, 1);
    this.shares = new Float32Array(width);
  }

  /** @param {CanvasRenderingContext2D} c @param {[number, number, number]} rgb @param {number} x @param {number} y @param {number} h @param {number} strength */
  draw(c, rgb, x, y, h, strength) {
    const pixels = /** @type {ImageData} */ (this.image).data, shares = /** @type {Float32Array} */ (this.shares);
    for (let i = 0, p = 0; i < this.width; i++, p += 4) {
      const share = shares[i];
      pixels[p] = rgb[0]; pixels[p + 1] = rgb[1]; pixels[p + 2] = rgb[2];
      pixels[p + 3] = share <= 0 ? 0 : Math.min(255, 255 * strength * (share > 1 ? 1 : share));
    }
    /** @type {CanvasRenderingContext2D} */ (this.context).putImageData(/** @type {ImageData} */ (this.image), 0, 0);
    c.imageSmoothingEnabled = false;
    c.drawImage(this.canvas, 0, 0, this.width, 1, x, y, this.width, h);
  }
}

/** Draw a lane; gives how many slices or pixels were drawn. @param {Frame} f @param {Lane} lane @param {number} y @param {number} h */
export function drawLane(f, lane, y, h) {
  const {c, left, width, t0, k} = f, t1 = t0 + width / k;
  c.globalAlpha = 0.7;
  c.fillStyle = colour.wash;
  c.fillRect(left, y, width, h);
  c.globalAlpha = 1;
  let a = lower(lane.start, lane.lo, lane.hi, t0);
  while (a > lane.lo && lane.start[a - 1] + lane.dur[a - 1] > t0 && a - 1 >= lane.lo) { a--; if (lane.kind === 'op') break; }
  const b = lower(lane.start, lane.lo, lane.hi, t1);
  return b - a > DENSE * width ? dense(f, lane, y, h, a, b) : single(f, lane, y, h, a, b);
}

/** @param {Frame} f @param {Lane} lane @param {number} y @param {number} h @param {number} a @param {number} b */
function dense(f, lane, y, h, a, b) {
  const {c, left, width, t0, k, rows} = f, faint = (f.chosen && lane.kind === 'op') || f.dim;
  rows.resize(Math.floor(width));
  const shares = /** @type {Float32Array} */ (rows.shares), rgb = deviceRgb(lane.device);
  let before = busyBefore(lane, t0);
  for (let x = 0; x < rows.width; x++) {
    const now = busyBefore(lane, t0 + (x + 1) / k);
    shares[x] = (now - before) * k;
    before = now;
  }
  rows.draw(c, rgb, left, y, h, faint ? FAINT : 1);
  const {chosen, view} = f;
  if (chosen && lane.kind === 'op') {
    gather(f, lane, a, b, (i) => chosen[view.col.box[i]] === 1);
    rows.draw(c, rgb, left, y, h, 1);
  }
  const marked = gather(f, lane, a, b, (i) => (lane.flags[i] & CRITICAL) !== 0);
  if (marked) {
    if (f.dim) rows.draw(c, rgb, left, y, h, 1);
    rows.draw(c, rgbOf(colour.ink), left, y + h - 2.5, 2.5, 1);
  }
  return rows.width;
}

/** Shares of pixels that some slices take. @param {Frame} f @param {Lane} lane @param {number} a @param {number} b @param {(i: number) => boolean} wanted */
function gather(f, lane, a, b, wanted) {
  const {t0, k, rows} = f, shares = /** @type {Float32Array} */ (rows.shares);
  shares.fill(0);
  let found = 0;
  for (let i = a; i < b; i++) {
    if (!wanted(i)) continue;
    found++;
    const x0 = Math.max(0, (lane.start[i] - t0) * k), x1 = Math.min(rows.width, (lane.start[i] + lane.dur[i] - t0) * k);
    for (let x = Math.floor(x0); x < x1; x++) shares[x] += Math.min(x + 1, x1) - Math.max(x, x0);
  }
  return found;
}

/** @param {string} hex @returns {[number, number, number]} */
const rgbOf = (hex) => /** @type {any} */ ([1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));

/** @param {Frame} f @param {Lane} lane @param {number} y @param {number} h @param {number} a @param {number} b */
function single(f, lane, y, h, a, b) {
  const {c, view, left, width, t0, k, chosen} = f, fill = deviceColour(lane.device), op = lane.kind === 'op', right = left + width;
  c.font = SMALL;
  for (let i = a; i < b; i++) {
    const x0 = Math.max(left, left + (lane.start[i] - t0) * k), x1 = Math.min(right, left + (lane.start[i] + lane.dur[i] - t0) * k);
    if (x1 < left || x0 > right) continue;
    const w = Math.max(x1 - x0 - (x1 - x0 > 7 ? 0.8 : 0), lane.dur[i] ? 0.7 : 0.4), critical = lane.flags[i] & CRITICAL;
    const out = op && chosen && !chosen[view.col.box[i]];
    c.globalAlpha = out || (f.dim && !critical) ? FAINT : op && lane.flags[i] & (BACKWARD | UPDATE) ? 0.78 : 1;
    c.fillStyle = fill;
    c.fillRect(x0, y, w, h);
    hatch(c, lane.device, x0, y, w, h);
    c.globalAlpha = 1;
    if (critical) { c.fillStyle = colour.ink; c.fillRect(x0, y + h - 2.5, w, 2.5); }
    if (op && i === f.slice) { c.strokeStyle = colour.ink; c.lineWidth = 2; c.strokeRect(x0 + 1, y + 1, Math.max(w - 2, 1), h - 2); }
    if (op && w > LABEL && h > 18 && !view.col.micro) {
      c.fillStyle = out || (f.dim && !critical) ? colour.ink : '#fff';
      c.textAlign = 'left';
      c.fillText(fittedText(c, view.col.names[view.col.op[i]], w - 8), x0 + 4, y + h / 2 - 1);
    }
  }
  return b - a;
}

/** Stretches of one micro-batch and phase in a lane. @param {import('stead/data').View} view @param {Lane} lane @returns {Turn[]} */
export function turnsOf(view, lane) {
  const micro = view.col.micro, turns = /** @type {Turn[]} */ ([]);
  for (let i = lane.lo; i < lane.hi; i++) {
    const back = (lane.flags[i] & BACKWARD) !== 0, last = turns[turns.length - 1], end = lane.start[i] + lane.dur[i];
    if (micro[i] === NO_MICROBATCH || !lane.dur[i]) continue;
    if (last && last.micro === micro[i] && last.back === back) last.end = end;
    else turns.push({begin: lane.start[i], end, micro: micro[i], back});
  }
  return turns;
}

/** Numbers of micro-batches over their stretches. @param {Frame} f @param {Turn[]} turns @param {number} y @param {number} h */
export function drawTurns(f, turns, y, h) {
  const {c, left, width, t0, k} = f;
  c.font = SMALL;
  c.textAlign = 'center';
  for (const turn of turns) {
    const x0 = Math.max(left, left + (turn.begin - t0) * k), x1 = Math.min(left + width, left + (turn.end - t0) * k);
    if (x1 - x0 < 3) continue;
    c.fillStyle = colour.card;
    c.fillRect(x0, y, 1, h);
    if (x1 - x0 < 14) continue;
    c.fillStyle = '#fff';
    c.fillText(`${turn.micro + 1}${turn.back && x1 - x0 > 24 ? '′' : ''}`, (x0 + x1) / 2, y + h / 2 - 1);
  }
}
