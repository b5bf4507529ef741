// Drives the console's page in Chromium. It is started by page_test.go, which gives
// it a lab in LAB (JSON: work, binary, env, shots) and reads a line of JSON for each flow:
// {"name", "ok", "error", "note"}. Waiting has long limits, which only end what has
// failed.

import { execFileSync, spawn } from "node:child_process";
import fs from "node:fs";
import { createRequire } from "node:module";
import readline from "node:readline";
import assert from "node:assert/strict";

const lab = JSON.parse(process.env.LAB);
const require = createRequire(lab.modules + "/");
const { chromium } = require("playwright-core");
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const { work } = lab;

const say = (r) => process.stdout.write(JSON.stringify(r) + "\n");
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// What runs as script if it is ever taken for markup, and what turns text around.
const evil = `<img src=x onerror="window.pwned=1"></script><script>window.pwned=1</script>\u202egnp.\u0007`;

async function until(what, ok, times = 1200) {
  for (let i = 0; i < times; i++) {
    const r = await ok();
    if (r) return r;
    await sleep(50);
  }
  throw new Error("never happened: " + what);
}

// The console, and its links: Enter gives another one.
const proc = spawn(lab.binary, ["console", "--json"], { env: lab.env, stdio: ["pipe", "pipe", "inherit"] });
// The console must not outlive this script, which a failed test interrupts.
process.on("exit", () => proc.kill("SIGINT"));
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(1));
const linesOut = readline.createInterface({ input: proc.stdout })[Symbol.asyncIterator]();
const nextLink = async () => JSON.parse((await linesOut.next()).value).url;
const newLink = () => {
  proc.stdin.write("\n");
  return nextLink();
};

let asked = 1000;
// ask makes a server ask for consent, and returns what waits for its answer.
function ask(box, message, mode, ...requestedPaths) {
  const id = ++asked;
  fs.appendFileSync(`${work}/${box}/say`, JSON.stringify({ jsonrpc: "2.0", id, method: "files/consent", params: { message, mode, requestedPaths } }) + "\n");
  return () => until("the server hears", () => {
    const text = fs.existsSync(`${work}/${box}/heard`) ? fs.readFileSync(`${work}/${box}/heard`, "utf8") : "";
    const line = text.split("\n").find((l) => l.includes(`"id":${id},`));
    return line && JSON.parse(line).result;
  });
}

// start starts Chromium. Chromium is started again if it crashes before it has a page.
async function start(times = 3) {
  try {
    return await chromium.launch({ executablePath: lab.chromium, args: [...lab.flags, "--js-flags=--expose-gc"] });
  } catch (e) {
    if (times === 1) throw e;
    return start(times - 1);
  }
}
const browser = await start();
const owner = await browser.newContext({ viewport: { width: 1200, height: 900 }, acceptDownloads: true });
owner.setDefaultTimeout(60000);
const wrong = []; // what the browser complained of

async function open(view, options = {}) {
  const page = await owner.newPage();
  page.on("console", (m) => m.type() === "error" && wrong.push(m.text()));
  page.on("pageerror", (e) => wrong.push(e.message));
  if (options.dark) await page.emulateMedia({ colorScheme: "dark" });
  if (options.init) await page.addInitScript(options.init);
  if (options.size) await page.setViewportSize(options.size);
  await page.goto(origin + "/#" + view);
  await page.waitForSelector(`rf-${view}`);
  return page;
}

const card = (page, text) => page.locator("rf-question", { hasText: text });
const root = (page, name, within = page) => within.locator("rf-root", { has: page.locator("b", { hasText: new RegExp(`^${name}$`) }) });
// ready waits until a question takes answers.
const ready = (c) => c.locator("button[data-key=d]:not([aria-disabled=true])").waitFor();
// insists reads a question to its end and does again what grants until it has: a button
// that has just moved takes no press.
const insists = (c, press) => {
  let seen = false;
  const allowed = c.getByText("Allowed:").first().waitFor({ timeout: 0 }).then(() => (seen = true), () => false);
  const again = async () => {
    await c.locator(".details").evaluate((e) => e.scrollTo(0, e.scrollHeight));
    // To the middle: the bar at the top may cover a button that the browser calls in view.
    await c.locator("button[data-key=r]").evaluate((e) => e.scrollIntoView({ block: "center" }));
    await sleep(1000);
    await press();
    return false;
  };
  // The answer may come, and take the buttons away, while they are waited for.
  return until("it is allowed", () => Promise.race([allowed, again().catch((e) => {
    if (seen) return true;
    throw e;
  })]), 60);
};

