// @ts-check
// Why: what the whole run would take if the selected box stood elsewhere, and the longest steps of the critical path.

import {html, nothing} from 'lit-html';
import {deviceName} from 'stead/bars';
import {bytes, change, counted, percent, seconds, shortened} from 'stead/units';

/** @typedef {import('stead/data').View} View */

/** The box that is spoken of: the selected one, else the one with the most time on the critical path. @param {View} view @param {import('stead/state').Store} store */
export function subject(view, store) {
  if (store.state.box > 0) return store.state.box;
  const seen = view.boxes.filter(({index}) => index && store.shown(index) === index && !store.state.open.has(index));
  return seen.reduce((a, b) => ((b.crit - a.crit || b.total - a.total) > 0 ? b : a), seen[0] ?? view.boxes[0]).index;
}

/** @param {View} view @param {import('stead/state').Store} store @param {(slice: number) => void} go */
export function inspector(view, store, go) {
  const index = subject(view, store), box = view.boxes[index], {head, col, unit} = view, {slice} = store.state;
  const outcomes = head.moves[String(index)], work = box.total || 1;
  return html`<div class="why"><div>
    <h2><span>Why: <b class="name">${box.path || head.graph}</b>${store.state.box > 0 ? nothing : html` <span class="soft">(has the most critical time; select another)</span>`}</span></h2>
    ${slice >= 0 ? html`<p>Operator <b class="name">${col.names[col.op[slice]]}</b> <span class="soft">${[col.kinds[col.kind[slice]], head.devices[col.dev[slice]].name, `${seconds(col.dur[slice] * unit)} from ${seconds(col.start[slice] * unit)}`, col.flags[slice] & 1 ? 'on the critical path' : ''].filter(Boolean).join(' · ')}</span></p>` : nothing}
    <p class="soft">${counted(box.ops, 'operator')} · ${seconds(box.total)} of work${head.timed ? `, ${seconds(box.crit)} of it on the critical path · runs ${seconds(box.begin * unit)} to ${seconds(box.end * unit)}` : ''} · weights ${bytes(box.weights)}${Number.isNaN(box.slack) ? '' : ` · ${box.slack ? `can be ${seconds(box.slack)}` : 'cannot be'} late`}</p>
    <table><thead><tr><th>if all of it stood on</th><th>now there</th><th>whole ${head.unit}</th><th>change</th><th>why</th></tr></thead><tbody>
      ${head.devices.map((device, d) => {
        const outcome = outcomes?.[d], difference = outcome && outcome[0] !== null && head.value !== null ? outcome[0] - head.value : null;
        return html`<tr><td>${deviceName(device, d)}</td><td class="num">${percent(box.seconds[d] / work)}</td>
          <td class="num">${!outcome ? 'not computed' : outcome[0] === null ? 'does not work' : seconds(outcome[0])}</td>
          <td class="num ${difference === null || difference === 0 ? '' : difference > 0 ? 'bad' : 'good'}">${difference === null ? '–' : change(difference)}</td><td>${outcome?.[1] ?? ''}</td></tr>`;
      })}</tbody></table>
    <p class="soft">Every line is re-simulated, none is guessed. Costs: ${head.source}.${head.moves_note ? ` Moves: ${head.moves_note}.` : ''}</p></div>
    ${head.critical.steps.length ? longest(view, go) : nothing}</div>`;
}

/** @param {View} view @param {(slice: number) => void} go */
function longest(view, go) {
  const {head, col} = view, {seconds: by, steps} = head.critical, total = by.operator + by.transfer + by.queue || 1;
  const find = (/** @type {any} */ step) => {
    for (let i = 0; i < col.op.length; i++) if (col.op[i] === step.op && col.start[i] === step.begin) return i;
    return -1;
  };
  return html`<div><h2>What the run waits for</h2>
    <p class="soft">Critical path: ${percent(by.operator / total)} operators${by.transfer ? `, ${percent(by.transfer / total)} transfers` : ''}${by.queue ? `, ${percent(by.queue / total)} waiting for links` : ''}. Its longest steps:</p>
    <table><tbody>${steps.map((/** @type {any} */ step) => html`<tr><td class="name">${step.op === null ? html`${step.kind === 'queue' ? 'queue behind ' : ''}${shortened(step.name, 70)}` : html`<button class="link" @click=${() => go(find(step))}>${shortened(step.name, 70)}</button>`}</td><td class="soft">${step.where}</td><td class="num">${seconds(step.seconds)}</td></tr>`)}</tbody></table></div>`;
}
