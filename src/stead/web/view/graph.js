// @ts-check
// Where: the model as boxes within boxes. What is open is drawn around its parts; only what is in sight is drawn at all.

import {MODES} from 'stead/state';
import {SMALL, colour, deviceColour, fitted, fittedText, hatch} from 'stead/theme';
import {bytes, counted, percent, seconds} from 'stead/units';

const NARROW = 96, BROAD = 190, H = 22, GX = 10, GY = 11, PAD = 8, HEAD = 19;

/** @typedef {{x: number, y: number, w: number, h: number, open: boolean}} Place */

export class Graph {
  /**
   * @param {HTMLElement} scroller @param {HTMLCanvasElement} canvas @param {HTMLElement} spacer @param {import('stead/state').Store} store
   * @param {{tip: (e: PointerEvent | null, lines: string[]) => void, signal: AbortSignal}} host
   */
  constructor(scroller, canvas, spacer, store, host) {
    this.scroller = scroller; this.canvas = canvas; this.spacer = spacer; this.store = store; this.view = store.view; this.host = host;
    /** @type {Map<number, Place>} */
    this.places = new Map();
    /** @type {number[]} */
    this.order = [];
    /** @type {Set<number>} */
    this.outlined = new Set(); // boxes that another plan has elsewhere
    this.scale = 1;
    this.boxWidth = NARROW;
    this.height = 0;
    this.tall = 0; // 0: as tall as the panel
    this.arrange();
    this.listen();
  }

  /** Places of all boxes that are seen, and edges between closed ones. */
  arrange() {
    this.places.clear();
    this.order = [];
    const most = Math.max(1, ...[0, ...this.store.state.open].flatMap((box) => this.rows(box).map((row) => row.length)));
    this.boxWidth = Math.max(NARROW, Math.min(BROAD, (this.scroller.clientWidth - 40) / most - GX));
    const size = this.measure(0);
    this.width = size.w;
    this.height = size.h;
    this.place(0, 0, 0);
    this.order.sort((a, b) => this.at(a).y - this.at(b).y || this.at(a).x - this.at(b).x);
    this.frames = [...this.places.keys()].filter((box) => box && this.at(box).open).sort((a, b) => a - b); // outer ones first
    this.edges = this.joined();
    this.most = {
      time: Math.max(...this.order.map((b) => this.view.boxes[b].total), 1e-30), memory: Math.max(...this.order.map((b) => this.view.boxes[b].weights + this.view.boxes[b].out), 1),
      slack: Math.max(...this.order.map((b) => this.view.boxes[b].slack || 0), 1e-30),
    };
  }

  /** @param {number} box @returns {Place} */
  at(box) { return /** @type {Place} */ (this.places.get(box)); }

  /** @param {number} box */
  rows(box) {
    /** @type {number[][]} */
    const rows = [];
    for (const child of this.view.boxes[box].children) (rows[this.view.boxes[child].layer] ??= []).push(child);
    return rows.filter(Boolean).map((row) => row.sort((a, b) => this.view.boxes[a].x - this.view.boxes[b].x));
  }

  /** @param {number} box @returns {{w: number, h: number}} */
  measure(box) {
    const {open} = this.store.state, one = this.view.boxes[box];
    if (box && (!open.has(box) || !one.children.length)) { this.places.set(box, {x: 0, y: 0, w: this.boxWidth, h: H, open: false}); return this.at(box); }
    let w = 0, h = box ? HEAD : 0;
    for (const row of this.rows(box)) {
      const sizes = row.map((child) => this.measure(child));
      w = Math.max(w, sizes.reduce((sum, size) => sum + size.w, 0) + GX * (row.length - 1));
      h += Math.max(...sizes.map((size) => size.h)) + GY;
    }
    const place = {x: 0, y: 0, w: w + (box ? 2 * PAD : 0), h: h - GY + (box ? PAD : 0), open: true};
    this.places.set(box, place);
    return place;
  }

