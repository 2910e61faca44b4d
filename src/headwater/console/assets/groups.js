// File groups as a map: area is size, the strength of colour the share of logs or the age.

import { colour, pen } from "./dom.js";
import { bytes, duration, timeOf } from "./model.js";

const DAY_MS = 864e5;
const AGED_MS = 30 * DAY_MS;

export const sizeOf = (group) => (group.base_size_bytes ?? 0) + group.log_size_bytes;
export const keyOf = (group) => `${group.partition}/${group.file_id}`;
const logShare = (group) => group.log_size_bytes / Math.max(1, sizeOf(group));

export class GroupMap {
  constructor(canvas, { now, choose }) {
    this.canvas = canvas;
    this.now = now;
    this.choose = choose;
    this.groups = [];
    this.boxes = [];
    this.by = "logs";
    this.chosen = null;
    this.isAsked = false;
    canvas.addEventListener("pointerup", (event) => {
      const found = this.boxes.find(({ box: [x, y, wide, tall] }) =>
        event.offsetX >= x && event.offsetX < x + wide
        && event.offsetY >= y && event.offsetY < y + tall);
      if (found) this.choose(keyOf(found.group));
    });
    canvas.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (by === undefined || !this.groups.length) return;
      event.preventDefault();
      const place = this.groups.findIndex((group) => keyOf(group) === this.chosen);
      const next = Math.min(this.groups.length - 1, Math.max(0, place + by));
      this.choose(keyOf(this.groups[next]));
    });
    new ResizeObserver(() => this.redraw()).observe(canvas);
  }

  /** Take the file groups, largest first. */
  show(groups) {
    this.groups = groups;
    this.redraw();
  }

  mark(key) {
    this.chosen = key;
    this.redraw();
  }

  redraw() {
    if (this.isAsked) return;
    this.isAsked = true;
    requestAnimationFrame(() => {
      this.isAsked = false;
      this.draw();
    });
  }

  draw() {
    const { context, width, height } = pen(this.canvas);
    if (!width) return;
    this.boxes = squarify(this.groups.filter(sizeOf), width, height);
    const [little, much] = [parts(colour("little")), parts(colour("much"))];
    for (const { group, box: [x, y, wide, tall] } of this.boxes) {
      const share = this.by === "logs" ? logShare(group) : this.age(group);
      context.fillStyle = mixed(little, much, share);
      context.fillRect(x, y, Math.max(0.5, wide - 1), Math.max(0.5, tall - 1));
      if (keyOf(group) === this.chosen) {
        context.strokeStyle = colour("chosen");
        context.lineWidth = 3;
        context.strokeRect(x + 1.5, y + 1.5, Math.max(1, wide - 4), Math.max(1, tall - 4));
      }
    }
    this.canvas.dataset.drawn = String(this.boxes.length);
    const size = this.groups.reduce((sum, group) => sum + sizeOf(group), 0);
    this.canvas.setAttribute("aria-label",
      `Map of ${this.groups.length} file groups, ${bytes(size)} in all`);
  }

  /** From 0, just written, to 1, a month ago and more; in steps that are equal in logarithms. */
  age(group) {
    const ms = Math.max(0, this.now() - timeOf(group.latest_completion_time));
    return Math.min(1, Math.log1p(ms / 6e4) / Math.log1p(AGED_MS / 6e4));
  }
}

export function describeGroup(group, now) {
  const age = duration(now - timeOf(group.latest_completion_time));
  return `${group.partition || "(no partition)"}, file group ${group.file_id}: `
    + `${bytes(sizeOf(group))}, ${group.log_count} logs with ${bytes(group.log_size_bytes)}, `
    + `written ${age} ago`;
}

/** Lay boxes out in rows that are as square as may be; the areas are the sizes. */
function squarify(groups, width, height) {
  const total = groups.reduce((sum, group) => sum + sizeOf(group), 0);
  const areas = groups.map((group) => (sizeOf(group) / total) * width * height);
  const boxes = [];
  let [x, y, wide, tall] = [0, 0, width, height];
  let first = 0;
  while (first < groups.length) {
    const side = Math.min(wide, tall);
    let [last, sum, worst] = [first, 0, Infinity];
    while (last < groups.length) {
      const next = sum + areas[last];
      const depth = next / side;
      const ratio = Math.max(
        (areas[first] / depth) / depth, depth / Math.max(1e-9, areas[last] / depth));
      if (ratio > worst) break;
      [last, sum, worst] = [last + 1, next, ratio];
    }
    const depth = sum / side;
    let along = 0;
    for (let place = first; place < last; place += 1) {
      const length = areas[place] / depth;
      const box = wide < tall ? [x + along, y, length, depth] : [x, y + along, depth, length];
      boxes.push({ group: groups[place], box });
      along += length;
    }
    if (wide < tall) [y, tall] = [y + depth, tall - depth];
    else [x, wide] = [x + depth, wide - depth];
    first = last;
  }
  return boxes;
}

function parts(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function mixed(little, much, share) {
  const values = little.map((one, place) => Math.round(one + (much[place] - one) * share));
  return `rgb(${values.join(" ")})`;
}
