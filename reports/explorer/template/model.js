// The second tab: a whole model, from a preset or a pasted config.json.

const MODELS = DATA.models;
const AMOUNTS = ["size", "params", "active", "causal"];
const MODEL_LETTERS = Object.fromEntries(MODELS.letters.map((one) => [one.letter, one]));
const modelForm = ({ form }) => MODELS.forms[form];

/** Return the groups of a model with their exact amounts. */
function modelGroups(model, sizes) {
  return modelForm(model).groups.map(([label, isMacs, size, params, active, signature]) => {
    const amounts = [size, params, active].map((node) => evaluate(node, sizes));
    const causal = sizes.T ? (amounts[0] / sizes.T) * (sizes.T + 1n) : 0n;
    const macs = isMacs ? amounts[0] : 0n;
    return { label, macs, params: amounts[1], active: amounts[2], amounts: [...amounts, causal], signature };
  });
}

/** Return the FLOPs of a training step under a rule; null where the rule does not apply. */
function ruleFlops(groups, rule, sizes) {
  const place = MODELS.rules.findIndex((one) => one.name === rule);
  return groups.reduce((sum, { amounts, signature }) => {
    const [times, amount] = MODELS.signatures[signature][place];
    if (sum === null || times === undefined) return null;
    const perToken = AMOUNTS[amount] === "params" || AMOUNTS[amount] === "active";
    return sum + BigInt(times) * amounts[amount] * (perToken ? sizes.B * sizes.T : 1n);
  }, 0n);
}

/** Return the costs of a model: totals, and null where there is no such cost. */
function modelCosts(model, numbers, rule, elementBytes) {
  const sizes = bigs(numbers);
  const groups = modelGroups(model, sizes);
  const sum = (name) => groups.reduce((total, group) => total + group[name], 0n);
  const { step, cache } = modelForm(model);
  const at = (node) => (node === undefined ? null : evaluate(node, sizes));
  const bytes = BigInt(elementBytes);
  const stored = at(cache);
  return {
    groups,
    macs: sum("macs"),
    flops: 2n * sum("macs"),
    params: sum("params"),
    active: sum("active"),
    weights: sum("params") * bytes,
    step: at(step),
    cache: stored === null ? null : stored * bytes,
    training: ruleFlops(groups, rule, sizes),
  };
}

const CONFIG_TYPES = ["llama", "mistral", "mixtral", "qwen2"];
const CONFIG_KEYS = {
  d_m: "hidden_size",
  F: "intermediate_size",
  N: "num_hidden_layers",
  V: "vocab_size",
  h: "num_attention_heads",
};

/** Return the model of a config.json's text. Throws an Error with the reason, and what to give instead. */
function modelFrom(text) {
  let config = null;
  try {
    config = JSON.parse(text);
  } catch (error) {
    throw new Error(`this is no JSON: ${error.message}`);
  }
  const type = config?.model_type;
  if (!CONFIG_TYPES.includes(type))
    throw new Error(`model_type must be one of ${CONFIG_TYPES.join(", ")}, not ${JSON.stringify(type)}; others: headcount count config.json`);
  for (const key of ["attention_bias", "mlp_bias", "quantization_config"])
    if (config[key]) throw new Error(`${key} is not supported here; use headcount count config.json`);
  const whole = (key, otherwise) => {
    const size = config[key] ?? otherwise;
    if (!Number.isSafeInteger(size) || size < 1 || size > MOST)
      throw new Error(`${key} must be a whole number from 1 to ${grouped(MOST)}, not ${JSON.stringify(size)}`);
    return size;
  };
  const sizes = Object.fromEntries(Object.entries(CONFIG_KEYS).map(([letter, key]) => [letter, whole(key)]));
  sizes.g = whole("num_key_value_heads", sizes.h);
  sizes.d_h = whole("head_dim", sizes.d_m / sizes.h);
  if (sizes.d_h % 2) throw new Error(`rotary positions need an even head_dim, not ${grouped(sizes.d_h)}`);
  const experts = type === "mixtral";
  if (experts) Object.assign(sizes, { E_ff: whole("num_local_experts"), K_ff: whole("num_experts_per_tok") });
  const tied = config.tie_word_embeddings ?? false;
  const form = MODELS.configs[`${+experts}${+tied}${+(type === "qwen2")}`];
  const model = { name: `${type} from config.json`, form, sizes: { ...sizes, T: 1024, B: 1 } };
  const why = whyNoModel(model.sizes);
  if (why) throw new Error(why);
  return model;
}

/** Return why a model of these sizes cannot be built; empty if it can. */
function whyNoModel({ h, g, E_ff, K_ff, T, P }) {
  if (h && g && h % g) return `g must divide h: g = ${grouped(g)}, h = ${grouped(h)}`;
  if (E_ff && K_ff > E_ff) return `K_ff must be at most E_ff: K_ff = ${grouped(K_ff)}, E_ff = ${grouped(E_ff)}`;
  return P && T > P ? `T must be at most the P = ${grouped(P)} learned positions, not ${grouped(T)}` : "";
}

let pasted = null;
const chosenModel = () => (state.model === "config.json" && pasted) || byName(MODELS.presets, state.model) || MODELS.presets[0];

