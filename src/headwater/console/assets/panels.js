// The parts of the page that are tables: who works, who holds the lock, plans, conflicts, indexes.

import { button, byId, make, showRows } from "./dom.js";
import { bytes, clockTime, duration, isPending, isWrite, ownerOf, timeOf } from "./model.js";

const at = (ms) => (ms === undefined ? "" : clockTime(ms));
const list = (values) => (values ?? []).join(", ");

export class Panels {
  /** `act(name, instant)` asks and then does; `choose(instant)` shows an instant; `about` is what
   *  the console says of the table. */
  constructor(model, { act, choose, offers, about }) {
    this.model = model;
    this.act = act;
    this.choose = choose;
    this.offers = offers;
    this.about = about;
  }

  show(changed) {
    if (changed.has("heartbeats") || changed.has("instants")) this.showWork();
    if (changed.has("locks") || changed.has("heartbeats")) this.showLocks();
    if (changed.has("plans") || changed.has("heartbeats")) this.showPlans();
    if (changed.has("conflicts")) this.showConflicts();
    if (changed.has("indexes")) this.showIndexes();
    if (changed.has("advice")) this.showOptional("advice", "Advice");
    if (changed.has("troubles")) this.showOptional("troubles", "What cannot be read");
    if (changed.has("jobs")) this.showJobs();
  }

  link(instant) {
    return button(instant, () => this.choose(instant),
      { className: "plain digits", "data-key": `link ${instant}` });
  }

  button(name, instant) {
    const offer = this.offers()[name];
    if (!offer) return null;
    return button(offer.title, () => this.act(name, instant), {
      "data-key": `${name} ${instant}`, "data-action": name, "aria-label": `${offer.title} ${instant}`,
    });
  }

  showWork() {
    const instants = new Map(this.model.rows("instants").map((row) => [row.requested_time, row]));
    const beating = this.model.rows("heartbeats");
    const known = new Set(beating.map((row) => row.instant));
    const silent = [...instants.values()]
      .filter((row) => isPending(row) && isWrite(row) && !known.has(row.requested_time))
      .map((row) => ({ instant: row.requested_time, purpose: row.action }));
    showRows(byId("heartbeats"), "Who is at work", [
      ["Instant", (row) => this.link(row.instant)],
      ["Work", (row) => instants.get(row.instant)?.action ?? row.purpose],
      ["Owner", ownerOf],
      ["Attempt", (row) => row.attempt, true],
      ["Heartbeat", (row) => this.age(row)],
      ...(this.offers().roll_back ? [["", (row) => {
        const instant = instants.get(row.instant);
        return instant && isPending(instant) && isWrite(instant)
          ? this.button("roll_back", row.instant) : null;
      }]] : []),
    ], [...beating, ...silent], "Nobody is at work.");
  }

  /** The age of a heartbeat, counted on between two events. */
  age(row) {
    if (row.last_beat === undefined) return make("span", { className: "late" }, "none");
    const age = make("span", { className: "age" });
    age.dataset.beat = row.last_beat;
    age.dataset.expiry = row.expiry_ms ?? "";
    this.tell(age);
    return age;
  }

  tell(age) {
    const ms = this.model.since(Number(age.dataset.beat));
    const isLate = age.dataset.expiry !== "" && ms > Number(age.dataset.expiry);
    age.textContent = isLate ? `lapsed, ${duration(ms)} ago` : `${duration(ms)} ago`;
    age.classList.toggle("late", isLate);
  }

  tick() {
    for (const age of document.querySelectorAll(".age")) this.tell(age);
  }

  showLocks() {
    const locks = this.model.rows("locks");
    showRows(byId("locks"), "The table lock", [
      ["Owner", (row) => row.owner],
      ["Provider", (row) => row.provider],
      ["Since", (row) => at(row.acquired)],
      ["Expires", (row) => (row.is_expired ? "expired" : at(row.expires))],
    ], locks, this.about.is_fenced
      ? "This table needs no lock, it has a journal. Nobody holds the lock."
      : "Nobody holds the lock.");
    const others = this.model.rows("heartbeats")
      .filter((row) => !locks.some((lock) => row.writer_id && lock.owner.includes(row.writer_id)));
    byId("waiters").textContent = locks.length && others.length
      ? `Locks keep no list of who waits. At work without it: ${others.map(ownerOf).join(", ")}.`
      : "";
  }

  showPlans() {
    const beats = new Map(this.model.rows("heartbeats").map((row) => [row.instant, row]));
    showRows(document.querySelector("#plans .rows"), "Plans that have not ended", [
      ["Instant", (row) => this.link(row.instant)],
      ["Plan", (row) => row.action],
      ["State", (row) => (row.is_cancelled ? `${row.state}, cancelled` : row.state)],
      ["File groups", (row) => row.file_groups, true],
      ["Worker", (row) => row.worker ?? "nobody"],
      ["Heartbeat", (row) => (beats.has(row.instant) ? this.age(beats.get(row.instant)) : "")],
      ["Cancellable", (row) => (row.is_cancellable ? "yes" : "no")],
      ...(this.offers().cancel ? [["", (row) =>
        (row.is_cancellable ? this.button("cancel", row.instant) : null)]] : []),
    ], this.model.rows("plans"), "No plan waits.");
  }

