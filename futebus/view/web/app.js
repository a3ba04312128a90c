// The page. The one rule: what others have named or said becomes text by textContent, and never markup.

import { Curve, bytes, count, duration, element, facts, rate, write } from "./curves.js";
import { Stream, Token } from "./stream.js";
import { Table, meter } from "./tables.js";

const MOST_LINES = 500; // of a channel's messages, on the page
const $ = (id) => document.getElementById(id);

const buses = new Map(); // by name: what is on the page of each
let open = null; // {bus, channel}: the channel that is looked at; with its number if it has lost its name
let looking = null; // the stream
let tail = null;
let seen = []; // the buses, as they were told last
let isTold = false; // whether they were
let isPaused = false;
let lastLink = null; // what was followed to the open channel

// ------------------------------------------------------------------------------------------ addresses

function address(bus, row) {
  // One that has lost its name may stand beside one that has it now.
  const which = row.state === "live" ? {} : { number: row.number };
  return "#" + new URLSearchParams({ bus, channel: row.name, ...which });
}

function route() {
  Token.takeFromAddress();
  const words = new URLSearchParams(location.hash.slice(1));
  const bus = words.get("bus");
  const channel = words.get("channel");
  const number = words.get("number");
  const before = open;
  open = bus && channel ? { bus, channel, ...(number ? { number } : {}) } : null;
  if (before && open && before.bus === open.bus && before.channel === open.channel && before.number === open.number) return;
  stopTail();
  $("lines").replaceChildren();
  $("channel").hidden = !open;
  $("buses").hidden = Boolean(open);
  $("search").hidden = Boolean(open);
  if (open) {
    write($("channel-name"), open.channel);
    write($("channel-trouble"), "");
    $("channel-facts").replaceChildren();
    clients.show([]);
    explainTail();
    $("channel-name").focus();
    document.title = `${open.channel} on ${open.bus} - futebus`;
  } else {
    document.title = "futebus";
    if (before) (lastLink?.isConnected ? lastLink : $("filter")).focus();
  }
  show();
  look();
}

// ------------------------------------------------------------------------------------------ looking

function look() {
  looking?.close();
  looking = null;
  if (document.hidden) return; // nobody looks: the buses are left in peace
  looking = new Stream("events", open ?? {}, {
    opened: () => {
      $("ask").hidden = true;
      state(isPaused ? "paused" : "live");
    },
    broken: (words) => state(words + "; trying again"),
    refused: (status, words) => (status === 401 ? ask(words) : state(words)),
    past: begin,
    pledge: (told) => (Token.pledge = told),
    buses: (told) => {
      if (isPaused) return;
      seen = told.buses;
      write($("more-buses"), told.untold ? `${count(told.untold)} more are mounted and not looked at` : "");
      isTold = true;
      show(true);
    },
    clients: (told) => {
      if (!isPaused && open && told.bus === open.bus && told.channel === open.channel) showClients(told);
    },
  });
}

function state(words) {
  write($("state"), words);
  document.body.classList.toggle("stale", words !== "live");
}

function ask(words) {
  state("not allowed");
  write($("ask-why"), words);
  $("ask").hidden = false;
  $("token").focus();
}

function begin(told) {
  for (const each of told) {
    place(each.bus).curve.begin(each.past, each.uptime);
    if (open && each.bus === open.bus && each.channel === open.channel) channelCurve.begin(each.channel_past, each.uptime);
  }
}

// ------------------------------------------------------------------------------------------ all buses

