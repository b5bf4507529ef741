// What the page knows. Updates only change it; the page is drawn once for each
// frame of the screen, however many updates came, and every list has an end.

const mostEvents = 500;
const points = 300;

export const store = {
  sessions: [],
  questions: [],
  over: new Map(), // questions that have ended, kept in their place: id -> outcome
  listed: [], // the questions that waited when that was last told
  answering: new Set(), // those that this page is answering
  events: [], // the newest first
  lost: 0,
  series: new Map(), // session -> {times, total, rates}
  connected: false,
};

const draws = new Set();
let asked = false;

// drawn calls f at the next frame after each change.
export function drawn(f) {
  draws.add(f);
  return () => draws.delete(f);
}

export function changed() {
  if (asked) return;
  asked = true;
  const run = () => {
    asked = false;
    for (const f of draws) f();
  };
  // A page that nobody sees has no frames, and still has to keep up with questions.
  if (document.hidden) setTimeout(run, 1000);
  else requestAnimationFrame(run);
}

// take notes an update of the stream.
export function take(u) {
  if (u.history) for (const [name, h] of Object.entries(u.history)) store.series.set(name, fromHistory(h));
  if (u.sessions || u.empty) {
    store.sessions = u.sessions ?? [];
    for (const s of store.sessions) point(s, Date.parse(u.at));
    const live = new Set(store.sessions.map((s) => s.session));
    for (const name of store.series.keys()) if (!live.has(name)) store.series.delete(name);
  }
  if (u.asked) questions(u.questions ?? []);
  if (u.events) {
    store.events = u.events.reverse().concat(store.events).slice(0, mostEvents);
  }
  store.lost += u.lost ?? 0;
  changed();
}

function fromHistory(h) {
  return { times: h.times ?? [], total: h.total ?? [], rates: new Map(Object.entries(h.rates ?? {})) };
}

// point appends the speeds of now to a session's series.
function point(s, at) {
  if (!store.series.has(s.session)) store.series.set(s.session, { times: [], total: [], rates: new Map() });
  const line = store.series.get(s.session);
  const last = line.times.at(-1) ?? 0;
  if (at - last < 500) return; // an update out of turn, or the last of the history
  const lines = new Map();
  for (const [root, rate] of Object.entries(s.rates ?? {})) {
    const old = line.rates.get(root) ?? line.times.map(() => rate);
    lines.set(root, [...old.slice(1 - points), rate]);
  }
  line.times = [...line.times.slice(1 - points), at];
  line.total = [...line.total.slice(1 - points), s.rate];
  line.rates = lines;
}

// questions keeps those that have ended in their place until they are dismissed:
// what is below must not move under a finger that is about to decide.
function questions(list) {
  store.listed = list;
  const now = new Map(list.map((q) => [q.id, q]));
  const kept = [];
  for (const q of store.questions) {
    kept.push(now.get(q.id) ?? q);
    if (!now.delete(q.id)) ended(q);
  }
  store.questions = kept.concat([...now.values()]).slice(-100);
}

// ended says what came of a question that waits no more. The stream may say so
// before this page's own answer has come back, which then tells more.
function ended(q) {
  if (store.over.has(q.id) || store.answering.has(q.id)) return;
  store.over.set(q.id, Date.now() >= Date.parse(q.until) - 500 ? "Nobody answered in time: denied." : "Answered elsewhere, or withdrawn.");
}

// answer waits for what answers a question, which is to return the outcome.
export async function answer(q, send) {
  store.answering.add(q.id);
  try {
    store.over.set(q.id, await send());
  } finally {
    store.answering.delete(q.id);
    questions(store.listed);
    changed();
  }
}

export function dismiss(id) {
  store.questions = store.questions.filter((q) => q.id !== id);
  store.over.delete(id);
  changed();
}

export const waiting = () => store.questions.filter((q) => !store.over.has(q.id));
