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
  for (const [name, f] of Object.entries(u.figures ?? {})) if (f.times.length) figures(name, f);
  if (u.sessions || u.empty) {
    store.sessions = u.sessions ?? [];
    const live = new Set(store.sessions.map((s) => s.session));
    for (const name of store.series.keys()) if (!live.has(name)) store.series.delete(name);
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

// figures appends what a session tells of its speeds. Where the times begin anew,
// so do the series: another session of that name, or a clock that was set back.
function figures(name, f) {
  let line = store.series.get(name);
  if (!line || f.times[0] <= line.times.at(-1)) line = { times: [], total: [], rates: new Map() };
  const add = (old, more) => old.concat(more).slice(-points);
  const none = line.times.map(() => ({ ops: 0, refused: 0, read: 0, written: 0 }));
  store.series.set(name, {
    times: add(line.times, f.times),
    total: add(line.total, f.total),
    rates: new Map(Object.entries(f.rates).map(([root, more]) => [root, add(line.rates.get(root) ?? none, more)])),
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
