// Forms about a session: one more root, and the policy in force.

import { post } from "/api.js";
import { h, t } from "/dom.js";
import { say } from "/said.js";

export const durations = [["0", "the session"], ["900000", "15 minutes"], ["3600000", "1 hour"], ["28800000", "8 hours"]];

export const options = (list, chosen) => list.map(([value, text]) => h("option", { value, selected: value === chosen }, text));

// addRoot asks for a directory and approves it in the session.
export function addRoot(session) {
  const wrong = h("p", { class: "bad", role: "alert" });
  const field = (label, input) => h("label", {}, label, input);
  const path = h("input", { name: "path", required: true, placeholder: "/home/me/project", autocomplete: "off", spellcheck: false });
  const name = h("input", { name: "name", placeholder: "the path's last element", autocomplete: "off", spellcheck: false });
  const mode = h("select", { name: "mode" }, options([["ro", "read-only"], ["rw", "read and write"]], "ro"));
  const time = h("select", { name: "for" }, options(durations, "0"));
  const form = h("form", { method: "dialog" },
    h("h2", { id: "adding" }, "Add a root to ", t(session)),
    field("Directory or file, absolute", path), field("Name", name), field("Mode", mode), field("For as long as", time), wrong,
    h("div", { class: "row" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), h("button", { class: "go" }, "Approve")));
  const dialog = h("dialog", { "aria-labelledby": "adding", onclose: () => dialog.remove() }, form);
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    try {
      const r = await post("/api/add", { name: name.value.trim(), path: path.value.trim(), mode: mode.value, for_ms: Number(time.value) }, session);
      dialog.close();
      say("Approved: ", ...r.roots.map((root) => h("span", {}, t(root.name), ` (${root.mode}) is `, t(root.resolved))));
    } catch (err) {
      wrong.replaceChildren(t(err.message));
    }
  });
  document.body.append(dialog);
  dialog.showModal();
}

// showPolicy fills place with the rules of each root of a session.
export async function showPolicy(session, place) {
  place.replaceChildren(h("p", { class: "soft" }, "asking"));
  try {
    const answer = await post("/api/policy", {}, session);
    place.replaceChildren(...answer.roots.map(table));
    if (!answer.roots.length) place.replaceChildren(h("p", { class: "soft" }, "No roots."));
  } catch (e) {
    place.replaceChildren(h("p", { class: "bad" }, t(e.message)));
  }
}

function table(p) {
  const own = p.rules.filter((r) => r.from !== "built in");
  const rows = [...own, ...p.rules.filter((r) => r.from === "built in")];
  return h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Policy of a root" },
    h("table", {},
      h("caption", {}, t(p.root), ` (${p.mode}): ${own.length} of your own, ${rows.length - own.length} built in`, p.lifted ? ["; ", t(p.lifted)] : ""),
      h("thead", {}, h("tr", {}, ...["Effect", "Pattern", "From", "Why"].map((x) => h("th", { scope: "col" }, x)))),
      h("tbody", {}, rows.map((r) => h("tr", {},
        h("td", {}, r.effect), h("td", {}, t(r.pattern)), h("td", {}, t(r.from + (r.line ? ":" + r.line : ""))),
        h("td", {}, t([r.reason, r.when].filter(Boolean).join("; "))))))));
}
