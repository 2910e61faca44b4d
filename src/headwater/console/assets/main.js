// The page: which table is watched, what is chosen, and what the buttons ask.

import { announce, button, byId, reachLargeTables, showRows } from "./dom.js";
import { GroupMap, describeGroup, keyOf, sizeOf } from "./groups.js";
import { Model, bytes, duration, isPending, isWrite, timeOf } from "./model.js";
import { Panels, detailParts } from "./panels.js";
import { LongTable } from "./rows.js";
import { Refused, ask, readStream, takeToken } from "./session.js";
import { Timeline, describe } from "./timeline.js";

const AGAIN_MS = 2000;
const SECTIONS = new Set([
  "instants", "plans", "heartbeats", "locks", "conflicts", "indexes", "groups", "advice",
  "troubles", "jobs",
]);

let model = new Model();
let about = { tables: [], actions: {} };
let number = 0;
let watching = new AbortController();
let chosen = null;
let panels = null;

const keyOfInstant = (row) => `${row.requested_time} ${row.action}`;

const timeline = new Timeline(byId("lanes"), {
  now: () => model.timelineNow(),
  choose: (key, isOpened) => choose(key, isOpened, "lanes"),
});

const instants = new LongTable(byId("instants"), "Instants, newest first", [
  ["Instant", (row) => row.requested_time],
  ["Action", (row) => row.action],
  ["State", (row) => row.state],
  ["Took", (row) => (row.completion_time
    ? duration(timeOf(row.completion_time) - timeOf(row.requested_time)) : ""), "number wide"],
], { keyOf: keyOfInstant, choose: (key) => choose(key, true, "table") });

const groupMap = new GroupMap(byId("map"), {
  now: () => model.timelineNow(),
  choose: (key) => chooseGroup(key, true),
});

const groupRows = new LongTable(byId("group-rows"), "File groups, largest first", [
  ["File group", (row) => row.file_id],
  ["Partition", (row) => row.partition],
  ["Base", (row) => bytes(row.base_size_bytes ?? 0), "number"],
  ["Logs", (row) => row.log_count, "number"],
  ["In logs", (row) => bytes(row.log_size_bytes), "number wide"],
], { keyOf, choose: (key) => chooseGroup(key, false) });

function offers() {
  return about.actions;
}

async function begin() {
  takeToken();
  // An address that is pasted into a tab that shows the console already loads nothing.
  window.addEventListener("hashchange", () => {
    if (location.hash.includes("token=")) location.reload();
  });
  wire();
  try {
    about = await ask("tables");
  } catch (error) {
    refuse(error);
    return;
  }
  const select = byId("tables");
  select.replaceChildren(...about.tables.map((table) => new Option(table.name, table.number)));
  select.addEventListener("change", () => watch(Number(select.value)));
  const acts = Object.keys(about.actions).length > 0;
  byId("mode").textContent = acts ? "actions allowed" : "read only";
  for (const part of document.querySelectorAll("[data-acts]")) part.hidden = !acts;
  byId("service-buttons").replaceChildren(...Object.entries(about.actions)
    .filter(([, offer]) => !offer.instant)
    .map(([name, offer]) => button(offer.title, () => act(name, ""), { "data-action": name })));
  watch(0);
  setInterval(() => {
    if (document.hidden) return;
    panels?.tick();
    if (timeline.isFollowing) timeline.redraw();
  }, 1000);
}

/** Watch a table, and go on after what ends the stream, until another one is watched. */
async function watch(which) {
  watching.abort();
  const mine = new AbortController();
  watching = mine;
  number = which;
  byId("where").textContent = about.tables[which].uri;
  chosen = null;
  timeline.clear();
  byId("details-title").textContent = "No instant is chosen";
  byId("details-body").replaceChildren();
  while (!mine.signal.aborted) {
    let isFirst = true;
    try {
      await readStream(`tables/${which}/stream`, (event) => {
        if (mine.signal.aborted) return;
        if (isFirst) {
          // It tells everything, so that nothing of before is left.
          model = new Model();
          panels = new Panels(model, { act, choose: chooseTime, offers, about: about.tables[which] });
        }
        const changed = model.take(event);
        show(isFirst ? SECTIONS : changed);
        isFirst = false;
        connection("live");
      }, mine.signal);
    } catch (error) {
      if (mine.signal.aborted) return;
      if (error instanceof Refused && error.status === 401) {
        refuse(error);
        return;
      }
    }
    connection("cut off; trying again");
    await new Promise((done) => { setTimeout(done, AGAIN_MS); });
  }
}

function show(changed) {
  panels.show(changed);
  if (changed.has("instants")) showInstants();
  if (changed.has("groups")) showGroups();
  if (changed.has("jobs")) tellJobs();
  if (chosen && changed.has("instants")) showDetails(chosen);
  reachLargeTables();
}

function showInstants() {
  const rows = model.rows("instants");
  rows.sort((one, other) => (one.requested_time < other.requested_time ? 1 : -1));
  const pending = rows.filter(isPending).length;
  byId("instant-count").textContent = `${rows.length} instants, ${pending} pending`;
  instants.show(rows);
  timeline.show(model.section("instants"));
}

