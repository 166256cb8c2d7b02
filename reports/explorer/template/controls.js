// The controls: presets, a slider and a field for each letter, and the layers to show.

/** Return the stops of a slider: small integers, then powers of two and three times those. */
function stopsOf([least, most]) {
  const small = Array.from({ length: Math.min(most, 16) + 1 }, (_, i) => i);
  const large = Array.from({ length: 31 }, (_, k) => [2 ** k, 3 * 2 ** (k - 1)]).flat();
  const all = most <= 512 ? [...small, ...large] : large;
  return [...new Set(all)].filter((n) => Number.isInteger(n) && n >= least && n <= most).sort((a, b) => a - b);
}

const STOPS = Object.fromEntries(DATA.letters.map(({ letter, range }) => [letter, stopsOf(range)]));

function nearestStop(letter, size) {
  const far = STOPS[letter].map((stop) => Math.abs(Math.log((stop + 1) / (size + 1))));
  return far.indexOf(Math.min(...far));
}

function buildControls() {
  element("letters").innerHTML = DATA.letters
    .map(({ letter, word, meaning }) => {
      const name = escaped(`${letter}: ${meaning}`);
      return (
        `<div class="letter" data-letter="${letter}" title="${name}${word ? escaped(` (${word})`) : ""}"><label for="n-${letter}">${letterHtml(letter)} <small>${escaped(meaning)}</small></label>` +
        `<input type="range" id="r-${letter}" min="0" max="${STOPS[letter].length - 1}" aria-label="${name}">` +
        `<input type="number" id="n-${letter}" min="${LEAST[letter]}" max="${MOST}" aria-label="${name}, exactly"></div>`
      );
    })
    .join("");
  for (const { letter } of DATA.letters) {
    element(`r-${letter}`).oninput = (event) => setSize(letter, STOPS[letter][event.target.value]);
    element(`n-${letter}`).onchange = (event) => {
      const why = whyNotSize(event.target.value, LEAST[letter]);
      element("size-why").textContent = why ? `${letter} ${why}` : "";
      setSize(letter, why ? state.sizes[letter] : Number(event.target.value));
    };
  }
  const papers = [...new Set(DATA.presets.map((preset) => preset.paper))];
  element("presets").innerHTML = papers
    .map((paper) => {
      const own = DATA.presets.filter((preset) => preset.paper === paper);
      const chips = own.map(
        (preset) =>
          `<button type="button" class="chip" data-preset="${escaped(preset.name)}">${escaped(preset.name.split(`${paper}-`).pop())}</button>`,
      );
      return `<p class="chips"><b>${escaped(DATA.papers[paper])}</b> ${chips.join(" ")}</p>`;
    })
    .join("");
  element("presets").onclick = (event) => {
    const preset = byName(DATA.presets, event.target.dataset.preset);
    if (preset) change({ sizes: { ...state.sizes, ...preset.sizes }, show: formsOf(preset).join(), form: preset.form });
  };
  element("account").innerHTML = DATA.accounts.map(({ name, label }) => optionHtml(name, label)).join("");
  for (const name of ["account", "unit", "axis"])
    element(name).onchange = (event) => change({ [name]: event.target.value });
  element("printed").onchange = (event) => change({ printed: event.target.checked ? "1" : "" });
  element("show").innerHTML = FORMS.slice(1)
    .map(
      (form) =>
        `<label class="toggle ${formClass(form)}"><input type="checkbox" value="${form.name}"> ${escaped(form.label)}</label>`,
    )
    .join("");
  element("show").onchange = (event) => {
    const wanted = new Set(state.show.split(","));
    wanted[event.target.checked ? "add" : "delete"](event.target.value);
    change({
      show: FORMS.map((form) => form.name)
        .filter((name) => wanted.has(name))
        .join(),
    });
  };
  element("reset").onclick = () => change({ ...START, sizes: { ...DATA.start }, tab: state.tab });
}

/** Return the names of the forms to compare for a preset: its own and the dense ones whose sizes it has. */
function formsOf({ form, sizes }) {
  const own = byName(FORMS, form);
  const isOwn = (one) => one.variant === own.variant && one.letters.join() === own.letters.join();
  const isDense = (one) => one.variant === BASE.variant && one.letters.every((letter) => letter in sizes);
  return FORMS.filter((one) => isOwn(one) || isDense(one)).map((one) => one.name);
}

const setSize = (letter, size) => change({ sizes: { ...state.sizes, [letter]: size } });

function drawControls() {
  const used = new Set(["T", "B", "d_m", ...(state.account === "windowed" ? ["w"] : []), ...shownForms().flatMap((form) => form.letters)]);
  for (const { letter } of DATA.letters) {
    const size = state.sizes[letter];
    const range = element(`r-${letter}`);
    range.value = nearestStop(letter, size);
    range.setAttribute("aria-valuetext", grouped(size));
    element(`n-${letter}`).value = size;
    range.parentElement.hidden = !used.has(letter);
  }
  for (const button of element("presets").querySelectorAll("button")) {
    const { sizes, form } = byName(DATA.presets, button.dataset.preset);
    const same = Object.keys(sizes).every((letter) => sizes[letter] === state.sizes[letter]);
    button.setAttribute("aria-pressed", same && shownForms().some((one) => one.name === form));
  }
  for (const box of element("show").querySelectorAll("input")) box.checked = state.show.split(",").includes(box.value);
  for (const name of ["account", "unit", "axis"]) element(name).value = state[name];
  element("printed").checked = Boolean(state.printed);
  element("printed").disabled = !isPrinted(state.account);
}
