// Building the page. Everything that comes from a session is text: nothing here,
// or anywhere in the page, parses markup.

// What is not a letter, mark, digit, punctuation, symbol or plain space is shown as
// an escape, as names.EscapeQuoted in Go does it: control characters, separators,
// bidirectional controls, zero-width and private characters, lone surrogates. So are
// characters that fonts leave out or show blank, and U+FFFD.
const hidden = /[^\p{L}\p{M}\p{N}\p{P}\p{S} ]|[\p{DI}\u2800\u{16fe4}\u{1d159}\ufffd]/u;
const mostMarks = 2; // combining marks on one character

// pieces cuts a text into characters, each with its escape or "". A run of spaces is
// one; a mark needs a character before it that has fewer than two.
function* pieces(text) {
  let marks = mostMarks;
  for (const [c] of String(text ?? "").matchAll(/ {2,}|[^]/gu)) {
    const mark = /^\p{M}/u.test(c);
    const esc = c.startsWith("  ") ? `\\{${c.length} spaces}` : hidden.test(c) || (mark && marks >= mostMarks) ? escapeOf(c) : "";
    yield [c, esc];
    if (esc || c === " " || c === '"' || c === "\\") marks = mostMarks;
    else marks = mark ? marks + 1 : 0;
  }
}

const escaped = (text) => h("span", { class: "esc" }, text);

// visible makes nodes of a text in which nothing is invisible.
export function visible(text) {
  const out = document.createDocumentFragment();
  let run = "";
  for (const [c, esc] of pieces(text)) {
    if (!esc) run += c;
    else {
      out.append(run, escaped(esc));
      run = "";
    }
  }
  out.append(run);
  return out;
}

function escapeOf(c) {
  if (c === "\n") return "\\n";
  if (c === "\t") return "\\t";
  return "\\u{" + c.codePointAt(0).toString(16) + "}";
}

// plain is visible for attributes and titles, which hold no nodes.
export const plain = (text) => [...pieces(text)].map(([c, esc]) => esc || c).join("");

// t is an element for foreign text: isolated, so that letters written from right
// to left turn nothing around but themselves.
export function t(text, cls = "") {
  const e = document.createElement("bdi");
  e.className = ("t " + cls).trim();
  e.dir = "ltr";
  e.append(visible(text));
  return e;
}

// name is t for a name, of a long one its two ends: what is beside it stays on the
// screen. Its title is all of it.
export function name(text, most = 40) {
  const all = [...String(text ?? "")];
  if (all.length <= most) return t(text);
  const e = t(all.slice(0, most / 2).join(""));
  e.append(escaped(`…${all.length - most} more…`), visible(all.slice(-most / 2).join("")));
  e.title = plain(text);
  return e;
}

// h makes an element. Of props, on* are listeners, class and data-* and aria-* are
// attributes, everything else a property; children are nodes or our own words.
export function h(tag, props, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(props ?? {})) {
    if (v === undefined || v === null || v === false) continue;
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else if (k === "class" || k === "role" || k === "for" || k.includes("-")) e.setAttribute(k, v);
    else e[k] = v;
  }
  e.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return e;
}

// keyed brings the children of parent into line with list: one for each item, in
// order, made by make and brought up to date by update; those that stay are kept,
// with their focus.
export function keyed(parent, list, keyOf, make, update) {
  const have = new Map([...parent.children].map((e) => [e.dataset.key, e]));
  let at = parent.firstElementChild;
  for (const item of list) {
    const key = keyOf(item);
    let e = have.get(key);
    if (!e) {
      e = make(item);
      e.dataset.key = key;
    }
    have.delete(key);
    if (e === at) at = at.nextElementSibling;
    else parent.insertBefore(e, at);
    update?.(e, item);
  }
  // What is left stands behind the last that is wanted, also where two have one key.
  while (at) {
    const next = at.nextElementSibling;
    at.remove();
    at = next;
  }
}

// put sets text if it is another: writing the same wakes screen readers.
export function put(e, text) {
  if (e.dataset.text === text) return;
  e.dataset.text = text;
  e.replaceChildren(visible(text));
}

const units = ["", "K", "M", "G", "T", "P"];

// size shows a number of bytes.
export function size(n) {
  let u = 0;
  while (n >= 1024 && u < units.length - 1) {
    n /= 1024;
    u++;
  }
  return (u ? n.toFixed(1) : Math.round(n)) + " " + units[u] + "B";
}

export const count = (n) => Number(n).toLocaleString("en");

// many shows a count with its noun.
export const many = (n, one, more = one + "s") => `${count(n)} ${n === 1 ? one : more}`;

// span shows a length of time given in milliseconds.
export function span(ms) {
  const s = Math.max(0, Math.ceil(ms / 1000));
  if (s < 60) return s + "s";
  if (s < 3600) return Math.floor(s / 60) + "m" + String(s % 60).padStart(2, "0") + "s";
  if (s < 86400) return Math.floor(s / 3600) + "h" + String(Math.floor((s % 3600) / 60)).padStart(2, "0") + "m";
  return Math.floor(s / 86400) + "d" + Math.floor((s % 86400) / 3600) + "h";
}

export const clock = (at) => new Date(at).toLocaleTimeString("en-GB");

export const moment = (at) => {
  const d = new Date(at);
  const two = (n) => String(n).padStart(2, "0");
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${d.toLocaleTimeString("en-GB")}`;
};