const CHANNELS = [
  { head: "Channel", value: (row) => row.name, fill: fillName },
  { head: "Type", value: (row) => row.type, text: (row) => row.type, isWide: true },
  { head: "In/s", label: "Messages in, a second", value: (row) => row.rates[0], text: (row) => rate(row.rates[0]), isNumber: true },
  { head: "Out/s", label: "Messages out, a second", value: (row) => row.rates[2], text: (row) => rate(row.rates[2]), isNumber: true },
  { head: "Clients", value: (row) => row.clients, text: (row) => count(row.clients), isNumber: true },
  { head: "Waiting", label: "Messages that wait", value: (row) => row.waiting, isNumber: true, isWide: true, fill: (cell, row) => meter(cell, row.full, count(row.waiting)) },
  { head: "Dropped", label: "Messages dropped", value: (row) => row.dropped, text: (row) => count(row.dropped), isNumber: true, isWide: true },
  { head: "Bytes in", value: (row) => row.bytes_in, text: (row) => bytes(row.bytes_in), isNumber: true, isWide: true },
  { head: "Age", value: (row) => row.age, text: (row) => duration(row.age), isNumber: true, isWide: true },
];

function fillName(cell, row) {
  if (!cell.firstChild) cell.append(element("a"), element("span", "", "notes"));
  const link = cell.firstChild;
  write(link, row.name);
  const to = address(row.bus, row);
  if (link.getAttribute("href") !== to) link.setAttribute("href", to);
  const notes = [];
  if (row.state !== "live") notes.push(row.state);
  if (row.blocked) notes.push(`${row.blocked} blocked`);
  if (row.kept) notes.push("recorded");
  write(cell.lastChild, notes.join(", "));
}

function place(name) {
  let found = buses.get(name);
  if (!found) {
    const section = $("bus").content.cloneNode(true).firstElementChild;
    const heading = section.querySelector("h2");
    heading.textContent = name;
    heading.id = "bus-" + buses.size + "-" + Date.now();
    section.setAttribute("aria-labelledby", heading.id);
    section.querySelector("caption").textContent = "Channels of " + name;
    section.querySelector(".stat").href = "stat.json?" + new URLSearchParams({ bus: name });
    section.querySelector(".metrics").href = "metrics?" + new URLSearchParams({ bus: name });
    found = {
      section,
      trouble: section.querySelector(".trouble"),
      body: section.querySelector(".seen"),
      facts: section.querySelector("dl"),
      more: section.querySelector(".more"),
      curve: new Curve(section.querySelector("figure")),
      table: new Table(section.querySelector("table"), CHANNELS, (row) => row.number),
    };
    buses.set(name, found);
    $("buses").append(section);
  }
  return found;
}

function show(isNew = false) {
  const names = new Set(seen.map((bus) => bus.name));
  for (const [name, each] of buses) {
    if (isTold && !names.has(name)) {
      each.section.remove();
      buses.delete(name);
    }
  }
  $("none").hidden = seen.length > 0 || !isTold;
  for (const bus of seen) showBus(bus, isNew);
  if (open) showChannel(isNew);
}

function showBus(bus, isNew) {
  const on = place(bus.name);
  write(on.trouble, bus.trouble);
  on.body.hidden = !bus.channels;
  on.section.classList.toggle("stale", Boolean(bus.trouble));
  if (!bus.channels) return;
  facts(on.facts, {
    "in": rate(bus.rates[0]) + "/s, " + bytes(bus.rates[1]) + "/s",
    "out": rate(bus.rates[2]) + "/s, " + bytes(bus.rates[3]) + "/s",
    "dropped": rate(bus.rates[4]) + "/s, " + count(bus.totals.dropped) + " in all",
    "messages": count(bus.totals.messages_in) + " in, " + count(bus.totals.messages_out) + " out",
    "channels": count(bus.count),
    "clients": count(bus.clients),
    "up": duration(bus.uptime) + (bus.going ? ", going down" : ""),
  });
  if (isNew && !bus.trouble) on.curve.add(bus.rates, bus.uptime);
  if (open) return;
  const wanted = $("filter").value.toLowerCase();
  const rows = bus.channels.filter((row) => row.name.toLowerCase().includes(wanted));
  for (const row of rows) row.bus = bus.name;
  on.table.show(rows);
  const hidden = bus.channels.length - rows.length;
  const more = [];
  if (hidden) more.push(`${count(hidden)} more do not match the filter`);
  if (bus.untold) more.push(`${count(bus.untold)} more are not shown: these are the busiest`);
  if (!bus.channels.length) more.push("There are no channels yet. touch " + bus.name + "/B_log makes one.");
  write(on.more, more.join("; "));
}

