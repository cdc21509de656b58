// @ts-check
// Use it: a plan for the runtime that is to run it. `stead export` and `stead verify` are jobs; what they say is shown here.

import {html, nothing, render} from 'lit-html';
import {ended, get, post} from 'app/api';
import {shellWords, trouble} from 'app/parts';
import {copied} from 'stead/report';
import {bytes, counted, seconds, shortened} from 'stead/units';

const QUESTIONS = [['outputs', 'outputs as without a placement'], ['placed', 'everything where planned'], ['memory', 'memory within limits']];
const VERIFY_SECONDS = 600;

/** @param {HTMLElement} root @param {any} plan */
export function exportPanel(root, plan) {
  /** @type {any} */
  const state = {targets: null, to: '', legalize: false, verify: true, busy: '', job: null, made: null, verdict: null, checked: null, error: null};
  const act = async (/** @type {() => Promise<void>} */ what) => {
    state.error = null;
    try { await what(); } catch (error) { state.error = error; }
    state.busy = '';
    drawn();
  };
  const asked = (/** @type {string} */ verb, /** @type {any} */ more = {}) => post('/jobs', {verb, plan: plan.id, from: plan.id, to: state.to, legalize: state.legalize, title: `${verb} to ${state.to}: ${shortened(plan.name, 60)}`, ...more});
  const load = () => act(async () => {
    if (state.targets) return;
    state.targets = (await get(`/plans/${plan.id}/targets`)).targets;
    const own = (await get('/jobs')).jobs.filter((/** @type {any} */ job) => job.request.from === plan.id && job.state === 'done'), last = own.find((/** @type {any} */ job) => job.verb === 'export');
    state.to = last?.request.to ?? state.targets.find((/** @type {any} */ one) => !one.refusal)?.name ?? '';
    if (!last) return;
    state.legalize = last.request.legalize;
    await shown(last);
    const checked = own.find((/** @type {any} */ job) => job.verb === 'verify' && job.request.to === state.to && job.request.legalize === state.legalize);
    if (checked) await judged(checked);
  });
  const shown = async (/** @type {any} */ job) => { Object.assign(state, {job, made: job.state === 'done' ? await get(`/jobs/${job.id}/result`) : null, checked: null, verdict: null}); };
  const judged = async (/** @type {any} */ job) => { Object.assign(state, {checked: job, verdict: job.state === 'done' ? (await get(`/jobs/${job.id}/result`)).document : null}); };
  const run = () => act(async () => {
    state.busy = 'Exporting…'; drawn();
    await shown(await ended((await asked('export')).job));
    if (!state.verify || state.job.state !== 'done') return;
    state.busy = 'Verifying: the runtime is asked, where it is installed…'; drawn();
    await judged(await ended((await asked('verify', {time_limit: VERIFY_SECONDS})).job));
  });
  const set = (/** @type {any} */ values) => { Object.assign(state, {job: null, made: null, checked: null, verdict: null}, values); drawn(); };
  const opened = (/** @type {Event} */ e) => { if (/** @type {HTMLDetailsElement} */ (e.target).open) load(); };
  const drawn = () => render(html`<section class="card" aria-label="Use it"><details id="use" @toggle=${opened}><summary><b>Use it</b> <span class="soft">export this plan for the runtime that is to run it, and let that runtime say whether it does as planned</span></summary>
    ${state.error ? trouble(state.error) : nothing}${state.targets ? form(state, set, run) : html`<p class="soft" role="status">Looking at what this plan can be exported to…</p>`}
    ${state.busy ? html`<p role="status" class="soft">${state.busy}</p>` : nothing}
    ${state.job ? outcome(state, () => { set({legalize: true}); run(); }) : nothing}</details></section>`, root);
  drawn();
}

/** @param {any} state @param {(values: any) => void} set @param {() => void} run */
function form(state, set, run) {
  const chosen = state.targets.find((/** @type {any} */ one) => one.name === state.to);
  return html`<div class="line"><label class="field">to <select id="target" @change=${(/** @type {any} */ e) => set({to: e.target.value, legalize: false})}>${state.targets.map((/** @type {any} */ one) => html`<option value=${one.name} .selected=${one.name === state.to}>${one.name}: ${one.does}${one.refusal ? ' (not this plan)' : ''}</option>`)}</select></label>
      <label class="field"><input type="checkbox" id="verify" .checked=${state.verify} @change=${(/** @type {any} */ e) => { state.verify = e.target.checked; }}> verify, too</label>
      <button class="primary" id="run-export" ?disabled=${!chosen || !!chosen.refusal || !!state.busy} @click=${run}>Export</button></div>
    ${chosen?.refusal ? html`<p class="soft">${chosen.refusal}</p>` : chosen ? html`<p class="soft">How it is verified: ${chosen.checked}.</p>` : nothing}`;
}

/** What came out. @param {any} state @param {() => void} legalized */
function outcome({job, made, checked, verdict, legalize}, legalized) {
  if (!made) return html`<div class="alarm" role="alert"><p class="bad">${job.message || 'The export ended before it was done.'}</p>${!legalize && /--legalize/.test(job.message ?? '') ? html`<button id="legalize" @click=${legalized}>Move what it cannot express, and export that</button>` : nothing}</div>`;
  const {files} = made, said = made.document ?? {moves: [], load: made.text, text: ''};
  return html`${said.moves.length ? html`<p>It took <b>${counted(said.moves.length, 'move')}</b> to say this there: ${seconds(said.seconds_before)} became ${seconds(said.seconds_after)}.</p>` : nothing}
    <div class="outcome"><div><h3>To load it</h3>${pasted(said.load)}${said.text ? html`<h3>Or as text</h3>${pasted(said.text)}` : nothing}<details><summary class="soft">the same in a shell</summary><pre>${shellWords(job.command)}</pre></details></div>
      <div><h3>${counted(files.length, 'file')} <a id="take" href=${`/api/jobs/${job.id}/files`} download>download</a></h3><table class="list"><tbody>${files.map((/** @type {any} */ file) => html`<tr><td class="name">${file.name}</td><td class="num">${bytes(file.bytes)}</td></tr>`)}</tbody></table></div></div>
    ${verdict ? html`<h3>Verified: <span id="verdict" class=${verdict.failed ? 'bad' : ''}>${verdict.failed ? 'it does not do as planned' : QUESTIONS.every(([key]) => verdict[key].result === 'passed') ? 'it does as planned' : 'nothing was seen to be wrong'}</span></h3><table class="list"><tbody>${QUESTIONS.map(([key, question]) => html`<tr><td>${question}</td><td class=${{passed: 'good', failed: 'bad'}[/** @type {'passed'} */ (verdict[key].result)] ?? ''}>${verdict[key].result}</td><td class="soft">${verdict[key].detail}</td></tr>`)}</tbody></table>`
    : checked ? html`<div class="alarm" role="alert"><p class="bad">It could not be verified: ${checked.message || 'the check ended before it was done'}.</p></div>` : nothing}`;
}

/** @param {string} text */
const pasted = (text) => html`<div class="pasted"><pre>${text}</pre><button @click=${(/** @type {Event} */ e) => copied(e, text)}>copy</button></div>`;
