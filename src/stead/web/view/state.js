// @ts-check
// What the reader looks at: one small store that all panels share, kept in the fragment of the address so that it can be linked.

/**
 * @typedef {{box: number, slice: number, mode: string, dim: boolean, open: Set<number>, t0: number, t1: number, device: number}} State
 *   box and slice: -1 for none; device: whose memory peak is shown, -1 for none
 */

export const MODES = ['device', 'time', 'critical', 'memory', 'slack'];

export class Store {
  /** @param {import('stead/data').View} view */
  constructor(view) {
    this.view = view;
    /** @type {State} */
    this.state = {box: -1, slice: -1, mode: 'device', dim: false, open: new Set(view.boxes.filter((b) => b.open).map((b) => b.index)), t0: 0, t1: view.end, device: -1};
    /** @type {((changed: Partial<State>) => void)[]} */
    this.listeners = [];
  }

  /** @param {(changed: Partial<State>) => void} listener */
  listen(listener) { this.listeners.push(listener); }

  /** @param {Partial<State>} changed */
  set(changed) {
    Object.assign(this.state, changed);
    for (const listener of this.listeners) listener(changed);
  }

  /** Select a box, opening what hides it. @param {number} box */
  select(box) {
    const open = new Set(this.state.open);
    for (let b = box; b > 0; b = this.view.boxes[b].parent) if (b !== box) open.add(b);
    this.set({box, slice: -1, open});
  }

  /** Select one slice, and with it the box that is seen. @param {number} slice */
  selectSlice(slice) { this.set({slice, box: slice < 0 ? -1 : this.shown(this.view.col.box[slice])}); }

  /** The box that is drawn for a box: itself or the closed one around it. @param {number} box */
  shown(box) {
    const chain = [];
    for (let b = box; b > 0; b = this.view.boxes[b].parent) chain.unshift(b);
    return chain.find((b) => !this.state.open.has(b)) ?? box;
  }

  /** @param {number} box */
  toggle(box) {
    if (!this.view.boxes[box].children.length) return;
    const open = new Set(this.state.open);
    if (!open.delete(box)) open.add(box);
    this.set({open});
  }

  /** The fragment that says what is seen. */
  fragment() {
    const {box, mode, t0, t1} = this.state, said = new URLSearchParams();
    if (box > 0) said.set('box', String(box));
    if (mode !== 'device') said.set('by', mode);
    if (t1 - t0 < this.view.end * 0.9999) said.set('t', `${(t0 / this.view.end).toFixed(5)}-${(t1 / this.view.end).toFixed(5)}`);
    return said.toString();
  }

  /** @param {string} fragment */
  restore(fragment) {
    const said = new URLSearchParams(fragment), box = Number(said.get('box')), mode = said.get('by') ?? '', t = /^([\d.]+)-([\d.]+)$/.exec(said.get('t') ?? '');
    if (Number.isInteger(box) && box > 0 && box < this.view.boxes.length) this.select(box);
    if (MODES.includes(mode)) this.set({mode});
    if (t && Number(t[1]) < Number(t[2]) && Number(t[2]) <= 1.0001) this.set({t0: Number(t[1]) * this.view.end, t1: Math.min(1, Number(t[2])) * this.view.end});
  }
}