/** Return the sizes of a model with those that the reader changed; others are the model's. */
function modelSizes(model) {
  const found = { ...model.sizes };
  for (const [letter, text] of new URLSearchParams(state.changed))
    if (letter in found && !whyNotSize(text, 1)) found[letter] = Number(text);
  return whyNoModel(found) ? model.sizes : found;
}

function changeModelSize(letter, text) {
  const why = whyNotSize(text, 1);
  const model = chosenModel();
  const sizes = { ...modelSizes(model), [letter]: Number(text) };
  element("model-why").textContent = why ? `${letter} ${why}` : whyNoModel(sizes);
  if (why || whyNoModel(sizes)) return drawModel();
  const changed = Object.entries(sizes).filter(([name, size]) => size !== model.sizes[name]);
  change({ changed: new URLSearchParams(changed).toString() });
}

function drawModel() {
  const model = chosenModel();
  const sizes = modelSizes(model);
  const costs = modelCosts(model, sizes, state.rule, state.bytes);
  element("model").value = MODELS.presets.includes(model) ? model.name : "config.json";
  element("rule-of").value = state.rule;
  element("bytes").value = state.bytes;
  const rule = byName(MODELS.rules, state.rule);
  element("rule-about").textContent = `${rule.about} ${rule.source}`;
  element("model-letters").innerHTML = Object.entries(sizes)
    .map(
      ([letter, size]) =>
        `<div class="letter"><label for="m-${letter}">${letterHtml(letter)} <small>${escaped(MODEL_LETTERS[letter].meaning)}</small></label>` +
        `<input type="number" id="m-${letter}" data-size="${letter}" min="1" max="${MOST}" value="${size}"></div>`,
    )
    .join("");
  const none = modelForm(model).no_step;
  const rows = [
    ["MACs, forward", costs.macs],
    ["FLOPs, forward", costs.flops],
    ["parameters", costs.params],
    ["active parameters", costs.active],
    [`weights, ${state.bytes} bytes each`, costs.weights, true],
    ["MACs, decode step", costs.step, false, none],
    [`cache, ${state.bytes} bytes each`, costs.cache, true, none],
    [`training FLOPs of a step, rule ${state.rule}`, costs.training, false, "the rule needs one causal sequence of tokens"],
  ];
  element("model-costs").innerHTML =
    `<caption>${escaped(model.name)}</caption><thead><tr><th>quantity</th><th class="n">exact</th><th class="n">rounded</th></tr></thead><tbody>` +
    `${rows
      .map(([label, value, isBytes, why]) => {
        const cells = value === null ? `<td class="why" colspan="2">none: ${escaped(why)}</td>` : `<td class="n">${grouped(value)}</td><td class="n">${isBytes ? binary(value) : scaled(value, "auto")}</td>`;
        return `<tr><th scope="row">${escaped(label)}</th>${cells}</tr>`;
      })
      .join("")}</tbody>`;
  const parts = new Map();
  for (const { label, macs, params } of costs.groups) {
    const [a, b] = parts.get(label) || [0n, 0n];
    parts.set(label, [a + macs, b + params]);
  }
  element("model-parts").innerHTML =
    `<thead><tr><th>part</th><th class="n">MACs</th><th class="n">share</th><th class="n">parameters</th></tr></thead><tbody>` +
    `${[...parts]
      .filter(([, [a, b]]) => a || b)
      .map(([label, [a, b]]) => `<tr><th scope="row">${escaped(label)}</th><td class="n">${grouped(a)}</td><td class="n">${percent(a, costs.macs)}</td><td class="n">${grouped(b)}</td></tr>`)
      .join("")}</tbody>`;
  const first = [...parts].reduce((most, one) => (one[1][0] > most[1][0] ? one : most));
  element("model-says").textContent =
    `${model.name}: ${scaled(costs.macs, "auto")} MACs in one forward pass${sizes.T ? ` of ${grouped(sizes.B * sizes.T)} tokens` : ""} and ${scaled(costs.params, "auto")} parameters; ` +
    `most MACs, ${percent(first[1][0], costs.macs)}, are of: ${first[0]}.`;
}

function listenModel() {
  const option = (name) => `<option value="${name}">${name}</option>`;
  element("model").innerHTML = [...MODELS.presets.map((one) => one.name), "config.json"].map(option).join("");
  element("rule-of").innerHTML = MODELS.rules.map((one) => option(one.name)).join("");
  element("model").onchange = (event) => {
    if (event.target.value !== "config.json" || pasted) change({ model: event.target.value, changed: "" });
    else element("config").focus();
  };
  element("rule-of").onchange = (event) => change({ rule: event.target.value });
  element("bytes").onchange = (event) => change({ bytes: event.target.value });
  element("model-letters").onchange = (event) => {
    const letter = event.target.dataset.size;
    changeModelSize(letter, event.target.value);
    element(`m-${letter}`)?.focus();
  };
  element("read-config").onclick = () => {
    try {
      pasted = modelFrom(element("config").value);
      element("model-why").textContent = "";
      change({ model: "config.json", changed: "" });
    } catch (error) {
      element("model-why").textContent = error.message;
    }
  };
}
