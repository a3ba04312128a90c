// Figures as people read them, and curves of the last two minutes.

const SVG = "http://www.w3.org/2000/svg";
const KEPT = 120;
const HEIGHT = 40;
const SELDOM = 10_000; // milliseconds between two drawings for who wants little to move

const still = matchMedia("(prefers-reduced-motion: reduce)");

export function count(number) {
  if (number >= 1e9) return (number / 1e9).toFixed(1) + " G";
  if (number >= 1e6) return (number / 1e6).toFixed(1) + " M";
  return Math.round(number).toLocaleString("en");
}

export function rate(number) {
  return number > 0 && number < 9.95 ? number.toFixed(1) : count(number);
}

export function bytes(number) {
  let unit = 0;
  for (; number >= 1024 && unit < 4; unit++) number /= 1024;
  return (unit ? number.toFixed(number < 99.95 ? 1 : 0) : String(Math.round(number))) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][unit];
}

export function duration(seconds) {
  if (seconds < 10) return seconds.toFixed(1) + " s";
  if (seconds < 60) return Math.round(seconds) + " s";
  if (seconds < 3600) return Math.floor(seconds / 60) + " min";
  if (seconds < 86400) return Math.floor(seconds / 3600) + " h " + Math.floor((seconds / 60) % 60) + " min";
  return Math.floor(seconds / 86400) + " d " + Math.floor((seconds / 3600) % 24) + " h";
}

export function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// Writes what has changed, and nothing else: a screen reader is not told again, and a selection stays.
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// A list of names and values, by name.
export function facts(list, values) {
  for (const [name, value] of Object.entries(values)) {
    let place = [...list.children].find((each) => each.firstChild.textContent === name);
    if (!place) {
      place = element("div");
      place.append(element("dt", name), element("dd"));
      list.append(place);
    }
    write(place.lastChild, value);
  }
}

export class Curve {
  constructor(figure) {
    this.past = [];
    this.drawn = 0;
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("viewBox", `0 0 ${KEPT - 1} ${HEIGHT}`);
    this.svg.setAttribute("preserveAspectRatio", "none");
    this.svg.setAttribute("role", "img");
    this.lines = ["in", "out"].map((name) => {
      const line = document.createElementNS(SVG, "polyline");
      line.setAttribute("class", name);
      this.svg.append(line);
      return line;
    });
    this.caption = element("figcaption");
    figure.replaceChildren(this.svg, this.caption);
  }

  // moment: of the look that has shown the last of them.
  begin(past, moment) {
    this.past = past.slice(-KEPT);
    this.moment = moment;
    this.drawn = 0;
    this.draw();
  }

  // Of a slow bus the same look is told again and again, and when a page begins, the last of the past.
  add(rates, moment) {
    if (moment === this.moment) return;
    this.moment = moment;
    this.past.push(rates);
    if (this.past.length > KEPT) this.past.shift();
    this.draw();
  }

  draw() {
    const now = performance.now();
    if (still.matches && this.drawn && now - this.drawn < SELDOM) return;
    this.drawn = now;
    const most = Math.max(1, ...this.past.map((rates) => Math.max(rates[0], rates[2])));
    const begin = KEPT - this.past.length;
    [0, 2].forEach((which, index) => {
      const points = this.past.map((rates, at) => `${begin + at},${(HEIGHT - 1 - (rates[which] / most) * (HEIGHT - 2)).toFixed(1)}`);
      this.lines[index].setAttribute("points", points.join(" "));
    });
    const last = this.past.at(-1) ?? [0, 0, 0, 0, 0];
    const words = `messages a second, up to ${rate(most)}: in (solid) ${rate(last[0])}, out (dashed) ${rate(last[2])}`;
    write(this.caption, words);
    this.svg.setAttribute("aria-label", "The last two minutes, " + words);
  }
}
