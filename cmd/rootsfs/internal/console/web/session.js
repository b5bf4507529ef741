// One session: what it is, its roots, its servers, its last refusals.

import { store } from "/store.js";
import { clock, count, h, keyed, many, name, put, size, t } from "/dom.js";
import { Chart } from "/chart.js";
import { RootRow } from "/root.js";
import { addRoot, showPolicy } from "/forms.js";
import { post } from "/api.js";
import { sayEnded, sayError } from "/said.js";

const mostRefusals = 8;
const mostConnections = 8;
const perSecond = (v) => (v >= 10 ? Math.round(v) : Number(v.toFixed(1))) + "/s";

const pauseText = (p) => `Paused ${p.cause === "lease" ? "for want of a lease" : "by its owner"} since ${clock(p.since)}${p.reason ? ": " + p.reason : ""}. Everything is refused${p.cause === "lease" ? "." : " until: rootsfs resume"}`;

export class SessionCard extends HTMLElement {
  constructor(name) {
    super();
    this.name = name;
  }

  connectedCallback() {
    if (this.body) return;
    const id = "session-" + this.name;
    this.facts = h("p", { class: "facts" });
    this.badges = h("p", { class: "badges" });
    this.problem = h("p", { class: "bad" });
    this.roots = h("div", { class: "roots", role: "list", "aria-label": "Roots" });
    this.more = h("p", { class: "soft" });
    this.servers = h("ul", { class: "plain" });
    this.quotas = h("ul", { class: "plain" });
    this.refusals = h("ol", { class: "refusals plain" });
    this.noRefusals = h("p", { class: "soft small" }, "Nothing was refused.");
    this.ops = h("div", { class: "chart" });
    this.bytes = h("div", { class: "chart" });
    this.network = h("p", { class: "small" });
    this.connections = h("ul", { class: "plain connections" });
    this.unapproved = h("ul", { class: "plain unapproved" });
    this.networked = h("div", { class: "network" }, h("h4", {}, "Network"), this.network, this.connections, this.unapproved);
    this.policy = h("div", {});
    this.revokeAll = h("button", { type: "button", class: "danger", onclick: () => this.revoke() }, "Revoke all");
    this.body = h("section", { class: "card", "aria-labelledby": id },
      h("header", {},
        h("h3", { id }, name(this.name)), this.badges,
        h("div", { class: "row" },
          h("button", { type: "button", onclick: () => addRoot(this.name) }, "Add a root"), this.revokeAll),
      ),
      this.problem, this.facts,
      h("div", { class: "charts" },
        h("figure", {}, h("figcaption", {}, "Operations a second"), this.ops),
        h("figure", {}, h("figcaption", {}, "Bytes a second: ", h("span", { class: "key read" }, "read"), " ", h("span", { class: "key written" }, "written")), this.bytes)),
      this.roots, this.more,
      h("div", { class: "columns" },
        h("div", {}, h("h4", {}, "Last refusals"), this.noRefusals, this.refusals),
        h("div", {}, h("h4", {}, "Connected servers"), this.servers, this.quotas)),
      this.networked,
      h("details", { ontoggle: (e) => e.target.open && showPolicy(this.name, this.policy) },
        h("summary", {}, "Policy in force"), this.policy),
    );
    this.replaceChildren(this.body);
    this.opsChart = new Chart(this.ops, "Operations a second", [
      { label: "operations", color: "--accent", pick: (r) => r.ops }, { label: "refused", color: "--bad", pick: (r) => r.refused },
    ], perSecond);
    this.bytesChart = new Chart(this.bytes, "Bytes a second", [
      { label: "read", color: "--accent", pick: (r) => r.read }, { label: "written", color: "--warn", pick: (r) => r.written },
    ], (v) => size(v));
  }

  disconnectedCallback() {
    // keyed moves cards; only those that left the page are over.
    queueMicrotask(() => {
      if (this.isConnected) return;
      this.opsChart.end();
      this.bytesChart.end();
    });
  }

  async revoke() {
    this.revokeAll.disabled = true;
    try {
      sayEnded(await post("/api/revoke", { session: this.name, all: true }));
    } catch (e) {
      sayError(e);
    }
    this.revokeAll.disabled = false;
  }

  draw(s) {
    put(this.problem, s.problem ? "No answer: " + s.problem : s.paused?.length ? pauseText(s.paused[0]) : s.config_error ? "The configuration is not in force: " + s.config_error : s.audit_ok === false ? "Records cannot be written: operations fail." : "");
    this.problem.hidden = !this.problem.dataset.text;
    this.drawFacts(s);
    const roots = s.roots ?? [];
    keyed(this.roots, roots, (r) => r.name + "\n" + r.epoch, (r) => new RootRow(this.name, r.name), (e, r) => e.draw(r, s));
    put(this.more, s.more_roots ? `and ${many(s.more_roots, "root")} more; see: rootsfs roots list --session ${s.session}` : roots.length ? "" : "No roots: nothing can be reached.");
    this.more.hidden = !this.more.dataset.text;
    this.revokeAll.disabled = roots.length === 0;
    this.drawServers(s);
    this.drawNetwork(s.network);
    this.drawRefusals();
    const line = store.series.get(this.name);
    if (line && line.times.at(-1) !== this.drawnAt) {
      this.drawnAt = line.times.at(-1);
      this.opsChart.draw(line.times, line.total);
      this.bytesChart.draw(line.times, line.total);
    }
  }

