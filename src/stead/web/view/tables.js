// @ts-check
// Pictures as tables: the same facts and the same selection for whoever reads rather than looks. Only rows in sight exist.

import {html, render} from 'lit-html';
import {bytes, count, percent, seconds} from 'stead/units';

const ROW = 26, SEEN = 12;

export class Table {
  /**
   * @param {HTMLElement} host @param {string} title @param {string[]} columns
   * @param {() => {count: number, row: (i: number) => (string | number)[], chosen: (i: number) => boolean, pick: (i: number) => void}} rows
   */
  constructor(host, title, columns, rows) { this.host = host; this.title = title; this.columns = columns; this.rows = rows; this.isOpen = false; this.top = 0; this.draw(); }

  draw() {
    render(html`<button class="link twin" aria-expanded=${this.isOpen} @click=${() => { this.isOpen = !this.isOpen; this.top = 0; this.draw(); }}>${this.isOpen ? 'Hide the table' : 'Show as table'}</button>
      ${this.isOpen ? this.body() : ''}`, this.host);
  }

  body() {
    const {count: total, row, chosen, pick} = this.rows(), first = Math.max(0, Math.min(Math.floor(this.top / ROW), total - SEEN)), last = Math.min(total, first + SEEN + 2);
    const shown = Array.from({length: Math.max(0, last - first)}, (_, i) => first + i);
    return html`<div class="virtual" tabindex="0" role="region" aria-label=${this.title} @scroll=${(/** @type {any} */ e) => { if (Math.abs(e.target.scrollTop - this.top) >= ROW / 2) { this.top = e.target.scrollTop; this.draw(); } }}>
      <table aria-rowcount=${total}><thead><tr>${this.columns.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead><tbody>
        <tr class="gap" .style=${`height:${first * ROW}px`}></tr>
        ${shown.map((i) => html`<tr aria-rowindex=${i + 2} class=${chosen(i) ? 'chosen' : ''} @click=${() => pick(i)}>${row(i).map((cell, n) => (n === 0 ? html`<td class="name"><button class="link" @click=${() => pick(i)}>${cell}</button></td>` : html`<td class="num">${cell}</td>`))}</tr>`)}
        <tr class="gap" .style=${`height:${Math.max(0, total - last) * ROW}px`}></tr></tbody></table></div>`;
  }
}

/** Boxes that are drawn. @param {HTMLElement} host @param {import('stead/graph').Graph} graph */
export function boxTable(host, graph) {
  const {view, store} = graph, {devices} = view.head;
  return new Table(host, 'Boxes', ['box', 'operators', 'work', 'critical', 'weights', 'where'], () => ({
    count: graph.order.length, chosen: (i) => graph.order[i] === store.state.box, pick: (i) => store.select(graph.order[i]),
    row: (i) => {
      const box = view.boxes[graph.order[i]];
      return [box.path || box.name, count(box.ops), seconds(box.total), seconds(box.crit), bytes(box.weights),
        [...box.seconds].map((s, d) => (s > 0 ? `${devices[d].letter} ${percent(s / box.total)}` : '')).filter(Boolean).join(' ')];
    },
  }));
}

/** Operators as they ran; of the selected box, where there is one. @param {HTMLElement} host @param {import('stead/timeline').Timeline} timeline @param {(slice: number) => void} go */
export function sliceTable(host, timeline, go) {
  const {view, store} = timeline, {col, unit, head} = view;
  let of = -2, all = new Uint32Array(0), chosen = all;
  return new Table(host, 'Operators by start', ['operator', 'device', 'start', 'takes', 'critical'], () => {
    if (!all.length) all = Uint32Array.from(col.op, (_, i) => i).sort((a, b) => col.start[a] - col.start[b]); // only once somebody reads it
    if (store.state.box !== of) {
      of = store.state.box;
      const within = (/** @type {number} */ i) => { let b = col.box[i]; while (b > of) b = view.boxes[b].parent; return b === of; };
      chosen = of > 0 ? all.filter(within) : all;
    }
    return {
      count: chosen.length, chosen: (i) => chosen[i] === store.state.slice, pick: (i) => go(chosen[i]),
      row: (i) => { const s = chosen[i]; return [col.names[col.op[s]], head.devices[col.dev[s]].name, seconds(col.start[s] * unit), seconds(col.dur[s] * unit), col.flags[s] & 1 ? 'yes' : '']; },
    };
  });
}
