// Run what each line of the input asks for, one after the other: {"script": …, "names": […], "environment": {…}}.
// The script is read anew each time; what it imports is not, which takes longer than most functions.
import { createInterface } from 'node:readline';

let count = 0;
for await (const line of createInterface({ input: process.stdin })) {
  const { script, names, environment } = JSON.parse(line);
  Object.assign(process.env, environment);
  process.argv.splice(2, process.argv.length, ...names);
  count += 1;
  await import(`./${script}?${count}`);
}
