// @ts-check
// How the search went, and how sensitive its answer is: small charts as SVG.

import {html, nothing, svg} from 'lit-html';
import {marks} from 'stead/scale';
import {count, percent, seconds} from 'stead/units';

const H = 200, LEFT = 62, RIGHT = 12, TOP = 12, BOTTOM = 26;

/**
 * A chart of lines on shared axes.
 * @param {{title: string, x: [number, number], y: [number, number], ticks: number[], log?: boolean, xText: (x: number) => string, yText?: (y: number) => string, width?: number, lines: {points: [number, number][], kind: string, step?: boolean, name: string}[]}} given
 */
export function chart({title, x, y, ticks, log = false, xText, yText = seconds, width = 640, lines}) {
  const W = window.innerWidth < 900 ? 360 : width; // so that letters are as large as those around
  const to = (/** @type {number} */ v) => (log ? Math.log(v) : v), span = to(x[1]) - to(x[0]) || 1, tall = y[1] - y[0] || 1;
  const px = (/** @type {number} */ v) => LEFT + ((to(v) - to(x[0])) / span) * (W - LEFT - RIGHT), py = (/** @type {number} */ v) => TOP + (1 - (v - y[0]) / tall) * (H - TOP - BOTTOM);
  return html`<svg class="chart" viewBox="0 0 ${W} ${H}" role="img" aria-label=${title}>
    ${marks(y[0], y[1], H - TOP - BOTTOM, 36).map((v) => svg`<line class="grid" x1=${LEFT} x2=${W - RIGHT} y1=${py(v)} y2=${py(v)}/><text x=${LEFT - 6} y=${py(v) + 4} text-anchor="end">${yText(v)}</text>`)}
    ${ticks.map((v) => svg`<text x=${px(v)} y=${H - 8} text-anchor=${px(v) > W - 40 ? 'end' : 'middle'}>${xText(v)}</text>`)}
    ${lines.map(({points, kind, step, name}) => {
      let path = '';
      points.forEach(([a, b], i) => { path += i === 0 ? `M${px(a).toFixed(1)} ${py(b).toFixed(1)}` : step ? `H${px(a).toFixed(1)}V${py(b).toFixed(1)}` : `L${px(a).toFixed(1)} ${py(b).toFixed(1)}`; });
      return svg`<path class=${kind} d=${path}><title>${name}</title></path>${step ? nothing : points.map(([a, b]) => svg`<circle class=${kind} cx=${px(a)} cy=${py(b)} r="2.5"><title>${`${name}: ${xText(a)}, ${yText(b)}`}</title></circle>`)}`;
    })}</svg>`;
}

/** Incumbent and bound over time. @param {any} head */
export function history(head) {
  /** @type {any[][]} */
  const all = head.trail, trail = all.filter((step) => step[2] !== null);
  if (!trail.length) return html`<p class="soft">This plan's file holds no steps of a search.</p>`;
  const timed = trail[trail.length - 1][0] > 0, at = (/** @type {any[]} */ step) => Math.max(timed ? step[0] : step[1], timed ? 1e-4 : 1), end = Math.max(timed ? head.elapsed_seconds : head.evaluations, at(trail[trail.length - 1]), 1e-9);
  const begin = Math.max(at(trail[0]), end * 1e-6), bound = head.bound?.seconds ?? 0;
  const along = (/** @type {number} */ key) => /** @type {[number, number][]} */ (trail.filter((step) => key < 3 || step[key] > 0).map((step) => [at(step), step[key]]));
  const found = along(2), proved = along(3), last = found[found.length - 1]?.[1] ?? 0;
  if (bound) proved.push([end, bound]);
  const high = Math.max(...found.map((p) => p[1])), low = Math.min(last, ...proved.map((p) => p[1])), top = high + 0.08 * (high - low) + 1e-12;
  const by = [...new Map(trail.map((step) => [step[4] || head.solver, step])).entries()];
  return html`${chart({title: `The best plan fell to ${seconds(last)}${bound ? `, the bound rose to ${seconds(bound)}` : ''}`, x: [begin, end], y: [low * 0.995, top], log: true, ticks: Array.from({length: 12}, (_, i) => 10 ** (Math.ceil(Math.log10(begin)) + i)).filter((v) => v <= end), xText: (v) => (timed ? seconds(v) : count(v)), lines: [
    ...(proved.length ? [{points: proved, kind: 'bound', step: true, name: 'bound'}] : []), {points: [...found, [end, last]], kind: 'plan', step: true, name: 'best plan'}]})}
    <p class="key"><span class="k-plan">best plan</span>${bound ? html`<span class="k-bound">bound</span>` : nothing} <span class="soft">over ${timed ? 'time' : 'simulated placements'}${head.stopped_by ? `; ended: ${head.stopped_by}` : ''}</span></p>
    <table><thead><tr><th>last step found by</th><th>after</th><th>placements</th><th>per ${head.unit}</th></tr></thead><tbody>${by.slice(-6).map(([name, step]) => html`<tr><td>${name}</td><td class="num">${timed ? seconds(step[0]) : '–'}</td><td class="num">${count(step[1])}</td><td class="num">${seconds(step[2])}</td></tr>`)}</tbody></table>`;
}

