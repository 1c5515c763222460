/* Answers: two cells side by side, every token coloured by how it came. A prompt is filled when it is opened. */
"use strict";
(async () => {
  const root = document.getElementById("answers"), [groups, left, right] = root.querySelectorAll("select");
  const words = Object.fromEntries([...root.querySelectorAll(".legend li")].map(
    item => [item.firstChild.classList[1], item.lastChild.textContent.trim()]));

  /** The data of a part of the page. */
  async function load(name) {
    const text = document.querySelector(`script[data-part="${CSS.escape(name)}"]`).textContent;
    const bytes = Uint8Array.from(atob(text), mark => mark.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  }

  /** An element. Strings become text nodes: nothing is ever parsed as HTML. */
  function make(tag, className, ...children) {
    const element = document.createElement(tag);
    element.className = className;
    element.append(...children);
    return element;
  }

  const number = value => value === null || value === undefined ? "–" : String(value);
  const quoted = text => `“${text.replaceAll("\n", "↵")}”`;
  const pairs = list => Array.from({length: list.length / 2}, (_, i) => `${quoted(list[2 * i])} ${list[2 * i + 1]}`).join(", ");

  /** What is known of a token, in one line. */
  function facts(text, kind, numbers, threshold) {
    const said = [`${quoted(text)}: ${words[kind]}`];
    if (numbers?.length) {
      const [p, most, processed, q, u, score, refused, target, draft] = numbers;
      said.push(`p ${number(p)} of at most ${number(most)}, processed p ${number(processed)}, q ${number(q)}, u ${number(u)}`);
      if (kind !== "d" && score !== null && threshold) said.push(`score ${score}, relaxed where ${threshold}`);
      for (let i = 0; i < refused.length; i += 3) {
        said.push(`rejected here: ${quoted(refused[i])}, p ${refused[i + 1]}, q ${number(refused[i + 2])}`);
      }
      if (target.length) said.push(`target: ${pairs(target)}`);
      if (draft.length) said.push(`draft: ${pairs(draft)}`);
    }
    return said.join("; ");
  }

  /** One answer; `first`: the token in which it differs from the other, −1 without one. */
  function side([, name, threshold], answer, first) {
    if (!answer) return make("article", "", make("h4", "", name), "not answered");
    const line = make("p", "facts"), text = make("div", "text");
    let place = 0;
    for (const turn of answer.turns) {
      const counts = Math.max(1, ...turn.c ?? []) > 1 ? turn.c : [];  // a cycle is marked where tokens were drafted
      const starts = new Set(counts.map((_, i) => 1 + counts.slice(0, i).reduce((sum, count) => sum + count, 0)));
      if (text.childNodes.length) text.append(make("hr", ""));
      for (const [i, word] of (turn.t ?? [turn.text]).entries()) {
        const kind = turn.k?.[i], token = make("span", kind ? `token ${kind}` : "", word);
        if (starts.has(i)) token.classList.add("cycle");
        if (place++ === first) token.classList.add("parts");
        if (kind) {
          const said = facts(word, kind, turn.m?.[i], threshold), [p, most] = turn.m?.[i] ?? [];
          if (kind === "r" && most) token.style.setProperty("--far", (1 - Math.min(1, p / most)).toFixed(3));
          token.title = said;
          token.addEventListener("click", () => { line.textContent = said; });
        }
        text.append(token);
      }
    }
    text.dir = "auto";
    const untraced = answer.turns.some(turn => turn.k?.includes("k"))
      ? [make("p", "line", "decoded without a trace: add trace=true to see which test kept a token")] : [];
    return make("article", "", make("h4", "", name), make("p", "line", answer.line), ...untraced, text, line);
  }

  function fill(prompt, messages, cells, answers) {
    if (prompt.querySelector("article")) return;
    const [a, b] = answers.map(answer => answer ? answer.turns.flatMap(turn => turn.t ?? [turn.text]) : []);
    const differs = a.findIndex((word, i) => word !== b[i]);
    const first = differs < 0 && b.length > a.length ? a.length : differs;
    prompt.append(make("div", "prompt", ...messages.map(([role, text]) => make("p", "", role && role !== "user" ? `${role}: ${text}` : text))),
                  make("div", "sides", ...cells.map((cell, i) => side(cell, answers[i], first))));
  }

  async function show() {
    const {cells, prompts} = index[groups.value], chosen = [cells[left.value], cells[right.value]];
    const answers = await Promise.all(chosen.map(([key]) => load(key)));
    root.querySelector(".prompts").replaceChildren(...prompts.map(([name, messages], i) => {
      const lines = answers.map(answer => answer[i]?.line.split(" · ")[0] ?? "–");
      const prompt = make("details", "", make("summary", "", make("bdi", "", name), make("small", lines[0] === lines[1] ? "" : "missing", lines.join(" → "))));
      prompt.addEventListener("toggle", () => fill(prompt, messages, chosen, answers.map(answer => answer[i])));
      prompt.open = i === 0;
      return prompt;
    }));
    root.dataset.ready = `${groups.value} ${left.value} ${right.value}`;
  }

  function options(select, names, chosen) {
    select.replaceChildren(...names.map((name, i) => new Option(name, i, false, i === chosen)));
  }

  function choose() {
    const names = index[groups.value].cells.map(([, name]) => name);
    const [one, other] = index[groups.value].opens;
    options(left, names, one);
    options(right, names, other);
    return show();
  }

  const index = await load("index");
  options(groups, index.map(group => group.title), 0);
  groups.addEventListener("change", choose);
  for (const select of [left, right]) select.addEventListener("change", show);
  await choose();
})();
