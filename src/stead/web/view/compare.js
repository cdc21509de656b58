// @ts-check
// Two plans of one model: what differs in numbers, and which boxes stand elsewhere.

import {html, nothing} from 'lit-html';
import {deviceName} from 'stead/bars';
import {bytes, change, count, counted, percent, seconds} from 'stead/units';

const MOVED = 0.005; // a box of which more than this share of the time is elsewhere

/** Boxes of the first plan that the second has elsewhere, by path, largest first. @param {import('stead/data').View} a @param {import('stead/data').View} b */
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
    if (share > MOVED) found.push({box, then, share, work: share * box.total});
  }
  return found.sort((x, y) => y.work - x.work);
}

/** @param {import('stead/data').View} a @param {import('stead/data').View} b @param {string[]} names @param {(box: number) => void} go */
export function compared(a, b, names, go) {
  const moved = movedBoxes(a, b).filter(({box}) => a.boxes[box.parent].open && !box.open), rows = [
    [a.head.unit === b.head.unit ? `per ${a.head.unit}` : `per ${a.head.unit} / per ${b.head.unit}`, a.head.value, b.head.value, seconds, change], ['bound', a.head.bound?.seconds, b.head.bound?.seconds, seconds, change],
    ['transfers', a.col.tten.length, b.col.tten.length, count, (/** @type {number} */ x) => `${x > 0 ? '+' : ''}${count(x)}`],
  ];
  const sameUnit = a.head.unit === b.head.unit;
  return html`<div class="compared"><div><table><thead><tr><th></th><th>${names[0]}</th><th>${names[1]}</th><th>difference</th></tr></thead><tbody>
    ${rows.map(([what, x, y, text, difference]) => html`<tr><td>${what}</td><td class="num">${x === null || x === undefined ? '–' : text(x)}</td><td class="num">${y === null || y === undefined ? '–' : text(y)}</td><td class="num">${x == null || y == null || !sameUnit ? '–' : difference(y - x)}</td></tr>`)}
    ${a.head.devices.map((device, d) => {
      const other = b.head.devices.find((one) => one.name === device.name);
      return html`<tr><td>${deviceName(device, d)} busy</td><td class="num">${percent(device.busy)}</td><td class="num">${other ? percent(other.busy) : '–'}</td><td></td></tr>
        <tr><td>${deviceName(device, d)} peak</td><td class="num">${bytes(device.peak)}</td><td class="num">${other ? bytes(other.peak) : '–'}</td><td></td></tr>`;
    })}</tbody></table></div>
    <div><h3>${moved.length ? `${counted(moved.length, 'box')} stand${moved.length > 1 ? '' : 's'} elsewhere` : 'Every box stands where it stood'}</h3>
      ${moved.length ? html`<table><thead><tr><th>box</th><th>moved</th><th>${names[0]}</th><th>${names[1]}</th></tr></thead><tbody>${moved.slice(0, 12).map(({box, then, share}) => html`<tr><td class="name"><button class="link" @click=${() => go(box.index)}>${box.path}</button></td><td class="num">${percent(share)}</td>
        <td>${[...box.seconds].map((s, d) => (s > 0 ? `${a.head.devices[d].letter} ${percent(s / box.total)} ` : ''))}</td><td>${then.map((/** @type {number} */ s, /** @type {number} */ d) => (s > 0 ? `${a.head.devices[d].letter} ${percent(s)} ` : ''))}</td></tr>`)}</tbody></table>${moved.length > 12 ? html`<p class="soft">and ${moved.length - 12} more, outlined in the picture of the model</p>` : nothing}` : nothing}</div></div>`;
}
