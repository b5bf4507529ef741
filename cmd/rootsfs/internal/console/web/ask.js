// Ask: what servers want, and the owner's answer.

import { post } from "/api.js";
import { answer, dismiss, drawn, store } from "/store.js";
import { h, keyed, many, name, put, size, span, t } from "/dom.js";
import { durations, options } from "/forms.js";
import { Denials } from "/denials.js";

// A question that has just come takes no answer for a moment, and a button that
// grants takes none until it has been in one place for as long: a person who was about
// to press something else did not mean it. The places are read every look
// milliseconds, and steady is how many readings in a row must agree.
const look = 100;
const steady = 7;
// pointer is where the pointer was last: a button that came to lie under one at rest
// was not aimed at.
let pointer = "";
for (const type of ["pointermove", "pointerdown"]) addEventListener(type, (e) => { pointer = `${e.screenX},${e.screenY}`; }, true);

const mostReached = 16; // hosts that are shown as reached
const mostShown = 200; // questions on the page, with those that only keep their place

class Ask extends HTMLElement {
  connectedCallback() {
    this.list = h("div", { class: "questions", onpointerleave: () => this.draw() });
    this.shown = [];
    this.denials = new Denials();
    this.none = h("section", { class: "empty" }, h("h2", {}, "Nobody asks"), h("p", {}, "When a server asks for a path that nobody approved, or a command connects to a host without a rule, the question shows here."));
    this.replaceChildren(h("h2", { class: "off-screen" }, "Questions"), this.list, this.none, this.denials);
    this.stop = drawn(() => this.draw());
    this.tick = setInterval(() => this.draw(), 1000);
    this.watch = setInterval(() => [...this.list.children].forEach((e) => e.watch()), look);
    this.draw();
  }

  disconnectedCallback() {
    this.stop();
    clearInterval(this.tick);
    clearInterval(this.watch);
  }

  // draw removes no question while the pointer is among them: what has gone leaves its
  // place empty, and what is new stands behind all others.
  draw() {
    const live = new Map(store.questions.map((q) => [q.id, q]));
    const kept = this.list.matches(":hover") && this.shown.length < mostShown ? this.shown.map((q) => live.get(q.id) ?? q) : [];
    this.shown = [...new Set([...kept, ...store.questions])];
    this.none.hidden = this.shown.length > 0 || !store.connected;
    keyed(this.list, this.shown, (q) => q.id, (q) => new QuestionCard(q), (e, q) => e.draw(q, !live.has(q.id)));
    this.denials.draw();
  }
}

class QuestionCard extends HTMLElement {
  constructor(q) {
    super();
    this.q = q;
  }

  connectedCallback() {
    if (!this.left) this.build();
  }

  // build shows the question anew.
  build() {
    const q = this.q;
    const id = "q-" + q.id;
    this.left = h("span", { class: "left", role: "timer", "aria-live": "off" });
    this.bar = h("progress", { max: 1, "aria-label": "Time left" });
    this.items = q.items.map((it, i) => this.item(it, i));
    this.wrong = h("p", { class: "bad wrong", role: "alert" });
    this.outcome = h("p", { class: "outcome", role: "status" });
    this.time = h("select", {}, options(durations, "0"));
    this.path = h("input", { autocomplete: "off", spellcheck: false, placeholder: "all of it" });
    this.forget = h("button", { type: "button", onclick: () => dismiss(q.id) }, "Dismiss");
    const more = q.items.some((it) => !it.problem && it.mode !== "ro");
    const key = (k) => h("kbd", {}, k);
    const button = (k, cls, what, ...label) => h("button", { type: "button", class: cls, "data-key": k, onclick: (e) => this.click(e, what) }, ...label, " ", key(k));
    this.buttons = (q.host ? [
      button("w", "danger", { approve: true }, "Allow this host"),
      button("d", "", { remember: true }, "Deny until the session ends"),
    ] : [
      button("r", "go", { approve: true, mode: "ro" }, "Allow read-only"),
      more && button("w", "danger", { approve: true }, "Allow as asked: ", t(this.modes())),
      button("d", "", {}, "Deny"),
      button("m", "", { remember: true }, "Deny and remember"),
    ]).filter(Boolean);
    this.grants = this.buttons.filter((b) => "rw".includes(b.dataset.key));
    this.form = h("div", { class: "answer" },
      h("div", { class: "row" }, q.host ? "" : h("label", {}, "Only this, below what is asked for", this.path), h("label", {}, "For as long as", this.time)),
      h("div", { class: "row" }, this.buttons));
    this.details = h("div", { class: "details", tabIndex: 0, role: "region", "aria-label": "What is asked for" }, q.host ? this.host() : this.files());
    this.card = h("section", {
      class: "card question", tabIndex: 0, "aria-labelledby": id, onkeydown: (e) => this.press(e),
      onpointerdown: (e) => { this.down = this.settled() && e.target.closest("button"); },
      onfocusin: (e) => { if (e.target !== this.down) this.calm = 0; },
    },
    h("header", {}, h("h3", { id }, ...this.heading()), this.left),
    this.bar, this.details, this.wrong, this.form, this.outcome);
    this.replaceChildren(this.card);
    // age is for how many looks this question has been here, calm for how many its
    // buttons have been in their place, rest where the pointer was when they came there,
    // and read the height of what has been on the screen to its end.
    Object.assign(this, { age: 0, calm: 0, rest: pointer, at: "", down: null, read: 0, busy: false });
    this.lock();
    this.looks();
  }

