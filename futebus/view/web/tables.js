// Tables that are kept fresh, and sorted by their heads.
// The one rule: a row stays the same elements for as long as it is there, so that focus and selection stay where they are.

import { element, write } from "./curves.js";

export class Table {
  // columns: {head, label, value(row), text(row), isNumber, isWide, fill(cell, row)}, the first one is the rows' name.
  // key(row): what a row is known by.
  constructor(table, columns, key, sorted = 0) {
    this.columns = columns;
    this.key = key;
    this.rows = new Map();
    this.last = [];
    this.sorted = sorted;
    this.isDown = Boolean(columns[sorted].isNumber);
    this.heads = columns.map((column, index) => this.head(column, index));
    const row = element("tr");
    row.append(...this.heads);
    const top = element("thead");
    top.append(row);
    this.body = element("tbody");
    table.append(top, this.body);
    this.mark();
  }

  head(column, index) {
    const head = element("th", undefined, names(column));
    head.scope = "col";
    const button = element("button", column.head);
    button.type = "button";
    if (column.label) button.setAttribute("aria-label", column.label);
    button.addEventListener("click", () => {
      this.isDown = this.sorted === index ? !this.isDown : Boolean(column.isNumber);
      this.sorted = index;
      this.mark();
      this.show(this.last);
    });
    head.append(button);
    return head;
  }

  mark() {
    this.heads.forEach((head, index) => {
      if (index === this.sorted) head.setAttribute("aria-sort", this.isDown ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  }

  show(rows) {
    this.last = rows;
    const value = this.columns[this.sorted].value;
    const name = this.columns[0].value;
    const sign = this.isDown ? -1 : 1;
    const order = [...rows].sort((a, b) => sign * compare(value(a), value(b)) || compare(name(a), name(b)) || compare(this.key(a), this.key(b)));
    const keys = new Set(order.map(this.key));
    for (const [key, row] of this.rows) {
      if (!keys.has(key)) {
        row.remove();
        this.rows.delete(key);
      }
    }
    const focused = document.activeElement;
    let place = this.body.firstChild;
    for (const each of order) {
      const row = this.row(each);
      if (row === place) place = place.nextSibling;
      else this.body.insertBefore(row, place);
    }
    // An element that is moved loses it.
    if (focused !== document.activeElement && this.body.contains(focused)) focused.focus({ preventScroll: true });
  }

  row(each) {
    const key = this.key(each);
    let row = this.rows.get(key);
    if (!row) {
      row = element("tr");
      this.columns.forEach((column, index) => {
        const cell = element(index ? "td" : "th", undefined, names(column));
        if (!index) cell.scope = "row";
        row.append(cell);
      });
      this.rows.set(key, row);
    }
    this.columns.forEach((column, index) => {
      const cell = row.children[index];
      if (column.fill) column.fill(cell, each);
      else write(cell, column.text(each));
    });
    return row;
  }
}

function names(column) {
  return [column.isNumber ? "number" : "", column.isWide ? "wide" : ""].filter(Boolean).join(" ");
}

function compare(a, b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

// A bar that says how full something is. The number stands beside it.
export function meter(cell, share, text) {
  if (!cell.firstChild) {
    const bar = element("meter");
    bar.min = 0;
    bar.max = 1;
    bar.high = 0.75;
    bar.low = 0.5;
    bar.optimum = 0;
    bar.setAttribute("aria-hidden", "true");
    cell.append(element("span"), bar);
  }
  write(cell.firstChild, text);
  cell.lastChild.value = share;
  cell.lastChild.hidden = !share;
}