  showConflicts() {
    const newest = this.model.rows("conflicts").sort((one, other) =>
      other.instant.localeCompare(one.instant));
    showRows(document.querySelector("#conflicts .rows"), "Work that gave way", [
      ["What gave way", (row) => this.link(row.instant)],
      ["Outcome", (row) => row.outcome],
      ["To whom", (row) => (/^\d{17}$/.test(row.by ?? "") ? this.link(row.by) : row.by)],
      ["Why, and what was undone", (row) => row.reason],
    ], newest, "There was no conflict.");
  }

  showIndexes() {
    showRows(document.querySelector("#indexes .rows"), "Indexes", [
      ["Index", (row) => row.index],
      ["State", (row) => row.state],
      ["Built", (row) => progress(row)],
      ["Logs behind", (row) => row.logs_unfolded, true],
      ["Plan", (row) => (row.plan ? this.link(row.plan) : "")],
      ["Owner", (row) => row.owner],
      ["Waits for", (row) => list(row.waits_for)],
      ["Problem", (row) => row.problem],
    ], this.model.rows("indexes"), "The table has no index.");
  }

  showOptional(name, caption) {
    const rows = [...this.model.section(name)].sort(([one], [other]) => one.localeCompare(other))
      .map(([, row]) => row);
    byId(name).hidden = !rows.length;
    const titles = [...new Set(rows.flatMap((row) => Object.keys(row)))];
    showRows(document.querySelector(`#${name} .rows`), caption,
      titles.map((title) => [
        title.replace(/_bytes$/, "").replaceAll("_", " "),
        (row) => (title.endsWith("_bytes") ? bytes(row[title]) : String(row[title] ?? "")),
      ]), rows, "");
  }

  showJobs() {
    const newest = this.model.rows("jobs").sort((one, other) => other.number - one.number);
    showRows(byId("jobs"), "What was asked for here", [
      ["Asked for", (row) => row.title],
      ["Instant", (row) => (row.instant ? this.link(row.instant) : "")],
      ["Since", (row) => at(row.started_ms)],
      ["State", (row) => row.state],
      ["Outcome", (row) => row.said],
    ], newest, "Nothing was asked for yet.");
  }
}

function progress(row) {
  const words = `${row.file_groups_built} of ${row.file_groups}`;
  if (row.state !== "building") return words;
  return make("span", {},
    make("progress", { max: row.file_groups || 1, value: row.file_groups_built,
                       "aria-label": `${row.index} built` }), ` ${words}`);
}

/** The parts of one instant: fields, attempts, plan and files. */
export function detailParts(details, { now, buttons, age }) {
  const start = timeOf(details.instant);
  const end = details.completion_time ? timeOf(details.completion_time) : null;
  const fields = {
    Action: details.action,
    State: details.state,
    Operation: details.operation,
    Requested: clockTime(start),
    Completed: end === null ? null : `${clockTime(end)}, after ${duration(end - start)}`,
    Pending: isPending(details) ? `for ${duration(now - start)}` : null,
    Writer: details.writer,
    Rows: details.inserted === undefined ? null
      : `${details.inserted} inserted, ${details.updated} updated, ${details.deleted} deleted`,
    Files: details.file_count,
    "File groups replaced": details.replaced || null,
  };
  const shown = Object.entries(fields).filter(([, value]) => value !== null && value !== undefined);
  const parts = [make("dl", {}, ...shown.flatMap(([name, value]) =>
    [make("dt", { textContent: name }), make("dd", { textContent: String(value) })]))];
  if (buttons.length) parts.push(make("div", { className: "toolbar" }, ...buttons));
  const tables = [
    ["Attempts", details.attempts, [
      ["Attempt", (row) => row.attempt, true],
      ["Owner", ownerOf],
      ["Heartbeat", (row) => (row.is_released ? "given up" : age(row))],
    ]],
    ["Plan", details.plan, [
      ["Partition", (row) => row.partition],
      ["File group or subject", (row) => row.subject],
      ["Files", (row) => list(row.files)],
    ]],
    ["Files", details.files ?? [], [
      ["Path", (row) => row.path],
      ["Bytes", (row) => row.size_bytes, true],
    ]],
  ];
  for (const [title, rows, columns] of tables) {
    if (!rows.length) continue;
    const place = make("div", { className: "rows" });
    showRows(place, title, columns, rows, "");
    parts.push(make("h4", { textContent: title }), place);
  }
  return parts;
}
