// Ask: what servers want, and the owner's answer.

import { get, post } from "/api.js";
import { answer, dismiss, drawn, store } from "/store.js";
import { h, keyed, many, put, size, span, t } from "/dom.js";
import { durations, options } from "/forms.js";
import { Denials } from "/denials.js";

// A question that has just come takes no answer for a moment: who was about to
// press a key did not mean it.
const settle = 700;

class Ask extends HTMLElement {
  connectedCallback() {
    this.list = h("div", { class: "questions" });
    this.denials = new Denials();
    this.none = h("section", { class: "empty" }, h("h2", {}, "Nobody asks"), h("p", {}, "When a server asks for a path that nobody approved, its question shows here."));
    this.replaceChildren(h("h2", { class: "off-screen" }, "Questions of servers"), this.none, this.list, this.denials);
    this.stop = drawn(() => this.draw());
    this.tick = setInterval(() => this.draw(), 1000);
    this.draw();
  }

  disconnectedCallback() {
    this.stop();
    clearInterval(this.tick);
  }

  draw() {
    this.none.hidden = store.questions.length > 0 || !store.connected;
    keyed(this.list, store.questions, (q) => q.id, (q) => new QuestionCard(q), (e, q) => e.draw(q));
    this.denials.draw();
  }
}

class QuestionCard extends HTMLElement {
  constructor(q) {
    super();
    this.q = q;
    this.came = Date.now();
  }

  connectedCallback() {
    if (this.left) return;
    const q = this.q;
    const id = "q-" + q.id;
    this.left = h("span", { class: "left", role: "timer", "aria-live": "off" });
    this.bar = h("progress", { max: 1, "aria-label": "Time left" });
    this.items = q.items.map((it, i) => this.item(it, i));
    this.wrong = h("p", { class: "bad", role: "alert" });
    this.outcome = h("p", { class: "outcome", role: "status" });
    this.time = h("select", {}, options(durations, "0"));
    this.path = h("input", { autocomplete: "off", spellcheck: false, placeholder: "all of it" });
    this.forget = h("button", { type: "button", onclick: () => dismiss(q.id) }, "Dismiss");
    const more = q.items.some((it) => !it.problem && it.mode !== "ro");
    const key = (k) => h("kbd", {}, k);
    this.buttons = [
      h("button", { type: "button", class: "go", "data-key": "r", onclick: () => this.decide({ approve: true, mode: "ro" }) }, "Allow read-only ", key("r")),
      more && h("button", { type: "button", class: "danger", "data-key": "w", onclick: () => this.decide({ approve: true }) }, "Allow as asked: ", t(this.modes()), " ", key("w")),
      h("button", { type: "button", "data-key": "d", onclick: () => this.decide({}) }, "Deny ", key("d")),
      h("button", { type: "button", "data-key": "m", onclick: () => this.decide({ remember: true }) }, "Deny and remember ", key("m")),
    ].filter(Boolean);
    this.form = h("div", { class: "answer" },
      h("div", { class: "row" }, h("label", {}, "Only this, below what is asked for", this.path), h("label", {}, "For as long as", this.time)),
      h("div", { class: "row" }, this.buttons));
    this.card = h("section", { class: "card question", tabIndex: 0, "aria-labelledby": id, onkeydown: (e) => this.press(e) },
      h("header", {}, h("h3", { id }, h("b", {}, t(q.server || q.subject || "A server")), " asks for access"), this.left),
      this.bar,
      h("p", { class: "who" }, "Subject ", t(q.subject || "(none)"), q.server ? [", which calls itself ", t(q.server)] : "", ", in session ", t(q.session)),
      h("figure", { class: "purpose" }, h("figcaption", {}, "Its reason, in its own words, which nobody has checked"), h("blockquote", {}, q.message ? t(q.message) : h("span", { class: "soft" }, "none given"))),
      h("ol", { class: "items" }, this.items), this.wrong, this.form, this.outcome);
    this.replaceChildren(this.card);
    this.lock(true);
    setTimeout(() => this.lock(false), settle);
    this.looks();
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
    for (const [i, e] of this.items.entries()) {
      if (!this.q.items[i].problem && !store.over.has(this.q.id)) await this.look(i, e.inside);
    }
  }

  async look(i, place) {
    place.textContent = "looking at what is there";
    try {
      const a = await (await get("/api/inside", { session: this.q.session, id: this.q.id, item: i + 1 })).json();
      place.replaceChildren(
        h("b", {}, `${a.complete ? "" : "more than "}${many(a.files, "file")}, ${size(a.bytes)}`), ` in ${many(a.dirs, "directory", "directories")} below. `,
        a.withheld ? h("span", { class: "withheld" }, `The policy would hide ${many(a.withheld, "name")}, such as `, ...a.examples.slice(0, 3).flatMap((x, n) => [n ? ", " : "", t(x)]), ".") : "The policy would hide nothing there.");
    } catch (e) {
      place.replaceChildren("What is there could not be looked at: ", t(e.message));
    }
  }

  press(e) {
    if (e.ctrlKey || e.altKey || e.metaKey || e.repeat || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) return;
    const b = this.buttons.find((x) => x.dataset.key === e.key.toLowerCase());
    if (!b || b.disabled) return;
    e.preventDefault();
    // What is allowed stands above the buttons: who does not see them has not come to
    // its end.
    const { top, bottom } = b.getBoundingClientRect();
    if ("rw".includes(b.dataset.key) && (top < 0 || bottom > innerHeight + 1)) {
      put(this.wrong, "Not all of the question was on the screen. Read it to its end, then press the key again.");
      b.scrollIntoView({ block: "center" });
      return;
    }
    b.click();
  }

  lock(on) {
    for (const b of this.buttons) b.disabled = on;
  }

  async decide(what) {
    const q = this.q;
    const body = { session: q.session, id: q.id, ...what };
    if (what.approve) {
      const which = this.items.flatMap((e, i) => (e.box.checked && !q.items[i].problem ? [i + 1] : []));
      if (!which.length) return put(this.wrong, "Choose at least one path, or deny.");
      Object.assign(body, { only: which, path: this.path.value.trim() || undefined, for_ms: Number(this.time.value) });
    }
    this.lock(true);
    put(this.wrong, "");
    try {
      await answer(q, async () => {
        const a = (await post("/api/answer", body)).answered[0] ?? { allowed: [], denied: [] };
        return [...a.allowed.map((p) => "Allowed: " + p), ...a.denied.map((p) => (what.remember ? "Denied, and remembered: " : "Denied: ") + p)].join(". ") + ".";
      });
    } catch (e) {
      put(this.wrong, e.message);
      this.lock(false);
    }
  }

  draw(q) {
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
      if (document.activeElement === document.body) this.card.focus();
    }
  }
}

customElements.define("rf-ask", Ask);
customElements.define("rf-question", QuestionCard);