// scan reports serious findings. Of many rows of a kind some are enough.
async function scan(page, where) {
  await page.evaluate(() => document.querySelectorAll("tbody tr:nth-child(n+12)").forEach((e) => e.remove()));
  // Half way through a transition a colour is neither the one nor the other.
  await page.evaluate(() => Promise.allSettled(document.getAnimations().map((a) => a.finished)));
  if (!await page.evaluate(() => "axe" in globalThis)) await page.evaluate(axe);
  const r = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"], runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"] }));
  const bad = r.violations.filter((v) => v.impact === "serious" || v.impact === "critical");
  assert.deepEqual(bad.map((v) => [where, v.id, v.nodes.map((n) => n.html.slice(0, 160)).slice(0, 4)]), []);
}

const link = await nextLink();
const origin = new URL(link).origin;

const flows = {
  async "the link lets one browser in, once"() {
    const page = await owner.newPage();
    await page.goto(link);
    await page.waitForSelector("rf-root");
    assert.ok(!page.url().includes(link.split("#")[1]), "the secret stays in the address");
    const cookies = await owner.cookies();
    assert.ok(cookies.length === 1 && cookies[0].httpOnly && cookies[0].sameSite === "Strict", JSON.stringify(cookies));
    const thief = await browser.newContext();
    thief.setDefaultTimeout(60000);
    const stolen = await thief.newPage();
    await stolen.goto(link);
    await stolen.getByText("This browser is not let in").waitFor();
    await stolen.getByText("used already").waitFor();
    assert.equal(await stolen.locator("rf-root").count(), 0);
    // The cookie alone, as another server on this address would see it, is of no use.
    await thief.addCookies(cookies);
    assert.equal(await stolen.evaluate(() => fetch("/api/verify").then((r) => r.status)), 401);
    await thief.close();
    await page.close();
  },

  // R007, R083, R090, R136, R146
  async "sessions, roots and refusals show as they happen"() {
    const page = await open("now");
    await page.getByText("confined: namespaces").first().waitFor();
    await page.getByText("network of approved hosts").first().waitFor();
    await page.getByText("0 connections open, of 0; 0 B sent").first().waitFor();
    await root(page, "code").getByText("live").waitFor();
    await root(page, "out").getByText("written 0 B of 20.0 MB").waitFor();
    fs.writeFileSync(work + "/mnt/out/data", Buffer.alloc(3 << 20));
    await root(page, "out").getByText("written 3.0 MB of 20.0 MB").waitFor();
    assert.throws(() => fs.writeFileSync(work + "/mnt/code/" + evil.replaceAll("/", "_"), "x"));
    const line = page.locator(".refusals li", { hasText: "window.pwned" });
    await line.waitFor();
    assert.match(await line.innerText(), /create.*<img src=x onerror=.*\\u\{202e\}gnp\.\\u\{7\}.*ReadOnly/s);
    await until("the charts are drawn", () => page.locator(".chart canvas").count().then((n) => n >= 2));
    await until("the charts say so", async () => /bytes|written/i.test(await page.locator(".chart").nth(1).getAttribute("aria-label")));
    await page.getByText("Policy in force").first().click();
    await page.getByText("environment files hold passwords").first().waitFor();
    await page.close();
  },

  async "staged changes are looked at, applied and discarded by file"() {
    const put = (dir, files) => Object.entries(files).forEach(([name, text]) => fs.writeFileSync(`${work}/${dir}/${name}`, text));
    const odd = "odd" + evil.replaceAll("/", "_");
    fs.mkdirSync(work + "/drafts");
    put("drafts", { a: "one\ntwo\n", both: "old\n" });
    execFileSync(lab.binary, ["roots", "add", work + "/drafts:stage", "--session", "work"], { env: lab.env });
    put("mnt/drafts", { a: "one\n" + evil + "\n", both: "staged\n", [odd]: "x\n" });
    put("drafts", { both: "mine\n" });
    const page = await open("now");
    const button = root(page, "drafts").locator("button.staged");
    await button.getByText("3 changes staged").waitFor();
    await button.click();
    const d = page.locator("dialog.stage");
    const act = (name) => d.getByRole("button", { name, exact: true });
    // A press is answered before the button takes another.
    const press = (name, said) => until(said, async () => {
      await until(name + " takes a press", async () => (await act(name).getAttribute("aria-disabled")) === "false");
      if ((await d.locator(".outcome").innerText()).includes(said)) return true;
      await act(name).click();
    }, 20);
    const pick = (name) => d.locator(".change", { hasText: name }).first().click();
    await d.locator(".change").nth(2).waitFor();
    await scan(page, "stage");
    const place = await act("Apply it").boundingBox();
    await pick("both");
    await d.getByText("by you at").waitFor();
    await d.locator(".line", { hasText: "+staged" }).waitFor();
    await press("Apply it", "Not done: both");
    await pick("odd");
    assert.match(await d.locator("h3").innerText(), /odd<img src=x onerror=.*\\u\{202e\}gnp\.\\u\{7\}/);
    await press("Discard it", "Discarded.");
    await pick("a");
    await d.locator(".line", { hasText: "-two" }).waitFor();
    assert.match(await d.locator(".diff").innerText(), /\+<img src=x onerror=.*\\u\{202e\}gnp\.\\u\{7\}/);
    await press("Apply it", "Applied.");
    assert.deepEqual(await act("Apply it").boundingBox(), place, "the buttons have moved");
    assert.ok(fs.readFileSync(work + "/drafts/a", "utf8").includes("window.pwned"));
    assert.ok(!fs.existsSync(work + "/drafts/" + odd) && !fs.existsSync(work + "/mnt/drafts/" + odd));
    assert.equal(fs.readFileSync(work + "/drafts/both", "utf8"), "mine\n");
    await act("Close").click();
    execFileSync(lab.binary, ["revoke", "drafts", "--session", "work"], { env: lab.env });
    await page.close();
  },

  // R068, R087, R088, R089
  async "consent is narrowed and approved, by the keyboard alone"() {
    const told = ask("box", "to index " + evil, "rw", work + "/ask/proj");
    const page = await open("now");
    await page.locator("#asked:not([hidden])").waitFor();
    await page.locator("nav a").nth(1).focus();
    await page.keyboard.press("Enter");
    const c = card(page, "to index");
    await ready(c);
    assert.ok((await c.locator("blockquote").innerText()).includes("to index <img src=x onerror=\"window.pwned=1\"></script>"));
    assert.match(await c.locator("blockquote").innerText(), /\\u\{202e\}gnp\.\\u\{7\}/);
    await c.getByText(work + "/ask/proj", { exact: true }).waitFor();
    await c.getByText("2 files, 4 B").waitFor();
    await c.getByText("The policy would hide 2 names").waitFor();
    assert.match(await c.locator(".left").innerText(), /^\d+m?\d*s? ?left$|left$/);
    // From the top of the view to the question, past those of other flows, into its
    // fields, by Tab.
    const at = () => c.evaluate((e) => e.contains(document.activeElement) ? document.activeElement.tagName + "." + document.activeElement.className : "");
    await until("the question has the focus", async () => {
      await page.keyboard.press("Tab");
      return (await at()).includes("question");
    });
    await until("the field has the focus", async () => {
      await page.keyboard.press("Tab");
      return (await at()).startsWith("INPUT");
    });
    await page.keyboard.type(work + "/ask/proj/docs");
    await page.keyboard.press("Tab");
    await page.keyboard.press("ArrowDown");
    await until("a time is chosen", () => c.locator("select").inputValue().then((v) => v !== "0"));
    await page.keyboard.press("Tab");
    await insists(c, () => page.keyboard.press("r"));
    const r = await told();
    assert.ok(r.granted && r.approved[0].mode === "ro" && r.approved[0].expires && r.approvedPaths[0].endsWith("/docs"), JSON.stringify(r));
    await c.getByText("Allowed:").waitFor();
    await page.close();
  },

  async "consent is approved as asked, some of it"() {
    const told = ask("box", "both please", "rw", work + "/ask/proj", work + "/ask/other");
    const page = await open("ask");
    const c = card(page, "both please");
    await ready(c);
    await c.locator("input[type=checkbox]").first().uncheck();
    await insists(c, async () => {
      await page.mouse.move(0, 0);
      await c.locator("button[data-key=w]").click();
    });
    const r = await told();
    assert.deepEqual([r.approvedPaths, r.approved[0].mode], [[work + "/ask/other"], "rw"]);
    await page.close();
  },

  async "a key allows nothing whose end is not on the screen"() {
    const told = ask("box", "a long list", "ro", ...["proj", "other", "more", "proj/docs"].map((d) => `${work}/ask/${d}`));
    const page = await open("ask", { size: { width: 400, height: 300 } });
    const c = card(page, "a long list");
    await ready(c);
    await c.locator(".question").focus();
    await page.evaluate(() => scrollTo(0, 0));
    await page.keyboard.press("r");
    await c.getByText("Not all of the question was on the screen").waitFor();
    await insists(c, () => page.keyboard.press("r"));
    const r = await told();
    assert.ok(r.granted && r.approvedPaths.length === 4, JSON.stringify(r));
    await page.close();
  },

  async "consent is denied, and remembered, and asked for again"() {
    const told = ask("desk", "no please", "ro", work + "/ask/proj");
    const page = await open("ask");
    const c = card(page, "no please");
    await ready(c);
    await c.locator("button[data-key=d]").click();
    assert.deepEqual([(await told()).granted, (await told()).reason], [false, "denied"]);
    await c.getByText("Denied:").waitFor();
    const again = ask("desk", "for good", "ro", work + "/ask/proj");
    const d = card(page, "for good");
    await ready(d);
    await d.locator("button[data-key=m]").click();
    assert.equal((await again()).granted, false);
    const third = ask("desk", "once more", "ro", work + "/ask/proj/a.txt");
    assert.equal((await third()).granted, false);
    assert.equal(await card(page, "once more").count(), 0);
    const kept = page.locator("rf-denials li", { hasText: work + "/ask/proj" });
    await kept.waitFor();
    await scan(page, "denials");
    await kept.getByRole("button", { name: "Ask me again" }).click();
    await page.getByText("may ask again about").waitFor();
    await kept.waitFor({ state: "detached" });
    const fourth = ask("desk", "and again", "ro", work + "/ask/proj");
    await ready(card(page, "and again"));
    await card(page, "and again").locator("button[data-key=d]").click();
    assert.equal((await fourth()).granted, false);
    await page.close();
  },

  async "a question just come takes no answer, and one that is over stays in its place"() {
    const page = await open("ask", { init: () => { const late = setInterval; globalThis.setInterval = (f, ms, ...a) => late(f, ms === 100 ? 3e6 : ms, ...a); } });
    const told = ask("brief", "quick", "ro", work + "/ask/other");
    const c = card(page, "quick");
    await c.waitFor();
    assert.equal(await c.locator("button[data-key=r]").getAttribute("aria-disabled"), "true");
    await c.locator(".question").focus();
    await page.keyboard.press("r");
    assert.equal((await told()).reason, "timeout");
    await c.getByText("Nobody answered in time").waitFor();
    await c.getByText("Dismiss").click();
    await page.mouse.move(600, 5); // where it was stays empty while the pointer is there
    await until("it is gone", async () => (await c.count()) === 0);
    await page.close();
  },

  // R007
  async "the records are searched, verified and exported"() {
    const page = await open("history");
    await page.locator("tbody tr").first().waitFor();
    await page.getByLabel("Verdict").selectOption("refused");
    await page.getByLabel("Session", { exact: true }).fill("work");
    await page.getByRole("button", { name: "Search" }).click();
    await until("only refusals are left", async () => {
      const texts = await page.locator("tbody tr td:nth-child(6)").allInnerTexts();
      return texts.length > 0 && texts.every((x) => x === "refused");
    });
    assert.match(await page.locator("tbody").innerText(), /<img src=x onerror=/);
    await page.getByRole("button", { name: "Verify the chain" }).click();
    await page.getByText(/work: whole, \d+ records/).waitFor();
    const [d] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Export" }).click()]);
    const text = fs.readFileSync(await d.path(), "utf8");
    assert.ok(text.startsWith('{"seq":') && text.includes("window.pwned"), text.slice(0, 200));
    await page.close();
  },

  async "notifications hold text and come only unseen"() {
    const page = await open("now", { init: () => {
      globalThis.shown = [];
      globalThis.Notification = class { static permission = "granted"; constructor(title, o) { globalThis.shown.push([title, o.body]); } close() {} };
      Object.defineProperty(document, "hidden", { get: () => globalThis.away === true });
    } });
    await root(page, "code").waitFor();
    await page.evaluate(() => { globalThis.away = true; });
    ask("brief", "notice me", "ro", work + "/ask/other");
    // Other flows ask, too, meanwhile; this server's name is its own.
    const list = await until("a notification", async () => {
      const all = await page.evaluate(() => globalThis.shown);
      return all.some(([, body]) => body === "brief") && all;
    });
    assert.equal(list.filter(([, body]) => body === "brief").length, 1);
    for (const [title] of list) assert.equal(title, "A server asks for access to files");
    await page.close();
  },

  async "no serious finding of axe in any view, light and dark, and narrow"() {
    const told = ask("box", "look at me", "rw", work + "/ask/more");
    const seen = new Set();
    for (const [dark, size] of [[false, undefined], [true, { width: 360, height: 740 }]]) {
      const page = await open("now", { dark, size });
      for (const view of ["now", "ask", "history"]) {
        await page.locator(`nav a[data-view=${view}]`).click();
        await page.locator({ now: "rf-root", ask: "rf-question .inside b", history: "tbody tr" }[view]).first().waitFor();
        if (view === "ask") await ready(card(page, "look at me"));
        await scan(page, `${view} ${dark ? "dark" : "light"}`);
        const wide = await page.evaluate(() => document.scrollingElement.scrollWidth - innerWidth);
        assert.ok(wide <= 0, `${view} is ${wide} pixels wider than the screen`);
      }
      const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      seen.add(await paper());
      if (!dark) { // the button goes before the system
        await page.locator("#theme").click();
        await page.locator("#theme").click();
        assert.equal(await page.locator("#theme").getAttribute("aria-label"), "Theme: dark");
        seen.add(await paper());
        await page.locator("#theme").click();
      }
      await page.close();
    }
    assert.equal(seen.size, 2, "two themes: " + [...seen]);
    const page = await open("ask");
    await ready(card(page, "look at me"));
    await card(page, "look at me").locator("button[data-key=d]").click();
    await told();
    await page.close();
  },

  // Thousands of events in a few seconds, and a page that still answers. It keeps only some of them.
  async "a flood of events neither fills nor freezes the page"() {
    const page = await open("now", { init: () => {
      globalThis.frames = 0;
      globalThis.draws = 0;
      const raf = requestAnimationFrame;
      const count = () => { globalThis.frames++; raf(count); };
      raf(count);
      globalThis.requestAnimationFrame = (f) => raf((t) => { globalThis.draws++; f(t); });
    } });
    await root(page, "code").waitFor();
    const heap = () => page.evaluate(() => { globalThis.gc(); return performance.memory.usedJSHeapSize; });
    const before = await heap();
    const start = await page.evaluate(() => [globalThis.frames, globalThis.draws]);
    const begun = Date.now();
    const events = lab.soak ? 10000 : 2000;
    let answers = 0;
    for (let n = 0; n < events;) {
      for (const stop = n + 250; n < stop; n++) {
        try { fs.openSync(work + "/mnt/code/flood" + n, "w"); } catch (e) { assert.equal(e.code, "EROFS"); }
      }
      await page.evaluate(() => new Promise((done) => setTimeout(done))); // the page answers meanwhile
      answers++;
      await sleep(Math.max(0, begun + 0.2 * n - Date.now()));
    }
    const took = Date.now() - begun;
    await page.locator(".refusals li", { hasText: `flood${events - 1}` }).waitFor();
    const [frames, draws] = await page.evaluate(() => [globalThis.frames, globalThis.draws]);
    assert.ok(draws - start[1] <= frames - start[0] + 1, `${draws - start[1]} draws in ${frames - start[0]} frames`);
    for (const list of await page.locator(".refusals").all()) assert.ok((await list.locator("li").count()) <= 8);
    assert.ok((await page.evaluate(() => document.querySelectorAll("*").length)) < 3000);
    const grown = (await heap()) - before;
    assert.ok(grown < 2048 * events, `the heap has grown by ${grown} bytes`);
    await page.close();
    return `${events} refusals in ${took} ms: ${draws - start[1]} draws in ${frames - start[0]} frames, ${answers} answers, heap ${grown >= 0 ? "+" : ""}${(grown / 1048576).toFixed(1)} MB`;
  },

  // R105, R116
  async "a root is added and its mode changed from the page"() {
    const page = await open("now");
    const s = page.locator("rf-session", { has: page.locator("h3", { hasText: "work" }) });
    await s.getByRole("button", { name: "Add a root" }).click();
    await page.getByLabel("Directory or file, absolute").fill(work + "/nope");
    await page.getByRole("button", { name: "Approve" }).click();
    await page.getByRole("alert").getByText("does not exist").waitFor();
    await page.getByLabel("Directory or file, absolute").fill(work + "/ask/other");
    await page.getByRole("button", { name: "Approve" }).click();
    await s.locator("rf-root", { hasText: work + "/ask/other" }).waitFor();
    assert.ok(fs.readdirSync(work + "/mnt").includes("other"));
    await root(page, "other", s).locator("select").selectOption("rw");
    await until("it can be written to", () => { try { fs.writeFileSync(work + "/mnt/other/new", "x"); return true; } catch { return false; } });
    await page.close();
  },

  // R094: last, for what it ends.
  async "what is revoked is dead in the hands of who holds it"() {
    const held = fs.openSync(work + "/mnt/code/README.md");
    const other = fs.openSync(work + "/mnt/out/data");
    const read = (fd) => { try { return fs.readSync(fd, Buffer.alloc(1), 0, 1, 0); } catch (e) { return e.code; } };
    assert.equal(read(held), 1);
    const page = await open("now");
    await root(page, "code").getByRole("button", { name: "Revoke" }).click();
    await page.getByText(/code revoked in [\d.]+ ms/).waitFor();
    assert.match(String(read(held)), /^E/);
    assert.equal(read(other), 1);
    await page.locator("#everything").click();
    await page.keyboard.press("Escape");
    assert.equal(read(other), 1);
    await page.locator("#everything").click();
    await page.getByRole("dialog").getByRole("button", { name: "Revoke everything" }).click();
    await page.getByText(/Ended \d+ roots in [\d.]+ ms/).waitFor();
    assert.match(String(read(other)), /^E/);
    await until("the page knows", async () => (await page.locator("rf-root").count()) === 0);
    fs.closeSync(held);
    fs.closeSync(other);
    await page.close();
  },

  async "nothing of a server ran as script, and the page broke no rule of its own"() {
    const page = await open("ask");
    assert.equal(await page.evaluate(() => globalThis.pwned), undefined);
    assert.equal(await page.locator("img").count(), 0);
    // Refusals that the flows provoked are told by the browser, too.
    assert.deepEqual(wrong.filter((x) => !/status of (4\d\d)/.test(x)), []);
    await page.close();
  },

  async "a page whose console has ended says so, and shows what it knew"() {
    const page = await open("now");
    await page.locator("rf-session h3", { hasText: "work" }).waitFor();
    assert.ok(await page.locator("#lost").isHidden());
    proc.kill("SIGINT");
    await page.locator("#lost", { hasText: "Not connected since" }).waitFor();
    await page.getByText("not connected", { exact: true }).waitFor();
    await page.locator("rf-session h3", { hasText: "work" }).waitFor();
    await page.close();
  },
};

