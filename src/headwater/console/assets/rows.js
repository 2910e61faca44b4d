// A table of any length of which only the lines on the screen are elements.

import { make } from "./dom.js";

const LINE_PX = 28;
const BEYOND = 6;

export class LongTable {
  /**
   * Columns are [title, row => text, classes]; their widths are the style sheet's, by the id of the
   * place. `choose` is called with the key of the row whose first cell is pressed.
   */
  constructor(place, label, columns, { keyOf, choose }) {
    this.columns = columns;
    this.keyOf = keyOf;
    this.choose = choose;
    this.rows = [];
    this.places = new Map();
    this.chosen = null;
    this.lines = new Map();
    const head = make("div", { className: "head", role: "row" }, ...columns.map(
      ([title, , classes]) =>
        make("span", { role: "columnheader", textContent: title, className: classes ?? "" })));
    this.space = make("div", { className: "space", role: "presentation" });
    this.body = make("div", { className: "body", role: "rowgroup", tabIndex: 0,
                              "aria-label": `${label}, lines` }, this.space);
    this.table = make("div", { className: "virtual", role: "table", "aria-label": label },
      make("div", { role: "rowgroup" }, head), this.body);
    this.body.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.body);
    place.replaceChildren(this.table);
  }

  show(rows) {
    this.rows = rows;
    this.places = new Map(rows.map((row, place) => [this.keyOf(row), place]));
    this.space.style.height = `${rows.length * LINE_PX}px`;
    this.table.setAttribute("aria-rowcount", String(rows.length + 1));
    this.draw();
  }

  /** Mark a row, and bring it on the screen if it is to be seen. */
  mark(key, isToBeSeen) {
    this.chosen = key;
    const place = this.places.get(key);
    if (isToBeSeen && place !== undefined) {
      const top = place * LINE_PX;
      const { scrollTop, clientHeight } = this.body;
      if (top < scrollTop || top + LINE_PX > scrollTop + clientHeight) {
        this.body.scrollTop = Math.max(0, top - clientHeight / 2);
      }
    }
    this.draw();
  }

  draw() {
    const { scrollTop, clientHeight } = this.body;
    const first = Math.max(0, Math.floor(scrollTop / LINE_PX) - BEYOND);
    const last = Math.min(this.rows.length, Math.ceil((scrollTop + clientHeight) / LINE_PX) + BEYOND);
    const wanted = new Map();
    for (let place = first; place < last; place += 1) {
      wanted.set(this.keyOf(this.rows[place]), place);
    }
    for (const [key, line] of this.lines) {
      if (wanted.has(key)) continue;
      // Who is on a line with the keyboard stays on it while lines come in above.
      if (this.places.has(key) && line.contains(document.activeElement)) {
        wanted.set(key, this.places.get(key));
      } else {
        line.remove();
        this.lines.delete(key);
      }
    }
    for (const [key, place] of wanted) this.place(key, place);
  }

  place(key, place) {
    const row = this.rows[place];
    let line = this.lines.get(key);
    if (!line) {
      line = make("div", { className: "line", role: "row" }, ...this.columns.map(
        ([, , classes], number) => {
          const cell = make("span", { role: "cell", className: classes ?? "" });
          if (number === 0 && this.choose) {
            const inside = make("button", { type: "button", className: "plain digits" });
            inside.addEventListener("click", () => this.choose(key));
            cell.append(inside);
          }
          return cell;
        }));
      this.lines.set(key, line);
      this.space.append(line);
    }
    this.columns.forEach(([, text], number) => {
      const cell = line.children[number];
      const inside = cell.firstElementChild ?? cell;
      const shown = String(text(row) ?? "");
      if (inside.textContent !== shown) inside.textContent = shown;
    });
    line.style.top = `${place * LINE_PX}px`;
    line.setAttribute("aria-rowindex", String(place + 2));
    line.classList.toggle("chosen", key === this.chosen);
  }
}
