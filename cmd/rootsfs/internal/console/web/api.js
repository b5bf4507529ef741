// Speaking to the console's server. Every request carries the key that the link
// was traded for; the cookie that goes with it no script can read.

const slot = "rootsfs-key";

export const key = () => localStorage.getItem(slot);

export class Failure extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function checked(r) {
  if (r.ok) return r;
  let text = "the console answered with status " + r.status;
  try {
    text = (await r.json()).error ?? text;
  } catch {
    // not ours; the status says enough
  }
  if (r.status === 401) localStorage.removeItem(slot);
  throw new Failure(r.status, text);
}

const headers = () => ({ "X-Rootsfs-Key": key() ?? "" });

// enter trades the secret of a link for a cookie and a key.
export async function enter(link) {
  const r = await checked(await fetch("/api/enter", {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ link }),
  }));
  localStorage.setItem(slot, (await r.json()).key);
}

export async function get(path, params = {}) {
  const q = new URLSearchParams(Object.entries(params).filter(([, v]) => v !== "" && v !== undefined));
  return (await checked(await fetch(path + "?" + q, { headers: headers() })));
}

// post has something changed: in one session, or in those that the body names.
export async function post(path, body, session) {
  const r = await fetch(session === undefined ? path : path + "?" + new URLSearchParams({ session }), {
    method: "POST", headers: { ...headers(), "Content-Type": "application/json" }, body: JSON.stringify(body),
  });
  return (await checked(r)).json();
}

// follow calls f for each update until the stream ends.
export async function follow(f) {
  const r = await checked(await fetch("/api/stream", { headers: headers() }));
  const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) f(JSON.parse(line));
  }
}
