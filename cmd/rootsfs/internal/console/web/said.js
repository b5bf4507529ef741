// What was done, told where screen readers hear it, until the next.

import { h, t } from "/dom.js";

const place = document.getElementById("said");

export function say(...children) {
  const close = h("button", { type: "button", "aria-label": "Dismiss the message", onclick: () => place.replaceChildren() }, "×");
  place.replaceChildren(h("div", {}, ...children), close);
}

export function sayError(e) {
  say(h("span", { class: "bad" }, "Not done: "), t(e.message));
  place.firstElementChild.classList.add("bad");
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
          : ` ${e.state} in ${e.took_ms.toFixed(1)} ms`));
      }
    }
    if (s.error) lines.push(h("li", { class: "bad" }, t(s.session), ": ", t(s.error)));
  }
  const what = roots === 1 ? "1 root" : `${roots} roots`;
  say(h("strong", {}, `Ended ${what} in ${r.took_ms.toFixed(1)} ms.`), h("ul", {}, lines));
}
