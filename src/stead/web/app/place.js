// @ts-check
// Place: a model, a cluster, what fits before anything is solved, and the goal.

import {html, nothing, render} from 'lit-html';
import {bytesOf, get, post, upload} from 'app/api';
import {clusterEditor} from 'app/cluster';
import {saved, trouble} from 'app/parts';
import {bytes, count, shortened} from 'stead/units';

const KEPT = 'stead.place';
const GOALS = [['latency', 'one step as soon as possible'], ['throughput', 'as many samples as possible'], ['both', 'both, one after the other']];

/** @param {HTMLElement} root @param {string} [source]  a model to begin with: zoo:NAME or a path */
export async function placeScreen(root, source = '') {
  const info = await get('/info');
  /** @type {any} */
  const state = {zoo: '', path: '', batch: '', context: '', phase: '', devices: '3090,3060', objective: 'latency', solver: 'auto', seconds: 20, pins: '', settings: '', filter: '', both: true, last: '', ...kept(), model: null, checked: null, fit: null, reading: false, busy: false, errors: {}};
  const drawn = () => render(screen(info, state, acts), root);
  const attempt = async (/** @type {string} */ where, /** @type {() => Promise<void>} */ act) => {
    state.errors[where] = null;
    try { await act(); } catch (error) { state.errors[where] = error; }
    drawn();
  };
  const options = () => ({batch: Number(state.batch) || null, context: Number(state.context) || null, phase: state.phase || null});
  const read = (/** @type {() => Promise<any>} */ ask) => attempt('model', async () => {
    state.reading = true; state.model = null; state.fit = null; drawn();
    try { state.model = await ask(); } finally { state.reading = false; }
    await fit();
  });
  let asked = 0;
  const fit = async (repair = false) => {
    const mine = ++asked;
    state.fit = null;
    state.errors.fit = null;
    try {
      const checked = await post('/clusters/check', {devices: state.devices, repair});
      if (mine !== asked) return;
      state.checked = checked; state.errors.cluster = null;
      if (repair) { state.devices = checked.text; keep(state); } // changes of devices that are gone
    } catch (error) { if (mine === asked) { state.errors.cluster = error; state.checked = null; } return; }
    drawn();
    if (!state.model) return;
    try {
      const found = await post('/fit', {model: state.model.model, devices: state.devices});
      if (mine === asked) state.fit = found.rules;
    } catch (error) { if (mine === asked) state.errors.fit = error; }
  };
  const acts = {
    set: (/** @type {any} */ values) => { Object.assign(state, values); keep(state); drawn(); },
    zoo: (/** @type {string} */ name) => { Object.assign(state, {zoo: name, path: ''}); keep(state); read(() => post('/models', {zoo: name, options: options()})); },
    open: () => { state.zoo = ''; read(() => post('/models', {path: state.path, options: options()})); },
    drop: (/** @type {File | undefined} */ file) => { if (file) { state.zoo = ''; read(() => upload(file, options())); } },
    again: () => { keep(state); if (state.zoo) acts.zoo(state.zoo); else if (state.path) acts.open(); },
    devices: (/** @type {string} */ text, repair = false) => { state.devices = text; keep(state); drawn(); fit(repair).then(drawn); },
    load: (/** @type {File | undefined} */ file) => { if (file) attempt('cluster', async () => acts.devices((await post('/clusters', {toml: await file.text()})).devices)); },
    save: () => attempt('cluster', async () => saved(await bytesOf('/clusters/toml', {devices: state.devices}), 'devices.toml', 'application/toml')),
    solve: () => attempt('solve', async () => {
      state.busy = true; drawn();
      try {
        const pin = state.pins.split(/[\n;]/).map((/** @type {string} */ one) => one.trim()).filter(Boolean);
        const made = await post('/jobs', {verb: 'place', model: state.model.model, devices: state.devices, objective: state.objective, solver: state.solver, time_limit: Number(state.seconds), pin, ...(state.settings.trim() ? {set: state.settings.trim().split(/\s+/)} : {})});
        state.last = state.devices;
        keep(state);
        location.hash = `#/solving/${made.job}`;
      } finally { state.busy = false; }
    }),
  };
  const key = (/** @type {KeyboardEvent} */ e) => { if (e.key === 'Enter' && e.ctrlKey && state.model && !state.busy && !state.errors.cluster) acts.solve(); };
  document.addEventListener('keydown', key);
  drawn();
  if (source.startsWith('zoo:')) acts.zoo(source.slice(4));
  else if (source) { state.path = source; acts.open(); fit().then(drawn); } else if (state.zoo) acts.zoo(state.zoo); else fit().then(drawn);
  return () => document.removeEventListener('keydown', key);
}