  /** @param {number} box @param {number} x @param {number} y */
  place(box, x, y) {
    const own = this.at(box);
    own.x = x;
    own.y = y;
    if (!own.open) { this.order.push(box); return; }
    y += box ? HEAD : 0;
    for (const row of this.rows(box)) {
      const places = row.map((child) => this.at(child));
      let left = x + (own.w - places.reduce((sum, place) => sum + place.w, 0) - GX * (row.length - 1)) / 2;
      const tallest = Math.max(...places.map((place) => place.h));
      row.forEach((child, i) => { this.place(child, left, y + (tallest - places[i].h) / 2); left += places[i].w + GX; });
      y += tallest + GY;
    }
  }

  /** Edges between boxes that are seen. */
  joined() {
    const shown = this.view.boxes.map((box) => this.store.shown(box.index)), found = new Map();
    for (const edge of this.view.edges) {
      const a = shown[edge.source], b = shown[edge.target];
      if (a === b) continue;
      const key = a * 65536 + b, one = found.get(key) ?? {source: a, target: b, bytes: 0, cross: 0};
      one.bytes += edge.bytes;
      one.cross += edge.cross;
      found.set(key, one);
    }
    this.widest = Math.max(1, ...[...found.values()].map((edge) => edge.bytes));
    return [...found.values()];
  }

  draw() {
    const width = this.scroller.clientWidth;
    this.scale = Math.max(0.62, Math.min(1.15, (width - 16) / Math.max(this.width ?? 1, 1)));
    const total = this.height * this.scale + 16, seen = this.tall || Math.min(total, this.limit());
    this.scroller.style.height = `${seen}px`;
    this.canvas.style.width = `${width}px`;
    const c = fitted(this.canvas, width, seen), wide = Math.max(width, (this.width ?? 0) * this.scale + 16);
    this.spacer.style.width = `${wide}px`;
    this.spacer.style.height = `${total}px`;
    this.spacer.style.marginTop = `${-seen}px`;
    this.dx = Math.max(8, (width - (this.width ?? 0) * this.scale) / 2) - this.scroller.scrollLeft;
    this.dy = 8 - this.scroller.scrollTop;
    c.translate(this.dx, this.dy);
    c.scale(this.scale, this.scale);
    const top = -this.dy / this.scale, bottom = (seen - this.dy) / this.scale;
    for (const box of this.frames ?? []) { const place = this.at(box); if (place.y < bottom && place.y + place.h > top) this.frame(c, box, place); }
    for (const edge of this.edges ?? []) this.edge(c, edge, top, bottom);
    for (const box of this.order) { const place = this.at(box); if (place.y < bottom && place.y + place.h > top) this.box(c, box, place); }
  }

  limit() { return window.innerWidth < 900 ? 460 : Math.max(420, Math.min(window.innerHeight * 0.82, 860)); }

  /** @param {CanvasRenderingContext2D} c @param {number} box @param {Place} place */
  frame(c, box, place) {
    c.beginPath();
    c.roundRect(place.x, place.y, place.w, place.h, 6);
    c.globalAlpha = 0.55;
    c.fillStyle = colour.wash;
    c.fill();
    c.globalAlpha = 1;
    c.strokeStyle = box === this.store.state.box ? colour.ink : colour.line;
    c.lineWidth = box === this.store.state.box ? 2.5 : 1;
    c.stroke();
    c.font = SMALL;
    c.textAlign = 'left';
    c.fillStyle = colour.soft;
    c.fillText(fittedText(c, `− ${this.view.boxes[box].name}`, place.w - 2 * PAD), place.x + PAD, place.y + HEAD / 2 + 1);
  }

