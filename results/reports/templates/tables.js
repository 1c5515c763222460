/* Tables: sort by a column, filter rows and columns, the facts behind a number, copy as Markdown, LaTeX or CSV. */
"use strict";
leeway.tables = (async () => {
  const {load, make, show, hide, facts} = leeway;
  const known = (await load("facts")) ?? {};

  function prepare(figure) {
    const table = figure.querySelector("table"), body = table.tBodies[0], section = figure.closest("section");
    const heads = [...table.tHead.rows[table.tHead.rows.length - 1].querySelectorAll("th.num")];
    const stubs = [...table.tHead.rows[0].querySelectorAll("th:not(.num):not(.span)")];
    const rows = [...body.rows], spans = spansOf(table);
    const titles = heads.map((head, i) => [...new Set([spans[i]?.textContent, head.textContent])].filter(Boolean).join(" · "));
    rows.forEach(place);
    figure.prepend(tools(rows, heads, titles, spans, section, figure));
    stubs.forEach((head, i) => sortable(head, body, rows, row => row.cells[i]?.dataset.label ?? ""));
    heads.forEach((head, i) => sortable(head, body, rows, row => numberAt(row, i)));
    numbers(table, rows, titles, section);
  }

  /** Give each number cell the place of its first column: a failed cell spans several. */
  function place(row) {
    let column = 0;
    for (const cell of row.querySelectorAll("td")) {
      [cell.column, cell.wide] = [column, cell.colSpan];
      column += cell.wide;
    }
  }

  /** The header over each column of numbers, where there is one. */
  function spansOf(table) {
    return [...table.tHead.rows[0].querySelectorAll("th.span")].flatMap(span => Array(span.colSpan).fill(span));
  }

  const cellAt = (row, column) => [...row.querySelectorAll("td")]
    .find(cell => cell.column <= column && column < cell.column + cell.wide);

  function numberAt(row, column) {
    const value = cellAt(row, column)?.dataset.value;
    return value === undefined || value === "" ? null : Number(value);
  }

  /** A header that sorts: descending, ascending, then as printed. Rows without a number stay last. */
  function sortable(head, body, rows, value) {
    head.tabIndex = 0;
    head.classList.add("sortable");
    head.title = "sort";
    const sort = () => {
      const next = {descending: "ascending", ascending: "none"}[head.getAttribute("aria-sort")] ?? "descending";
      for (const other of head.closest("thead").querySelectorAll("th")) other.removeAttribute("aria-sort");
      if (next !== "none") head.setAttribute("aria-sort", next);
      const sign = next === "ascending" ? 1 : -1, order = next === "none" ? rows : rows.toSorted((one, other) => {
        const [a, b] = [value(one), value(other)];
        if (a === null || b === null) return (a === null) - (b === null);
        return sign * (typeof a === "string" ? a.localeCompare(b, "en", {numeric: true}) : a - b);
      });
      rows.forEach(row => [...row.querySelectorAll("th")].forEach(th => {
        th.printed ??= th.textContent;
        th.textContent = next === "none" ? th.printed : th.dataset.label;
      }));
      body.classList.toggle("sorted", next !== "none");
      body.append(...order);
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", event => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(); }
    });
  }

  function tools(rows, heads, titles, spans, section, figure) {
    const filter = make("input", {type: "search", placeholder: "Filter rows", "aria-label": "Filter rows"});
    const count = make("span", {role: "status"});
    filter.addEventListener("input", () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      const labels = row => [...row.querySelectorAll("th")].map(th => th.dataset.label).join(" ").toLowerCase();
      rows.forEach(row => { row.hidden = !words.every(word => labels(row).includes(word)); });
      const left = rows.filter(row => !row.hidden).length;
      count.textContent = left === rows.length ? "" : `${left} of ${rows.length} rows`;
    });
    const boxes = heads.map((head, i) => {
      const box = make("input", {type: "checkbox", checked: true});
      box.addEventListener("change", () => { head.hidden = !box.checked; narrow(rows, heads, spans); });
      return make("label", {}, box, ` ${titles[i]}`);
    });
    const columns = heads.length < 2 ? null : make("details", {}, make("summary", {}, "Columns"), make("div", {}, ...boxes));
    const isFirst = section?.querySelector("figure.table") === figure;
    const copies = isFirst ? [["Markdown", "md"], ["LaTeX", "tex"], ["CSV", "csv"]].map(([name, suffix]) => copy(name,
      section.querySelector(`a[download$=".${suffix}"]`))) : [];
    return make("div", {className: "tools"}, filter, columns, ...copies, count);
  }

  /** Headers over several columns, and cells of a row that failed as a whole, shrink with the columns under them. */
  function narrow(rows, heads, spans) {
    const wide = (element, first, count) => {
      const left = heads.slice(first, first + count).filter(head => !head.hidden).length;
      element.hidden = left === 0;
      element.colSpan = Math.max(1, left);
    };
    for (const span of new Set(spans)) wide(span, spans.indexOf(span), spans.filter(one => one === span).length);
    for (const row of rows) for (const cell of row.querySelectorAll("td")) wide(cell, cell.column, cell.wide);
  }

  /** A button that copies one of the section's files; none for a file beside the page, which a script may not read. */
  function copy(name, link) {
    if (!link?.href.startsWith("data:")) return null;
    const button = make("button", {type: "button", title: `Copy the whole table as ${name}`}, name);
    button.addEventListener("click", async () => {
      const text = new TextDecoder().decode(Uint8Array.from(atob(link.href.split(",")[1]), mark => mark.charCodeAt(0)));
      await navigator.clipboard.writeText(text).then(() => true, () => byHand(text));
      button.textContent = "copied";
      setTimeout(() => { button.textContent = name; }, 1500);
    });
    return button;
  }

  function byHand(text) {
    const area = make("textarea", {value: text});
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }

  /** Pointing at a number, or going to it with the arrow keys, shows the facts behind it. */
  function numbers(table, rows, titles, section) {
    const cells = [...table.querySelectorAll("td[data-point]")];
    cells.forEach((cell, i) => {
      cell.tabIndex = i ? -1 : 0;
      const open = () => show(cell, card(cell, titles, section));
      for (const event of ["pointerenter", "focus"]) cell.addEventListener(event, open);
      for (const event of ["pointerleave", "blur"]) cell.addEventListener(event, () => hide(cell));
      const go = () => { if (link(cell, section)) location.hash = link(cell, section); };
      if (link(cell, section)) cell.classList.add("linked");
      cell.addEventListener("click", go);
      cell.addEventListener("keydown", event => event.key === "Enter" ? go() : move(event, cell));
    });
  }

  const factsOf = (cell, section) => known[section?.id]?.[cell.dataset.point];

  function link(cell, section) {
    const name = factsOf(cell, section)?.cell;
    return name && document.getElementById("answers") ? `#answers/${encodeURIComponent(name)}` : null;
  }

  function move(event, cell) {
    const row = cell.parentElement, sideways = {ArrowRight: "nextElementSibling", ArrowLeft: "previousElementSibling"};
    const upright = {ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling"};
    let next = null;
    if (sideways[event.key]) next = cell[sideways[event.key]];
    if (upright[event.key]) {
      let other = row[upright[event.key]];
      while (other?.hidden) other = other[upright[event.key]];
      next = other && cellAt(other, cell.column);
    }
    if (!next?.dataset.point) return;
    event.preventDefault();
    cell.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  function card(cell, titles, section) {
    const held = factsOf(cell, section) ?? {}, text = name => cell.querySelector(name)?.textContent ?? "";
    return [
      make("p", {className: "what"}, make("b", {}, `${cell.querySelector("span")?.textContent ?? cell.textContent}`),
           ` ${titles[cell.column]}`),
      make("p", {}, cell.dataset.point),
      facts([["95% interval", text("small:not(.paper):not(.verdict)")], ["verdict", text(".verdict")],
             ["published", text(".paper")], ["n", held.n], ["timed", held.timed], ["session", held.session],
             ["command", held.command && make("code", {}, held.command)]]),
      link(cell, section) ? make("p", {className: "hint"}, "click or Enter: its answers") : "",
    ].filter(Boolean);
  }

  for (const figure of document.querySelectorAll("figure.table")) prepare(figure);
  document.documentElement.dataset.tables = "ready";
})();
