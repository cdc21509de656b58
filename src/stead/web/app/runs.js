// @ts-check
// Runs: learning curves of `stead train`, live, with the bound as a dashed line; results of `stead bench` as they come.

import {html, nothing, render} from 'lit-html';
import {get, hear, OVER, oneAtATime, post} from 'app/api';
import {shellWords, trouble} from 'app/parts';
import {learned} from 'stead/learning';
import {count, percent, seconds} from 'stead/units';

const POLL = 2000, MOST = 600; // milliseconds between looks at a file; points of a curve that are drawn

/** @param {HTMLElement} root @param {string} [chosen] */
export async function runsScreen(root, chosen = '') {
  const [info, {runs}] = await Promise.all([get('/info'), get('/runs')]);
  /** @type {any} */
  const state = {runs, id: chosen || runs[0]?.id || '', rows: [], results: [], lines: {}, tail: 0, tables: '', job: null, error: null, bench: {suite: info.suites[0] ?? '', solvers: '', budgets: '', only: ''}, form: {policy: info.learned[0] ?? '', model: 'zoo:inception-v3', devices: '3090,3060', updates: 100}};
  const run = () => state.runs.find((/** @type {any} */ one) => one.id === state.id);
  const drawn = () => render(screen(info, state, run(), acts), root);
  const more = oneAtATime(async () => {
    if (!state.id) return;
    try {
      for (let go = true; go;) {
        const found = await get(`/run?id=${encodeURIComponent(state.id)}&after=${state.tail}`);
        state.rows.push(...found.rows); state.results.push(...found.results);
        Object.assign(state.lines, found.lines);
        state.tail = found.tail;
        go = found.more;
      }
      state.error = null;
    } catch (error) { state.error = error; }
    drawn();
  });
  const acts = {
    set: (/** @type {any} */ values) => { Object.assign(state.form, values); drawn(); },
    asked: (/** @type {any} */ values) => { Object.assign(state.bench, values); drawn(); },
    benched: () => acts.act(async () => {
      const {suite, only, ...rest} = state.bench, given = Object.fromEntries(Object.entries(rest).filter(([, value]) => value));
      const {job} = await post('/jobs', {verb: 'bench', suite, ...given, ...(only ? {only: [only]} : {}), title: `bench ${suite}`, again: true});
      location.hash = `#/runs/job:${job}`;
    }),
    act: async (/** @type {() => Promise<any>} */ what) => { try { await what(); state.error = null; } catch (error) { state.error = error; } drawn(); },
    train: () => acts.act(async () => {
      const {policy, model, devices, updates} = state.form;
      const {job} = await post('/jobs', {verb: 'train', policy, graphs: [model], devices, updates: Number(updates), title: `train ${policy} on ${model.replace(/^zoo:/, '')}`});
      location.hash = `#/runs/job:${job}`;
    }),
    job: (/** @type {string} */ what) => acts.act(async () => {
      const {job, state: now} = await post(`/jobs/${state.id.slice(4)}/${what}`);
      if (job) location.hash = `#/runs/job:${job}`; else if (now) { const one = run(); if (one) one.state = now; }
    }),
  };
  const told = async () => { // how a job of the app was asked for, and the tables that a benchmark ends with
    if (!state.id.startsWith('job:')) return;
    const name = state.id.slice(4), {events, ...job} = await get(`/jobs/${name}`);
    state.job = job;
    state.total = events.find((/** @type {any} */ e) => e.kind === 'begin')?.runs ?? state.total;
    if (job.verb === 'bench' && OVER.includes(job.state)) state.tables = (await get(`/jobs/${name}/result`).catch(() => ({text: ''}))).text;
    drawn();
  };
  const renewed = async () => { state.runs = (await get('/runs')).runs; drawn(); };
  const deaf = await hear((event) => {
    if (event.kind === 'job') renewed().catch(() => {});
    if (`job:${event.job}` === state.id) { more(undefined); if (['job', 'begin'].includes(event.kind)) told().catch(() => {}); }
  });
  const looking = setInterval(() => { if (state.id.startsWith('file:')) more(undefined); }, POLL);
  drawn();
  await more(undefined);
  await told().catch(() => {});
  return () => { deaf(); clearInterval(looking); };
}

