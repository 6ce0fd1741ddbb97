/** A value that is looked at: whoever subscribes is told when it changes. @template {object} T */
export class Store {
  /** @param {T} value */
  constructor(value) {
    this.value = value;
    /** @type {Set<(value: T) => void>} */
    this.readers = new Set();
  }

  /** Change some fields. @param {Partial<T>} changes */
  set(changes) {
    this.value = { ...this.value, ...changes };
    for (const reader of [...this.readers]) reader(this.value);
  }

  /**
   * Tell a reader the value now, and whenever it changes, until the signal says stop.
   * @param {AbortSignal} signal
   * @param {(value: T) => void} reader
   */
  watch(signal, reader) {
    if (signal.aborted) return;
    this.readers.add(reader);
    signal.addEventListener("abort", () => this.readers.delete(reader), { once: true });
    reader(this.value);
  }
}
