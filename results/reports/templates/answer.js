/* One answer: its tokens coloured by how they came, a bar for each cycle, and what is known of a token. */
"use strict";
leeway.answer = (() => {
  const {make, number, show, hide, facts} = leeway;
  const KINDS = {
    s: ["strict", "drafted, the lossless test keeps it"],
    a: ["argmax", "drafted, the lossless test rejects it, but it is the target's first choice"],
    r: ["relaxed", "drafted, kept by the relaxation alone"],
    k: ["kept", "drafted and kept; this cell was not traced, so not known by which clause"],
    d: ["drawn", "drawn by the target"],
  };
  const NAMES = ["p0", "p1", "p", "q", "u", "score"];

  /** The tokens of all turns: {text, kind, cycle, turn, numbers}. The first token of a turn belongs to no cycle. */
  function tokensOf(side) {
    return side.turns.flatMap((turn, place) => {
      const cycles = [-1];
      (turn.c ?? []).forEach((count, cycle) => cycles.push(...Array(count).fill(cycle)));
      return (turn.t ?? []).map((text, i) => ({text, kind: turn.k[i], cycle: cycles[i], turn: place,
                                               numbers: turn.m?.[i], last: i === turn.t.length - 1}));
    });
  }

  /** Index of the first token in which two answers differ; -1 where they do not. */
  function divergence(left, right) {
    const length = Math.min(left.length, right.length);
    for (let i = 0; i < length; i++) if (left[i].text !== right[i].text) return i;
    return left.length === right.length ? -1 : length;
  }

  /** The share of the likeliest token's probability that this token has, 0 to 1. */
  function share(token) {
    const [p, most] = token.numbers?.length ? token.numbers : [];
    return p === undefined || p === null || !most ? null : Math.min(1, p / most);
  }

  /** The text of an answer as focusable tokens, and its cycles. `threshold`: that of the cell's rule, if traced. */
  function render(side, tokens, first, cell) {
    if (side.turns.some(turn => turn.text !== undefined)) {
      return [make("div", {className: "text", dir: "auto"}, side.turns.map(turn => turn.text).join("\n\n"))];
    }
    const spans = tokens.map((token, i) => span(token, i, first, cell));
    const text = make("div", {className: "text", dir: "auto", role: "group",
                              "aria-label": `Answer of ${cell.method}; arrow keys go from token to token`});
    let turn = 0;
    tokens.forEach((token, i) => {
      if (token.turn !== turn) text.append(make("hr"));
      turn = token.turn;
      text.append(spans[i]);
    });
    if (spans.length) spans[0].tabIndex = 0;
    text.addEventListener("keydown", event => step(event, spans));
    return [text, bars(tokens, spans)];
  }

  function span(token, i, first, cell) {
    const [name] = KINDS[token.kind];
    const element = make("span", {className: `token ${name}`, tabIndex: -1, textContent: token.text});
    const ratio = token.kind === "r" ? share(token) : null;
    if (ratio !== null) element.style.setProperty("--far", (1 - ratio).toFixed(3));
    if (token.text.includes("\n")) element.classList.add("newline");
    if (i === first) element.classList.add("parts");
    const open = () => show(element, card(token, i, cell));
    for (const event of ["pointerenter", "focus", "click"]) element.addEventListener(event, open);
    for (const event of ["pointerleave", "blur"]) element.addEventListener(event, () => hide(element));
    return element;
  }

  function step(event, spans) {
    const at = spans.indexOf(document.activeElement);
    const to = {ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: spans.length - 1}[event.key];
    if (at < 0 || to === undefined || !spans[to]) return;
    event.preventDefault();
    spans[at].tabIndex = -1;
    spans[to].tabIndex = 0;
    spans[to].focus();
  }

  /** What is known of a token, for the card. */
  function card(token, i, cell) {
    const [name, meaning] = KINDS[token.kind];
    const numbers = Object.fromEntries(NAMES.map((key, k) => [key, token.numbers?.[k]]));
    const [refused, target, draft] = token.numbers?.slice(NAMES.length) ?? [];
    const content = [make("p", {className: "what"}, make("b", {}, quoted(token.text)), " ",
                          make("span", {className: `token ${name}`}, name)), make("p", {}, meaning)];
    const threshold = cell.threshold, tested = token.kind !== "d" && numbers.score !== null && numbers.score !== undefined;
    content.push(facts([
      ["token", String(i + 1)], ["cycle", token.cycle < 0 ? "none: the prefill's token" : String(token.cycle + 1)],
      ["p(x)", numbers.p0 === undefined ? "" : number(numbers.p0)],
      ["p(x) ÷ max p", share(token) === null ? "" : number(share(token))],
      ["p, processed", numbers.p === undefined ? "" : number(numbers.p)],
      ["q(x)", numbers.q === null || numbers.q === undefined ? "" : number(numbers.q)],
      ["u", numbers.u === null || numbers.u === undefined ? "" : number(numbers.u)],
      [threshold?.name ?? "", threshold && tested
        ? `score ${number(numbers.score)}, inside where ${threshold.relation} ${number(threshold.value)}` : ""],
    ]));
    for (let k = 0; refused && k < refused.length; k += 3) {
      content.push(make("p", {}, "rejected here: ", make("b", {}, quoted(refused[k])),
                        ` p ${number(refused[k + 1])}, q ${number(refused[k + 2])}`));
    }
    if (target?.length || draft?.length) {
      content.push(make("div", {className: "likeliest"}, likeliest("target", target), likeliest("draft", draft)));
    }
    return content;
  }

  function likeliest(whose, list) {
    if (!list?.length) return null;
    const rows = [];
    for (let k = 0; k < list.length; k += 2) {
      rows.push(make("tr", {}, make("td", {dir: "auto"}, quoted(list[k])), make("td", {}, number(list[k + 1]))));
    }
    return make("table", {}, make("caption", {}, whose), make("tbody", {}, ...rows));
  }

  /** A token's text with its blanks visible. */
  function quoted(text) {
    return text === "" ? "(part of a character)" : text.replaceAll(" ", "␣").replaceAll("\n", "↵").replaceAll("\t", "⇥");
  }

  /** A bar for each cycle, a block for each of its tokens; a bar points out its tokens. */
  function bars(tokens, spans) {
    const strip = make("div", {className: "cycles", role: "img"}), cycles = [];
    tokens.forEach((token, i) => {
      const key = `${token.turn} ${token.cycle}`;
      if (token.cycle >= 0 && cycles.at(-1)?.key !== key) cycles.push({key, members: []});
      if (token.cycle >= 0) cycles.at(-1).members.push(i);
    });
    for (const {members} of cycles) {
      const bar = make("span", {}, ...members.map(i => make("i", {className: KINDS[tokens[i].kind][0]})));
      const mark = on => members.forEach(i => spans[i].classList.toggle("pointed", on));
      bar.addEventListener("pointerenter", () => mark(true));
      bar.addEventListener("pointerleave", () => mark(false));
      strip.append(bar);
    }
    const committed = cycles.reduce((sum, cycle) => sum + cycle.members.length, 0);
    strip.setAttribute("aria-label", `${cycles.length} cycles, ${number(cycles.length ? committed / cycles.length : null)}`
                       + " tokens a cycle");
    return strip;
  }

  return {KINDS, tokensOf, divergence, render};
})();
