// @ts-check
// Small parts that several screens share.

import {html, nothing, svg} from 'lit-html';
import {Refused} from 'app/api';
import {percent, seconds} from 'stead/units';

/** An error as a sentence with what to do. @param {unknown} error */
export function trouble(error) {
  const said = error instanceof Error ? error.message : String(error), hint = error instanceof Refused ? error.hint : '';
  return html`<div class="alarm" role="alert"><p class="bad">${said}</p>${hint ? html`<p class="soft">${hint}</p>` : nothing}</div>`;
}

/** Let the browser keep bytes as a file. @param {ArrayBuffer} data @param {string} name @param {string} type */
export function saved(data, name, type) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([data], {type}));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

/** A command as it can be pasted into a shell, word by word. @param {string[]} command */
export const shellWords = (command) => command.map((part) => html`<span class="word">${/^[\w:./=,@%+-]+$/.test(part) ? part : `'${part.replaceAll("'", "'\\''")}'`}</span> `);

/** @param {number} t */
export const clock = (t) => `${Math.floor(t / 60)}:${String(Math.floor(t % 60)).padStart(2, '0')}`;

/** @param {number | null} value @param {number | null} bound */
export const gapOf = (value, bound) => (value && bound ? Math.max(0, 1 - bound / value) : null);

/** Steps of value and bound over time. @param {{t: number, value: number | null, bound: number | null}[]} points @param {number} end */
export function steps(points, end) {
  const W = Math.max(300, Math.min(1384, document.documentElement.clientWidth - 64)), H = 230, L = 64, R = 12, T = 12, B = 26;
  const known = points.filter((p) => p.value !== null || p.bound !== null);
  if (!known.length) return html`<p class="soft">Nothing has been found yet.</p>`;
  const values = known.flatMap((p) => [p.value, p.bound]).filter((v) => v !== null).map(Number);
  let top = Math.max(...values), low = Math.min(...values);
  const best = Math.min(...known.map((p) => p.value ?? Infinity));
  if (Number.isFinite(best)) top = Math.min(top, best * 1.6);
  const pad = (top - low || top || 1) * 0.08;
  top += pad; low = Math.max(0, low - pad);
  const last = Math.max(end, known[known.length - 1].t, 1e-3), x = (/** @type {number} */ t) => L + ((W - L - R) * t) / last, y = (/** @type {number} */ v) => T + (H - T - B) * (1 - (Math.min(v, top) - low) / (top - low));
  const path = (/** @type {'value' | 'bound'} */ key) => {
    const own = known.filter((p) => p[key] !== null);
    return own.map((p, i) => `${i ? `H${x(p.t).toFixed(1)}V` : `M${x(p.t).toFixed(1)} `}${y(Number(p[key])).toFixed(1)}`).join('') + (own.length ? `H${x(last).toFixed(1)}` : '');
  };
  const marks = [0, 1, 2, 3].map((i) => low + ((top - low) * i) / 3);
  return html`<svg class="plot" width=${W} height=${H} viewBox="0 0 ${W} ${H}" role="img" aria-label="Value and bound over time">
    ${marks.map((v) => svg`<line x1=${L} x2=${W - R} y1=${y(v)} y2=${y(v)}></line><text x=${L - 6} y=${y(v) + 4} text-anchor="end">${seconds(v)}</text>`)}
    <path class="bound" d=${path('bound')}></path><path class="value" d=${path('value')}></path>
    <text x=${L} y=${H - 6}>0</text><text x=${W - R} y=${H - 6} text-anchor="end">${last.toFixed(last < 10 ? 1 : 0)} s</text></svg>
    <p class="key"><span class="k-plan">best so far</span><span class="k-bound">bound: nothing can be below</span></p>`;
}

/** @param {number | null} gap */
export const gapText = (gap) => (gap === null ? '–' : gap === 0 ? '0 %' : percent(gap));
