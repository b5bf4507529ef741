// What the page knows. Updates only change it; the page is drawn once for each
// frame of the screen, however many updates came, and every list has an end.

const mostEvents = 500;
const points = 300;
const mostQuestions = 100; // that wait, or are over and were not dismissed

export const store = {
  sessions: [],
  questions: [],
  denials: [], // that sessions remember
  over: new Map(), // questions that have ended, kept in their place: id -> outcome
  listed: [], // the questions that waited when that was last told
  answering: new Set(), // those that this page is answering
  events: [], // the newest first
  lost: 0,
  series: new Map(), // session -> {times, total, rates}, and what they were counted from
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
  if (u.sessions || u.empty) {
    store.sessions = u.sessions ?? [];
    const live = new Set(store.sessions.map((s) => s.session));
    for (const name of store.series.keys()) if (!live.has(name)) store.series.delete(name);
    for (const s of store.sessions) speeds(s, Date.parse(u.at));
  }
  if (u.asked) {
    store.denials = u.denials ?? [];
    questions(u.questions ?? []);
  }
  if (u.events) {
    store.events = u.events.reverse().concat(store.events).slice(0, mostEvents);
  }
  store.lost += u.lost ?? 0;
  changed();
}

// speeds adds a point to the speeds of a session, made of the counters in its states. A state
// that comes soon after the last one, as those do that follow an event, adds none. Where the
// clock was set back, the series begin anew.
function speeds(s, at) {
  let line = store.series.get(s.session);
  if (line && at <= line.times.at(-1)) line = undefined;
  const spent = line ? (at - line.times.at(-1)) / 1000 : 0;
  if (line && spent < 0.5) return;
  const rate = (now, was) => {
    const each = (of) => (was ? Math.max(0, (now[of] - was[of]) / spent) : 0);
    return { ops: each("ops"), refused: each("refused"), read: each("bytes_read"), written: each("bytes_written") };
  };
  const add = (old, one) => old.concat(one).slice(-points);
  const none = (line?.times ?? []).map(() => rate());
  store.series.set(s.session, {
    times: add(line?.times ?? [], at),
    total: add(line?.total ?? [], rate(s.process, line?.process)),
    rates: new Map(s.roots.map((r) => [r.name, add(line?.rates.get(r.name) ?? none, rate(r, line?.roots.get(r.epoch)))])),
    process: s.process,
    roots: new Map(s.roots.map((r) => [r.epoch, r])), // one that is granted anew begins anew
  });
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
  // Of too many, those that are over go first.
  const all = kept.concat([...now.values()]);
  let over = all.length - mostQuestions;
  store.questions = all.filter((q) => {
    if (over <= 0 || !store.over.has(q.id)) return true;
    over--;
    store.over.delete(q.id);
    return false;
  });
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
