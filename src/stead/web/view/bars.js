// @ts-check
// The verdict, the devices and the simple rules: HTML only, so that texts never collide and everything can be read aloud.

import {html, nothing} from 'lit-html';
import {bytes, count, counted, percent, seconds} from 'stead/units';

/** @typedef {import('stead/data').Head} Head */

const SAME = 0.005, MOST_TIMES = 5;
/** @type {Record<string, string>} */
const STATES = {infeasible: 'does not work', beaten: 'beaten by a simple rule', indifferent: 'placement does not matter', proved: 'proved optimal', 'as good': 'a simple rule is as good', better: ''};

/** @param {number} d */
const swatch = (d) => html`<span class="swatch d${d % 8} ${d > 7 ? 'hatched' : ''}" aria-hidden="true"></span>`;

/** A device by colour, letter and name. @param {any} device @param {number} d */
export const deviceName = (device, d) => html`<span class="device">${swatch(d)}<b>${device.letter}</b> ${device.name}</span>`;

/** @param {Head} head */
export function verdict(head) {
  const {verdict: found, devices} = head, state = STATES[found.state];
  return html`
    <div class="said">
      <h1>${head.graph} <span class="soft">· ${counted(head.operators, 'operator')} on ${counted(devices.length, 'device')} · ${head.objective} · costs ${head.source}</span></h1>
      <p class="big num">${head.value === null ? 'cannot run' : seconds(head.value)} ${head.value === null ? nothing : html`<small>per ${head.unit}</small>`}
        ${state ? html`<span class="badge ${found.state === 'proved' ? 'good' : found.state === 'infeasible' || found.state === 'beaten' ? 'bad' : ''}">${state}</span>` : nothing}
        ${found.interrupted ? html`<span class="badge">interrupted</span>` : nothing}</p>
      ${found.problems.length ? html`<div class="problems" role="alert">
        ${found.remedies.length ? html`<p><b>What helps</b></p><ul>${found.remedies.map((/** @type {string} */ text) => html`<li>${text}</li>`)}</ul>` : nothing}
        <p><b>What is wrong</b></p><ul>${found.problems.map((/** @type {string} */ text) => html`<li>${text}</li>`)}</ul></div>` : nothing}
      <p class="claims">${(found.state === 'infeasible' ? [] : found.claims).map((/** @type {[string, string]} */ [strong, rest]) => html`<span><b class="num">${strong}</b> ${rest}</span>`)}</p>
    </div>
    ${head.value === null ? nothing : bullet(head)}`;
}

/** Where bars end: a rule that takes many times as long as the plan would leave nothing to see of the others. @param {Head} head @param {number} [worst] */
const scaleEnd = (head, worst = 0) => Math.max(head.value ?? 0, head.value ? Math.min(worst, MOST_TIMES * head.value) : worst, 1e-30) * 1.02;

/** The plan on one line with its bound and every rule. @param {Head} head */
function bullet(head) {
  const rules = head.rules.filter((rule) => rule.seconds !== null).sort((/** @type {any} */ a, /** @type {any} */ b) => a.seconds - b.seconds);
  const best = rules[0], worst = rules[rules.length - 1], top = scaleEnd(head, worst?.seconds), at = (/** @type {number} */ s) => `${Math.min(100, (s / top) * 100).toFixed(2)}%`;
  return html`<div class="bullet" role="img" aria-label=${`This plan takes ${seconds(head.value)}${head.bound ? `, no placement is below ${seconds(head.bound.seconds)}` : ''}${best ? `, the best rule takes ${seconds(best.seconds)}, the worst ${seconds(worst.seconds)}` : ''}.`}>
    <div class="track"><div class="plan" .style=${`width:${at(head.value)}`}></div>
      ${rules.map((/** @type {any} */ rule) => html`<i .style=${`left:${at(rule.seconds)}`} title=${`${rule.name}: ${seconds(rule.seconds)}`}></i>`)}
      ${head.bound ? html`<u .style=${`left:${at(head.bound.seconds)}`}></u>` : nothing}</div>
    <dl>${head.bound ? html`<div><dt class="k-bound">no placement below</dt><dd class="num">${seconds(head.bound.seconds)}</dd></div>` : nothing}
      <div><dt class="k-plan">this plan</dt><dd class="num">${seconds(head.value)}</dd></div>
      ${best ? html`<div><dt class="k-rule">best rule, ${best.name}</dt><dd class="num">${seconds(best.seconds)}</dd></div>
      <div><dt class="k-rule">worst rule, ${worst.name}</dt><dd class="num">${seconds(worst.seconds)}</dd></div>` : nothing}</dl></div>`;
}

