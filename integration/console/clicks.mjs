// Clicks at questions of the console's page in Chromium, with real mouse events, while
// the questions move, end, change and grow. The page is the real one, its server is
// not: the questions come from here, at a rate that no session allows. It is started by
// clicks_test.go with LAB (JSON: web, modules, chromium, flags, clicks, seed, vectors) and
// writes a line of JSON for each check: {"name", "ok", "error", "note"}. The page's
// clock stands still but where it is moved on, so nothing depends on the machine's.

import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { createRequire } from "node:module";
import assert from "node:assert/strict";

const lab = JSON.parse(process.env.LAB);
const { chromium } = createRequire(lab.modules + "/")("playwright-core");
const types = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };

// random is mulberry32: the same numbers for the same seed.
let state = lab.seed;
function random() {
  state = (state + 0x6d2b79f5) | 0;
  let x = Math.imul(state ^ (state >>> 15), state | 1);
  x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
  return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
}
const below = (n) => Math.floor(random() * n);
const pick = (list) => list[below(list.length)];

let answers = []; // what the page posted to /api/answer
let looks = []; // requests for what is at a path, not answered yet
const server = http.createServer((req, res) => {
  const url = new URL(req.url, "http://console");
  const json = (value) => res.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify(value));
  switch (url.pathname) {
    case "/api/stream":
      res.writeHead(200).write('{"empty":true}\n');
      return;
    case "/api/inside":
      looks.push(json);
      // The stream and these are connections, of which a browser keeps six to a host.
      if (looks.length > 3) looks.shift()({ complete: true, files: 0, dirs: 0, bytes: 0, withheld: 0, examples: [] });
      return;
    case "/api/answer": {
      let text = "";
      req.on("data", (more) => { text += more; });
      req.on("end", () => {
        const a = JSON.parse(text);
        answers.push(a);
        json({ answered: [{ allowed: [], denied: ["it"] }] });
      });
      return;
    }
  }
  const file = path.join(lab.web, url.pathname === "/" ? "index.html" : path.normalize(url.pathname));
  if (!types[path.extname(file)] || !fs.existsSync(file)) return res.writeHead(404).end();
  res.writeHead(200, { "Content-Type": types[path.extname(file)] }).end(fs.readFileSync(file));
});
await new Promise((done) => server.listen(0, "127.0.0.1", done));
const origin = `http://127.0.0.1:${server.address().port}`;

let made = 0;
// question is what a server could ask, small or large.
function question() {
  const mode = pick(["ro", "rw"]); // of ro there is one button less
  const items = Array.from({ length: 1 + below(4) }, (_, i) => ({
    requested: "/home/me/p" + i, resolved: "/home/me/" + "deep/".repeat(below(30)) + "p" + i, mode, file: false,
  }));
  const now = 1e6 * Math.floor(Date.now() / 1e6);
  return {
    session: "s", id: "q" + ++made, subject: "server", server: pick(["", "helper", "n".repeat(256)]), message: "please ".repeat(below(80)), items,
    asked: new Date(now).toISOString(), until: new Date(now + 864e5).toISOString(),
  };
}

let questions = [];
let aim = { x: 0, y: 0 }; // where the pointer is
let page;
const pass = (ms) => page.clock.runFor(ms);
// push gives the page what a session's stream would, and lets it draw.
async function push() {
  await page.evaluate((list) => import("/store.js").then((m) => m.take({ asked: true, questions: list, denials: [] })), questions);
  await pass(20);
}

