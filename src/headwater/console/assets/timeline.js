// The timeline in lanes: one bar per instant, from its request to its end, drawn on a canvas.

import { colour, pen } from "./dom.js";
import { clockTime, duration, isPending, timeOf } from "./model.js";

const LANES = [
  ["Writes", "writes", ["commit", "deltacommit", "replacecommit"]],
  ["Compaction", "compaction", ["compaction", "logcompaction"]],
  ["Clustering", "clustering", ["clustering"]],
  ["Indexing", "indexing", ["indexing"]],
  ["Clean", "clean", ["clean"]],
  ["Rollback, restore", "rollback", ["rollback", "restore"]],
  ["Savepoints", "savepoint", ["savepoint"]],
];
const LANE_OF = new Map(LANES.flatMap(([, , actions], lane) => actions.map((one) => [one, lane])));
const LABEL_PX = 112;
const AXIS_PX = 22;
const BAR_MIN_PX = 3;
const SPAN_MIN_MS = 50;
const FIRST_SPAN_MIN_MS = 6e4;
const ROWS_MAX = 10;
const STEPS_MS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5,
  18e5, 36e5, 72e5, 216e5, 432e5, 864e5, 6048e5, 2592e6, 7776e6, 31536e6,
];

export class Timeline {
  constructor(canvas, { now, choose }) {
    this.canvas = canvas;
    this.now = now;
    this.choose = choose;
    this.bars = [];
    this.rowCounts = LANES.map(() => 1);
    this.from = 0;
    this.to = 1;
    this.isFollowing = true;
    this.chosen = null;
    this.isAsked = false;
    this.places = [];
    this.listen();
    new ResizeObserver(() => this.redraw()).observe(canvas);
  }

  /** Take the instants, by key. Those at the same time get rows of their own in their lane. */
  show(instants) {
    const bars = [];
    for (const [key, instant] of instants) {
      const lane = LANE_OF.get(instant.action);
      const start = timeOf(instant.requested_time);
      // The first instants of a metadata table have digits that are no date.
      if (lane === undefined || !(start > 0)) continue;
      const end = instant.completion_time ? timeOf(instant.completion_time) : null;
      bars.push({ key, instant, lane, start, end, row: 0 });
    }
    bars.sort((one, other) => one.start - other.start);
    const ends = LANES.map(() => []);
    for (const bar of bars) {
      const lane = ends[bar.lane];
      let row = lane.findIndex((end) => end <= bar.start);
      if (row < 0) row = Math.min(lane.length, ROWS_MAX - 1);
      const until = bar.end ?? (isPending(bar.instant) ? Infinity : bar.start + 1);
      lane[row] = Math.max(lane[row] ?? 0, until);
      bar.row = row;
    }
    this.rowCounts = ends.map((lane) => Math.max(1, lane.length));
    const isFirst = !this.bars.length;
    this.bars = bars;
    if (isFirst && bars.length) this.showRecent();
    this.redraw();
  }

  clear() {
    this.bars = [];
    this.chosen = null;
    this.isFollowing = true;
    this.redraw();
  }

  /** The newest hundred instants: of ten thousand, all would be dust. */
  showRecent() {
    const first = this.bars[Math.max(0, this.bars.length - 100)].start;
    this.to = this.now();
    this.span(Math.max(FIRST_SPAN_MIN_MS, (this.to - first) * 1.02));
  }

  showAll() {
    if (!this.bars.length) return;
    this.isFollowing = true;
    this.to = this.now();
    this.span((this.to - this.bars[0].start) * 1.02);
  }

  span(ms) {
    const wanted = Math.max(SPAN_MIN_MS, ms);
    if (this.isFollowing) this.to = this.now() + wanted * 0.03;
    this.from = this.to - wanted;
    this.redraw();
  }

  /** Zoom around a moment, or around the end while it is followed. */
  zoom(factor, around) {
    const wanted = Math.max(SPAN_MIN_MS, (this.to - this.from) * factor);
    if (!this.isFollowing) {
      const middle = around ?? (this.from + this.to) / 2;
      const share = (this.to - middle) / (this.to - this.from);
      this.to = middle + wanted * share;
    }
    this.span(wanted);
  }

  /** Move by a share of what is shown; that ends following. */
  move(share) {
    const by = (this.to - this.from) * share;
    this.follow(false);
    this.from += by;
    this.to += by;
    this.redraw();
  }

  follow(isFollowing) {
    this.isFollowing = isFollowing;
    this.span(this.to - this.from);
    this.whenFollowing?.(isFollowing);
  }

  mark(key, isToBeSeen) {
    this.chosen = key;
    const bar = this.bars.find((one) => one.key === key);
    if (bar && isToBeSeen && (bar.start < this.from || bar.start > this.to)) {
      const span = this.to - this.from;
      this.follow(false);
      this.to = bar.start + span / 2;
      this.from = this.to - span;
    }
    this.redraw();
  }

