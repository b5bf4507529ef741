// Building the page. Everything that comes from a session is text: nothing here,
// or anywhere in the page, parses markup.

// What is not a letter, mark, digit, punctuation, symbol or plain space is shown as
// an escape, as names.Escape in Go does it: control characters, separators,
// bidirectional controls, zero-width and private characters, lone surrogates.
const hidden = /[^\p{L}\p{M}\p{N}\p{P}\p{S} ]/gu;

// visible makes nodes of a text in which nothing is invisible.
export function visible(text) {
  const out = document.createDocumentFragment();
  text = String(text ?? "");
  let from = 0;
  for (const m of text.matchAll(hidden)) {
    if (m.index > from) out.append(text.slice(from, m.index));
    const esc = document.createElement("span");
    esc.className = "esc";
    esc.textContent = escapeOf(m[0]);
    out.append(esc);
    from = m.index + m[0].length;
  }
  if (from < text.length) out.append(text.slice(from));
  return out;
}

function escapeOf(c) {
  if (c === "\n") return "\\n";
  if (c === "\t") return "\\t";
  return "\\u{" + c.codePointAt(0).toString(16) + "}";
}

// plain is visible for attributes and titles, which hold no nodes.
export const plain = (text) => String(text ?? "").replace(hidden, escapeOf);

// t is an element for foreign text: isolated, so that letters written from right
// to left turn nothing around but themselves.
export function t(text, cls = "") {
  const e = document.createElement("bdi");
  e.className = ("t " + cls).trim();
  e.dir = "ltr";
  e.append(visible(text));
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