/** What was chosen last, if the browser remembers. */
function kept() { try { return JSON.parse(localStorage.getItem(KEPT) ?? '{}'); } catch { return {}; } }
/** @param {any} s */
function keep(s) { try { localStorage.setItem(KEPT, JSON.stringify({zoo: s.zoo, batch: s.batch, context: s.context, phase: s.phase, devices: s.devices, last: s.last, objective: s.objective, seconds: s.seconds})); } catch { /* it will ask again */ } }

/** @param {any} info @param {any} state @param {any} acts */
function screen(info, state, acts) {
  return html`<div class="screen">${model(info, state, acts)}
    <div class="stack"><section class="card" aria-label="Cluster"><h2>2 · Devices</h2>${clusterEditor(state.devices, state.checked, info.catalogue, state.both, state.last, {set: acts.devices, both: (both) => acts.set({both}), load: acts.load, save: acts.save})}${state.errors.cluster ? trouble(state.errors.cluster) : nothing}</section>
    <section class="card" aria-label="Goal"><h2>3 · Goal</h2>
      <div class="line">${GOALS.map(([name, said]) => html`<button class="chip" aria-pressed=${state.objective === name} @click=${() => acts.set({objective: name})} title=${said}>${name}</button>`)}
        <label class="field">solver <select aria-label="Solver" @change=${(/** @type {any} */ e) => acts.set({solver: e.target.value, settings: ''})}>${info.solvers.map((/** @type {string} */ one) => html`<option ?selected=${one === state.solver}>${one}</option>`)}</select></label>
        <label class="field">at most <input type="number" min="1" max="86400" .value=${String(state.seconds)} @change=${(/** @type {any} */ e) => acts.set({seconds: Math.max(1, Number(e.target.value) || 20)})}> seconds</label>
        <label class="field grow">pins <input type="text" class="grow" placeholder="module=device; …" .value=${state.pins} @change=${(/** @type {any} */ e) => acts.set({pins: e.target.value})}></label></div>
      <div class="line">${Object.keys(info.options[state.solver] ?? {}).length ? html`<label class="field grow">its options <input type="text" class="grow" id="settings" placeholder=${Object.entries(info.options[state.solver]).map(([key, value]) => `${key}=${value}`).join(' ')} .value=${state.settings} @change=${(/** @type {any} */ e) => acts.set({settings: e.target.value})}></label>` : nothing}</div>
      <div class="line"><button class="primary" id="solve" ?disabled=${!state.model || state.busy || !!state.errors.cluster} @click=${acts.solve}>Solve</button>
        <span class="soft">${!state.model ? 'Choose a model first.' : state.errors.cluster ? 'These devices are not understood yet.' : 'or Ctrl-Enter'}</span></div>${state.errors.solve ? trouble(state.errors.solve) : nothing}</section></div>
    ${state.model ? fitMeter(state) : nothing}</div>`;
}

