// @ts-check
// Links: what passes from device to device, as a matrix and as a list.

import {html, nothing} from 'lit-html';
import {deviceName} from 'stead/bars';
import {bytes, count, percent, rate, seconds} from 'stead/units';

const MOST = 10, LISTED = 24; // devices of a matrix; pairs of a list

/** @typedef {{from: number, to: number, bytes: number, transfers: number, seconds: number | null, bytes_per_second: number | null, latency_seconds: number | null}} Pair */

/** @param {import('stead/data').Head} head */
export function links(head) {
  /** @type {Pair[]} */
  const pairs = head.links, used = [...new Set(pairs.flatMap((one) => [one.from, one.to]))].sort((a, b) => a - b), most = pairs[0].bytes || 1;
  const busy = (/** @type {Pair} */ one) => (one.seconds === null ? '' : percent(Math.min(1, one.seconds / head.span_seconds)));
  const cell = (/** @type {Pair | undefined} */ one) => (one ? html`<td class="num" .style=${`background:color-mix(in srgb, var(--accent) ${(8 + 30 * Math.sqrt(one.bytes / most)).toFixed(0)}%, transparent)`}>${bytes(one.bytes)}<br><span>${busy(one)}</span></td>` : html`<td></td>`);
  return html`<div class="links">${used.length > MOST ? nothing : html`<div class="scroll"><table class="matrix" id="links"><thead><tr><th>from ↓ to →</th>${used.map((d) => html`<th>${head.devices[d].letter}</th>`)}</tr></thead><tbody>${used.map((a) => html`<tr><th scope="row">${deviceName(head.devices[a], a)}</th>${used.map((b) => cell(pairs.find((one) => one.from === a && one.to === b)))}</tr>`)}</tbody></table></div>`}
    <div class="scroll"><table><thead><tr><th>link</th><th>carries</th><th>transfers</th><th>busy</th><th>can carry</th><th>latency</th></tr></thead><tbody>${pairs.slice(0, LISTED).map((one) => html`<tr><td>${head.devices[one.from].letter} → ${head.devices[one.to].letter}</td><td class="num">${bytes(one.bytes)}</td><td class="num">${count(one.transfers)}</td><td class="num">${seconds(one.seconds)} <span class="soft">${busy(one)}</span></td><td class="num">${one.bytes_per_second === null ? '–' : rate(one.bytes_per_second)}</td><td class="num">${seconds(one.latency_seconds)}</td></tr>`)}</tbody></table>
    ${pairs.length > LISTED ? html`<p class="soft">and ${pairs.length - LISTED} pairs that carry less</p>` : nothing}</div></div>
    <p class="soft">Bytes per ${head.unit}${head.timed ? ', and the share of it in which it is busy' : ''}.</p>`;
}
