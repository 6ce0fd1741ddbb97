// What /metrics says, as numbers, and how they change.

/** @typedef {{name: string, labels: Record<string, string>, value: number}} Sample */

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/**
 * Read the text format of Prometheus.
 * @param {string} text
 * @returns {Sample[]}
 */
export function samples(text) {
  /** @type {Sample[]} */
  const found = [];
  for (const line of text.split("\n")) {
    const parts = line.startsWith("#") ? null : LINE.exec(line);
    if (!parts) continue;
    /** @type {Record<string, string>} */
    const labels = {};
    for (const [, name = "", value = ""] of (parts[2] ?? "").matchAll(LABEL)) labels[name] = value;
    found.push({ name: parts[1] ?? "", labels, value: Number(parts[3]) });
  }
  return found;
}

/**
 * Add up what has a name, and labels that will do.
 * @param {Sample[]} all
 * @param {string} name
 * @param {(labels: Record<string, string>) => boolean} [which]
 */
export function sum(all, name, which = () => true) {
  return all.reduce((total, sample) => (sample.name === name && which(sample.labels) ? total + sample.value : total), 0);
}

/** Return the largest of what has a name: each worker tells the same. @param {Sample[]} all @param {string} name */
export function most(all, name) {
  return Math.max(0, ...all.filter((sample) => sample.name === name).map(({ value }) => value));
}

/**
 * Return the value below which a share of what a histogram has counted between two looks is.
 * @param {Sample[]} before
 * @param {Sample[]} now
 * @param {string} name
 * @param {number} share
 * @param {(labels: Record<string, string>) => boolean} [which]
 * @returns {number | null} null if there was nothing
 */
export function quantile(before, now, name, share, which = () => true) {
  /** @type {Map<number, number>} */
  const counts = new Map();
  for (const [all, sign] of /** @type {[Sample[], number][]} */ ([[now, 1], [before, -1]])) {
    for (const sample of all) {
      if (sample.name !== `${name}_bucket` || !which(sample.labels)) continue;
      const limit = sample.labels.le === "+Inf" ? Infinity : Number(sample.labels.le);
      counts.set(limit, (counts.get(limit) ?? 0) + sign * sample.value);
    }
  }
  const limits = [...counts].sort(([a], [b]) => a - b);
  const total = limits.at(-1)?.[1] ?? 0;
  if (total <= 0) return null;
  const wanted = share * total;
  let lower = 0;
  let under = 0;
  for (const [limit, count] of limits) {
    if (count >= wanted) return limit === Infinity ? lower : lower + ((limit - lower) * (wanted - under)) / Math.max(count - under, 1e-9);
    lower = limit;
    under = count;
  }
  return lower;
}
