/* Filter, search and sort of the criteria and the judgements. All of the report can be read without this script, and
   nothing is hidden until the reader asks for it. It builds with DOM calls only: no text of the report becomes code. */
(() => {
  "use strict";
  const VERDICTS = ["fail", "not-measured", "waived", "not-applicable", "pass"];

  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const words = (name) => name.replaceAll("-", " ");
  const verdictOf = (row) => VERDICTS.find((name) => row.querySelector(`.v-${name}`)) ?? "";

  /* What a cell is sorted by: severity of a verdict, else its number, else its text. */
  const keyOf = (row, column) => {
    const cell = row.cells[column];
    if (!cell) return "";
    const verdict = VERDICTS.findIndex((name) => cell.querySelector(`.v-${name}`));
    if (verdict >= 0) return verdict;
    const text = cell.textContent.trim();
    const number = /^[≥≤]?\s*(-?\d[\d\u2009]*(?:\.\d+)?)/.exec(text);
    return number ? Number(number[1].replaceAll("\u2009", "")) : text.toLowerCase();
  };
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b
      : typeof a === "number" ? -1 : typeof b === "number" ? 1 : a.localeCompare(b, "en", { numeric: true });

  const sortable = (table, columns) => {
    const body = table.tBodies[0];
    const original = [...body.rows];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      if (!columns(column, head)) return;
      const button = make("button", { type: "button", class: "sort" }, ...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const next = { none: "ascending", ascending: "descending", descending: "none" };
        const order = next[head.getAttribute("aria-sort") ?? "none"];
        for (const other of heads) other.removeAttribute("aria-sort");
        const rows = [...original];
        if (order !== "none") {
          head.setAttribute("aria-sort", order);
          const sign = order === "ascending" ? 1 : -1;
          const keys = new Map(rows.map((row) => [row, keyOf(row, column)]));
          rows.sort((a, b) => sign * compare(keys.get(a), keys.get(b)));
        }
        body.append(...rows);
      });
    });
  };

  const filterable = (section, noun) => {
    const tables = [...section.querySelectorAll("table")].filter((t) => t.tHead && t.tBodies[0]?.querySelector(".v"));
    if (!tables.length) return;
    const rows = tables.flatMap((table) => [...table.tBodies[0].rows]);
    const counts = new Map(VERDICTS.map((name) => [name, 0]));
    const verdicts = new Map(rows.map((row) => [row, verdictOf(row)]));
    for (const name of verdicts.values()) counts.set(name, (counts.get(name) ?? 0) + 1);
    const texts = new Map();
    /* the heading over a table belongs to each of its rows: a search for a criterion finds its judgements */
    const titles = new Map(tables.map((table) => [table, (table.caption?.textContent ?? "").toLowerCase()]));
    const textOf = (row) => {
      if (!texts.has(row)) texts.set(row, `${row.textContent.toLowerCase()} ${titles.get(row.closest("table"))}`);
      return texts.get(row);
    };

    const search = make("input", { type: "search", name: "search", autocomplete: "off", spellcheck: "false" });
    const boxes = VERDICTS.filter((name) => counts.get(name)).map(
      (name) => make("input", { type: "checkbox", name: "verdict", value: name, checked: "" }));
    const said = make("output", { "aria-live": "polite" });
    const reset = make("button", { type: "reset" }, "Show all");
    const form = make("form", { class: "filter", role: "search", "aria-label": `Filter ${noun}` },
      make("label", {}, `Search ${noun} `, search),
      make("fieldset", {}, make("legend", {}, "Verdicts shown"),
        ...boxes.map((box) => make("label", {}, box, ` ${words(box.value)} (${counts.get(box.value)})`))),
      make("p", {}, said, " ", reset));
    const opened = new Set();

    const apply = () => {
      const wanted = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
      const terms = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const active = terms.length > 0 || wanted.size < boxes.length;
      const hidden = new Map();
      let shown = 0;
      for (const table of tables) {
        let here = 0;
        for (const row of table.tBodies[0].rows) {
          const verdict = verdicts.get(row);
          const off = (verdict && !wanted.has(verdict)) || !terms.every((term) => textOf(row).includes(term));
          row.classList.toggle("off", off);
          if (off) hidden.set(verdict, (hidden.get(verdict) ?? 0) + 1);
          else here += 1;
        }
        table.classList.toggle("empty", here === 0);
        shown += here;
        for (let box = table.closest("details"); box; box = box.parentElement.closest("details")) {
          if (active && here && !box.open) { box.open = true; opened.add(box); }
        }
      }
      if (!active) {
        for (const box of opened) box.open = false;
        opened.clear();
      }
      const rest = VERDICTS.filter((name) => hidden.get(name)).map((name) => `${hidden.get(name)} ${words(name)}`);
      said.textContent = `${shown} of ${rows.length} listed ${noun} shown` + (rest.length ? `; hidden: ${rest.join(", ")}` : "");
    };
    const showAll = () => { form.reset(); apply(); };
    let timer = 0;
    search.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(apply, 120); });
    for (const box of boxes) box.addEventListener("change", apply);
    form.addEventListener("submit", (event) => { event.preventDefault(); apply(); });
    form.addEventListener("reset", () => setTimeout(apply));
    const before = section.querySelector(".lead") ?? section.querySelector("h2");
    before.after(form);
    apply();
    return { rows: new Set(rows), showAll };
  };

  const filters = [["criteria", "criteria"], ["judgements", "judgements"]].flatMap(([id, noun]) => {
    const section = document.querySelector(`section[aria-labelledby="${id}"]`);
    if (!section) return [];
    for (const table of section.querySelectorAll("table")) {
      /* values of different criteria have different units: there only name and verdict have an order */
      if (table.tHead && table.tBodies[0]) sortable(table, (column, head) => id === "judgements" || column === 0 || /verdict/i.test(head.textContent));
    }
    return filterable(section, noun) ?? [];
  });

  /* A link must lead to what it names, filtered or folded away as it may be. */
  const reveal = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    const row = target.closest("tr");
    for (const filter of filters) if (row?.classList.contains("off") && filter.rows.has(row)) filter.showAll();
    for (let box = target.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();
})();
