/* What the parts of the page share: data in named parts, elements, numbers as text, the card beside a token or number. */
"use strict";
const leeway = (() => {
  const known = new Map(), waiting = new Map();
  const folder = document.querySelector("script[data-folder]")?.dataset.folder;

  /** The data of a part, or null if the page has no such part. Parts of a large page are scripts in a folder. */
  function load(name) {
    if (!known.has(name)) known.set(name, folder ? fetched(name) : Promise.resolve(inline(name)));
    return known.get(name);
  }

  function inline(name) {
    const element = document.querySelector(`script[data-part="${CSS.escape(name)}"]`);
    return element && JSON.parse(element.textContent);
  }

  function fetched(name) {
    return new Promise((resolve, reject) => {
      waiting.set(name, resolve);
      const script = make("script", {src: `${folder}/${encodeURIComponent(name.replace(/[^A-Za-z0-9.-]/g, "_"))}.js`});
      script.onerror = () => reject(new Error(`${script.src} is missing: copy the folder ${folder} with the page`));
      document.head.append(script);
    });
  }

  /** Called by the scripts in the folder. */
  function part(name, data) {
    waiting.get(name)?.(data);
    waiting.delete(name);
  }

  /** An element with properties and children. Strings become text nodes: nothing is ever parsed as HTML. */
  function make(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name in element && name !== "list") element[name] = value;
      else element.setAttribute(name, value);
    }
    element.append(...children.filter(child => child !== null && child !== undefined));
    return element;
  }

  /** A number with so many significant digits; a dash for null. */
  function number(value, digits = 3) {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    const text = size !== 0 && (size < 1e-4 || size >= 1e6) ? value.toExponential(digits - 1)
      : Number(value.toPrecision(digits)).toString();
    return text.replace("-", "−");
  }

  function signed(value, digits = 3) {
    return (value > 0 ? "+" : "") + number(value, digits);
  }

  /* One card for the whole page, moved to what it is about. It is announced to screen readers. */
  const card = make("div", {className: "card", hidden: true, role: "status"});
  document.body.append(card);
  let about = null;

  function show(element, content) {
    about = element;
    card.replaceChildren(...content);
    card.hidden = false;
    const box = element.getClientRects()[0] ?? element.getBoundingClientRect();
    const left = Math.min(box.left, document.documentElement.clientWidth - card.offsetWidth - 8);
    const below = box.bottom + 6 + card.offsetHeight < innerHeight || box.top < card.offsetHeight + 12;
    card.style.left = `${Math.max(8, left) + scrollX}px`;
    card.style.top = `${(below ? box.bottom + 6 : box.top - card.offsetHeight - 6) + scrollY}px`;
  }

  function hide(element) {
    if (element && element !== about) return;
    about = null;
    card.hidden = true;
  }

  /** Lines of name and value, for the card. */
  function facts(lines) {
    return make("dl", {}, ...lines.filter(line => line[1] !== "" && line[1] !== null && line[1] !== undefined)
      .flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
  }

  /** Open the section that a link names, and all of them while the page is printed. */
  const folds = () => [...document.querySelectorAll("details:not([open])")];
  function reveal() {
    const name = decodeURIComponent(location.hash.slice(1)), section = name && document.getElementById(name);
    const fold = section && section.querySelector(":scope > details.fold");
    if (!fold || fold.open) return;
    fold.open = true;
    section.scrollIntoView();
  }
  let closed = [];
  addEventListener("beforeprint", () => { closed = folds(); for (const one of closed) one.open = true; });
  addEventListener("afterprint", () => { for (const one of closed) one.open = false; });
  addEventListener("hashchange", reveal);
  document.addEventListener("click", event => event.target.closest?.("nav a") && setTimeout(reveal));
  reveal();

  document.addEventListener("keydown", event => event.key === "Escape" && hide());
  document.addEventListener("pointerdown", event => about && !about.contains(event.target) && hide());
  let width = innerWidth;
  addEventListener("resize", () => {  // a change of the width moves what the card is about, one of the height does not
    if (innerWidth !== width) hide();
    width = innerWidth;
  });
  return {load, part, make, number, signed, show, hide, facts, hasCard: element => about === element};
})();
