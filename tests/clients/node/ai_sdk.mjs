// What users of the AI SDK write, with `@ai-sdk/openai` or `@ai-sdk/open-responses`.
// `node ai_sdk.mjs NAME PROVIDER` runs one of these functions and prints what it returns as JSON.
import { createOpenResponses } from '@ai-sdk/open-responses';
import { createOpenAI } from '@ai-sdk/openai';
import { generateText, isStepCount, Output, streamText, tool } from 'ai';
import { z } from 'zod';

import { run } from './run.mjs';

globalThis.AI_SDK_LOG_WARNINGS = false;

const baseURL = process.env.OPENAI_BASE_URL;
const apiKey = process.env.OPENAI_API_KEY;
const providers = {
  openai: () => createOpenAI({ baseURL, apiKey }),
  'open-responses': () => createOpenResponses({ name: 'antwort', url: `${baseURL}/responses`, apiKey }),
};
const provider = providers[process.argv[3]]();
const model = provider('scripted');
const maxRetries = 0;
const Place = z.object({ city: z.string(), country: z.string() });

const getWeather = tool({
  description: 'Tell the weather.',
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `Sunny in ${city}.`,
});
const tools = { get_weather: getWeather };
const stopWhen = isStepCount(5);

async function plain() {
  const { text, usage } = await generateText({ model, maxRetries, instructions: 'Be brief.', prompt: 'Hello!' });
  return [text, usage.inputTokens, usage.outputTokens];
}

async function streaming() {
  const deltas = [];
  const { textStream, finishReason } = streamText({ model, maxRetries, prompt: 'Hello!' });
  for await (const delta of textStream) deltas.push(delta);
  return [deltas.join(''), await finishReason];
}

async function toolLoop() {
  const prompt = 'How is the weather in Bonn and Rome?';
  const { text, steps } = await generateText({ model, maxRetries, tools, stopWhen, prompt });
  return [text, steps.flatMap((step) => step.toolCalls).map((call) => call.input.city)];
}

async function streamedToolLoop() {
  const kinds = [];
  const prompt = 'How is the weather in Bonn and Rome?';
  const result = streamText({ model, maxRetries, tools, stopWhen, prompt });
  for await (const part of result.stream) kinds.push(part.type);
  return [await result.text, kinds.filter((kind) => ['tool-call', 'tool-result', 'reasoning-start'].includes(kind))];
}

async function thoughts() {
  const providerOptions = { openai: { reasoningSummary: 'auto' } };
  const { reasoningText, text } = await generateText({ model: provider('gpt-5'), maxRetries, providerOptions, prompt: 'Hello!' });
  return [reasoningText, text];
}

// Ask an agent of the server, which has a function there, beside a function of one's own.
async function hosted() {
  const accountant = provider('accountant');
  const { text } = await generateText({ model: accountant, maxRetries, tools, stopWhen, prompt: 'What is 6*7?' });
  return text;
}

async function structured() {
  const output = Output.object({ schema: Place });
  return (await generateText({ model, maxRetries, output, prompt: 'Where is Bonn?' })).output;
}

async function streamedStructure() {
  const { partialOutputStream, output } = streamText({
    model,
    maxRetries,
    output: Output.object({ schema: Place }),
    prompt: 'Where is Bonn?',
  });
  let last;
  for await (const partial of partialOutputStream) last = partial;
  return [last, await output];
}

// Send everything that was said, thoughts and calls included.
async function history() {
  const messages = [{ role: 'user', content: 'How is the weather in Bonn and Rome?' }];
  const first = await generateText({ model, maxRetries, tools, stopWhen, messages });
  messages.push(...first.responseMessages, { role: 'user', content: 'Which cities were these?' });
  return (await generateText({ model, maxRetries, tools, stopWhen, messages })).text;
}

// Send only what is new; the server has the rest. Only `@ai-sdk/openai` has options for it.
async function previousResponse() {
  const first = await generateText({ model, maxRetries, prompt: 'My name is Ada.' });
  const providerOptions = { openai: { previousResponseId: first.finalStep.providerMetadata.openai.responseId } };
  return (await generateText({ model, maxRetries, prompt: 'Who am I?', providerOptions })).text;
}

async function conversation() {
  const headers = { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' };
  const answer = await fetch(`${baseURL}/conversations`, { method: 'POST', headers, body: '{}' });
  const providerOptions = { openai: { conversation: (await answer.json()).id } };
  await generateText({ model, maxRetries, prompt: 'My name is Ada.', providerOptions });
  return (await generateText({ model, maxRetries, prompt: 'Who am I?', providerOptions })).text;
}

async function unknownModel() {
  return (await generateText({ model: provider('nobody'), maxRetries, prompt: 'Hello!' })).text;
}

await run({
  plain,
  streaming,
  toolLoop,
  streamedToolLoop,
  thoughts,
  hosted,
  structured,
  streamedStructure,
  history,
  previousResponse,
  conversation,
  unknownModel,
});
