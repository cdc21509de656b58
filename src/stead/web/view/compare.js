// @ts-check
// Two to four plans of one model: what differs in numbers, and which boxes stand elsewhere.

import {html, nothing} from 'lit-html';
import {deviceName} from 'stead/bars';
import {bytes, change, count, counted, percent, seconds, shortened} from 'stead/units';

/** @typedef {import('stead/data').View} View */

export const MOST_PLANS = 4;
const MOVED = 0.005; // a box of which more than this share of the time is elsewhere
const LISTED = 12;

/** Boxes of the first plan that another has elsewhere, and the share of time it has on each device there. @param {View} a @param {View} b */
export function movedBoxes(a, b) {
  const names = a.head.devices.map((device) => device.name), other = new Map(b.boxes.map((box) => [box.path, box])), at = b.head.devices.map((device) => names.indexOf(device.name));
  const found = [];
  for (const box of a.boxes) {
    const twin = other.get(box.path);
    if (!box.index || box.run || !twin || !box.total || !twin.total) continue;
    const then = names.map(() => 0);
    let gone = 0;
    twin.seconds.forEach((s, d) => { if (at[d] >= 0) then[at[d]] += s / twin.total; else gone += s / twin.total; });
    const share = (gone + names.reduce((/** @type {number} */ sum, /** @type {string} */ _, /** @type {number} */ d) => sum + Math.abs(then[d] - box.seconds[d] / box.total), 0)) / 2;
    if (share > MOVED) found.push({box, then, gone, work: share * box.total});
  }
  return found;
}

/** @param {View[]} views @param {string[]} names @param {(box: number) => void} go */
export function compared(views, names, go) {
  const [a, ...others] = views, head = (/** @type {string} */ first) => html`<thead><tr><th>${first}</th>${names.map((name) => html`<th title=${name}>${shortened(name, 32)}</th>`)}</tr></thead>`;
  /** A row: values of all plans, with what each differs from the first. @param {any} what @param {(view: View) => any} get @param {(x: number) => string} text @param {(x: number) => string} [difference] */
  const row = (what, get, text, difference) => html`<tr><td>${what}</td>${views.map((view) => {
    const x = get(a), y = get(view), known = y !== null && y !== undefined;
    return html`<td class="num">${known ? text(y) : '–'}${known && x != null && view !== a && difference && view.head.unit === a.head.unit ? html`<br><span class="soft">${difference(y - x)}</span>` : nothing}</td>`;
  })}</tr>`;
  const units = [...new Set(views.map((view) => view.head.unit))], more = (/** @type {number} */ x) => (x ? `${x > 0 ? '+' : '−'}${count(Math.abs(x))}` : '±0');
  /** @type {Map<number, {box: any, work: number, then: any[]}>} */
  const moved = new Map();
  others.forEach((view, i) => {
    for (const {box, work, ...rest} of movedBoxes(a, view)) {
      if (!a.boxes[box.parent].open || box.open) continue;
      const one = moved.get(box.index) ?? {box, work: 0, then: []};
      one.work = Math.max(one.work, work);
      one.then[i] = rest;
      moved.set(box.index, one);
    }
  });
  const rows = [...moved.values()].sort((x, y) => y.work - x.work), shares = (/** @type {number[]} */ list) => list.map((s, d) => (s > 0.0005 ? `${a.head.devices[d].letter} ${percent(s)} ` : ''));
  const devices = views.flatMap((view) => view.head.devices.map((device, d) => ({device, d}))).filter((one, i, all) => all.findIndex(({device}) => device.name === one.device.name) === i), of = (/** @type {View} */ view, /** @type {string} */ name) => view.head.devices.find((one) => one.name === name);
  return html`<div class="compared ${views.length > 2 ? 'many' : ''}"><div class="scroll"><table>${head('')}<tbody>
    ${row(units.map((unit) => `per ${unit}`).join(' / '), (view) => view.head.value, seconds, change)}${row('bound', (view) => view.head.bound?.seconds, seconds, change)}${row('transfers', (view) => view.col.tten.length, count, more)}
    ${devices.map(({device, d}) => html`${row(html`${deviceName(device, d)} busy`, (view) => of(view, device.name)?.busy, percent)}${row(html`${deviceName(device, d)} peak`, (view) => of(view, device.name)?.peak, bytes)}`)}</tbody></table></div>
    <div><h3>${rows.length ? `${counted(rows.length, 'box')} stand${rows.length > 1 ? '' : 's'} elsewhere` : 'Every box stands where it stood'}</h3>
      ${rows.length ? html`<div class="scroll"><table>${head('box')}<tbody>${rows.slice(0, LISTED).map(({box, then}) => html`<tr><td class="name"><button class="link" @click=${() => go(box.index)}>${shortened(box.path, 60)}</button></td><td>${shares([...box.seconds].map((s) => s / box.total))}</td>
        ${others.map((_, i) => html`<td>${then[i] ? html`${shares(then[i].then)}${then[i].gone > 0.0005 ? `${percent(then[i].gone)} elsewhere` : ''}` : html`<span class="soft">the same</span>`}</td>`)}</tr>`)}</tbody></table></div>${rows.length > LISTED ? html`<p class="soft">and ${rows.length - LISTED} more, outlined in the picture of the model</p>` : nothing}` : nothing}</div></div>`;
}