function showGroups() {
  const all = new Map(model.section("groups"));
  const total = all.get("") ?? { file_groups: 0, base_size_bytes: 0, log_size_bytes: 0 };
  all.delete("");
  const rows = [...all.values()].sort((one, other) => sizeOf(other) - sizeOf(one));
  const left = total.file_groups - rows.length;
  byId("group-count").textContent = `${total.file_groups} file groups, `
    + `${bytes(total.base_size_bytes)} in base files, ${bytes(total.log_size_bytes)} in logs`
    + (left > 0 ? `; the ${left} smallest are not shown` : "");
  groupMap.show(rows);
  groupRows.show(rows);
}

const told = new Map();

function tellJobs() {
  for (const job of model.rows("jobs")) {
    const state = `${number} ${job.number} ${job.state}`;
    if (job.state !== "running" && !told.has(state)) {
      announce(`${job.title}: ${job.state}. ${job.said}`);
      if (chosen) showDetails(chosen);
    }
    told.set(state, true);
  }
}

function chooseTime(time) {
  const found = model.rows("instants").find((row) => row.requested_time === time);
  if (found) choose(keyOfInstant(found), true, "panel");
  else announce(`${time} has left the active timeline`);
}

function choose(key, isOpened, by) {
  const instant = model.section("instants").get(key);
  if (!instant) return;
  timeline.mark(key, by !== "lanes" || !isOpened);
  instants.mark(key, by !== "table");
  announce(describe(instant, model.timelineNow()));
  if (isOpened) {
    chosen = key;
    showDetails(key);
  }
}

async function showDetails(key) {
  const [time, action] = key.split(" ");
  const from = number;
  let details;
  try {
    details = await ask(`tables/${from}/instants/${time}`);
  } catch (error) {
    if (chosen !== key) return;
    byId("details-title").textContent = `${action} ${time}`;
    byId("details-body").textContent = error.message;
    return;
  }
  if (chosen !== key || from !== number) return;
  const plan = model.section("plans").get(time);
  const buttons = [
    plan?.is_cancellable ? panels.button("cancel", time) : null,
    isPending(details) && isWrite(details) ? panels.button("roll_back", time) : null,
  ].filter(Boolean);
  byId("details-title").textContent = `${action} ${time}`;
  byId("details-body").replaceChildren(...detailParts(details, {
    now: model.timelineNow(), buttons, age: (row) => panels.age(row),
  }));
  reachLargeTables();
}

function chooseGroup(key, isToBeSeen) {
  const group = model.section("groups").get(key);
  if (!group) return;
  groupMap.mark(key);
  groupRows.mark(key, isToBeSeen);
  byId("group-chosen").textContent = describeGroup(group, model.timelineNow());
}

/** Ask before something is done, saying what will happen. */
function act(name, instant) {
  const offer = about.actions[name];
  const dialog = byId("ask");
  byId("ask-title").textContent = `${offer.title}?`;
  byId("ask-what").textContent = offer.what;
  byId("ask-instant").textContent = `${instant} of ${about.tables[number].name}`.replace(/^ of /, "");
  byId("ask-yes").textContent = offer.title;
  byId("ask-yes").onclick = async () => {
    dialog.close();
    try {
      await ask(`tables/${number}/actions`, { action: name, instant });
      announce(`${offer.title}: begun`);
    } catch (error) {
      announce(`${offer.title}: ${error.message}`);
      connection(error.message);
    }
  };
  dialog.showModal();
  byId("ask-no").focus();
}

async function check(isDeep) {
  const said = byId("check-said");
  const buttons = [byId("check-quick"), byId("check-deep")];
  for (const one of buttons) one.disabled = true;
  said.textContent = "Checking…";
  try {
    const { problems } = await ask(`tables/${number}/problems${isDeep ? "?deep=1" : ""}`);
    said.textContent = problems.length ? `${problems.length} problems found.` : "No problems found.";
    showRows(byId("problems"), "Problems", [
      ["Check", (row) => row.check],
      ["Subject", (row) => row.subject],
      ["Problem", (row) => row.problem],
      ["Since", (row) => row.instant],
      ["At stake", (row) => row.at_stake],
      ["What to do", (row) => row.advice],
    ], problems, "");
    reachLargeTables();
  } catch (error) {
    said.textContent = error.message;
  }
  for (const one of buttons) one.disabled = false;
}

function connection(text) {
  const place = byId("connection");
  if (place.textContent !== text) place.textContent = text;
}

function refuse(error) {
  connection("refused");
  const place = byId("refused");
  place.textContent = error.message;
  place.hidden = false;
}

function wire() {
  byId("zoom-in").onclick = () => timeline.zoom(0.5);
  byId("zoom-out").onclick = () => timeline.zoom(2);
  byId("earlier").onclick = () => timeline.move(-0.5);
  byId("later").onclick = () => timeline.move(0.5);
  byId("all").onclick = () => timeline.showAll();
  byId("follow").onclick = () => timeline.follow(!timeline.isFollowing);
  timeline.whenFollowing = (is) => byId("follow").setAttribute("aria-pressed", String(is));
  byId("colour").onchange = (event) => {
    groupMap.by = event.target.value;
    groupMap.redraw();
  };
  byId("check-quick").onclick = () => check(false);
  byId("check-deep").onclick = () => check(true);
  window.addEventListener("resize", reachLargeTables);
  byId("ask-no").onclick = () => byId("ask").close();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    timeline.redraw();
    groupMap.redraw();
  });
}

begin();