  /** @param {CanvasRenderingContext2D} c @param {{source: number, target: number, bytes: number, cross: number}} edge @param {number} top @param {number} bottom */
  edge(c, edge, top, bottom) {
    const a = this.at(edge.source), b = this.at(edge.target), chosen = this.store.state.box;
    if (Math.min(a.y, b.y) > bottom || Math.max(a.y, b.y) + H < top) return;
    const on = chosen < 1 || edge.source === chosen || edge.target === chosen || this.at(chosen)?.open;
    const far = Math.abs(b.y - a.y) > 4 * (H + GY) && chosen < 1; // would cover what lies between
    c.globalAlpha = (on ? (edge.cross ? 0.95 : 0.5) : 0.1) * (far ? 0.4 : 1);
    c.strokeStyle = edge.cross ? colour.bad : colour.soft;
    c.lineWidth = 0.7 + 2.8 * Math.sqrt((edge.cross || edge.bytes) / (this.widest ?? 1));
    if (edge.cross) c.setLineDash([5, 3]);
    c.beginPath();
    const x0 = a.x + a.w / 2, x1 = b.x + b.w / 2, down = b.y >= a.y + a.h;
    if (down) {
      const bend = Math.min(26, (b.y - a.y - a.h) / 2 + 4);
      c.moveTo(x0, a.y + a.h);
      c.bezierCurveTo(x0, a.y + a.h + bend, x1, b.y - bend, x1, b.y);
    } else {
      const side = Math.max(a.x + a.w, b.x + b.w) + 14;
      c.moveTo(a.x + a.w, a.y + a.h / 2);
      c.bezierCurveTo(side, a.y + a.h / 2, side, b.y + b.h / 2, b.x + b.w, b.y + b.h / 2);
    }
    c.stroke();
    c.setLineDash([]);
    c.globalAlpha = 1;
  }

  /** @param {CanvasRenderingContext2D} c @param {number} index @param {Place} place */
  box(c, index, place) {
    const box = this.view.boxes[index], {mode} = this.store.state, chosen = this.store.state.box;
    const {x, y, w, h} = place;
    c.globalAlpha = 1;
    c.fillStyle = colour.card;
    c.beginPath();
    c.roundRect(x, y, w, h, 4);
    c.fill();
    c.save();
    c.clip();
    const dark = mode === 'device' && box.total > 0;
    if (chosen > 0 && chosen !== index && !this.at(chosen)?.open) c.globalAlpha = dark ? 0.72 : 0.5;
    if (dark) {
      let at = x;
      box.seconds.forEach((s, d) => {
        const part = (w * s) / box.total;
        c.fillStyle = deviceColour(d);
        c.fillRect(at, y, part, h);
        hatch(c, d, at, y, part, h);
        at += part;
      });
    } else {
      const share = mode === 'device' ? 0 : this.share(box, mode);
      c.fillStyle = colour.wash;
      c.fillRect(x, y, w, h);
      c.globalAlpha *= 0.75 * Math.max(0, Math.min(1, share));
      c.fillStyle = mode === 'slack' ? colour.good : mode === 'memory' ? deviceColour(3) : colour.bad;
      c.fillRect(x, y, w, h);
    }
    c.restore();
    c.globalAlpha = 1;
    const moved = this.outlined.has(index);
    c.lineWidth = index === chosen ? 2.5 : moved ? 2 : 1;
    c.strokeStyle = index === chosen || moved ? colour.ink : colour.line;
    if (moved && index !== chosen) c.setLineDash([4, 2]);
    c.beginPath();
    c.roundRect(x, y, w, h, 4);
    c.stroke();
    c.setLineDash([]);
    c.font = SMALL;
    c.fillStyle = dark ? '#fff' : colour.ink;
    c.textAlign = 'left';
    c.fillText(fittedText(c, `${box.children.length ? '+ ' : ''}${box.name}`, w - 28), x + 6, y + h / 2 + 0.5);
    if (mode === 'device' && box.total > 0) { // the letter of whoever has most of it: colour alone does not tell
      const most = box.seconds.indexOf(Math.max(...box.seconds));
      c.textAlign = 'right';
      c.fillText(this.view.head.devices[most].letter, x + w - 6, y + h / 2 + 0.5);
    }
  }

  /** @param {import('stead/data').Box} box @param {string} mode */
  share(box, mode) {
    const most = /** @type {any} */ (this.most);
    if (mode === 'time') return box.total / most.time;
    if (mode === 'critical') return box.crit / (box.total || 1);
    if (mode === 'memory') return (box.weights + box.out) / most.memory;
    return Number.isNaN(box.slack) ? 0 : box.slack / most.slack;
  }

