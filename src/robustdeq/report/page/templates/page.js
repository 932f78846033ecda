"use strict";
{
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  document.documentElement.classList.add("js");

  // where a number comes from: by pointing (title), by touch, and by Enter
  const source = document.getElementById("source");
  const tell = (element) => { source.textContent = element ? element.dataset.where : ""; };
  for (const element of all("[title]")) element.dataset.where = element.title;
  for (const point of all(".hit")) point.dataset.where = point.querySelector("title").textContent;
  document.addEventListener("click", (event) => tell(event.target.closest("[data-where]")));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") tell(null);
    if (event.key === "Enter" && event.target.matches("td, th")) tell(event.target.closest("[data-where]"));
  });

  // one tab stop per table, arrows move between its numbers
  for (const table of all("table.numbers, table.data")) {
    const first = table.querySelector("td[data-where]");
    if (first) first.tabIndex = 0;
    table.addEventListener("keydown", (event) => {
      const move = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
      const cell = event.target.closest("td");
      if (!move || !cell) return;
      const rows = all("tbody tr", table).filter((row) => row.querySelector("td") && !row.hidden);
      const row = rows[rows.indexOf(cell.parentElement) + move[0]];
      const next = row && row.cells[cell.cellIndex + move[1]];
      if (!next || next.tagName !== "TD") return;
      event.preventDefault();
      for (const other of all("[tabindex]", table)) other.removeAttribute("tabindex");
      next.tabIndex = 0;
      next.focus();
    });
  }

  // sorting: a button in every head; the first click puts the largest number or the first word on top
  const numberIn = (text) => { const found = text.replace("−", "-").match(/[+-]?\d+(\.\d+)?/); return found ? Number(found[0]) : null; };
  const sort = (head) => {
    const table = head.closest("table"), body = table.tBodies[0], column = head.cellIndex, numeric = head.classList.contains("number");
    const down = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : numeric;
    for (const other of all("th[aria-sort]", table)) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => { const cell = row.cells[column]; return numeric ? numberIn(cell.firstChild ? cell.firstChild.textContent : "") : cell.textContent; };
    const rows = [...body.rows].map((row) => [key(row), row]);
    rows.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null); // rows without a number stay below
      const order = numeric ? a - b : a.localeCompare(b, "en", { numeric: true });
      return down ? -order : order;
    });
    body.append(...rows.map(([, row]) => row));
  };
  for (const head of all(".data thead th")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => sort(head));
  }

  // filters: by model, and rows of single attacks by the attack's name
  const boxes = all(".chip input"), attack = document.getElementById("attack");
  const filter = () => {
    const off = new Set(boxes.filter((box) => !box.checked).map((box) => box.value));
    const wanted = attack ? attack.value.trim().toLowerCase() : "";
    for (const element of all("[data-models]")) {
      const models = element.dataset.models.split(" ").filter(Boolean);
      const other = element.dataset.attack && !element.dataset.attack.toLowerCase().includes(wanted);
      element.toggleAttribute("hidden", Boolean(other) || (models.length > 0 && models.every((model) => off.has(model))));
    }
    for (const sheet of all(".sheet")) {
      const rows = all("tbody tr", sheet), shown = rows.filter((row) => !row.hidden).length;
      const count = sheet.querySelector(".count");
      if (count) count.textContent = shown < rows.length ? ` ${shown} of ${rows.length} rows` : "";
    }
  };
  for (const box of boxes) box.addEventListener("change", filter);
  if (attack) attack.addEventListener("input", filter);

  // folded tables open when something in them is linked to, or printed
  const open = (element) => { for (let e = element; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true; };
  const follow = () => open(location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null);
  addEventListener("hashchange", follow);
  addEventListener("beforeprint", () => all("details").forEach(open));
  follow();
}
