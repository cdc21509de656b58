// @ts-check
// Learning curves over updates: in Runs of the app, and in the report of a plan that a learner found.

import {html} from 'lit-html';
import {chart} from 'stead/history';
import {marks} from 'stead/scale';
import {count, seconds} from 'stead/units';

export * from 'stead/history';

const DRAWN = /** @type {const} */ ([['best', 's0', 'best drawn so far'], ['greedy', 's1', 'greedy'], ['mean', 's2', 'mean of an update']]);

/** Curves beside what does not change, bound and rules. @param {any[]} rows @param {(row: any, key: string) => number | null} get @param {{name: string, kind: string, value: any}[]} levels @param {(y: number) => string} yText @param {number} [width] */
export function learned(rows, get, levels, yText, width) {
  const first = rows[0].update, last = rows[rows.length - 1].update, known = levels.filter(({value}) => value), fixed = known.map((one) => one.value);
  const sorted = DRAWN.flatMap(([key]) => rows.map((row) => get(row, key))).filter((v) => v !== null).map(Number).sort((a, b) => a - b);
  const top = Math.max(sorted[Math.floor(sorted.length * 0.98)] ?? 1, ...fixed), low = Math.min(sorted[0] ?? 1, ...fixed), room = (top - low) * 0.06 || 0.05 * top, high = top + room;
  return html`${chart({title: `Learning curve over ${count(last)} updates`, x: [first, Math.max(last, first + 1)], y: [Math.max(0, low - room), high], width, ticks: marks(first, last, 1000, 120), xText: count, yText, lines: [
    ...known.map(({value, kind, name}) => ({points: /** @type {[number, number][]} */ ([[first, value], [last, value]]), kind, step: true, name})),
    ...[...DRAWN].reverse().map(([key, kind, name]) => ({points: /** @type {[number, number][]} */ (rows.filter((row) => get(row, key) !== null).map((row) => [row.update, Math.min(Number(get(row, key)), high)])), kind: `${kind} thin`, step: key === 'best', name}))]})}
    <p class="key">${DRAWN.map(([, kind, name]) => html`<span class="k-${kind}">${name}</span>`)}${known.map(({kind, name}) => html`<span class="k-${kind}">${name}</span>`)}</p>`;
}

/** What a learner drew on its way to this plan. @param {any} head */
export function learning({learning: l, rules, bound, unit}) {
  const best = Math.min(...rules.filter((/** @type {any} */ one) => one.seconds !== null).map((/** @type {any} */ one) => one.seconds));
  return html`<h3>Learning</h3>${learned(l.update.map((/** @type {number} */ update, /** @type {number} */ i) => ({update, i})), ({i}, key) => l[`${key}_seconds`][i], [{name: 'bound', kind: 'bound', value: bound?.seconds}, ...(best < Infinity ? [{name: 'best simple rule', kind: 'rule', value: best}] : [])], seconds)}
    <p class="soft">Per ${unit}, by update. Entropy: ${l.entropy[0]?.toFixed(3)} to ${l.entropy.at(-1)?.toFixed(3)} nats per choice.</p>`;
}