  /** What a box is, in a few lines. @param {number} index */
  described(index) {
    const box = this.view.boxes[index], {devices} = this.view.head;
    const shares = [...box.seconds].map((s, d) => (s > 0 ? `${devices[d].letter} ${percent(s / box.total)}` : '')).filter(Boolean).join(', ');
    return [box.path || box.name, `${counted(box.ops, 'operator')} · ${seconds(box.total)}${shares ? ` · ${shares}` : ''}`,
      `weights ${bytes(box.weights)} · outputs ${bytes(box.out)} · critical ${seconds(box.crit)}${Number.isNaN(box.slack) ? '' : ` · slack ${seconds(box.slack)}`}`];
  }

  /** @param {MouseEvent} e */
  hit(e) {
    const r = this.canvas.getBoundingClientRect(), x = (e.clientX - r.left - (this.dx ?? 0)) / this.scale, y = (e.clientY - r.top - (this.dy ?? 0)) / this.scale;
    let found = -1;
    for (const [box, place] of this.places) if (box && x >= place.x && x <= place.x + place.w && y >= place.y && y <= place.y + place.h && (!place.open || y < place.y + HEAD)) found = box;
    return found;
  }

  listen() {
    const {canvas, store} = this, {signal} = this.host;
    canvas.addEventListener('pointermove', (e) => { const box = this.hit(e); this.host.tip(e, box > 0 ? this.described(box) : []); canvas.style.cursor = box > 0 ? 'pointer' : ''; }, {signal});
    canvas.addEventListener('pointerleave', () => this.host.tip(null, []), {signal});
    canvas.addEventListener('click', (e) => { const box = this.hit(e); if (e.detail < 2) store.set({box, slice: -1}); }, {signal});
    canvas.addEventListener('dblclick', (e) => { const box = this.hit(e); if (box > 0) store.toggle(box); }, {signal});
    this.scroller.addEventListener('scroll', () => this.draw(), {signal});
    canvas.addEventListener('keydown', (e) => { if (this.key(e)) { e.preventDefault(); e.stopPropagation(); } }, {signal});
  }

  /** @param {KeyboardEvent} e */
  key(e) {
    const {store, order} = this, {box, open} = store.state, now = order.indexOf(box);
    if (e.ctrlKey || e.metaKey || e.altKey) return false;
    const step = {ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1}[e.key];
    if (step) {
      const next = order[now < 0 ? 0 : Math.max(0, Math.min(order.length - 1, now + step))];
      store.set({box: next, slice: -1});
      this.reveal(next);
    } else if (e.key === 'Enter' && box > 0) {
      store.toggle(box);
      const {children} = this.view.boxes[box];
      if (store.state.open.has(box) && children.length) { store.set({box: this.order.find((b) => this.view.boxes[b].parent === box) ?? box}); this.reveal(store.state.box); }
    } else if (e.key === 'Backspace' && box > 0) {
      const up = open.has(box) ? box : this.view.boxes[box].parent;
      if (up > 0) { store.toggle(up); store.set({box: up, slice: -1}); this.reveal(up); }
    } else if (/^[1-9]$/.test(e.key)) {
      const mode = MODES[Number(e.key) - 1];
      if (mode) store.set({mode});
    } else return false;
    return true;
  }

  /** Scroll so that a box is seen. @param {number} box */
  reveal(box) {
    const place = this.places.get(box);
    if (!place) return;
    const y = place.y * this.scale + 8, {scroller} = this;
    if (y < scroller.scrollTop) scroller.scrollTop = y - 20;
    else if (y + H > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = y + H + 20 - scroller.clientHeight;
  }

  summary() {
    const top = this.order.length, crossing = (this.edges ?? []).filter((edge) => edge.cross).length;
    return `${counted(this.view.head.operators, 'operator')} folded into ${counted(top, 'box')}; ${counted(crossing, 'edge')} between them ${crossing === 1 ? 'crosses' : 'cross'} to another device.`;
  }
}