/** Cards of devices: busy share, and memory as weights, caches and activations. @param {import('stead/data').View} view @param {import('stead/state').Store} store */
export function devices(view, store) {
  const {head} = view, shown = head.devices.map((device, d) => ({device, d})).filter((/** @type {any} */ one) => one.device.operators || head.devices.length <= 6);
  return html`<div class="devices">${shown.map((/** @type {any} */ {device, d}) => {
    const limit = device.limit ?? device.peak ?? 1, over = device.limit !== null && device.peak > device.limit, part = (/** @type {number} */ b) => `width:${Math.min(100, (b / Math.max(limit, 1)) * 100).toFixed(2)}%`;
    return html`<div class="dev"><p>${deviceName(device, d)} <span class="soft">${device.model}</span></p>
      <div class="meter"><span>busy</span><div class="bar"><div class="d${d % 8}" .style=${`width:${device.busy * 100}%`}></div></div><span class="num">${percent(device.busy)}</span></div>
      ${device.peak === null ? nothing : html`<div class="meter"><span>memory</span><div class="bar"><div class="d${d % 8} p1" .style=${part(device.weights)}></div><div class="d${d % 8} p2" .style=${part(device.kv)}></div><div class="d${d % 8} p3" .style=${part(device.activations)}></div></div>
      <span class="num ${over ? 'bad' : ''}">${bytes(device.peak)}${device.limit === null ? '' : ` of ${bytes(device.limit)}`}</span></div>
      <p class="split soft">weights ${bytes(device.weights)}${device.kv ? ` + KV ${bytes(device.kv)}` : ''} + activations ${bytes(device.activations)}
        ${device.blocks.length ? html`<button class="link" aria-expanded=${store.state.device === d} @click=${() => store.set({device: store.state.device === d ? -1 : d})}>at the peak</button>` : nothing}</p>`}
    </div>`;
  })}</div>${store.state.device >= 0 ? peak(head.devices[store.state.device], store.state.device) : nothing}`;
}

/** What lives when a device holds most. @param {any} device @param {number} d */
function peak(device, d) {
  return html`<div class="peak"><h3>At its peak of ${bytes(device.peak)}, ${deviceName(device, d)} holds</h3><table><thead><tr><th>block</th><th>kind</th><th>size</th><th>share</th></tr></thead>
    <tbody>${device.blocks.map((/** @type {[string, string, number]} */ [name, kind, size]) => html`<tr><td class="name">${name}</td><td>${kind}</td><td class="num">${bytes(size)}</td><td class="num">${percent(size / device.peak)}</td></tr>`)}</tbody></table>
    <p class="soft">The ten largest blocks.</p></div>`;
}

/** Rules beside the plan: those within half a percent share a row that can be opened; those that do not work come last. @param {Head} head */
export function rules(head) {
  const valued = head.rules.filter((rule) => rule.seconds !== null).sort((/** @type {any} */ a, /** @type {any} */ b) => a.seconds - b.seconds);
  /** @type {{seconds: number, rules: any[]}[]} */
  const groups = [];
  for (const rule of valued) {
    const last = groups[groups.length - 1];
    if (last && rule.seconds - last.seconds <= SAME * rule.seconds) last.rules.push(rule);
    else groups.push({seconds: rule.seconds, rules: [rule]});
  }
  /** @type {Map<string, string[]>} */
  const refused = new Map();
  for (const rule of head.rules) if (rule.seconds === null) refused.set(rule.reason, [...(refused.get(rule.reason) ?? []), rule.name]);
  const top = scaleEnd(head, valued[valued.length - 1]?.seconds), width = (/** @type {number} */ s) => `width:${Math.min(100, (s / top) * 100).toFixed(2)}%`;
  return html`<div class="rules">
    ${head.value === null ? nothing : html`<div class="row own"><span>this plan</span><div class="bar"><div class="plan" .style=${width(head.value)}></div></div><span class="num"><b>${seconds(head.value)}</b></span></div>`}
    ${groups.map((group) => {
      const [first, ...others] = group.rules, times = group.seconds / (head.value || Infinity), row = html`<span class="name">${first.name}${others.length ? html` <span class="soft">+${others.length}</span>` : nothing}</span>
        <div class="bar"><div class="rule ${group.seconds > top ? 'cut' : ''}" .style=${width(group.seconds)}></div></div><span class="num">${seconds(group.seconds)}${head.value ? html` <span class="soft">${times.toFixed(2)}×</span>` : nothing}</span>`;
      return others.length ? html`<details><summary class="row">${row}</summary><p class="soft">${group.rules.map((rule) => `${rule.name} ${seconds(rule.seconds)}`).join(' · ')}</p></details>` : html`<div class="row">${row}</div>`;
    })}
    ${[...refused].map(([reason, names]) => html`<div class="row refused"><span class="name">${names.join(', ')}</span><span class="soft">${reason}</span></div>`)}
  </div>${head.rules.length ? nothing : html`<p class="soft">No simple rule was run beside this plan.</p>`}
  <p class="soft">${!head.solver ? nothing : html`${count(head.evaluations)} placements were simulated by ${head.solver}${head.found_by && head.found_by !== head.solver ? ` (${head.found_by.startsWith('by ') ? 'placed' : 'found by'} ${head.found_by})` : ''}.`}</p>`;
}
