// One root of a session.

import { store } from "/store.js";
import { count, h, many, moment, name, plain, put, size, span } from "/dom.js";
import { Chart } from "/chart.js";
import { post } from "/api.js";
import { sayEnded, sayError } from "/said.js";
import { showStage } from "/stage.js";

const mostCharts = 24; // of one session: more are no longer small pictures

// bar is a quota: how much of a limit is used.
function bar(label) {
  const meter = h("meter", { min: 0, "aria-label": label });
  const text = h("span", { class: "soft" });
  const e = h("span", { class: "quota" }, meter, " ", text);
  e.show = (used, limit, say) => {
    e.hidden = !limit;
    if (!limit) return;
    Object.assign(meter, { max: limit, high: limit * 0.8, optimum: 0, value: used });
    put(text, `${label} ${say(used)} of ${say(limit)}`);
  };
  return e;
}

export class RootRow extends HTMLElement {
  constructor(session, name) {
    super();
    Object.assign(this, { session, name });
  }

  connectedCallback() {
    if (this.state) return;
    this.setAttribute("role", "listitem");
    this.state = h("span", { class: "badge" });
    this.mode = h("select", { "aria-label": "Mode of " + plain(this.name), onchange: () => this.set() });
    this.path = h("bdi", { class: "t path", dir: "ltr" });
    this.facts = h("span", { class: "soft facts-line" });
    this.written = bar("written");
    this.created = bar("names");
    this.spark = h("div", { class: "spark" });
    this.button = h("button", { type: "button", class: "danger", "aria-label": "Revoke " + plain(this.name), onclick: () => this.revoke() }, "Revoke");
    this.staged = h("button", { type: "button", class: "staged", hidden: true, onclick: () => showStage(this.session, this.name, this.store) });
    this.replaceChildren(
      h("div", { class: "what" }, h("b", {}, name(this.name)), " ", this.state, " ", this.path, h("br"), this.facts, " ", this.staged, h("div", { class: "quotas" }, this.written, this.created)),
      this.spark, h("div", { class: "row" }, this.mode, this.button));
  }

  disconnectedCallback() {
    queueMicrotask(() => {
      if (!this.isConnected) this.chart?.end();
    });
  }

  async act(answer, say) {
    this.button.disabled = true;
    try {
      say(await answer);
    } catch (e) {
      sayError(e);
    }
    this.button.disabled = false;
    this.modes = ""; // as it really is
  }

  revoke() {
    return this.act(post("/api/revoke", { session: this.session, names: [this.name] }), sayEnded);
  }

  set() {
    return this.act(post("/api/set", { name: this.name, mode: this.mode.value }, this.session), () => {});
  }

  draw(r, s) {
    put(this.state, r.state);
    this.state.className = "badge " + (r.state === "live" ? "good" : "bad");
    put(this.path, r.resolved || r.path);
    const facts = [r.fs_type, many(r.ops, "operation"), `${count(r.refused)} refused`, `${size(r.bytes_read)} read`, `${size(r.bytes_written)} written`];
    if (r.expires) facts.push(`ends in ${span(Date.parse(r.expires) - Date.now())} (${moment(r.expires)})`);
    if (r.subject) facts.push("for " + r.subject);
    if (r.approved_by) facts.push("approved by " + r.approved_by);
    if (r.lifted_protections) facts.push(r.lifted_protections);
    for (const d of r.created_repositories ?? []) facts.push(`its users made the repository ${d || "at the top"}: untrusted`);
    put(this.facts, facts.join(" · "));
    this.staged.hidden = !r.stage;
    if (r.stage) {
      this.store = r.stage.store;
      put(this.staged, `${many(r.stage.changed, "change")} staged, ${size(r.stage.bytes)}: look`);
    }
    const l = r.limits ?? {};
    this.written.show(r.bytes_written, l.max_written, size);
    this.created.show(r.names_created, l.max_created, count);
    this.drawModes(r);
    this.drawChart(s);
  }

  drawModes(r) {
    if (this.modes === r.mode || document.activeElement === this.mode) return;
    this.modes = r.mode;
    const list = [...new Set([r.mode, "ro", r.stage ? "stage" : "rw"])];
    this.mode.replaceChildren(...list.map((m) => h("option", { value: m, selected: m === r.mode }, m)));
  }

  drawChart(s) {
    const line = store.series.get(this.session);
    const rates = line?.rates.get(this.name);
    if (!rates || s.roots.findIndex((r) => r.name === this.name) >= mostCharts) return;
    this.chart ??= new Chart(this.spark, "Operations a second in " + plain(this.name),
      [{ label: "operations", color: "--accent", pick: (r) => r.ops }], (v) => v.toFixed(1), 36, false);
    if (line.times.at(-1) === this.drawnAt) return;
    this.drawnAt = line.times.at(-1);
    this.chart.draw(line.times, rates);
  }
}

customElements.define("rf-root", RootRow);
