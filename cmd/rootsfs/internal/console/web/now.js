// Now: every live session, and what happens in it.

import { drawn, store } from "/store.js";
import { h, keyed } from "/dom.js";
import { SessionCard } from "/session.js";

class Now extends HTMLElement {
  connectedCallback() {
    this.list = h("div", { class: "sessions" });
    this.none = h("section", { class: "empty" },
      h("h2", {}, "No session is live"),
      h("p", {}, "Start one, and it shows here: ", h("code", {}, "rootsfs mount --root .:ro ~/agent"), " or ", h("code", {}, "rootsfs run -- SERVER")),
    );
    this.replaceChildren(h("h2", { class: "off-screen" }, "Live sessions"), this.none, this.list);
    this.stop = drawn(() => this.draw());
    this.draw();
  }

  disconnectedCallback() {
    this.stop();
  }

  draw() {
    this.none.hidden = store.sessions.length > 0 || !store.connected;
    keyed(this.list, store.sessions, (s) => s.session, (s) => new SessionCard(s.session), (e, s) => e.draw(s));
  }
}

customElements.define("rf-now", Now);