// shots writes the pictures of the README.
async function shots() {
  const first = await owner.newPage();
  await first.goto(link);
  await first.waitForSelector("rf-root");
  await first.close();
  const now = await open("now");
  for (let i = 0; i < 60; i++) {
    fs.writeFileSync(`${work}/mnt/out/report-${i % 7}.txt`, "x".repeat(20000 + 15000 * Math.round(Math.abs(Math.sin(i / 6)) * 10)));
    for (let k = 0; k < (i % 12) * 3; k++) fs.readFileSync(work + "/mnt/code/docs/guide.md");
    if (i % 9 === 3) try { fs.writeFileSync(work + "/mnt/code/README.md", "x"); } catch { /* that is the point */ }
    if (i % 20 === 7) try { fs.readFileSync(work + "/mnt/code/.env"); } catch { /* the same */ }
    await sleep(150);
  }
  ask("box", "To build a search index of your project, so that I can answer questions about it.", "rw", work + "/ask/proj");
  await now.locator("#asked:not([hidden])").waitFor();
  await sleep(1200);
  await now.screenshot({ path: lab.shots + "/now.png", fullPage: true });
  const dark = await open("ask", { dark: true });
  await ready(card(dark, "search index"));
  await card(dark, "search index").getByText("would hide").waitFor();
  await dark.screenshot({ path: lab.shots + "/ask.png", clip: { x: 0, y: 0, width: 1200, height: 620 } });
  const history = await open("history");
  await history.getByLabel("Session", { exact: true }).fill("work");
  await history.getByLabel("Path", { exact: true }).fill("{README.md,.env,report-1.txt}");
  await history.getByRole("button", { name: "Search" }).click();
  await history.locator("tbody tr", { hasText: "README.md" }).first().waitFor();
  await history.getByRole("button", { name: "Verify the chain" }).click();
  await history.getByText(/work: whole/).waitFor();
  await sleep(300);
  await history.screenshot({ path: lab.shots + "/history.png", clip: { x: 0, y: 0, width: 1200, height: 760 } });
  const phone = await open("ask", { size: { width: 390, height: 844 } });
  await ready(card(phone, "search index"));
  await card(phone, "search index").getByText("would hide").waitFor();
  await phone.screenshot({ path: lab.shots + "/phone.png", fullPage: true });
}

