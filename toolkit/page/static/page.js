"use strict";
// Parts of the page as they change; without this script the page is loaded again every 30 seconds.
const word = document.getElementById("live");
const mine = document.getElementById("mine");
// The server sends something at least every 15 seconds. A connection that broke without notice is opened again.
const SILENT_MS = 45000;
let source = null;
let heard = 0;

function put(place, html) {
  const held = document.activeElement;
  const focus = held && place.contains(held) ? held.id : "";
  const scrolled = [...place.querySelectorAll(".wide")].map((one) => [one.id, one.scrollLeft, one.scrollTop]);
  place.innerHTML = html;
  for (const [id, left, top] of scrolled) {
    const one = document.getElementById(id);
    if (one) one.scrollTo(left, top);
  }
  if (focus) document.getElementById(focus)?.focus({ preventScroll: true });
}

async function renewMine() {
  if (!mine || mine.contains(document.activeElement) || mine.querySelector("details[open]")) return;
  const answer = await fetch("mine", { credentials: "same-origin" });
  if (answer.ok) put(mine, await answer.text());
}

function live() {
  heard = Date.now();
  word.textContent = "Live";
}

function listen() {
  source?.close();
  heard = Date.now();
  source = new EventSource("events");
  source.addEventListener("open", live);
  source.addEventListener("beat", live);
  source.addEventListener("error", notLive);
  source.addEventListener("pool", (event) => {
    live();
    const parts = JSON.parse(event.data);
    for (const [name, html] of Object.entries(parts)) {
      const place = document.getElementById(`live-${name}`);
      if (place) put(place, html);
    }
    if ("leases" in parts || "queue" in parts) renewMine().catch(() => {});
  });
}

function notLive() { word.textContent = "Not live: the page does not answer; it is tried again"; }

listen();
setInterval(() => {
  if (Date.now() - heard <= SILENT_MS) return;
  notLive();
  listen();
}, 5000);
