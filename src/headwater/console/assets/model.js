// What is known of the table that is watched, and how its values read.

export class Model {
  constructor() {
    this.sections = new Map();
    this.heard = 0;
    this.now = 0;
    this.nowMs = 0;
  }

  /** Take an event of the stream; return the names of sections that changed. */
  take(event) {
    this.heard = performance.now();
    this.now = timeOf(event.now);
    this.nowMs = event.now_ms;
    for (const [name, changes] of Object.entries(event.sections)) {
      const rows = this.section(name);
      for (const [key, row] of Object.entries(changes)) {
        if (row === null) rows.delete(key);
        else rows.set(key, row);
      }
      this.sections.set(name, rows);
    }
    return new Set(Object.keys(event.sections));
  }

  section(name) {
    return this.sections.get(name) ?? new Map();
  }

  rows(name) {
    return [...this.section(name).values()];
  }

  /** Now, in the time of the timeline: the machine of this browser may have another. */
  timelineNow() {
    return this.now + (performance.now() - this.heard);
  }

  /** Milliseconds since a moment by the clock of the console. */
  since(epochMs) {
    return this.nowMs + (performance.now() - this.heard) - epochMs;
  }
}

/** Milliseconds of an instant time; its zone is the table's, which is never asked for. */
export function timeOf(digits) {
  const part = (from, to) => Number(digits.slice(from, to));
  return Date.UTC(
    part(0, 4), part(4, 6) - 1, part(6, 8), part(8, 10), part(10, 12), part(12, 14), part(14, 17),
  );
}

export function clockTime(ms, withDay = true) {
  const text = new Date(ms).toISOString();
  return withDay ? text.slice(0, 19).replace("T", " ") : text.slice(11, 23);
}

export function duration(ms) {
  if (ms < 0) return "0 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let value = count;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function ownerOf(row) {
  const place = [row.host, row.pid].filter((one) => one !== undefined).join("/");
  return place || row.writer_id || "unknown";
}

const WRITES = new Set(["commit", "deltacommit", "replacecommit"]);

export function isPending(instant) {
  return instant.state === "requested" || instant.state === "inflight";
}

export function isWrite(instant) {
  return WRITES.has(instant.action);
}
