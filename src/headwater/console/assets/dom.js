// Elements of the page. Text of a table becomes text nodes only, so that none of it is markup.

export const byId = (id) => document.getElementById(id);

/** Return an element; children are texts or elements. */
export function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.includes("-") || key === "role" || key === "scope") element.setAttribute(key, value);
    else element[key] = value;
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function button(text, whenPressed, properties = {}) {
  const made = make("button", { type: "button", textContent: text, ...properties });
  made.addEventListener("click", whenPressed);
  return made;
}

const SHOWN_MAX = 200;

/**
 * Show rows as a table, or a sentence where there are none. A column is
 * [title, row => text or element, isNumber]. What has focus keeps it if it is there again.
 */
export function showRows(place, caption, columns, rows, nothing) {
  const held = place.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  if (!rows.length) {
    place.replaceChildren(make("p", { className: "help", textContent: nothing }));
    return;
  }
  const kind = (isNumber) => ({ className: isNumber ? "number" : "" });
  const head = make(
    "tr", {},
    ...columns.map(([title, , isNumber]) =>
      make("th", { scope: "col", textContent: title, ...kind(isNumber) })),
  );
  const lines = rows.slice(0, SHOWN_MAX).map((row) =>
    make("tr", {}, ...columns.map(([, cell, isNumber]) =>
      make("td", kind(isNumber), cell(row) ?? ""))));
  const parts = [
    make("table", {},
      make("caption", { className: "unseen", textContent: caption }),
      make("thead", {}, head),
      make("tbody", {}, ...lines)),
  ];
  if (rows.length > SHOWN_MAX) {
    parts.push(make("p", {
      className: "help", textContent: `${rows.length - SHOWN_MAX} more are not shown.`,
    }));
  }
  place.replaceChildren(...parts);
  if (held) place.querySelector(`[data-key="${CSS.escape(held)}"]`)?.focus();
}

/** Let the keyboard reach those tables that are larger than their place, so that it can scroll. */
export function reachLargeTables() {
  for (const place of document.querySelectorAll(".rows")) {
    const caption = place.querySelector("caption");
    const isLarge = place.scrollWidth > place.clientWidth || place.scrollHeight > place.clientHeight;
    if (caption && isLarge) {
      place.tabIndex = 0;
      place.setAttribute("role", "group");
      place.setAttribute("aria-label", caption.textContent);
    } else {
      for (const name of ["tabindex", "role", "aria-label"]) place.removeAttribute(name);
    }
  }
}

/** Say something to who listens and does not look. */
export function announce(text) {
  byId("announced").textContent = text;
}

/** Size a canvas to its place on the screen, and return what draws on it, in CSS pixels. */
export function pen(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

let colours = new Map();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  colours = new Map();
});

/** A colour of the style sheet, as the system's light or dark has it. */
export function colour(name) {
  if (!colours.has(name)) {
    const style = getComputedStyle(document.documentElement);
    colours.set(name, style.getPropertyValue(`--${name}`).trim());
  }
  return colours.get(name);
}
