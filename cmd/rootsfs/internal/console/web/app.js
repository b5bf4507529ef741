// The page: which view is shown, and what is the same in all of them.

import { enter, follow, key, post, Failure } from "/api.js";
import { drawn, changed, store, take, waiting } from "/store.js";
import { clock, h, plain, put, t } from "/dom.js";
import { say, sayEnded, sayError } from "/said.js";
import { notices } from "/notices.js";
import { themes } from "/theme.js";
import "/now.js";
import "/ask.js";
import "/history.js";

const main = document.getElementById("main");
const views = { now: "rf-now", ask: "rf-ask", history: "rf-history" };
let shown = "";

// show brings the view that the address names to the front. It is made anew, but
// for what the store keeps.
function show(name, focus) {
  name = views[name] ? name : "now";
  if (name === shown) return;
  shown = name;
  for (const a of document.querySelectorAll("nav a")) {
    if (a.dataset.view === name) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  main.replaceChildren(document.createElement(views[name]));
  document.title = "rootsfs: " + name;
  if (focus) main.focus();
  changed();
}

function head() {
  const n = waiting().length;
  const badge = document.getElementById("asked");
  badge.hidden = n === 0;
  put(badge, n ? String(n) : "");
  badge.setAttribute("aria-label", n === 1 ? "1 question waits" : n + " questions wait");
  const link = document.getElementById("link");
  put(link, store.connected ? "live" : "not connected");
  link.classList.toggle("off", !store.connected);
  const lost = document.getElementById("lost");
  // A moment is nobody's concern, and nothing is known before the first answer.
  lost.hidden = store.connected || !since || Date.now() - since < patience;
  if (!lost.hidden) put(lost, `Not connected since ${clock(since)}: what is shown is as it was then. If the console has ended, start it again in a terminal: rootsfs console`);
}

const patience = 3000;
let since = 0; // when the connection was lost

async function everything() {
  const sure = document.getElementById("sure");
  sure.returnValue = "no";
  sure.showModal();
  await new Promise((done) => sure.addEventListener("close", done, { once: true }));
  if (sure.returnValue !== "yes") return;
  try {
    sayEnded(await post("/api/revoke", { everything: true }));
  } catch (e) {
    sayError(e);
  }
}

// stranger tells who has no key what to do.
function stranger(why) {
  main.replaceChildren(h("section", { class: "stranger" },
    h("h2", {}, "This browser is not let in"),
    h("p", {}, why ? t(why) : "The page opens with a link that works once."),
    h("p", {}, "In a terminal: ", h("code", {}, "rootsfs console"), ", then open the link it prints. Where it runs already, press Enter for another link."),
  ));
  document.title = "rootsfs: not let in";
}

// stay follows the sessions for as long as the console runs.
async function stay() {
  for (let pause = 500; ; pause = Math.min(pause * 2, 10000)) {
    try {
      await follow((u) => {
        store.connected = true;
        since = 0;
        pause = 500;
        take(u);
        notices();
      });
    } catch (e) {
      if (e instanceof Failure && e.status === 401) {
        store.connected = false;
        changed();
        return stranger("The console that this page belonged to has ended, or another browser was let in instead.");
      }
    }
    if (store.connected) since = Date.now();
    store.connected = false;
    changed();
    setTimeout(changed, patience + 100);
    await new Promise((done) => setTimeout(done, pause));
  }
}

async function begin() {
  themes(document.getElementById("theme"));
  drawn(head);
  const link = location.hash.slice(1);
  if (/^[A-Z2-7]{26}$/.test(link)) {
    // Not to stay in the history, where it would be of no use.
    history.replaceState(null, "", "/#now");
    try {
      await enter(link);
    } catch (e) {
      if (!key()) return stranger(plain(e.message));
      say("The link did not work; this browser was in already.");
    }
  }
  if (!key()) return stranger();
  document.getElementById("everything").addEventListener("click", everything);
  addEventListener("hashchange", () => show(location.hash.slice(1), true));
  show(location.hash.slice(1), false);
  stay();
}

begin();