  drawFacts(s) {
    const c = s.server;
    const badges = [];
    if (c) badges.push([c.confinement === "none" ? "bad" : "good", "confined: " + c.confinement], [c.net ? "warn" : "good", c.net ? "network" : s.network ? "network of approved hosts" : "no network"]);
    if (s.read_only) badges.push(["good", "read-only"]);
    if (s.profile) badges.push(["", "profile " + s.profile]);
    if (s.mountpoint && !s.mounted) badges.push(["warn", "unmounted, still held"]);
    if (s.mountpoint && !c) badges.push(["warn", "mount only: confines nobody"]);
    keyed(this.badges, badges, (b) => b.join(), ([cls, text]) => h("span", { class: "badge " + cls }, t(text)));
    const facts = [
      s.mountpoint ? ["at", s.mountpoint] : ["mount", "none"], c && ["runs", (c.command ?? []).join(" ")], ["pid", s.pid],
      ["since", s.started ? new Date(s.started).toLocaleString("en-GB") : ""], s.cache && s.mountpoint && ["cache", s.cache],
      ["in flight", s.process?.in_flight ?? 0], ["operations", count(s.process?.ops ?? 0)], ["refused", count(s.process?.refused ?? 0)],
      ...(c?.holes ?? []).map((hole) => ["not stopped", hole]),
    ].filter(Boolean);
    keyed(this.facts, facts, (f) => f[0] + (f[0] === "not stopped" ? f[1] : ""), ([k]) => h("span", { class: "fact" }, h("b", {}, k), " ", h("bdi", { dir: "ltr" })), (e, f) => put(e.lastElementChild, f[1]));
  }

  drawServers(s) {
    const list = (s.files ?? []).map((f, i) => ({ ...f, i }));
    const text = (f) => [
      h("b", {}, name(f.subject || "a server")), f.server ? [" calls itself ", name(f.server)] : "",
      `: ${many(f.requests, "request")}, ${count(f.refused)} refused, ${size(f.bytes_read)} read, ${size(f.bytes_written)} written`,
    ].flat();
    keyed(this.servers, list.length ? list : [{ i: -1 }], (f) => f.i + f.subject, () => h("li", {}),
      (e, f) => f.i < 0 ? put(e, "None uses files/* now.") : e.replaceChildren(...text(f)));
    keyed(this.quotas, s.subjects ?? [], (q) => q.subject, () => h("li", {}),
      (e, q) => e.replaceChildren(h("b", {}, name(q.subject)), ` of its quota: ${size(q.bytes_written)}${q.max_written ? " of " + size(q.max_written) : ""} written, ${count(q.names_created)}${q.max_created ? " of " + count(q.max_created) : ""} names`));
  }

  // drawNetwork shows a network of approved hosts: the busiest connections, and hosts without a rule.
  drawNetwork(n) {
    this.networked.hidden = !n;
    if (!n) return;
    put(this.network, `${many(n.open, "connection")} open, of ${count(n.opened)}; ${size(n.sent)} sent, ${size(n.received)} received; ${count(n.refused)} refused, ${count(n.failed)} failed`);
    keyed(this.connections, (n.connections ?? []).slice(0, mostConnections), (c) => c.began + c.host + c.port + c.address, (c) => h("li", {}, name(c.host), ` port ${c.port}: `, h("span", {})),
      (e, c) => put(e.lastElementChild, `${size(c.rate)}/s, ${size(c.sent)} sent, ${size(c.received)} received`));
    keyed(this.unapproved, (n.unapproved ?? []).slice(-mostConnections), (u) => u.host, (u) => h("li", {}, h("span", { class: "bad" }, "refused"), " ", name(u.host), " ", h("span", { class: "soft" })),
      (e, u) => put(e.lastElementChild, `${many(u.times, "time")}: no rule permits it`));
  }

  drawRefusals() {
    const list = [];
    for (const e of store.events) {
      if (e.session === this.name && (e.kind === "refusal" || e.kind === "failure")) list.push(e);
      if (list.length === mostRefusals) break;
    }
    this.noRefusals.hidden = list.length > 0;
    keyed(this.refusals, list, (e) => e.time + e.op + e.path + e.pid, (e) => h("li", {},
      h("time", { dateTime: e.time }, clock(e.time)), " ", h("b", {}, t(e.op || e.kind)), " ", t(e.path || e.root || ""), " ",
      h("span", { class: "bad" }, t(e.reason)), e.detail ? [" ", t(e.detail, "soft")] : "", e.pid ? h("span", { class: "soft" }, ` pid ${e.pid}`) : ""));
  }
}

customElements.define("rf-session", SessionCard);
