// @ts-check
// The text of --devices: its parts, and the changes that follow its semicolons.

/** @typedef {{count: number, name: string, memory: string, wiring: string}} Part  one card: "2x 3090 24GB @ pcie3x8" */

/** What is described, and changes after semicolons: "3090,3060; 3090->3060.bandwidth=8GB/s". @param {string} text @returns {[string, string[]]} */
export function split(text) {
  const [described, ...changes] = text.split(';').map((one) => one.trim());
  return [described, changes.filter(Boolean)];
}

/** The value that a text gives to a property, if it does. @param {string} text @param {string} key @returns {string | undefined} */
export function changeOf(text, key) {
  const found = split(text)[1].find((one) => one.split('=')[0].trim() === key);
  return found?.slice(found.indexOf('=') + 1).trim();
}

/** The text with a property set; without it where the value is empty. @param {string} text @param {string} key @param {string} value */
export function withChange(text, key, value) {
  const [described, changes] = split(text);
  return [described, ...changes.filter((one) => one.split('=')[0].trim() !== key), ...(value ? [`${key}=${value}`] : [])].join('; ');
}

/** @param {string} text @returns {Part[]} */
export function partsOf(text) {
  return text.split(/[,+]/).map((one) => one.trim()).filter(Boolean).map((one) => {
    const [left, wiring = ''] = one.split('@').map((part) => part.trim()), many = /^(\d+)\s*[x×*]\s*(.+)$/i.exec(left);
    const rest = many ? many[2] : left, sized = /^(.*\S)\s+(\d+(?:\.\d+)?\s*[MGT]i?B)$/i.exec(rest);
    return {count: many ? Number(many[1]) : 1, name: sized ? sized[1] : rest, memory: sized ? sized[2] : '', wiring};
  });
}

/** @param {Part[]} parts */
export const textOf = (parts) => parts.map((p) => `${p.count > 1 ? `${p.count}x ` : ''}${p.name}${p.memory ? ` ${p.memory}` : ''}${p.wiring ? ` @ ${p.wiring}` : ''}`).join(' + ');
