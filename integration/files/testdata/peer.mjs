// A server on the TypeScript SDK that asks its client for files. Its tools do as
// they are told, so that the test says what is asked and sees what came back.
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { ResultSchema } from '@modelcontextprotocol/sdk/types.js';
import { z } from 'zod';

const mcp = new McpServer({ name: 'typescript-peer', version: '1.0.0' });
const notes = [];
mcp.server.fallbackNotificationHandler = async (n) => { notes.push(n); };
const text = (value) => ({ content: [{ type: 'text', text: JSON.stringify(value ?? null) }] });

mcp.registerTool('ask', { inputSchema: { method: z.string(), params: z.any().optional() } },
  async ({ method, params }) => {
    try {
      return text({ result: await mcp.server.request({ method, params }, ResultSchema) });
    } catch (e) {
      return text({ error: { code: e.code, message: e.message, data: e.data } });
    }
  });

// Everything SEP-1708 has, in the order of its text, as a server would write it.
mcp.registerTool('seed', { inputSchema: { dir: z.string() } }, async ({ dir }) => {
  const ask = (method, params) => mcp.server.request({ method, params }, ResultSchema);
  const out = {};
  out.consent = await ask('files/consent', { message: 'to format the project', requestedPaths: [dir], mode: 'rw' });
  const root = dir.split('/').pop();
  out.read = await ask('files/read', { path: `${root}/src/main.py`, encoding: 'utf-8', offset: 0, length: 1024 });
  out.write = await ask('files/write', { path: `${root}/src/new.py`, content: 'pass\n', encoding: 'utf-8', create: true });
  out.list = await ask('files/list', { path: `${root}/src`, recursive: false, includeHidden: false });
  out.create = await ask('files/create', { path: `${root}/build`, type: 'directory' });
  out.rename = await ask('files/rename', { oldPath: `${root}/src/new.py`, newPath: `${root}/build/old.py` });
  out.watch = await ask('files/watch', { path: `${root}/src`, recursive: true, events: ['modified', 'created', 'deleted'] });
  await ask('files/write', { path: `${root}/src/main.py`, content: 'changed\n' });
  for (let i = 0; i < 2000 && !notes.some((n) => n.method === 'notifications/files/changed'); i++) {
    await new Promise((r) => setTimeout(r, 10));
  }
  out.changed = notes.find((n) => n.method === 'notifications/files/changed');
  out.delete = await ask('files/delete', { path: `${root}/build/old.py` });
  return text(out);
});

mcp.registerTool('parallel', { inputSchema: { path: z.string(), n: z.number() } }, async ({ path, n }) => {
  const ask = (i) => mcp.server.request({ method: 'files/read', params: { path: `${path}${i % 10}` } }, ResultSchema);
  const got = await Promise.all(Array.from({ length: n }, (_, i) => ask(i).then((r) => r.content, (e) => `${e.code}`)));
  return text(got);
});

mcp.registerTool('capabilities', {}, async () => text(mcp.server.getClientCapabilities()));
mcp.registerTool('roots', {}, async () => text(await mcp.server.listRoots()));
mcp.registerTool('notes', {}, async () => text(notes));

await mcp.connect(new StdioServerTransport());