/** @param {any} info @param {any} state @param {any} run @param {any} acts */
function screen(info, state, run, acts) {
  const {form} = state, field = (/** @type {string} */ name) => (/** @type {any} */ e) => acts.set({[name]: e.target.value});
  return html`<div class="screen runs">
    <section class="card wide" aria-label="Run"><h2><span class="name">${run ? run.name : 'Runs'}</span>${run?.state ? html`<span><span class="state ${run.state}" id="state">${run.state}</span>
      ${['queued', 'running'].includes(run.state) ? html`<button id="stop" @click=${() => acts.job('stop')}>Stop and keep what there is</button>` : OVER.includes(run.state) && run.state !== 'done' ? html`<button id="resume" @click=${() => acts.job('resume')}>Resume</button>` : nothing}</span>` : nothing}</h2>
      ${state.error ? trouble(state.error) : nothing}
      ${!run ? html`<p class="soft">No run is known yet. Train below, or start <code>stead ui</code> in a folder that holds logs of <code>stead train</code> or <code>stead bench --json</code>.</p>` : run.kind === 'bench' ? results(state, run) : curves(state, run)}
      ${state.job?.command?.length ? html`<details><summary class="soft">the same in a shell</summary><pre>${shellWords(state.job.command)}</pre></details>` : nothing}</section>
    <section class="card" aria-label="All runs"><h2>All runs</h2>${state.runs.length ? html`<table class="list"><tbody>${state.runs.map((/** @type {any} */ one) => html`<tr><td class="name"><a href=${`#/runs/${encodeURIComponent(one.id)}`} aria-current=${one.id === state.id ? 'true' : nothing}>${one.name}</a></td><td>${one.kind}</td><td><span class="state ${one.state}">${one.state || 'file'}</span></td></tr>`)}</tbody></table>` : html`<p class="soft">None.</p>`}</section>
    <div class="stack"><section class="card" aria-label="Train"><h2>Train a policy</h2><div class="line">
      <label class="field">policy <select id="policy" @change=${field('policy')}>${info.learned.map((/** @type {string} */ one) => html`<option ?selected=${one === form.policy}>${one}</option>`)}</select></label>
      <label class="field grow">on <input class="grow" type="text" id="graph" list="models" .value=${form.model} @change=${field('model')}></label><datalist id="models">${info.zoo.map((/** @type {string} */ one) => html`<option value=${`zoo:${one}`}></option>`)}</datalist></div>
      <div class="line"><label class="field grow">devices <input class="grow" type="text" .value=${form.devices} @change=${field('devices')}></label><label class="field">updates <input type="number" id="updates" min="1" .value=${String(form.updates)} @change=${field('updates')}></label>
      <button class="primary" id="train" @click=${acts.train}>Train</button></div><p class="soft">The same as <code>stead train</code>; needs the extra <code>torch</code>.</p></section>
    ${benchForm(info, state.bench, acts)}</div></div>`;
}

/** @param {any} info @param {any} bench @param {any} acts */
function benchForm(info, bench, acts) {
  const text = (/** @type {string} */ name, /** @type {string} */ label, /** @type {string} */ hint) => html`<label class="field grow">${label} <input class="grow" type="text" id=${`bench-${name}`} placeholder=${hint} .value=${bench[name]} @change=${(/** @type {any} */ e) => acts.asked({[name]: e.target.value.trim()})}></label>`;
  return html`<section class="card" aria-label="Bench"><h2>Compare solvers</h2>
    <div class="line"><label class="field">suite <select id="suite" @change=${(/** @type {any} */ e) => acts.asked({suite: e.target.value})}>${info.suites.map((/** @type {string} */ one) => html`<option ?selected=${one === bench.suite}>${one}</option>`)}</select></label>${text('solvers', 'solvers', 'those of the suite')}</div>
    <div class="line">${text('only', 'only', 'instances whose names hold this')}${text('budgets', 'seconds', '1,10')}<button class="primary" id="bench" @click=${acts.benched}>Run</button></div><p class="soft">The same as <code>stead bench</code>; smoke takes a minute, others far longer.</p></section>`;
}

/** At most so many rows, the last one among them. @param {any[]} rows */
const thinned = (rows) => (rows.length <= MOST ? rows : rows.filter((_, i) => i % Math.ceil(rows.length / MOST) === 0 || i === rows.length - 1));

/** @param {any} state @param {any} run */
function curves(state, run) {
  const {rows, lines} = state, last = rows[rows.length - 1];
  if (!last) return html`<p class="soft" role="status">${OVER.includes(run.state) ? 'It ended before the first update.' : 'Waiting for the first update.'} ${run.id.startsWith('job:') ? html`<a href=${`#/solving/${run.id.slice(4)}`}>What it says</a>` : nothing}</p>`;
  const {bound, start, ...rules} = lines, best = Object.entries(rules).sort((a, b) => a[1] - b[1])[0], gap = bound && last.best ? 1 - bound / last.best : null;
  return html`<div class="gapline" role="status"><div><p>update</p><div class="big" id="update">${count(last.update)}</div></div><div><p>best drawn, of the reference</p><div class="big">${last.best === null ? '–' : last.best.toFixed(4)}</div></div>
      <div><p>at most left to gain</p><div class="big" id="above">${gap === null ? '–' : percent(Math.max(0, gap))}</div></div><div><p>entropy</p><div>${last.entropy === null ? '–' : last.entropy.toFixed(3)}</div></div><div><p>evaluations</p><div>${count(last.evaluations ?? 0)}</div></div>${last.alarms ? html`<div><p>alarms of collapse</p><div class="bad">${count(last.alarms)}</div></div>` : nothing}${last.at ? html`<div><p>updates a second</p><div>${(rows.length / last.at).toPrecision(2)}</div></div>` : nothing}</div>
    ${learned(thinned(rows), (row, key) => row[key], [{name: `best simple rule: ${best?.[0]}`, kind: 'rule', value: best?.[1]}, {name: 'bound: nothing can be below', kind: 'bound', value: bound}], (v) => `${Number(v.toPrecision(4))}`, 1120)}
    <p class="soft">Run time over that of the reference, by update.${bound ? '' : ' This log holds no bound: it was written by an earlier version.'}</p>`;
}

/** @param {any} state @param {any} run */
function results({results: rows, total, tables, job}, run) {
  const failed = job && ['failed', 'lost'].includes(run.state) ? html`<div class="alarm" role="alert"><p class="bad">${job.message || 'It ended before it was done.'}</p></div>` : nothing;
  if (!rows.length) return html`${failed}<p class="soft" role="status">${OVER.includes(run.state) ? 'No run has finished.' : 'No run has finished yet.'}</p>`;
  return html`${failed}${total ? html`<p role="status"><b id="finished">${count(rows.length)}</b> of ${count(total)} runs have finished.</p>` : nothing}<div class="scroll"><table class="list"><thead><tr><th>instance</th><th>solver</th><th class="num">seed</th><th class="num">value</th><th class="num">bound</th><th class="num">CPU</th><th></th></tr></thead><tbody>${rows.slice(-200).reverse().map((/** @type {any} */ row) => html`<tr><td class="name">${row.instance}</td><td>${row.solver}</td><td class="num">${row.seed ?? ''}</td><td class="num">${row.value_seconds === null || row.value_seconds === undefined ? '–' : seconds(row.value_seconds)}</td><td class="num">${row.bound_seconds ? seconds(row.bound_seconds) : '–'}</td><td class="num">${row.cpu_seconds ? seconds(row.cpu_seconds) : ''}</td><td class=${row.status === 'ok' ? '' : 'bad'}>${row.status === 'ok' ? '' : row.status} ${row.reason ?? ''}</td></tr>`)}</tbody></table></div>${rows.length > 200 ? html`<p class="soft">The last 200 of ${count(rows.length)} runs.</p>` : nothing}
    ${tables ? html`<h3>In the end</h3><div class="scroll"><pre class="tables" id="tables">${tables}</pre></div>` : nothing}`;
}
