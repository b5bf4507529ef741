// A client on the TypeScript SDK, which checks results against output schemas.
// Its arguments are the directory of the root "w" and what to connect to: a URL,
// with the bearer token in TOKEN, or a command line. It says what it got.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  ListRootsRequestSchema, ResourceUpdatedNotificationSchema, ToolListChangedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';

const [dir, target, ...args] = process.argv.slice(2);
const transport = target.startsWith('http')
  ? new StreamableHTTPClientTransport(new URL(target), { requestInit: { headers: { Authorization: `Bearer ${process.env.TOKEN}` } } })
  : new StdioClientTransport({ command: target, args, env: process.env, stderr: 'inherit' });
const client = new Client({ name: 'typescript-client', version: '1.0.0' }, { capabilities: { roots: { listChanged: true } } });
client.setRequestHandler(ListRootsRequestSchema, async () => ({ roots: [{ uri: `file://${dir}/in`, name: 'in' }] }));
const updated = new Promise((seen) => client.setNotificationHandler(ResourceUpdatedNotificationSchema, (n) => seen(n.params.uri)));
await client.connect(transport);

const out = {};
const text = async (name, args) => {
  const r = await client.callTool({ name, arguments: args });
  return `${r.isError ? 'error: ' : ''}${r.content[0].text ?? r.content[0].type}`;
};
out.tools = (await client.listTools()).tools.map((t) => t.name).sort();
out.read = await text('read_text_file', { path: 'w/in/a.txt' });
out.media = await text('read_media_file', { path: `${dir}/in/pic.png` });
out.outside = await text('read_text_file', { path: 'w/b.txt' }); // the client's own roots narrow
out.progress = 0;
await client.callTool({ name: 'search_files', arguments: { path: 'w/in', pattern: '**' } }, undefined, { onprogress: () => { out.progress++; } });
out.resource = (await client.readResource({ uri: `file://${dir}/in/a.txt` })).contents[0].text;
out.resources = (await client.listResources()).resources.map((r) => r.uri);
out.templates = (await client.listResourceTemplates()).resourceTemplates.map((r) => r.uriTemplate);
out.complete = (await client.complete({
  ref: { type: 'ref/resource', uri: 'file:///{+path}' }, argument: { name: 'path', value: `${dir}/in/a`.slice(1) },
})).completion.values;
await client.subscribeResource({ uri: `file://${dir}/in/a.txt` });
out.write = await text('write_file', { path: 'w/in/a.txt', content: 'new' });
out.updated = await updated;
await client.close();
console.log(JSON.stringify(out));