// What happens between aiming and clicking.
const changes = {
  async withdraw() {
    questions.splice(below(questions.length), 1);
    await push();
  },
  async withdrawMany() {
    questions = questions.filter(() => random() < 0.4);
    await push();
  },
  async add() {
    questions.splice(below(questions.length + 1), 0, question());
    await push();
  },
  async change() { // another question under the same name
    const i = below(questions.length);
    if (questions[i]) questions[i] = { ...question(), id: questions[i].id };
    await push();
  },
  async look() {
    const examples = Array.from({ length: 3 }, () => "name".repeat(below(200)));
    looks.splice(0, 1 + below(4)).forEach((send) => send({ complete: true, files: 2, dirs: 1, bytes: 9, withheld: 3, examples }));
    await page.evaluate(() => new Promise((done) => { fetch("/icon.svg").then(done, done); }));
    await pass(20);
  },
  async dismiss() { // one that is over, as its button does
    await page.evaluate((n) => import("/store.js").then(({ store, dismiss }) => dismiss([...store.over.keys()][n % store.over.size])), below(100));
    await pass(20);
  },
  scroll: () => page.mouse.wheel(0, below(1200) - 600),
  // The page moves so that a button that grants lies as high as the pointer.
  nudge: () => page.evaluate(({ n, y }) => {
    const list = [...document.querySelectorAll("rf-question button[data-key=r], rf-question button[data-key=w]")].filter((b) => b.checkVisibility({ visibilityProperty: true }));
    const { top, height } = list[n % list.length]?.getBoundingClientRect() ?? { top: y, height: 0 };
    scrollBy(0, top + height / 2 - y);
  }, { n: below(1000), y: aim.y }),
  resize: () => page.setViewportSize({ width: pick([1200, 690, 390, 390]), height: pick([900, 700, 500]) }),
  zoom: () => page.evaluate((to) => { document.body.style.zoom = to; }, pick([1, 1, 0.8, 1.25])),
  font: () => page.evaluate((to) => { document.documentElement.style.fontSize = to; }, pick(["15px", "15px", "19px"])),
  said: () => page.evaluate(() => import("/said.js").then((m) => m.say("something ".repeat(40)))),
};

// denials are the places of the buttons that can be pressed now.
const denials = () => page.evaluate(() => [...document.querySelectorAll("rf-question button[data-key=d]")].flatMap((b) => {
  const { left, top, width, height } = b.getBoundingClientRect();
  const [x, y] = [left + width / 2, top + height / 2];
  return !b.disabled && b.getAttribute("aria-disabled") !== "true" && b.contains(document.elementFromPoint(x, y)) ? [{ x, y }] : [];
}));

async function open() {
  const browser = await chromium.launch({ executablePath: lab.chromium, args: lab.flags });
  page = await browser.newPage({ viewport: { width: 1200, height: 900 } });
  page.setDefaultTimeout(60000);
  await page.clock.install();
  await page.addInitScript(() => localStorage.setItem("rootsfs-key", "k"));
  await page.goto(origin + "/#ask");
  await page.waitForSelector("rf-ask");
  await page.clock.pauseAt(Date.now() + 3600000);
  return browser;
}

// calmly shows just these questions, on a screen with room for two, once they
// take answers.
async function calmly(...list) {
  questions = list;
  answers = [];
  looks.splice(0).forEach((send) => send({ complete: true, files: 2, dirs: 1, bytes: 9, withheld: 0, examples: [] }));
  await page.evaluate(() => {
    document.body.style.zoom = document.documentElement.style.fontSize = "";
    document.getElementById("said").replaceChildren();
    return import("/store.js").then(({ store, dismiss }) => [...store.over.keys()].forEach(dismiss));
  });
  await page.setViewportSize({ width: 1200, height: 1200 });
  await page.mouse.move(600, 5);
  await push();
  await page.evaluate(() => import("/store.js").then(({ store, dismiss }) => [...store.over.keys()].forEach(dismiss)));
  await page.mouse.wheel(0, -1e5);
  await pass(3000);
}

const small = (more) => ({ ...question(), server: "helper", message: "please", items: [{ requested: "/p", resolved: "/p", mode: "rw", file: false }], ...more });
const card = (q) => page.locator("rf-question", { has: page.locator("#q-" + q.id) });
const button = (q, key) => card(q).locator(`button[data-key=${key}]`);
const middle = async (where) => {
  const b = await where.boundingBox();
  return [b.x + b.width / 2, b.y + b.height / 2];
};
// press clicks without waiting for anything, as a hand does.
async function press(where) {
  await page.mouse.move(...await middle(where));
  await page.mouse.down();
  await page.mouse.up();
}
async function until(ok) {
  for (let i = 0; i < 1000; i++) {
    if (await ok()) return;
    await page.evaluate(() => new Promise((done) => { fetch("/icon.svg").then(done, done); }));
  }
  throw new Error("never happened: " + ok);
}

const grants = () => answers.filter((a) => a.approve);

