// What the owner denied and had remembered, and the way back.

import { post } from "/api.js";
import { store } from "/store.js";
import { clock, h, keyed, many, name, plain, put, t } from "/dom.js";
import { say, sayError } from "/said.js";

const most = 200; // that are shown

export class Denials extends HTMLElement {
  connectedCallback() {
    this.list = h("ul", { class: "plain" });
    this.more = h("p", { class: "soft" });
    this.hidden = true;
    this.replaceChildren(h("section", { class: "card", "aria-labelledby": "denied" },
      h("h3", { id: "denied" }, "Denied without a question"),
      h("p", { class: "soft" }, "You had these denials remembered: the server or command is denied the path, with all below, or the host, until its session ends."),
      this.list, this.more));
  }

  draw() {
    this.hidden = store.denials.length === 0;
    keyed(this.list, store.denials.slice(0, most), (d) => d.session + "/" + d.id, (d) => this.row(d));
    const hidden = store.denials.length - most;
    put(this.more, hidden > 0 ? `and ${many(hidden, "denial")} more; see: rootsfs consent denials` : "");
    this.more.hidden = hidden <= 0;
  }

  row(d) {
    const button = h("button", { type: "button", "aria-label": "Ask me again about " + plain(d.host || d.path), onclick: () => this.forget(d, button) }, "Ask me again");
    return h("li", { class: "denial" },
      h("span", {}, h("b", {}, name(d.subject || "a server")), " in ", name(d.session), ": ", t(d.host || d.path, "path"), " ", h("span", { class: "soft" }, "since ", h("time", { dateTime: d.since }, clock(d.since)))),
      button);
  }

  async forget(d, button) {
    button.disabled = true;
    try {
      await post("/api/forget", { id: d.id }, d.session);
      say(t(d.subject || "a server"), " may ask again about ", t(d.host || d.path, "path"));
    } catch (e) {
      sayError(e);
      button.disabled = false;
    }
  }
}

customElements.define("rf-denials", Denials);
