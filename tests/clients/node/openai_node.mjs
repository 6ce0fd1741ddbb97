// What users of `openai` for Node write. `node openai_node.mjs NAME` runs one of these functions and prints what it
// returns as JSON; an error is printed as {"error": …}. OPENAI_BASE_URL and OPENAI_API_KEY say where to.
import OpenAI from 'openai';
import { zodTextFormat } from 'openai/helpers/zod';
import { ResponsesWS } from 'openai/resources/responses/ws';
import { z } from 'zod';

import { run } from './run.mjs';

const client = new OpenAI({ maxRetries: 0 });
const model = 'scripted';
const tools = [
  {
    type: 'function',
    name: 'get_weather',
    description: 'Tell the weather.',
    parameters: {
      type: 'object',
      properties: { city: { type: 'string' } },
      required: ['city'],
      additionalProperties: false,
    },
    strict: true,
  },
];
const Place = z.object({ city: z.string(), country: z.string() });

const getWeather = ({ city }) => `Sunny in ${city}.`;
const callsOf = (response) => response.output.filter((item) => item.type === 'function_call');
const outputsOf = (calls) =>
  calls.map((call) => ({
    type: 'function_call_output',
    call_id: call.call_id,
    output: getWeather(JSON.parse(call.arguments)),
  }));

async function plain() {
  const response = await client.responses.create({ model, input: 'Hello!', instructions: 'Be brief.' });
  return response.output_text;
}

// The helper rebuilds the response from the events, and throws at any it does not expect.
async function streaming() {
  const stream = client.responses.stream({ model, input: 'Hello!' });
  let text = '';
  stream.on('response.output_text.delta', (event) => (text += event.delta));
  return [text, (await stream.finalResponse()).output_text, text];
}

// The same, with thoughts and a call in it.
async function streamedCall() {
  const events = await client.responses.create({ model, input: 'Weather in Bonn?', tools, stream: true });
  const kinds = [];
  for await (const event of events) kinds.push(event.type);
  return [...new Set(kinds)];
}

async function streamedCallWithTheHelper() {
  const stream = client.responses.stream({ model, input: 'Weather in Bonn?', tools });
  const response = await stream.finalResponse();
  return response.output.map((item) => item.type);
}

async function toolLoop() {
  const input = [{ role: 'user', content: 'How is the weather in Bonn and Rome?' }];
  for (;;) {
    const response = await client.responses.create({ model, input, tools, store: false });
    const calls = callsOf(response);
    if (calls.length === 0) return response.output_text;
    input.push(...response.output, ...outputsOf(calls));
  }
}

async function toolLoopOnTheServer() {
  let response = await client.responses.create({ model, input: 'How is the weather in Bonn?', tools });
  for (let calls = callsOf(response); calls.length > 0; calls = callsOf(response)) {
    const previous = { previous_response_id: response.id };
    response = await client.responses.create({ model, input: outputsOf(calls), tools, ...previous });
  }
  return response.output_text;
}

async function hosted() {
  const calculate = { type: 'function', name: 'calculate' };
  return (await client.responses.create({ model, input: 'What is 6*7?', tools: [calculate] })).output_text;
}

async function structured() {
  const text = { format: zodTextFormat(Place, 'place') };
  return (await client.responses.parse({ model, input: 'Where is Bonn?', text })).output_parsed;
}

async function history() {
  const first = await client.responses.create({ model, input: 'My name is Ada.' });
  const second = await client.responses.create({ model, input: 'Who am I?', previous_response_id: first.id });
  const items = [];
  for await (const item of client.responses.inputItems.list(second.id)) items.push(item.content[0].text);
  return [second.output_text, ...items];
}

// Read the beginning, leave, and come back for the rest.
async function background() {
  const events = await client.responses.create({ model, input: 'Take your time.', background: true, stream: true });
  let first;
  for await (const event of events) {
    first = event;
    break;
  }
  const kinds = [first.type];
  const rest = { stream: true, starting_after: first.sequence_number };
  for await (const event of await client.responses.retrieve(first.response.id, rest)) kinds.push(event.type);
  return [...kinds, (await client.responses.retrieve(first.response.id)).output_text];
}

async function conversation() {
  const items = [{ type: 'message', role: 'user', content: 'My name is Ada.' }];
  const talk = await client.conversations.create({ items, metadata: { topic: 'names' } });
  const answer = await client.responses.create({ model, input: 'Who am I?', conversation: talk.id });
  const roles = [];
  const page = { order: 'asc', limit: 2 };
  for await (const item of client.conversations.items.list(talk.id, page)) roles.push(item.role);
  const deleted = await client.conversations.delete(talk.id);
  return [answer.output_text, answer.conversation.id === talk.id, roles, deleted.deleted];
}

async function inputTokens() {
  const short = await client.responses.inputTokens.count({ model, input: 'Hello!' });
  const long = await client.responses.inputTokens.count({ model, input: 'Hello! '.repeat(100) });
  return [short.input_tokens, long.input_tokens];
}

async function compact() {
  const input = [
    { role: 'user', content: 'My name is Ada.' },
    { role: 'assistant', content: 'Hello, Ada.' },
    { role: 'user', content: 'I live in Bonn.' },
  ];
  const compacted = await client.responses.compact({ model, input });
  const question = { role: 'user', content: 'Who am I?' };
  const answer = await client.responses.create({ model, input: [...compacted.output, question], store: false });
  return [compacted.object, compacted.output.at(-1).type, answer.output_text];
}

// Two turns and a call over one connection; nothing is stored.
async function websocket() {
  const socket = new ResponsesWS(client);
  const create = (body) => socket.send({ type: 'response.create', model, tools, store: false, ...body });
  return new Promise((resolve, reject) => {
    const texts = [];
    socket.on('error', reject);
    socket.on('response.completed', ({ response }) => {
      texts.push(response.output.flatMap((item) => item.content ?? []).map((part) => part.text));
      const calls = callsOf(response);
      if (calls.length > 0) {
        create({ input: outputsOf(calls), previous_response_id: response.id });
      } else {
        socket.close();
        resolve(texts);
      }
    });
    create({ input: 'How is the weather in Bonn?' });
  });
}

async function unknownModel() {
  return client.responses.create({ model: 'nobody', input: 'Hello!' });
}

await run({
  plain,
  streaming,
  streamedCall,
  streamedCallWithTheHelper,
  toolLoop,
  toolLoopOnTheServer,
  hosted,
  structured,
  history,
  background,
  conversation,
  inputTokens,
  compact,
  websocket,
  unknownModel,
});