/** @param {any} info @param {any} state @param {any} acts */
function model(info, state, acts) {
  const names = info.zoo.filter((/** @type {string} */ name) => name.includes(state.filter.trim().toLowerCase())), facts = state.model?.facts;
  const size = (/** @type {string} */ name) => facts?.assumed?.[name] ?? Number(state[name]), tokens = size('context') * (size('batch') || 1);
  const drag = (/** @type {DragEvent} */ e, /** @type {boolean} */ over) => { e.preventDefault(); /** @type {HTMLElement} */ (e.currentTarget).classList.toggle('over', over); };
  return html`<section class="card" aria-label="Model"><h2>1 · Model</h2>
    <div class="line"><input class="grow" type="search" placeholder="find in the zoo" aria-label="Find in the zoo" .value=${state.filter} @input=${(/** @type {any} */ e) => acts.set({filter: e.target.value})}></div>
    <div class="chips" id="zoo">${names.map((/** @type {string} */ name) => html`<button class="chip" aria-pressed=${name === state.zoo} @click=${() => acts.zoo(name)}>${name}</button>`)}${names.length ? nothing : html`<span class="soft">Nothing in the zoo is called so.</span>`}</div>
    <div class="drop" @dragover=${(/** @type {DragEvent} */ e) => drag(e, true)} @dragleave=${(/** @type {DragEvent} */ e) => drag(e, false)} @drop=${(/** @type {DragEvent} */ e) => { drag(e, false); acts.drop(e.dataTransfer?.files[0]); }}>
      Drop a file here, or <label class="link">choose one<input type="file" hidden @change=${(/** @type {any} */ e) => acts.drop(e.target.files[0])}></label> (${info.limits.suffixes.join(' ')})</div>
    <div class="line"><input class="grow" type="text" placeholder="or a path below the folder that stead ui runs in" aria-label="Path of a model" .value=${state.path} @change=${(/** @type {any} */ e) => acts.set({path: e.target.value})}><button @click=${acts.open} ?disabled=${!state.path}>open</button></div>
    <div class="line">${['batch', 'context'].map((key) => html`<label class="field">${key} <input type="number" min="1" .value=${state[key]} @change=${(/** @type {any} */ e) => { acts.set({[key]: e.target.value}); acts.again(); }}></label>`)}
      <label class="field">phase <select @change=${(/** @type {any} */ e) => { acts.set({phase: e.target.value}); acts.again(); }}>${['', 'infer', 'prefill', 'decode', 'train'].map((one) => html`<option value=${one} ?selected=${one === state.phase}>${one || 'usual'}</option>`)}</select></label></div>
    ${state.reading ? html`<p role="status" class="soft">Reading…</p>` : nothing}${state.errors.model ? trouble(state.errors.model) : nothing}
    ${facts ? html`<h3 class="name">${shortened(state.model.name, 80)}</h3><dl class="facts" id="facts"><div><dt>operators</dt><dd>${count(facts.operators)}</dd></div><div><dt>weights</dt><dd>${bytes(facts.weight_bytes)}</dd></div>${facts.kv_bytes ? html`<div><dt>KV cache</dt><dd>${bytes(facts.kv_bytes)}</dd></div>${tokens ? html`<div><dt>KV per token</dt><dd>${bytes(facts.kv_bytes / tokens)}</dd></div>` : nothing}` : nothing}<div><dt>work</dt><dd>${work(facts.flops)}</dd></div></dl>${facts.notes.map((/** @type {string} */ note) => html`<p class="soft">${note}</p>`)}` : nothing}</section>`;
}

/** Floating-point operations, with a unit that leaves few digits. @param {number} flops */
function work(flops) {
  const [unit, scale] = /** @type {[string, number]} */ ([['PFLOP', 1e15], ['TFLOP', 1e12], ['GFLOP', 1e9]].find(([, least]) => flops >= Number(least)) ?? ['MFLOP', 1e6]);
  return `${Number((flops / scale).toPrecision(3))} ${unit}`;
}

/** Memory of every device for the trivial rules. @param {any} state */
function fitMeter(state) {
  const rows = state.fit;
  return html`<section class="card wide" aria-label="Fit"><h2>What fits, before solving</h2>${state.errors.fit ? trouble(state.errors.fit) : state.errors.cluster ? html`<p class="soft" role="status">As soon as the devices are understood.</p>` : !rows ? html`<p class="soft" role="status">Computing…</p>` : html`
    <table class="fit" id="fit"><thead><tr><th>rule</th>${rows[0]?.devices.map((/** @type {any} */ d) => html`<th>${d.name}</th>`)}<th></th></tr></thead><tbody>
    ${rows.map((/** @type {any} */ row) => html`<tr><td>${row.rule}</td>${row.devices.map((/** @type {any} */ d, /** @type {number} */ i) => {
      const most = Math.max(d.limit, d.peak, 1), part = (/** @type {number} */ b) => `width:${((100 * b) / most).toFixed(2)}%`;
      return html`<td><div class="cell"><div class="bar"><div class="d${i % 8}" .style=${part(d.weights)}></div><div class="d${i % 8} p2" .style=${part(d.kv)}></div><div class="d${i % 8} p3" .style=${part(Math.max(0, d.peak - d.weights - d.kv))}></div></div><span class="num ${d.peak > d.limit ? 'bad' : 'soft'}">${bytes(d.peak)} of ${bytes(d.limit)}</span></div></td>`;
    })}<td class=${row.fits ? 'good' : 'bad'}>${row.fits ? 'fits' : 'does not fit'}</td></tr>`)}</tbody></table><p class="soft">Full colour: weights; lighter: KV cache; lightest: activations. Simple rules only: solving may find what fits where they do not.</p>`}</section>`;
}
