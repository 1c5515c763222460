/* The answer viewer: two cells that answered the same prompts, side by side. */
"use strict";
leeway.viewer = (async () => {
  const {load, make, number, signed} = leeway, {KINDS, tokensOf, divergence, render} = leeway.answer;
  const root = document.getElementById("answers"), index = await load("index");
  if (!root || !index?.groups.length) return;
  const at = name => root.querySelector(`[data-role="${name}"]`);
  const state = {group: index.groups[0], left: 0, right: 0, list: "all", order: "task", words: "", open: null};
  let rows = [[], []], buckets = [], hits = null, shown = [], asked = 0;

  const LISTS = [
    ["all", "All", () => true],
    ["lost", "Lost", (i, kind) => kind === "lost"], ["won", "Won", (i, kind) => kind === "won"],
    ["right", "Both right", (i, kind) => kind === "right"], ["wrong", "Both wrong", (i, kind) => kind === "wrong"],
    ["same", "Same score", (i, kind) => kind === "same"],
  ];
  const ORDERS = {
    task: () => 0,
    longest: (a, b) => rows[1][b][1] - rows[1][a][1],
    longer: (a, b) => (rows[1][b][1] - rows[0][b][1]) - (rows[1][a][1] - rows[0][a][1]),
  };

  /** lost: the left cell scores higher; won: the right one does. */
  function bucket(i) {
    const [a, b] = [rows[0][i]?.[0], rows[1][i]?.[0]];
    if (a === null || a === undefined || b === null || b === undefined) return null;
    if (a !== b) return a > b ? "lost" : "won";
    return !state.group.binary ? "same" : a === 1 ? "right" : "wrong";
  }

  function options(select, entries, chosen) {
    select.replaceChildren(...entries.map((text, value) => make("option", {value, selected: value === chosen}, text)));
  }

  async function choose(change) {
    Object.assign(state, change);
    const turn = ++asked, cells = state.group.cells;
    state.left = Math.min(state.left, cells.length - 1);
    state.right = Math.min(state.right, cells.length - 1);
    const loaded = await Promise.all([state.left, state.right].map(i => load(`rows:${cells[i].key}`)));
    if (turn !== asked) return;
    rows = loaded;
    buckets = state.group.ids.map((_, i) => bucket(i));
    options(at("group"), index.groups.map(group => `${group.task} · ${group.about}`), index.groups.indexOf(state.group));
    for (const side of ["left", "right"]) options(at(side), cells.map(cell => cell.method), state[side]);
    legend();
    slider();
    await Promise.all([filter(), summary(), search()]);
  }

  /** The meaning of the colours that these cells show. */
  function legend() {
    const traced = [state.left, state.right].some(i => state.group.cells[i].traced);
    at("legend").replaceChildren(...Object.values(KINDS)
      .filter(([name]) => name === "drawn" || (traced ? name !== "kept" : name === "kept"))
      .map(([name, meaning]) => make("li", {}, make("span", {className: `token ${name}`}, name), " ", meaning)));
  }

  /** The prompts of the chosen list, in the chosen order, as buttons. */
  function filter() {
    const both = state.group.ids.map((_, i) => i).filter(i => rows[0][i] && rows[1][i]);
    at("lists").replaceChildren(...LISTS.filter(([name, , fits]) => name === "all" || both.some(i => fits(i, buckets[i])))
      .map(([name, title, fits]) => {
        const count = both.filter(i => fits(i, buckets[i])).length;
        const button = make("button", {type: "button", "aria-pressed": String(state.list === name)}, `${title} ${count}`);
        button.addEventListener("click", () => { state.list = name; filter(); });
        return button;
      }));
    const fits = (LISTS.find(([name]) => name === state.list) ?? LISTS[0])[2];
    shown = both.filter(i => fits(i, buckets[i]) && (!hits || hits.has(i))).sort(ORDERS[state.order]);
    at("prompts").replaceChildren(...shown.map(entry));
    at("count").textContent = shown.length === both.length ? `${both.length} prompts` : `${shown.length} of ${both.length}`;
    if (!shown.includes(state.open)) state.open = shown.length ? shown[0] : null;
    return open(state.open);
  }

  function entry(i) {
    const [a, b] = [rows[0][i], rows[1][i]];
    const mark = {lost: "−", won: "+", right: "✓", wrong: "✗", same: "="}[buckets[i]] ?? "";
    const words = {lost: "lost", won: "won", right: "both right", wrong: "both wrong", same: "same score"}[buckets[i]];
    const button = make("button", {type: "button", "data-prompt": i, title: words ?? "not scored"},
      make("span", {className: `mark ${buckets[i]}`, "aria-label": words ?? "not scored"}, mark),
      make("bdi", {}, state.group.ids[i]), make("span", {className: "size"}, `${a[1]} → ${b[1]}`));
    button.addEventListener("click", () => open(i));
    return make("li", {}, button);
  }

  /** The four buckets with McNemar's p, and the paired differences. */
  async function summary() {
    const {left, right, group} = state, [a, b] = [Math.min(left, right), Math.max(left, right)];
    const all = left === right ? null : await load(`compare:${group.key}`);
    const found = all?.[`${a} ${b}`];
    if (!found) return at("summary").replaceChildren(make("p", {}, "Choose two cells to compare them."));
    const turned = left > right, names = [left, right].map(i => group.cells[i].method);
    const [lost, won] = turned ? [found[1], found[0]] : found;
    const count = name => buckets.filter(one => one === name).length;
    const square = lost === null ? make("p", {}, "Scores are not right or wrong: no McNemar test.") : make("table", {},
      make("caption", {}, `McNemar, exact: p = ${number(found[2])}`),
      make("thead", {}, make("tr", {}, make("td"), head(`${names[1]} right`), head(`${names[1]} wrong`))),
      make("tbody", {}, make("tr", {}, head(`${names[0]} right`, "row"), cellOf(count("right")), cellOf(lost)),
           make("tr", {}, head(`${names[0]} wrong`, "row"), cellOf(won), cellOf(count("wrong")))));
    const kinds = [["tokens an answer", 3], ["seconds an answer", 4], ["nats a token", 5]];
    const lines = kinds.map(([name, place]) => make("tr", {}, head(name, "row"), ...difference(found[place], turned)));
    at("summary").replaceChildren(square, make("table", {},
      make("caption", {}, `Paired differences, ${names[1]} minus ${names[0]}`),
      make("thead", {}, make("tr", {}, make("td"), head("mean"), head("95%"), head("n"))), make("tbody", {}, ...lines)));
  }

  const head = (text, scope = "col") => make("th", {scope}, text);
  const cellOf = value => make("td", {className: "num"}, typeof value === "number" ? String(value) : value);

  function difference(found, turned) {
    if (!found) return [cellOf("–"), cellOf("not timed in one session"), cellOf("0")];
    const sign = turned ? -1 : 1, ends = [found[1], found[2]].map(end => end === null ? null : sign * end);
    if (turned) ends.reverse();
    const interval = ends[0] === null ? "–" : `[${signed(ends[0])}, ${signed(ends[1])}]`;
    return [cellOf(signed(sign * found[0])), cellOf(interval), cellOf(String(found[3]))];
  }

  /** Show the answers of one prompt. */
  async function open(i) {
    state.open = i;
    for (const button of at("prompts").querySelectorAll("button")) {
      button.toggleAttribute("aria-current", Number(button.dataset.prompt) === i);
    }
    if (i === null) return at("reader").replaceChildren(make("p", {}, "No prompt fits."));
    const {group, left, right} = state, chunk = Math.floor(i / index.chunk), place = i % index.chunk;
    const names = [`prompts:${group.key}:${chunk}`, ...[left, right].map(c => `answers:${group.cells[c].key}:${chunk}`)];
    const [prompts, ...answers] = await Promise.all(names.map(load)).catch(error => [[], error]);
    if (answers[0] instanceof Error) return at("reader").replaceChildren(make("p", {className: "missing"}, answers[0].message));
    if (state.open !== i || state.group !== group || state.left !== left || state.right !== right) return;
    const sides = answers.map(answer => answer[place]), tokens = sides.map(tokensOf);
    const first = left === right ? -1 : divergence(...tokens);
    const messages = prompts[place].map(([role, text]) => make("div", {className: `message ${role}`},
      role && role !== "user" ? make("b", {}, role) : null, make("div", {dir: "auto"}, text)));
    at("reader").replaceChildren(
      make("h3", {}, make("bdi", {}, group.ids[i])), make("div", {className: "prompt", tabIndex: 0}, ...messages),
      make("div", {className: "sides"}, ...[0, 1].map(k => side(k, i, sides[k], tokens[k], first))));
    history.replaceState(null, "", link(i));
  }

  function side(k, i, data, tokens, first) {
    const cell = state.group.cells[k ? state.right : state.left], [score, count, cycles, seconds, nll, capped] = rows[k][i];
    const verdict = score === null ? "" : score === 1 ? "right" : score === 0 ? "wrong" : `score ${number(score)}`;
    const line = [verdict, data.answer === null ? "" : `answer ${data.answer}`, `${count} tokens`, `${cycles} cycles`,
                  seconds === null ? "" : `${number(seconds)} s`, nll === null ? "" : `${number(nll)} nats a token`,
                  capped ? "cut at the length limit" : "", first < 0 && state.left !== state.right ? "identical" : ""];
    return make("article", {}, make("h4", {}, cell.method, cell.settings ? make("small", {}, ` ${cell.settings}`) : null),
                make("p", {className: `line ${verdict}`}, line.filter(Boolean).join(" · ")),
                ...render(data, tokens, first, cell));
  }

  const link = i => "#answers/" + [state.group.key, state.group.cells[state.left].key, state.group.cells[state.right].key,
                                   state.group.ids[i] ?? ""].map(encodeURIComponent).join("/");

  /** Prompts with these words in the prompt or in one of the two answers; reads all of them. */
  async function search() {
    const words = state.words.trim().toLowerCase(), {group, left, right} = state;
    if (!words) {
      if (hits) { hits = null; filter(); }
      return;
    }
    const found = new Set(), chunks = Math.ceil(group.ids.length / index.chunk);
    for (let c = 0; c < chunks; c++) {
      const parts = await Promise.all([`prompts:${group.key}:${c}`, ...[left, right].map(k =>
        `answers:${group.cells[k].key}:${c}`)].map(load));
      if (state.words.trim().toLowerCase() !== words || state.group !== group) return;
      parts[0].forEach((messages, place) => {
        const texts = [...messages.map(one => one[1]), ...parts.slice(1).flatMap(answers =>
          answers[place]?.turns.map(turn => turn.text ?? turn.t.join("")) ?? []), group.ids[c * index.chunk + place]];
        if (texts.some(text => text.toLowerCase().includes(words))) found.add(c * index.chunk + place);
      });
    }
    hits = found;
    filter();
  }

  /** The right cell's acceptance at other thresholds, from its trace. */
  function slider() {
    const cell = state.group.cells[state.right], box = at("replay");
    box.hidden = !cell.replay;
    if (!cell.replay) return;
    const input = make("input", {type: "range", min: 0, max: cell.replay.length - 1, id: "replay-value",
                                 value: cell.replay.findIndex(one => one[0] === cell.threshold.value)});
    const said = make("output", {htmlFor: "replay-value"});
    const say = () => {
      const [value, length, share, low, high] = cell.replay[input.value];
      said.textContent = `${cell.threshold.name} = ${number(value)}: ${number(length)} draft tokens kept a cycle, `
        + `${number(100 * share)}% [${number(100 * low)}, ${number(100 * high)}] of those tested`
        + (value === cell.threshold.value ? "; as traced" : "");
    };
    input.addEventListener("input", say);
    say();
    box.replaceChildren(make("label", {htmlFor: "replay-value"}, `${cell.method} at another threshold`), input, said,
                        make("small", {}, "Replayed from the trace, first order: the traced text is held fixed."));
  }

  /** Open what a link names: #answers/GROUP/LEFT/RIGHT/PROMPT, each part optional from the end. */
  async function follow() {
    if (!location.hash.startsWith("#answers/")) return false;
    const [, key, left, right, prompt] = location.hash.split("/").map(decodeURIComponent);
    const group = index.groups.find(one => one.key === key || one.cells.some(cell => cell.key === key));
    if (!group) return false;
    const place = name => Math.max(0, group.cells.findIndex(cell => cell.key === name));
    const ends = group.key === key ? [place(left), place(right)] : [0, place(key)];
    const i = group.ids.indexOf(prompt);
    await choose({group, left: ends[0], right: ends[1], open: i < 0 ? null : i});
    root.scrollIntoView();
    return true;
  }

  at("group").addEventListener("change", event =>
    choose({group: index.groups[event.target.value], left: 0, right: 1, open: null, list: "all"}));
  at("left").addEventListener("change", event => choose({left: Number(event.target.value)}));
  at("right").addEventListener("change", event => choose({right: Number(event.target.value)}));
  at("swap").addEventListener("click", () => choose({left: state.right, right: state.left}));
  at("order").addEventListener("change", event => { state.order = event.target.value; filter(); });
  at("search").addEventListener("input", event => {
    state.words = event.target.value;
    clearTimeout(at("search").timer);
    at("search").timer = setTimeout(search, 200);
  });
  at("prompts").addEventListener("keydown", event => {
    const to = {ArrowDown: 1, ArrowUp: -1}[event.key], next = shown[shown.indexOf(state.open) + to];
    if (next === undefined) return;
    event.preventDefault();
    open(next);
    at("prompts").querySelector(`[data-prompt="${next}"]`).focus();
  });
  addEventListener("hashchange", follow);
  if (!await follow()) await choose({right: Math.min(1, state.group.cells.length - 1)});
  root.dataset.ready = "true";
})();