  heading() {
    const q = this.q;
    if (q.host) return ["The command of ", h("b", {}, name(q.session)), " asks for a connection"];
    return [h("b", {}, name(q.server || q.subject || "A server")), " asks for access"];
  }

  // files shows the paths that a server asks for.
  files() {
    const q = this.q;
    return [
      h("ol", { class: "items" }, this.items),
      h("p", { class: "who" }, "Subject ", t(q.subject || "(none)"), q.server ? [", which calls itself ", t(q.server)] : "", ", in session ", t(q.session)),
      h("figure", { class: "purpose" }, h("figcaption", {}, "Its reason, in its own words (not checked)"), h("blockquote", {}, q.message ? t(q.message) : h("span", { class: "soft" }, "none given"))),
    ];
  }

  // host shows the host that the command connects to, and what it has reached so far.
  host() {
    const { name: host, port, program, pid, reached, others } = this.q.host;
    const more = Math.max(0, reached.length - mostReached) + (others ?? 0);
    return [
      h("p", {}, t(host, "path"), ` port ${port}`),
      h("p", { class: "who" }, program ? ["Its program ", t(program, "path"), ` (process ${pid})`] : "Which of its programs it is, is not known"),
      h("p", {}, reached.length ? "It has reached so far:" : "It has reached no host so far."),
      h("ul", {}, reached.slice(0, mostReached).map((r) => h("li", {}, t(r.host, "path"), ` port ${r.port}: ${size(r.sent)} sent, ${size(r.received)} received`))),
      more > 0 ? h("p", { class: "soft" }, `and ${many(more, "host")} more`) : "",
    ];
  }

  modes() {
    return [...new Set(this.q.items.filter((it) => !it.problem).map((it) => it.mode))].join("; ");
  }

  // item shows one path: where it leads, and what is there.
  item(it, i) {
    const inside = h("p", { class: "inside soft" }, "to be looked at");
    const box = h("input", { type: "checkbox", checked: !it.problem, disabled: !!it.problem, "aria-label": `Path ${i + 1}` });
    const e = h("li", {},
      h("label", { class: "pick" }, this.q.items.length > 1 ? box : "", t(it.resolved || it.requested, "path")),
      h("span", { class: "badge " + (it.mode === "ro" ? "good" : "warn") }, t(it.mode)), it.file ? " this file alone" : " with everything below",
      it.resolved && it.resolved !== it.requested ? h("p", { class: "soft" }, "asked for as ", t(it.requested)) : "",
      it.problem ? h("p", { class: "bad" }, "Cannot be granted: ", t(it.problem)) : inside);
    e.box = box;
    e.inside = inside;
    return e;
  }

  // looks asks what is at each path, one after the other: of many, most would find
  // no place to be looked at.
  async looks() {
    const items = this.items;
    for (const [i, e] of items.entries()) {
      if (items === this.items && !this.q.items[i].problem && !store.over.has(this.q.id)) await this.look(i, e.inside);
    }
  }

  async look(i, place) {
    place.textContent = "looking at what is there";
    try {
      const a = await post("/api/inside", { id: this.q.id, item: i + 1 }, this.q.session);
      place.replaceChildren(
        h("b", {}, `${a.complete ? "" : "more than "}${many(a.files, "file")}, ${size(a.bytes)}`), ` in ${many(a.dirs, "directory", "directories")} below. `,
        a.withheld ? h("span", { class: "withheld" }, `The policy would hide ${many(a.withheld, "name")}, such as `, ...a.examples.slice(0, 3).flatMap((x, n) => [n ? ", " : "", t(x)]), ".") : "The policy would hide nothing there.");
    } catch (e) {
      place.replaceChildren("What is there could not be looked at: ", t(e.message));
    }
    this.calm = 0;
  }

