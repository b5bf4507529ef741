// The staged changes of one root: a list, the diff of the chosen one, and what the owner does
// with it.

import { post } from "/api.js";
import { h, many, put, span, t, visible } from "/dom.js";

// A button that acts takes no press until the list, the chosen change and its diff have been on
// the screen for so many milliseconds: who was about to press something else did not mean it.
const steady = 700;

// textOf is the text of bytes that came as base64. What is no UTF-8 shows as U+FFFD, escaped.
const textOf = (b64) => new TextDecoder().decode(Uint8Array.from(atob(b64), (c) => c.charCodeAt(0)));

const isDir = (c) => [c.mode, c.old_mode].some((m) => (m & 0o170000) === 0o040000);
const isUnit = (c) => c.class === 66; // "B": build output

// showStage opens the list. It is a picture of one moment: nothing in it moves but at a press.
export function showStage(session, root, store) {
  new StageDialog(session, root, store).open();
}

class StageDialog {
  constructor(session, root, store) {
    Object.assign(this, { session, root, store, rows: [], chosen: null, since: 0, busy: false });
    const button = (cls, what, text) => h("button", { type: "button", class: cls, onclick: () => this.press(what) }, text);
    this.points = h("p", { class: "soft small" });
    this.list = h("ul", { class: "plain changes", "aria-label": "Changed files" });
    this.title = h("h3", {}, "Choose a file");
    this.why = h("p", { class: "bad wrong" });
    this.diff = h("pre", { class: "diff", tabIndex: 0, role: "region", "aria-label": "Diff" });
    this.outcome = h("p", { class: "outcome wrong", role: "status" });
    this.acts = [button("go", "apply", "Apply it"), button("danger", "discard", "Discard it"), button("", "undo", "Undo to a checkpoint")];
    this.dialog = h("dialog", { class: "stage", "aria-labelledby": "staged", onclose: () => this.end() },
      h("h2", { id: "staged" }, "Staged in ", t(root), ", session ", t(session)), this.points, this.list,
      this.title, this.why, this.diff, this.outcome,
      h("div", { class: "row" }, this.acts, h("button", { type: "button", onclick: () => this.load() }, "Look again"),
        h("button", { type: "button", onclick: () => this.dialog.close() }, "Close")));
  }

  open() {
    document.body.append(this.dialog);
    this.dialog.showModal();
    this.tick = setInterval(() => this.lock(), 100);
    this.load();
  }

  end() {
    clearInterval(this.tick);
    this.dialog.remove();
  }

  // early reports whether something that a button acts on has just changed.
  early() {
    return this.busy || performance.now() - this.since < steady;
  }

  lock() {
    for (const b of this.acts) {
      const off = String(this.early());
      if (b.ariaDisabled !== off) b.ariaDisabled = off;
    }
  }

  changed() {
    this.since = performance.now();
    this.lock();
  }

  // ask sends a request about the stage, and shows its error.
  async ask(path, body) {
    this.busy = true;
    this.lock();
    try {
      return await post(path, { store: this.store, ...body }, this.session);
    } catch (e) {
      put(this.outcome, "Not done: " + e.message);
    } finally {
      this.busy = false;
      this.changed();
    }
  }

  async load() {
    const a = await this.ask("/api/stage", {});
    if (!a) return;
    this.choose(null);
    this.rows = a.rows;
    this.list.replaceChildren(...a.rows.map((c) => this.row(c)));
    const last = (a.checkpoints ?? []).at(-1);
    put(this.points, `${many(a.rows.length, "row")}. ` + (last ? `The last checkpoint is ${last.number}, made ${span(Date.now() - Date.parse(last.time))} ago before: ${last.name || last.cause}.` : "There is no checkpoint yet."));
    if (!a.rows.length) this.list.append(h("li", { class: "soft" }, "Nothing differs from your files."));
    this.changed();
  }

  row(c) {
    const path = textOf(c.path);
    const mark = h("span", { class: "badge " + (c.why ? "warn" : "") }, String.fromCharCode(c.class));
    c.button = h("button", { type: "button", class: "change", title: c.kind, onclick: () => this.choose(c) }, mark, " ", t(path, "path"));
    return h("li", {}, c.button);
  }

  async choose(c) {
    this.chosen?.button.removeAttribute("aria-current");
    this.chosen = c;
    this.shown = false;
    this.diff.replaceChildren();
    put(this.why, c?.why ?? "");
    if (!c) {
      this.title.replaceChildren("Choose a file");
      return;
    }
    c.button.setAttribute("aria-current", "true");
    this.title.replaceChildren(t(textOf(c.path), "path"), ": ", t(c.kind), isDir(c) ? "; the buttons are about everything below it" : "");
    this.changed();
    if (isUnit(c)) {
      this.shown = true;
      return;
    }
    const { button: _, kind: __, ...change } = c;
    const a = await this.ask("/api/stage/diff", { change });
    if (!a || this.chosen !== c) return;
    this.diff.replaceChildren(...a.lines.map(line), a.note ? h("span", { class: "soft" }, a.note) : "");
    this.diff.scrollTop = 0;
    this.shown = true;
    this.changed();
  }

  async press(what) {
    if (this.busy) return;
    if (this.early()) {
      this.changed();
      return put(this.outcome, "This has just come or changed. Look again, then press once more.");
    }
    if (what === "undo") return this.undo();
    const c = this.chosen;
    if (!c || !this.shown) return put(this.outcome, "Choose a file, and look at what has changed in it.");
    const a = await this.ask("/api/stage/" + what, { paths: [c.path] });
    if (!a) return;
    const left = a.left?.[0];
    if (left) return put(this.outcome, `Not done: ${textOf(left.path)}: ${left.why}`);
    put(this.outcome, what === "apply" ? "Applied." : "Discarded.");
    // Its row stays in its place, so that no other comes under the pointer.
    c.button.disabled = true;
    this.choose(null);
    this.changed();
  }

  async undo() {
    const a = await this.ask("/api/stage/undo", {});
    if (!a) return;
    await this.load();
    put(this.outcome, `Checkpoint ${a.to.number} is back: ${many(a.changes.length, "change")} of what programs see.`);
  }
}

// line is a line of a diff. Its indentation stays, and all else that is invisible is escaped.
function line(text) {
  const [, mark, indent, rest] = /^([-+ @\\]?)([ \t]{0,40})([^]*)$/.exec(text);
  const cls = { "+": "good", "-": "bad", "@": "soft" }[mark] ?? "";
  return h("span", { class: "line " + cls }, mark, indent, visible(rest), "\n");
}
