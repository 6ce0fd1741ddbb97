// What users of `@openai/agents` write. `node agents.mjs NAME` runs one of these functions and prints what it returns as
// JSON; an error is printed as {"error": …}. OPENAI_BASE_URL and OPENAI_API_KEY say where to.
import {
  Agent,
  BatchTraceProcessor,
  OpenAIProvider,
  OpenAITracingExporter,
  Runner,
  setTraceProcessors,
  setTracingDisabled,
  tool,
  withTrace,
} from '@openai/agents';
import { z } from 'zod';

import { run } from './run.mjs';

const { OPENAI_API_KEY: apiKey, OPENAI_BASE_URL: baseURL } = process.env;

const getWeather = tool({
  name: 'get_weather',
  description: 'Tell the weather.',
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => `Sunny in ${city}.`,
});

async function traced() {
  const exporter = new OpenAITracingExporter({ apiKey, endpoint: `${baseURL}/traces/ingest` });
  const processor = new BatchTraceProcessor(exporter);
  setTraceProcessors([processor]);
  setTracingDisabled(false);
  const runner = new Runner({ modelProvider: new OpenAIProvider({ apiKey, baseURL, useResponses: true }) });
  const weatherman = new Agent({ name: 'Weatherman', model: 'scripted', tools: [getWeather] });
  const boss = Agent.create({ name: 'Boss', model: 'scripted', handoffs: [weatherman] });
  const made = await withTrace('Weather', async (trace) => {
    const result = await runner.run(boss, 'How is the weather in Bonn?');
    return { trace: trace.traceId, answer: result.finalOutput, responses: result.rawResponses.map((one) => one.responseId) };
  });
  await processor.forceFlush();
  await processor.shutdown();
  return made;
}

await run({ traced });