// ------------------------------------------------------------------------------------------ one channel

const CLIENTS = [
  { head: "Client", value: (row) => parseInt(row.id, 16), text: (row) => row.id },
  { head: "Command", value: (row) => row.command, fill: fillCommand },
  { head: "Process", value: (row) => row.pid, text: (row) => String(row.pid), isNumber: true, isWide: true },
  { head: "User", value: (row) => row.user, text: (row) => row.user, isWide: true },
  { head: "Role", value: (row) => row.role, text: (row) => row.role, isWide: true },
  { head: "Access", value: (row) => row.access, text: (row) => row.access, isWide: true },
  { head: "Sent", value: (row) => row.sent, text: (row) => count(row.sent), isNumber: true },
  { head: "Received", value: (row) => row.received, text: (row) => count(row.received), isNumber: true },
  { head: "Waiting", value: (row) => row.waiting, isNumber: true, isWide: true, fill: (cell, row) => meter(cell, row.full, count(row.waiting)) },
  { head: "Dropped", value: (row) => row.dropped, text: (row) => count(row.dropped), isNumber: true, isWide: true },
  { head: "Waits to", value: (row) => row.waits, text: (row) => (row.waits ? `${row.waits}, ${duration(row.waits_seconds)}` : ""), isWide: true },
];

function fillCommand(cell, row) {
  if (!cell.firstChild) cell.append(element("span"), element("span", "", "notes"));
  write(cell.firstChild, row.command);
  const keeper = row.keeper;
  if (!keeper) return write(cell.lastChild, "");
  const words = [keeper.command === "futebus-archive" ? "archive" : "recorder"];
  if (keeper.lines !== undefined) {
    words.push(`${count(keeper.lines)} lines`, `${count(row.waiting)} behind`, `last at ${new Date(keeper.last * 1000).toLocaleTimeString()}`);
    if (keeper.lost) words.push(`${count(keeper.lost)} lost`);
  }
  write(cell.lastChild, words.join(", "));
}

const clients = new Table($("clients"), CLIENTS, (row) => row.id);
const channelCurve = new Curve($("channel-curve"));

function found() {
  const bus = seen.find((each) => each.name === open.bus);
  const isMeant = (each) => (open.number ? String(each.number) === open.number : each.state === "live");
  return { bus, row: bus?.channels?.find((each) => each.name === open.channel && isMeant(each)) };
}

function showChannel(isNew) {
  const { bus, row } = found();
  const trouble = !bus ? "this bus is not there" : bus.trouble || (row ? "" : "this channel is not there, or not among the busiest");
  write($("channel-trouble"), isTold ? trouble : "");
  if (!row) return;
  facts($("channel-facts"), {
    "bus": bus.name,
    "in": rate(row.rates[0]) + "/s, " + bytes(row.rates[1]) + "/s, " + count(row.messages_in) + " in all",
    "out": rate(row.rates[2]) + "/s, " + bytes(row.rates[3]) + "/s, " + count(row.messages_out) + " in all",
    "waiting": count(row.waiting) + ", " + bytes(row.waiting_bytes),
    "dropped": count(row.dropped),
    "lost": count(row.lost),
    "blocked": row.blocked ? `${row.blocked}, for up to ${duration(row.blocked_seconds)}` : "none",
    "owner": row.user + ", " + row.mode,
    "age": duration(row.age),
  });
  if (isNew && !bus.trouble) channelCurve.add(row.rates, bus.uptime);
}

function showClients(told) {
  clients.show(told.clients);
  write($("clients-more"), told.untold ? `${count(told.untold)} more are not shown: these have sent and received the most` : "");
}

// ------------------------------------------------------------------------------------------ messages

function explainTail() {
  const why = open.number
    ? "This channel has lost its name, so it cannot be opened any more."
    : "AB".includes(open.channel[0])
      ? ""
      : "A reader of a U or S channel takes part in it, so it cannot be watched from here.";
  $("watch").hidden = $("clear").hidden = $("lines").hidden = Boolean(why);
  write($("tail-note"), why);
}