const checks = {
  async "an approval takes a button at rest, a pointer that moves, and a question read to its end"() {
    const [a, b] = [small(), small({ message: "please ".repeat(60), items: Array.from({ length: 9 }, (_, i) => ({ requested: "/p" + i, resolved: "/p" + i, mode: "ro", file: false })) })];
    await calmly(a, b);
    await press(button(a, "w"));
    await until(() => answers.length === 1);
    assert.deepEqual([answers[0].id, answers[0].approve, answers[0].only], [a.id, true, [1]]);
    answers = [];
    await press(button(b, "r"));
    await card(b).getByText("Read it to its end").waitFor();
    await card(b).locator(".details").evaluate((e) => e.scrollTo(0, 1e6));
    await pass(1500);
    await press(button(b, "r"));
    await until(() => answers.length === 1);
    assert.deepEqual([answers[0].id, answers[0].mode], [b.id, "ro"]);
  },

  async "a button that has moved grants nothing, at once or under a pointer at rest"() {
    const a = small();
    await calmly(a);
    const shift = (px) => page.evaluate((to) => { document.querySelector(".questions").style.paddingTop = to + "px"; }, px);
    const [x, y] = await middle(button(a, "r"));
    const click = async (between) => {
      await page.mouse.down();
      await between?.();
      await page.mouse.up();
    };
    const cases = {
      "at once": async () => { await shift(40); await page.mouse.move(x, y + 41); await click(); },
      "soon": async () => { await shift(80); await pass(600); await page.mouse.move(x, y + 81); await click(); },
      "while it is pressed": async () => { await shift(120); await page.mouse.move(x, y + 120); await pass(1500); await page.mouse.move(x, y + 121); await click(() => shift(122)); },
      "under a pointer at rest": async () => { await shift(0); await page.mouse.move(x, y + 60); await pass(1500); await shift(60); await pass(5000); await click(); },
      "under a pointer at rest, twice": click,
    };
    for (const [name, does] of Object.entries(cases)) {
      await does();
      await card(a).getByText("Look again").waitFor();
      await page.evaluate(() => new Promise((done) => { fetch("/icon.svg").then(done, done); }));
      assert.deepEqual(answers, [], name);
    }
    await pass(1500);
    await click();
    await until(() => answers.length === 1);
    await shift(0);
  },

  async "a key on a button that has just got the focus grants nothing"() {
    const a = small();
    await calmly(a);
    for (const [key, where] of [["Enter", button(a, "r")], ["Space", button(a, "w")], ["r", card(a).locator(".question")]]) {
      await page.evaluate(() => document.activeElement.blur());
      await pass(1500);
      await where.focus();
      await page.keyboard.press(key);
      await card(a).getByText("Look again").waitFor();
      assert.deepEqual(answers, [], key);
    }
    await page.keyboard.press("r");
    assert.deepEqual(answers, [], "twice");
    await pass(1500);
    await page.keyboard.press("r");
    await until(() => answers.length === 1);
  },

  async "a question keeps its height and its place, also when it is over, gone, or another one"() {
    const [a, b, c] = [small(), small(), small()];
    await calmly(a, b);
    const box = async (q) => Object.values(await card(q).boundingBox()).join();
    const [first, second] = [await box(a), await box(b)];
    await page.mouse.move(...await middle(button(a, "d")));
    questions = [c, a, b];
    await push();
    await until(() => { // the page may ask for a look after push has returned
      looks.splice(0).forEach((send) => send({ complete: true, files: 2, dirs: 1, bytes: 9, withheld: 3, examples: ["name".repeat(900)] }));
      return card(c).getByText("namename").count();
    });
    assert.deepEqual([await box(a), await box(b)], [first, second], "another one came, and much was found");
    Object.assign(a, { message: "a long story ".repeat(300), server: "n".repeat(256) });
    await push();
    await card(a).getByText("a long story").waitFor();
    assert.deepEqual([await box(a), await box(b)], [first, second], "changed");
    questions = [c, b];
    await push();
    await card(a).getByText("Dismiss").waitFor();
    assert.deepEqual([await box(a), await box(b)], [first, second], "over");
    await press(card(a).getByText("Dismiss"));
    await pass(2500);
    assert.ok(await card(a).getByText("Dismiss").isHidden());
    assert.equal(await box(b), second, "gone");
    await page.mouse.move(600, 5);
    await pass(2500);
    assert.equal(await card(a).count(), 0);
    assert.equal(await box(b), first, "the pointer is elsewhere");
  },

  async "names show what cannot be seen, as names.EscapeQuoted does"() {
    const vectors = JSON.parse(fs.readFileSync(lab.vectors, "utf8"));
    const got = await page.evaluate((list) => import("/dom.js").then((m) => list.map((x) => [m.plain(x), m.t(x).textContent])), vectors.map((v) => v.text));
    vectors.forEach((v, i) => assert.deepEqual(got[i], [v.shown, v.shown], JSON.stringify(v.text)));
    assert.ok(vectors.length > 30);
  },

  async "a long name leaves room for what is beside it"() {
    const long = "begin" + "x".repeat(246) + "ender";
    const root = { name: long, epoch: 1, mode: "rw", state: "live", resolved: "/home/me/here", path: "/home/me/here" };
    await page.evaluate((r) => {
      location.hash = "now";
      return import("/store.js").then((m) => m.take({ sessions: [{ session: r.name, roots: [r] }] }));
    }, root);
    await pass(100);
    const row = page.locator("rf-root .what");
    assert.match((await row.innerText()).split("\n")[0], /^beginx+…216 more…x+ender live \/home\/me\/here/);
    assert.equal(await row.locator("b .t").getAttribute("title"), long);
    const line = await row.evaluate((e) => [e.querySelector("b"), e.querySelector(".path")].map((x) => x.getBoundingClientRect().top));
    assert.ok(Math.abs(line[0] - line[1]) < 10, "one line: " + line);
    assert.match(await page.locator("rf-session h3").innerText(), /^beginx+…216 more…x+ender$/);
    await page.evaluate(() => { location.hash = "ask"; });
  },

  async "clicks on Deny grant nothing, whatever moves"() {
    state = lab.seed;
    let clicks = 0;
    const done = {};
    for (let round = 0; clicks < lab.clicks; round++) {
      assert.ok(round < 100 + 4 * lab.clicks, `after ${clicks} clicks there is no Deny on the screen`);
      await page.evaluate(() => { // what scrolled under the pointer may have been a link or a button of the page's head
        document.getElementById("sure").close();
        location.hash = "ask";
      });
      while (questions.length < 4) questions.push(question());
      await push();
      await pass(pick([100, 800, 1500]));
      const places = await denials();
      if (!places.length || random() < 0.2) {
        await page.evaluate((n) => {
          const list = [...document.querySelectorAll("rf-question button[data-key=d]")].filter((b) => b.checkVisibility({ visibilityProperty: true }));
          list[n % list.length]?.scrollIntoView({ block: ["center", "start", "end"][n % 3] });
        }, below(1000));
        continue;
      }
      aim = pick(places);
      await page.mouse.move(aim.x, aim.y);
      for (let n = 1 + below(3); n > 0; n--) {
        const name = pick([...Object.keys(changes), "nudge", "nudge", "withdraw", "look"]);
        done[name] = (done[name] ?? 0) + 1;
        await changes[name]();
        await pass(below(400));
      }
      for (let n = 1 + below(3); n > 0 && clicks < lab.clicks; n--) {
        clicks++;
        await page.mouse.down();
        if (random() < 0.2) await changes[pick(Object.keys(changes))]();
        await pass(below(80));
        await page.mouse.up();
        await pass(below(500));
      }
      const gone = new Set(answers.map((a) => a.id));
      questions = questions.filter((q) => !gone.has(q.id));
    }
    const denied = answers.length - grants().length;
    assert.equal(grants().length, 0, `${grants().length} grants by ${clicks} clicks on Deny (seed ${lab.seed})`);
    assert.ok(denied > clicks / 10, `only ${denied} denials by ${clicks} clicks`);
    return `${clicks} clicks, ${denied} denials, 0 grants, seed ${lab.seed}, ${JSON.stringify(done)}`;
  },
};

const browser = await open();
try {
  for (const [name, check] of Object.entries(checks)) {
    try {
      const begun = Date.now();
      const note = await check();
      process.stdout.write(JSON.stringify({ name, ok: true, note: `${Date.now() - begun} ms; ${note ?? ""}` }) + "\n");
    } catch (e) {
      process.stdout.write(JSON.stringify({ name, ok: false, error: e.stack ?? String(e) }) + "\n");
    }
  }
} finally {
  await browser.close();
  server.close();
  server.closeAllConnections();
}