  // place is where the buttons that grant are, with all that can bring them under a
  // pointer; "" if one of them cannot be seen.
  place() {
    const where = [screenX, screenY, devicePixelRatio, visualViewport.offsetLeft, visualViewport.offsetTop, visualViewport.scale, document.hasFocus()];
    for (const b of this.grants) {
      const { left, top, width, height } = b.getBoundingClientRect();
      const y = top + height / 2;
      if (!height || y < 0 || y > innerHeight || !b.contains(document.elementFromPoint(left + width / 2, y))) return "";
      where.push(left, top, width, height);
    }
    return where.join();
  }

  // watch is called every look milliseconds.
  watch() {
    const at = this.place();
    if (!at || at !== this.at) Object.assign(this, { at, calm: 0, rest: pointer });
    else this.calm++;
    this.age++;
    if (at) this.unread();
    this.lock();
  }

  settled() {
    return this.calm >= steady && this.at === this.place();
  }

  // unread reports whether the end of what is asked for has not been on the screen.
  unread() {
    const { scrollTop, clientHeight, scrollHeight } = this.details;
    if (scrollTop + clientHeight >= scrollHeight - 2) this.read = scrollHeight;
    return this.read !== scrollHeight;
  }

  // click answers if the button stood still from before it was pressed: a click without
  // detail is one of the keyboard.
  click(e, what) {
    if (this.busy || this.age < steady) return;
    if (what.approve && (!this.settled() || (e.detail && (this.down !== e.currentTarget || this.rest === pointer)))) {
      Object.assign(this, { calm: 0, rest: "" });
      return put(this.wrong, "The question has just come, moved or changed. Look again, then press once more.");
    }
    if (what.approve && this.unread()) return put(this.wrong, "There is more in the question than was on the screen. Read it to its end, then press once more.");
    this.decide(what);
  }

  press(e) {
    if (e.ctrlKey || e.altKey || e.metaKey || e.repeat || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) return;
    const b = this.buttons.find((x) => x.dataset.key === e.key.toLowerCase());
    if (!b || this.form.hidden) return;
    e.preventDefault();
    // What is allowed stands above the buttons: who does not see them has not come to
    // its end.
    const { top, bottom } = b.getBoundingClientRect();
    const bar = document.querySelector(".top").getBoundingClientRect().bottom;
    if ("rw".includes(b.dataset.key) && (top < bar || bottom > innerHeight + 1)) {
      put(this.wrong, "Not all of the question was on the screen. Read it to its end, then press the key again.");
      b.scrollIntoView({ block: "center" });
      return;
    }
    b.click();
  }

  // lock shows which buttons take no press now. They keep the focus.
  lock() {
    for (const b of this.buttons) {
      const off = String(this.busy || (this.grants.includes(b) ? this.calm : this.age) < steady);
      if (b.ariaDisabled !== off) b.ariaDisabled = off;
    }
  }

  async decide(what) {
    const q = this.q;
    const body = { id: q.id, ...what };
    if (what.approve && q.host) {
      body.for_ms = Number(this.time.value);
    } else if (what.approve) {
      const which = this.items.flatMap((e, i) => (e.box.checked && !q.items[i].problem ? [i + 1] : []));
      if (!which.length) return put(this.wrong, "Choose at least one path, or deny.");
      Object.assign(body, { only: which, path: this.path.value.trim() || undefined, for_ms: Number(this.time.value) });
    }
    this.busy = true;
    this.lock();
    put(this.wrong, "");
    try {
      await answer(q, async () => {
        const a = (await post("/api/answer", body, q.session)).answered[0] ?? { allowed: [], denied: [] };
        return [...a.allowed.map((p) => "Allowed: " + p), ...a.denied.map((p) => (what.remember ? "Denied, and remembered: " : "Denied: ") + p)].join(". ") + ".";
      });
    } catch (e) {
      put(this.wrong, e.message);
      this.busy = false;
      this.calm = 0;
    }
  }

  // draw shows the question as it is now; gone leaves its place empty.
  draw(q, gone) {
    this.classList.toggle("gone", gone);
    if (q !== this.q) {
      const same = JSON.stringify(q) === JSON.stringify(this.q);
      this.q = q;
      if (!same) this.build();
    }
    const over = store.over.get(q.id);
    const left = Date.parse(q.until) - Date.now();
    put(this.left, over ? "over" : span(left) + " left");
    this.bar.value = over ? 0 : Math.max(0, left / (Date.parse(q.until) - Date.parse(q.asked)));
    this.bar.hidden = this.form.hidden = !!over;
    this.card.classList.toggle("over", !!over);
    this.card.classList.toggle("soon", !over && left < 15000);
    if (over && !this.outcome.dataset.text) {
      put(this.outcome, over);
      this.outcome.append(" ", this.forget);
      put(this.wrong, "");
      if (document.activeElement === document.body) this.card.focus({ preventScroll: true });
    }
  }
}

customElements.define("rf-ask", Ask);
customElements.define("rf-question", QuestionCard);
