// What was done, told where screen readers hear it, until the next.

import { h, many, t } from "/dom.js";
import { store } from "/store.js";

const place = document.getElementById("said");

export function say(...children) {
  const close = h("button", { type: "button", "aria-label": "Dismiss the message", onclick: () => place.replaceChildren() }, "×");
  place.replaceChildren(h("div", {}, ...children), close);
}

export function sayError(e) {
  say(h("span", { class: "bad" }, "Not done: "), t(e.message));
  place.firstElementChild.classList.add("bad");
}

// had says what a root was used for until it ended, as far as the page knows.
function had(session, name) {
  const r = store.sessions.find((s) => s.session === session)?.roots?.find((x) => x.name === name);
  return r ? `, after ${many(r.ops, "operation")}, ${r.refused} refused; ${r.in_flight} in flight` : "";
}

// sayEnded tells how a revocation went: what ended, how fast, what did not.
export function sayEnded(r) {
  const lines = [];
  let roots = 0;
  for (const s of r.sessions) {
    for (const e of s.ended) {
      roots++;
      if (lines.length < 20) {
        lines.push(h("li", {}, t(s.session), ": ", t(e.root), e.error
          ? [h("span", { class: "bad" }, ` ${e.state}, but not everything could be taken back: `), t(e.error)]
          : ` ${e.state} in ${e.took_ms.toFixed(1)} ms`, had(s.session, e.root)));
      }
    }
    if (s.error) lines.push(h("li", { class: "bad" }, t(s.session), ": ", t(s.error)));
  }
  say(h("strong", {}, `Ended ${many(roots, "root")} in ${r.took_ms.toFixed(1)} ms.`), h("ul", {}, lines));
}
