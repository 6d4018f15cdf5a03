"use strict";
// Tables: a click on a heading, or Enter and Space on it, sorts by that column.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, at) => head.firstElementChild.addEventListener("click", () => sort(table, heads, at)));
}

function sort(table, heads, at) {
  const head = heads[at], isNumber = head.classList.contains("n"), was = head.getAttribute("aria-sort");
  const first = isNumber ? "descending" : "ascending", second = isNumber ? "ascending" : "descending";
  const way = was === first ? second : first, sign = way === "ascending" ? 1 : -1;
  const key = isNumber ? (row) => Number(row.cells[at].dataset.v ?? 0) : (row) => row.cells[at].textContent;
  const order = new Intl.Collator("en", { numeric: true });
  const compare = isNumber ? (a, b) => a[0] - b[0] : (a, b) => order.compare(a[0], b[0]);
  const rows = [...table.tBodies[0].rows].map((row) => [key(row), row]);
  rows.sort((a, b) => sign * compare(a, b));
  table.tBodies[0].append(...rows.map(([, row]) => row));
  for (const other of heads) other.setAttribute("aria-sort", other === head ? way : "none");
}

// Maps: the label of a square is shown next to it on hover and on keyboard focus.
const tip = document.getElementById("tip");
let here = null;

function show(square) {
  if (here) here.classList.remove("here");
  here = square;
  tip.hidden = !square;
  if (!square) return;
  square.classList.add("here");
  tip.replaceChildren(...square.getAttribute("aria-label").split(" · ").map((text, at) => {
    const line = document.createElement(at ? "span" : "b");
    line.textContent = text;
    return line;
  }));
  const box = square.getBoundingClientRect(), size = tip.getBoundingClientRect();
  const left = Math.min(Math.max(box.left, 8), innerWidth - size.width - 8);
  const below = box.bottom + 8 + size.height < innerHeight;
  tip.style.left = `${Math.max(left, 8)}px`;
  tip.style.top = `${below ? box.bottom + 8 : box.top - size.height - 8}px`;
}

for (const map of document.querySelectorAll(".map")) {
  const squares = map.children;
  let at = 0;
  const columns = () => {
    let count = 1;
    while (count < squares.length && squares[count].offsetTop === squares[0].offsetTop) count++;
    return count;
  };
  const go = (to) => {
    if (to >= 0 && to < squares.length) at = to;
    map.setAttribute("aria-activedescendant", squares[at].id);
    squares[at].scrollIntoView({ block: "nearest" });
    show(squares[at]);
  };
  const steps = {
    ArrowRight: () => at + 1, ArrowLeft: () => at - 1, ArrowDown: () => at + columns(), ArrowUp: () => at - columns(),
    Home: () => 0, End: () => squares.length - 1,
  };
  map.addEventListener("keydown", (event) => {
    if (event.key === "Escape") show(null);
    const step = steps[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    go(step());
  });
  map.addEventListener("focus", () => { if (map.matches(":focus-visible")) go(at); });
  map.addEventListener("blur", () => show(null));
  map.addEventListener("pointerover", (event) => {
    if (event.target.parentElement !== map) return;
    at = [].indexOf.call(squares, event.target);
    show(event.target);
  });
  map.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") show(null); });
}
addEventListener("scroll", () => { if (here && !here.parentElement.matches(":focus-visible")) show(null); }, { passive: true });
