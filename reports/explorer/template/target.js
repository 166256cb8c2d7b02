// A TARGET of the commands, as budget and count print it: pasted, it sets the sizes of a layer or of a whole model.

const TARGETS = DATA.targets;
const LENGTH_WORDS = { seq_len: "T", tgt_len: "T", batch_size: "B" };
const WORD_OF_LETTER = { N: "num_layers" };

/** Return spec, sizes by letter, form and further words of a TARGET. Throws an Error that names the valid choices. */
function targetFrom(text) {
  const [, spec, sign, rest] = /^([^,:]*)([,:]?)(.*)$/.exec(text.trim().replace(/^(['"])(.*)\1$/, "$2"));
  const known = TARGETS.presets[spec];
  if (sign === ":" ? !TARGETS.layers[spec] : !known)
    throw new Error(
      `“${spec}” is no TARGET here; write a layer, ${Object.keys(TARGETS.layers).join(", ")}, as moa:K=8,E=32,…, or a preset: ${Object.keys(TARGETS.presets).join(", ")}`,
    );
  const words = rest ? rest.split(/,(?=[A-Za-z_][\w.]*=)/) : [];
  const given = Object.fromEntries(words.map((word) => word.split(/=(.*)/s)));
  const { attention: variant = sign === ":" ? spec : known.variant, form, ...others } = given;
  const fields = { ...LENGTH_WORDS, ...TARGETS.models[known?.model], ...TARGETS.layers[variant] };
  const found = { spec, preset: known, variant, ideal: form === "ideal", sizes: {}, others: [] };
  for (const [name, value] of Object.entries(others)) {
    const letter = fields[name] ?? name;
    if (!Object.values(fields).includes(letter)) found.others.push(`${name}=${value}`);
    else if (whyNotSize(value, LEAST[letter] ?? 1)) throw new Error(`${name} ${whyNotSize(value, LEAST[letter] ?? 1)}`);
    else found.sizes[letter] = Number(value);
  }
  return found;
}

/** Return the changes of the state that show a TARGET: the whole model where its sizes are letters, else its layer. */
function stateOf({ spec, preset, variant, ideal, sizes, others }) {
  const model = preset && byName(MODELS.presets, spec);
  const isModel = model && variant === preset.variant && Object.keys(sizes).every((letter) => letter in model.sizes);
  if (isModel && !others.length && !whyNoModel({ ...model.sizes, ...sizes })) {
    const changed = Object.entries(sizes).filter(([letter, size]) => size !== model.sizes[letter]);
    return { tab: "models", model: spec, changed: new URLSearchParams(changed).toString() };
  }
  const layer = { ...(preset?.sizes ?? {}), ...sizes };
  const own = FORMS.filter((form) => form.variant === variant && form.letters.every((letter) => letter in layer));
  const form = own.findLast((one) => one.name.endsWith("-ideal") === ideal) ?? own.at(-1);
  if (!form) throw new Error(`the layer of ${spec} is not on this page; headcount count prints what it costs`);
  const inside = Object.entries(layer).filter(([letter]) => letter in DATA.start);
  const show = FORMS.map((one) => one.name).filter((name) => name === form.name || state.show.split(",").includes(name));
  return { tab: "compare", sizes: { ...state.sizes, ...Object.fromEntries(inside) }, form: form.name, show: show.join() };
}

/** Return what of a TARGET the page does not have: words without a letter, and sizes outside of the layer. */
function leftOut({ sizes, others }, { tab }) {
  const outside = tab === "compare" ? Object.keys(sizes).filter((letter) => !(letter in DATA.start)) : [];
  return [...outside.map((letter) => `${letter}=${sizes[letter]}`), ...others];
}

/** Return the command that counts a model at these sizes: all of them where one is changed, for sizes follow others. */
function modelCommand(model, sizes) {
  const isChanged = ([letter, size]) => size !== model.sizes[letter];
  const inside = Object.entries(sizes).filter(([letter]) => !"TB".includes(letter));
  const lengths = Object.entries(sizes).filter(([letter]) => "TB".includes(letter));
  const words = [...(inside.some(isChanged) ? inside : []), ...lengths.filter(isChanged)].map(([letter, size]) => `${WORD_OF_LETTER[letter] ?? letter}=${size}`);
  if (!MODELS.presets.includes(model)) return `headcount count config.json --seq-len ${sizes.T} --batch-size ${sizes.B}`;
  return `headcount count ${[model.name, ...words].join()} --counter closed-form`;
}

function listenTarget() {
  element("read-target").onsubmit = (event) => {
    event.preventDefault();
    try {
      const target = targetFrom(element("target").value);
      const shown = stateOf(target);
      const missing = leftOut(target, shown);
      element("target-why").textContent = missing.length ? `not on this page, as at first: ${missing.join(", ")}` : "";
      change(shown);
    } catch (error) {
      element("target-why").textContent = error.message;
    }
  };
}