function stopTail() {
  tail?.close();
  tail = null;
  $("watch").setAttribute("aria-pressed", "false");
  write($("watch"), "Watch");
}

function watch() {
  $("watch").setAttribute("aria-pressed", "true");
  write($("watch"), "Stop");
  let skipped = 0;
  let isRemoved = false;
  let hanging = "";
  const note = (words) => write($("tail-note"), words);
  const tell = () => note(
    "watching" +
      (hanging ? `; the bus hangs: ${hanging}` : "") +
      (isRemoved ? "; its name was removed, and the next channel of this name is waited for" : "") +
      (skipped ? `; ${skipped.toLocaleString("en")} lines came too fast and were skipped` : ""),
  );
  note("opening");
  tail = new Stream("tail", open, {
    opened: () => ($("ask").hidden = true),
    broken: note,
    refused: (status, words) => {
      stopTail();
      note(words);
      if (status === 401) ask(words);
    },
    open: () => {
      hanging = "";
      tell();
    },
    name: (told) => {
      isRemoved = told.removed;
      tell();
    },
    answers: (told) => {
      hanging = told.trouble;
      tell();
    },
    trouble: (words) => {
      stopTail();
      note(words);
    },
    lines: (told) => {
      skipped += told.skipped;
      tell();
      if (told.skipped) addLines([`… ${told.skipped.toLocaleString("en")} lines skipped`], "skipped");
      addLines(told.lines);
    },
  });
}

function addLines(lines, kind) {
  const list = $("lines");
  const isAtEnd = list.scrollTop + list.clientHeight >= list.scrollHeight - 4;
  list.append(...lines.map((line) => element("li", line, kind)));
  while (list.children.length > MOST_LINES) list.firstChild.remove();
  if (isAtEnd) list.scrollTop = list.scrollHeight;
}

// ------------------------------------------------------------------------------------------ what people do

$("filter").addEventListener("input", () => show());
$("search").addEventListener("submit", (event) => event.preventDefault());
$("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  $("pause").setAttribute("aria-pressed", String(isPaused));
  state(isPaused ? "paused" : "live");
});
$("watch").addEventListener("click", () => {
  if (!tail) return watch();
  stopTail();
  write($("tail-note"), "");
});
$("clear").addEventListener("click", () => $("lines").replaceChildren());
$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  Token.set($("token").value);
  $("token").value = "";
  $("ask").hidden = true;
  look();
  if (open && !$("watch").hidden) $("watch").focus();
});
$("buses").addEventListener("click", (event) => {
  if (event.target.closest("th a")) lastLink = event.target;
});
document.body.addEventListener("click", async (event) => {
  // What a link leads to is asked for without the token, so it is asked for here.
  const link = event.target.closest('a[href^="metrics"], a[href^="stat.json"]');
  if (!link || !Token.headers.Authorization) return;
  event.preventDefault();
  const answer = await fetch(link.href, { headers: { ...Token.headers, Accept: "application/json, text/plain" } });
  window.open(URL.createObjectURL(new Blob([await answer.text()], { type: "text/plain;charset=utf-8" })));
});
$("back").addEventListener("click", (event) => {
  event.preventDefault();
  location.hash = "";
});
addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    if (open) location.hash = "";
    else if ($("filter").value) {
      $("filter").value = "";
      show();
    }
  } else if (event.key === "/" && !open && event.target.tagName !== "INPUT") {
    event.preventDefault();
    $("filter").focus();
  }
});
addEventListener("hashchange", route);
let isLeaving = false; // a page that is loaded again is not seen for a moment, either
addEventListener("pagehide", () => (isLeaving = true));
addEventListener("pageshow", () => (isLeaving = false));
document.addEventListener("visibilitychange", () => {
  if (document.hidden && !isLeaving) Token.doubt();
  look();
  if (document.hidden) state("waiting");
});

Token.takeFromAddress();
route();