  redraw() {
    if (this.isAsked) return;
    this.isAsked = true;
    requestAnimationFrame(() => {
      this.isAsked = false;
      if (this.isFollowing) {
        const span = this.to - this.from;
        this.to = this.now() + span * 0.03;
        this.from = this.to - span;
      }
      this.draw();
    });
  }

  draw() {
    const { context, width, height } = pen(this.canvas);
    if (!width) return;
    const rows = this.rowCounts.reduce((sum, count) => sum + count, 0);
    const rowPx = Math.max(4, (height - AXIS_PX) / rows);
    const x = (time) => LABEL_PX + ((time - this.from) / (this.to - this.from)) * (width - LABEL_PX);
    this.scale = { width, x };
    this.drawAxis(context, x, width, height);
    const tops = [];
    let top = 0;
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    LANES.forEach(([title, name], lane) => {
      tops.push(top);
      const tall = this.rowCounts[lane] * rowPx;
      context.strokeStyle = colour("line");
      context.beginPath();
      context.moveTo(0, Math.round(top + tall) + 0.5);
      context.lineTo(width, Math.round(top + tall) + 0.5);
      context.stroke();
      context.fillStyle = colour(name);
      context.fillText(title, 6, top + tall / 2, LABEL_PX - 10);
      top += tall;
    });
    context.save();
    context.beginPath();
    context.rect(LABEL_PX, 0, width - LABEL_PX, height - AXIS_PX);
    context.clip();
    const drawn = this.drawBars(context, x, tops, rowPx, width);
    this.drawNow(context, x, height);
    context.restore();
    this.canvas.dataset.drawn = String(drawn);
    this.canvas.dataset.total = String(this.bars.length);
    this.canvas.dataset.span = String(Math.round(this.to - this.from));
    const pending = this.bars.filter((bar) => isPending(bar.instant)).length;
    this.canvas.setAttribute("aria-label",
      `Timeline in lanes: ${this.bars.length} instants, ${pending} pending, `
      + `${drawn} drawn from ${clockTime(this.from)} to ${clockTime(this.to)}`);
  }

  drawBars(context, x, tops, rowPx, width) {
    const right = x(this.now());
    const edges = new Map();
    this.places = [];
    let drawn = 0;
    for (const bar of this.bars) {
      const left = x(bar.start);
      if (left > width) break;
      const isOpen = bar.end === null && isPending(bar.instant);
      const end = bar.end === null ? (isOpen ? right : left) : x(bar.end);
      if (end < LABEL_PX) continue;
      const row = bar.lane * ROWS_MAX + bar.row;
      // Of bars that lie within one pixel one is seen.
      const isChosen = bar.key === this.chosen;
      if (Math.max(end, left + 1) <= (edges.get(row) ?? -Infinity) && !isOpen && !isChosen) continue;
      const wide = Math.max(BAR_MIN_PX, end - left);
      const box = [left, tops[bar.lane] + bar.row * rowPx + 1, wide, Math.max(2, rowPx - 2)];
      edges.set(row, left + 1);
      this.drawBar(context, bar, box, isChosen);
      this.places.push({ bar, box });
      drawn += 1;
    }
    return drawn;
  }

  drawBar(context, bar, [left, top, wide, tall], isChosen) {
    const [, name] = LANES[bar.lane];
    context.fillStyle = context.strokeStyle = colour(name);
    context.lineWidth = 1;
    switch (bar.instant.state) {
      case "completed":
        context.fillRect(left, top, wide, tall);
        break;
      case "inflight":
        context.fillStyle = stripes(context, colour(name));
        context.fillRect(left, top, wide, tall);
        context.strokeRect(left + 0.5, top + 0.5, Math.max(1, wide - 1), tall - 1);
        break;
      case "requested":
        context.strokeRect(left + 0.5, top + 0.5, Math.max(1, wide - 1), tall - 1);
        break;
      default: {
        const side = Math.max(wide, 8);
        context.strokeStyle = colour("rollback");
        context.strokeRect(left + 0.5, top + 0.5, side, tall - 1);
        context.beginPath();
        context.moveTo(left, top + tall);
        context.lineTo(left + side, top);
        context.stroke();
      }
    }
    if (isChosen) {
      context.strokeStyle = colour("chosen");
      context.lineWidth = 3;
      context.strokeRect(left - 2, top - 1, Math.max(wide, 8) + 4, tall + 2);
    }
  }

  drawNow(context, x, height) {
    const now = x(this.now());
    context.strokeStyle = colour("soft");
    context.lineWidth = 1;
    context.setLineDash([3, 3]);
    context.beginPath();
    context.moveTo(now, 0);
    context.lineTo(now, height - AXIS_PX);
    context.stroke();
    context.setLineDash([]);
  }

