// History: the records, searched, counted over time, verified and taken along.

import { get } from "/api.js";
import { count, h, many, moment, put, size, t } from "/dom.js";
import { options } from "/forms.js";
import { Timeline } from "/timeline.js";

const spans = [["3600", "the last hour"], ["86400", "the last day"], ["604800", "the last week"], ["", "all time"]];
const ops = "open create opendir close read write unlink rmdir rename mkdir link symlink truncate setattr setxattr replace watch grant revoke set mount unmount lookup getattr".split(" ").sort();
let kept = { since: "86400" }; // what was searched for, for who comes back

class History extends HTMLElement {
  connectedCallback() {
    const text = (name, placeholder, more = {}) => h("input", { name, placeholder, value: kept[name] ?? "", autocomplete: "off", spellcheck: false, ...more });
    const field = (label, input) => h("label", {}, label, input);
    this.sessions = h("datalist", { id: "sessions-past" });
    this.form = h("form", { class: "search", role: "search", onsubmit: (e) => this.submit(e) },
      field("Time", h("select", { name: "since" }, options(spans, kept.since ?? ""))),
      field("Session", h("span", {}, text("session", "any"), this.sessions)),
      field("Root", text("root", "any")), field("Path", text("path", "*.md or src/**")),
      field("Operation", h("select", { name: "op" }, options([["", "any"], ...ops.map((o) => [o, o])], kept.op ?? ""))),
      field("Verdict", h("select", { name: "verdict" }, options(["", "allowed", "refused", "failed"].map((v) => [v, v || "any"]), kept.verdict ?? ""))),
      field("Subject", text("subject", "any")),
      h("button", { class: "go" }, "Search"));
    this.form.elements.session.setAttribute("list", "sessions-past");
    this.said = h("p", { class: "soft", role: "status" });
    this.chart = h("div", { class: "chart tall" });
    this.rows = h("tbody", {});
    this.verdicts = h("div", { role: "status" });
    this.replaceChildren(
      h("h2", {}, "History"), this.form,
      h("div", { class: "row" }, h("button", { type: "button", onclick: () => this.verify() }, "Verify the chain"), h("button", { type: "button", onclick: () => this.save() }, "Export")),
      this.verdicts, this.said, this.chart,
      h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Records" }, h("table", { class: "records" },
        h("thead", {}, h("tr", {}, ...["Time", "Session", "Who", "Operation", "Path", "Verdict", "Detail"].map((x) => h("th", { scope: "col" }, x)))), this.rows)));
    this.timeline = new Timeline(this.chart);
    this.search();
  }

  disconnectedCallback() {
    this.timeline.end();
  }

  submit(e) {
    e.preventDefault();
    kept = Object.fromEntries(new FormData(this.form));
    this.search();
  }

  params() {
    const p = { ...kept };
    p.since = kept.since ? new Date(Date.now() - kept.since * 1000).toISOString().replace(/\.\d+/, "") : "";
    return p;
  }

  async search() {
    put(this.said, "Searching");
    try {
      const a = await (await get("/api/history", { ...this.params(), limit: 300 })).json();
      this.rows.replaceChildren(...a.entries.map(row));
      this.timeline.draw(a.timeline);
      this.sessions.replaceChildren(...a.sessions.map((value) => h("option", { value })));
      const shown = a.entries.length < a.matched ? `, the last ${count(a.entries.length)} shown` : "";
      put(this.said, `${many(a.matched, "record")}${shown}.` + (a.complete ? "" : " The search took too long: there may be more; narrow it.") + (a.damaged ? ` ${count(a.damaged)} lines are no records: verify the chain.` : ""));
    } catch (e) {
      put(this.said, "Not done: " + e.message);
    }
  }

  async verify() {
    put(this.verdicts, "Reading the records");
    try {
      const list = await (await get("/api/verify", { session: this.form.elements.session.value.trim() })).json();
      this.verdicts.replaceChildren(h("ul", { class: "plain" }, list.map((r) => h("li", { class: r.ok ? "good" : "bad" },
        r.ok ? "✓ " : "✗ ", t(r.session), r.ok ? `: whole, ${many(r.records, "record")}` + (r.anchored ? `, anchored at ${count(r.anchored_at)}` : ", without an anchor")
          : [": BROKEN", r.at ? ` at record ${count(r.at)}` : "", ": ", t(r.problem)]))));
      if (!list.length) put(this.verdicts, "There are no records yet.");
    } catch (e) {
      put(this.verdicts, "Not done: " + e.message);
    }
  }

  async save() {
    put(this.said, "Exporting");
    try {
      const data = await (await get("/api/export", this.params())).blob();
      const url = URL.createObjectURL(data);
      h("a", { href: url, download: `rootsfs-${new Date().toISOString().slice(0, 10)}.jsonl` }).click();
      setTimeout(() => URL.revokeObjectURL(url), 60000);
      put(this.said, `Exported ${size(data.size)}.`);
    } catch (e) {
      put(this.said, "Not done: " + e.message);
    }
  }
}

function row(e) {
  const who = [e.subject, e.via, e.pid ? "pid " + e.pid : ""].filter(Boolean).join(" ");
  const bytes = [e.read ? size(e.read) + " read" : "", e.written ? size(e.written) + " written" : "", e.kind, e.detail].filter(Boolean).join(", ");
  return h("tr", {},
    h("td", {}, h("time", { dateTime: e.time }, moment(e.time))), h("td", {}, t(e.session)), h("td", {}, t(who)), h("td", {}, t(e.op)),
    h("td", {}, t(e.path ?? ""), e.path2 ? [" → ", t(e.path2)] : ""),
    h("td", {}, h("span", { class: "badge " + ({ refused: "bad", failed: "warn" }[e.verdict] ?? "good") }, t(e.verdict ?? ""))), h("td", {}, t(bytes)));
}

customElements.define("rf-history", History);