/** @typedef {{name: string, what: string, factors: number[], amounts: number[], seconds: (number | null)[]}} Curve */

/** Points of a curve that work. @param {number[]} xs @param {(number | null)[]} ys */
const worked = (xs, ys) => /** @type {[number, number][]} */ (xs.map((x, i) => [x, ys[i]]).filter((point) => point[1] !== null));

/** This placement at other batches and contexts. @param {any} head */
export function sizes(head) {
  /** @type {Curve[]} */
  const curves = head.sizes;
  return curves.map(({what, amounts, seconds: values}) => {
    const points = worked(amounts, values);
    return html`${chart({title: `The same placement at another ${what}`, x: [amounts[0], amounts[amounts.length - 1]], y: [0, Math.max(...points.map((p) => p[1])) * 1.06], log: true, ticks: amounts, xText: count, lines: [{name: `per ${head.unit}`, kind: 's0', points}]})}
      <div class="scroll"><table><thead><tr><th>${what}</th>${amounts.map((a) => html`<th>${count(a)}</th>`)}</tr></thead><tbody><tr><td>per ${head.unit}</td>${values.map((s) => html`<td class="num">${s === null ? 'does not fit' : seconds(s)}</td>`)}</tr>
      ${what === 'batch' && head.unit === 'step' ? html`<tr><td>per sample</td>${values.map((s, i) => html`<td class="num">${s === null ? '–' : seconds(s / amounts[i])}</td>`)}</tr>` : nothing}</tbody></table></div>`;
  });
}

/** This placement with other devices and links. @param {any} head */
export function sensitivity(head) {
  /** @type {Curve[]} */
  const curves = head.sensitivity;
  if (!curves.length) return html`<p class="soft">${head.patch ? 'Save this plan for its curves.' : 'No curve was computed.'}</p>`;
  const of = (/** @type {Curve} */ curve) => worked(curve.factors, curve.seconds).map((p) => p[1]), spread = (/** @type {Curve} */ curve) => Math.max(...of(curve)) - Math.min(...of(curve)), values = curves.flatMap(of);
  const most = [...curves].sort((a, b) => spread(b) - spread(a)).slice(0, 4), low = Math.min(...values), high = Math.max(...values), room = (high - low) * 0.06 || high * 0.02;
  return html`${chart({title: 'The same placement where a part of the machine is slower or faster', x: [0.25, 4], y: [low - room, high + room], log: true, ticks: [0.25, 0.5, 1, 2, 4], xText: (v) => `${v}×`,
    lines: most.map((curve, i) => ({name: `${curve.name}, ${curve.what}`, kind: `s${i}`, points: worked(curve.factors, curve.seconds)}))})}
    <p class="key">${most.map((curve, i) => html`<span class="k-s${i}">${curve.name}, ${curve.what}</span>`)}</p>
    <table><thead><tr><th>if this were</th><th>half</th><th>double</th></tr></thead><tbody>${curves.map((curve) => html`<tr><td>${curve.name}, ${curve.what}</td>${[0.5, 2].map((factor) => {
      const s = curve.seconds[curve.factors.indexOf(factor)];
      return html`<td class="num">${s === null || head.value === null ? '–' : html`${seconds(s)} <span class="soft">${Math.abs(s / head.value - 1) < 0.0005 ? '±0' : `${s > head.value ? '+' : '−'}${percent(Math.abs(s / head.value - 1))}`}</span>`}</td>`;
    })}</tr>`)}</tbody></table>
    <p class="soft">The same placement, re-simulated; a new search may find a better one. <code>stead what-if</code> does both.</p>`;
}