  drawAxis(context, x, width, height) {
    const shown = this.to - this.from;
    const wanted = shown / Math.max(2, (width - LABEL_PX) / 120);
    const step = STEPS_MS.find((one) => one >= wanted) ?? STEPS_MS.at(-1);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    for (let time = Math.ceil(this.from / step) * step; time < this.to; time += step) {
      const at = Math.round(x(time)) + 0.5;
      if (at < LABEL_PX) continue;
      context.strokeStyle = colour("line");
      context.beginPath();
      context.moveTo(at, 0);
      context.lineTo(at, height - AXIS_PX + 4);
      context.stroke();
      context.fillStyle = colour("soft");
      const text = clockTime(time);
      const label = step >= 864e5 ? text.slice(0, 10)
        : step >= 1000 ? text.slice(11) : clockTime(time, false);
      context.fillText(label, at + 3, height - AXIS_PX / 2);
    }
  }

  /** The bar at a place of the canvas, with some room around it for fingers. */
  barAt(left, top) {
    let best = null;
    let least = 12;
    for (const { bar, box: [x, y, wide, tall] } of this.places) {
      const away = Math.hypot(Math.max(x - left, 0, left - x - wide),
                              Math.max(y - top, 0, top - y - tall));
      if (away <= least) [best, least] = [bar, away];
    }
    return best;
  }

  step(by) {
    if (!this.bars.length) return;
    const place = this.bars.findIndex((bar) => bar.key === this.chosen);
    const next = place < 0 ? this.bars.length - 1
      : Math.min(this.bars.length - 1, Math.max(0, place + by));
    this.choose(this.bars[next].key, false);
  }

  listen() {
    const { canvas } = this;
    const time = (event) => this.from
      + ((event.offsetX - LABEL_PX) / (canvas.clientWidth - LABEL_PX)) * (this.to - this.from);
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.move(event.deltaX / 1000);
      else this.zoom(Math.exp(event.deltaY / 400), time(event));
    }, { passive: false });
    const fingers = new Map();
    let moved = 0;
    canvas.addEventListener("pointerdown", (event) => {
      fingers.set(event.pointerId, event.offsetX);
      canvas.setPointerCapture(event.pointerId);
      moved = 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!fingers.has(event.pointerId)) return;
      const before = fingers.get(event.pointerId);
      const apart = spread(fingers);
      fingers.set(event.pointerId, event.offsetX);
      moved += Math.abs(event.offsetX - before);
      if (fingers.size === 2 && apart) this.zoom(apart / (spread(fingers) || apart), time(event));
      else if (moved > 4) this.move((before - event.offsetX) / (canvas.clientWidth - LABEL_PX));
    });
    canvas.addEventListener("pointerup", (event) => {
      fingers.delete(event.pointerId);
      const bar = moved <= 4 ? this.barAt(event.offsetX, event.offsetY) : null;
      if (bar) this.choose(bar.key, true);
    });
    canvas.addEventListener("pointercancel", (event) => fingers.delete(event.pointerId));
    const keys = {
      ArrowLeft: () => this.move(-0.2),
      ArrowRight: () => this.move(0.2),
      ArrowUp: () => this.step(-1),
      ArrowDown: () => this.step(1),
      "+": () => this.zoom(0.5),
      "=": () => this.zoom(0.5),
      "-": () => this.zoom(2),
      Home: () => this.showAll(),
      End: () => this.follow(true),
      Enter: () => this.chosen && this.choose(this.chosen, true),
    };
    canvas.addEventListener("keydown", (event) => {
      const act = event.ctrlKey || event.metaKey || event.altKey ? null : keys[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    });
  }
}

/** An instant in words. */
export function describe(instant, now) {
  const start = timeOf(instant.requested_time);
  const took = instant.completion_time
    ? `took ${duration(timeOf(instant.completion_time) - start)}`
    : isPending(instant) ? `for ${duration(now - start)}` : "";
  return `${instant.action} ${instant.requested_time}, ${instant.state} ${took}`.trim();
}

function spread(fingers) {
  if (fingers.size !== 2) return 0;
  const [one, other] = [...fingers.values()];
  return Math.abs(one - other);
}

const patterns = new Map();

function stripes(context, ink) {
  if (!patterns.has(ink)) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const tiled = tile.getContext("2d");
    tiled.strokeStyle = ink;
    tiled.lineWidth = 2;
    for (const shift of [-6, 0, 6]) {
      tiled.beginPath();
      tiled.moveTo(shift, 6);
      tiled.lineTo(shift + 6, 0);
      tiled.stroke();
    }
    patterns.set(ink, context.createPattern(tile, "repeat"));
  }
  return patterns.get(ink);
}
