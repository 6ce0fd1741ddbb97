// Where a passage of a file is: in an address by how it begins, and found again by its words.

/** Characters of a passage that its address has: enough to find it by. */
const NAMED = 160;

/** @param {string} store @param {string} file @param {string} passage */
export function passageAddress(store, file, passage) {
  return `#/files/store/${[store, file, passage.trim().slice(0, NAMED)].map((part) => encodeURIComponent(part)).join("/")}`;
}

/**
 * Find where a passage stands in a text, whatever blanks are between its words.
 * @param {string} text
 * @param {string} passage
 * @returns {[number, number] | null}
 */
export function placeOfPassage(text, passage) {
  const words = passage.split(/\s+/).filter(Boolean);
  // The last word may be cut, and a title that is not in the text may stand before the first.
  for (let left = words; left.length > 3 || left === words; left = left.slice(1)) {
    if (left.length === 0) return null;
    const found = new RegExp(left.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("\\s+")).exec(text);
    if (found) return [found.index, found.index + found[0].length];
  }
  return null;
}
