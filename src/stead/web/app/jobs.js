// @ts-check
// Jobs: what runs, what ran, and how to repeat it in a shell.

import {html, nothing, render} from 'lit-html';
import {get, hear, post, remove} from 'app/api';
import {shellWords, trouble} from 'app/parts';
import {shortened} from 'stead/units';

/** The screen that shows what a job does or has found. @param {any} job */
const shownAt = (job) => (job.plans.length ? `#/plan/${job.plans[0]}` : ['export', 'verify'].includes(job.verb) && job.request.from ? `#/plan/${job.request.from}` : ['train', 'bench'].includes(job.verb) ? `#/runs/job:${job.id}` : `#/solving/${job.id}`);

/** @param {HTMLElement} root */
export async function jobsScreen(root) {
  /** @type {unknown} */
  let problem = null;
  const drawn = async () => {
    const {jobs} = await get('/jobs');
    render(html`<div class="screen"><section class="card wide"><h2>Jobs</h2>${problem ? trouble(problem) : nothing}${jobs.length ? html`<table class="list jobs"><thead><tr><th>job</th><th>state</th><th class="hide-narrow">command</th><th></th></tr></thead><tbody>${jobs.map(row)}</tbody></table>` : html`<p class="soft">Nothing has run yet. <a href="#/place">Place a model</a>.</p>`}</section></div>`, root);
  };
  const act = async (/** @type {() => Promise<any>} */ what) => { problem = null; try { await what(); } catch (error) { problem = error; } await drawn(); };
  const row = (/** @type {any} */ job) => html`<tr><td class="name"><a title=${job.request.title ?? job.verb} href=${shownAt(job)}>${shortened(job.request.title ?? job.verb, 60)}</a><br><span class="soft">${job.request.devices ?? ''} ${new Date(job.created * 1000).toLocaleString()}</span></td>
    <td><span class="state ${job.state}">${job.state}</span>${job.message ? html`<br><span class="soft">${job.message}</span>` : nothing}</td><td class="hide-narrow"><details><summary class="soft">show</summary><code>${shellWords(job.command)}</code></details></td>
    <td><div class="acts">${['queued', 'running'].includes(job.state) ? html`<button @click=${() => act(() => post(`/jobs/${job.id}/stop`))}>stop</button>` : html`${['lost', 'stopped', 'failed'].includes(job.state) ? html`<button @click=${() => act(async () => { const {job: next} = await post(`/jobs/${job.id}/resume`); location.hash = shownAt({...job, plans: [], id: next}); })}>${job.state === 'failed' ? 'try again' : 'resume'}</button> ` : nothing}<button @click=${() => act(() => remove(`/jobs/${job.id}`))}>delete</button>`}</div></td></tr>`;
  await drawn();
  return hear((event) => { if (event.kind === 'job') drawn(); });
}
