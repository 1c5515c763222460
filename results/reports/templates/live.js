/* Follow a run that is still going: the server says every two seconds how many answers each cell has. */
"use strict";
(() => {
  const {make, number} = leeway, seconds = 2, news = document.querySelector(".news");
  const shown = new Map([...document.querySelectorAll("#cells tr[data-cell]")].map(row =>
    [row.dataset.cell, Number(row.querySelector("td").dataset.value)]));
  let before = null;

  async function ask() {
    const now = await fetch("live.json").then(answer => answer.json()).catch(() => null);
    if (now) tell(now);
    else say(["The server does not answer; the page stays as it is until it does."]);
    setTimeout(ask, seconds * 1000);
  }

  /** Cells that have grown since the page was made, with τ so far and the speed since the last answer. */
  function tell(now) {
    const grown = now.cells.filter(cell => cell.answers > (shown.get(cell.key) ?? 0));
    const broken = now.cells.filter(cell => cell.error).map(cell =>
      make("li", {}, make("bdi", {}, cell.key), ` cannot be read: ${cell.error}`));
    if (!grown.length) return say(broken.length ? [make("ul", {}, ...broken)] : []);
    const lines = grown.map(cell => {
      const old = before?.cells.find(one => one.key === cell.key), passed = before && now.time - before.time;
      const rate = old && passed ? (cell.tokens - old.tokens) / passed : null;
      return make("li", {}, make("bdi", {}, cell.key), ` ${cell.answers} answers`
        + (cell.asked ? ` of ${cell.asked}` : "") + `, τ ${number(cell.tau)}`
        + (rate ? `, ${number(rate)} tokens/s` : "") + (cell.complete ? ", complete" : ""));
    });
    const button = make("button", {type: "button"}, "Show them");
    button.addEventListener("click", () => location.reload());
    before = now;
    say([`${grown.length} ${grown.length > 1 ? "cells have" : "cell has"} new answers. `, button, make("ul", {}, ...lines, ...broken)]);
  }

  function say(content) {
    if (news.querySelector("button:active")) return;  // a button that is replaced while it is pressed is not clicked
    news.hidden = !content.length;
    news.replaceChildren(...content);
  }

  ask();
})();
