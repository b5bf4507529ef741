// Notifications of the browser about questions, when the owner wants them.

import { store, waiting } from "/store.js";
import { plain } from "/dom.js";

const button = document.getElementById("notify");
const told = new Set();
let first = true;
const mostBody = 260; // the longest name of a host, with its port

const can = () => typeof Notification !== "undefined";

// notices shows one for each question that has come, while nobody looks.
export function notices() {
  button.hidden = !can() || Notification.permission !== "default";
  for (const q of waiting()) {
    if (told.has(q.id)) continue;
    told.add(q.id);
    if (first || !can() || Notification.permission !== "granted" || !document.hidden) continue;
    const n = new Notification(q.host ? "A command asks for a connection" : "A server asks for access to files", {
      body: plain(q.host ? `${q.host.name}:${q.host.port}` : q.server || q.subject || "a server").slice(0, mostBody), tag: q.id,
    });
    n.onclick = () => {
      window.focus();
      location.hash = "ask";
      n.close();
    };
  }
  if (told.size > 1000) told.clear();
  first = first && !store.connected;
}

button.addEventListener("click", async () => {
  await Notification.requestPermission();
  notices();
});