// Those that have the keyboard, measure the page, change what others look at or end
// it run alone, after the others and in this order.
const first = "the link lets one browser in, once";
const alone = [
  "consent is narrowed and approved, by the keyboard alone",
  "a key allows nothing whose end is not on the screen",
  "a question just come takes no answer, and one that is over stays in its place",
  "a flood of events neither fills nor freezes the page",
  "a root is added and its mode changed from the page",
  "what is revoked is dead in the hands of who holds it",
  "nothing of a server ran as script, and the page broke no rule of its own",
  "a page whose console has ended says so, and shows what it knew",
];

async function one(name) {
  if (process.env.FLOWS && name !== first && !new RegExp(process.env.FLOWS).test(name)) return; // while writing one
  try {
    const begun = Date.now();
    const note = await flows[name]();
    say({ name, ok: true, note: `${Date.now() - begun} ms${note ? "; " + note : ""}` });
  } catch (e) {
    const texts = [];
    for (const p of owner.pages()) texts.push((await p.locator("main").innerText({ timeout: 5000 }).catch(() => "")).slice(0, 1500));
    say({ name, ok: false, error: [e.stack ?? e, ...wrong, ...texts].join("\n") });
  }
}

try {
  if (lab.shots) {
    await shots();
  } else {
    await one(first);
    const rest = Object.keys(flows).filter((name) => name !== first && !alone.includes(name));
    await Promise.all([1, 2, 3].map(async () => {
      while (rest.length) await one(rest.shift());
    }));
    for (const name of alone) await one(name);
  }
} finally {
  await browser.close();
  proc.kill("SIGINT");
}
