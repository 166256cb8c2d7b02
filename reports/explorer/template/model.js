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
function modelCosts(model, numbers, { rule, bytes, window, optimizer }) {
  const sizes = bigs(numbers);
  const groups = modelGroups(model, sizes);
  const sum = (name) => groups.reduce((total, group) => total + group[name], 0n);
  const form = modelForm(model);
  const at = (node) => (node === undefined ? null : evaluate(node, sizes));
  const [macs, params, frozen] = [sum("macs"), sum("params"), at(form.frozen)];
  const each = BigInt(bytes);
  const stored = at(form.cache);
  // attention without the pairs of which `late` queries see 1, 2, ... fewer keys
  const masked = (late) => {
    const pairs = at(form.pairs);
    return pairs === null ? null : macs - (pairs / sizes.T ** 2n) * ((sizes.T * (sizes.T - 1n) + late * (late + 1n)) / 2n);
  };
  const beyond = form.pairs === undefined ? 0n : sizes.T - BigInt(window);
  // products of relative positions are the same for any batch
  const per = (samples) => (macs % samples ? null : macs / samples);
  const training = 3n * macs - at(form.one_gradient);
  const [softmax, norms, elementwise] = form.other.map(at);
  const [trained, kept] = MODELS.recipes[optimizer].map(BigInt);
  return {
    groups,
    macs,
    causal: masked(0n),
    windowed: masked(beyond > 0n ? beyond : 0n),
    flops: 2n * macs,
    perToken: form.tokens ? per(sizes.B * sizes.T) : null,
    perSample: per(sizes.B),
    prefill: at(form.prefill),
    step: at(form.step),
    trainingMacs: training,
    recomputed: training + macs - at(form.once),
    training: ruleFlops(groups, rule, sizes),
    softmax,
    norms,
    elementwise,
    params,
    active: sum("active"),
    weights: params * each,
    state: trained * (params - frozen) + kept * frozen,
    cache: stored === null ? null : stored * each,
  };
}

/** Return what a rank of tp x dp computes, keeps and sends, with the plan's text; or why there is no closed form. */
function rankCosts(model, numbers, tp, dp, optimizer) {
  const form = modelForm(model);
  if (!form.rank || (tp > 1 && !form.plan)) return { why: form.no_plan };
  const sizes = bigs({ ...numbers, tp, dp });
  const values = (nodes) => nodes.map((node) => evaluate(node, sizes));
  const unfit = form.fits.map(values).find(([size, by]) => size % by);
  if (unfit) return { why: `tp = ${grouped(tp)} does not divide ${grouped(unfit[0])}` };
  const words = [tp > 1 ? form.plan.replaceAll("{tp}", tp) : "", dp > 1 ? `dp=${dp},fsdp` : ""].filter(Boolean);
  const [macs, held, sent, sync] = values(form.rank);
  return { plan: words.join() || "dp=1", macs, held, sent, sync, state: BigInt(MODELS.recipes[optimizer][0]) * held };
}

/**
 * Return the sizes of MoA with which a model is nearest to shares of its own MACs and parameters, in percent: those with
 * the least of the larger relative difference.
 */
function nearestMoa(model, numbers, count, shares = [100, 100]) {
  const form = modelForm(model);
  if (!form.moa) return [];
  const sizes = bigs(numbers);
  const wanted = ["macs", "params"].map((name, i) => {
    const own = modelGroups(model, sizes).reduce((sum, group) => sum + group[name], 0n);
    return (own * BigInt(shares[i]) + 99n) / 100n;
  });
  const { K: Ks, E: Es } = MODELS.searched;
  const Ds = MODELS.searched.D.filter((D) => D % form.widths === 0);
  const points = Ks.flatMap((K) => Es.filter((E) => K <= E).flatMap((E) => Ds.map((D) => ({ K, E, D }))));
  const found = points.map((point) => {
    const costs = form.moa.map((node) => evaluate(node, { ...sizes, ...bigs(point) }));
    const far = wanted.map((size, i) => Math.abs(ratio(costs[i] - size, size)));
    return { ...point, costs, far: Math.max(...far) };
  });
  return found.sort((a, b) => a.far - b.far).slice(0, count);
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
  const costs = modelCosts(model, sizes, state);
  element("model").value = MODELS.presets.includes(model) ? model.name : "config.json";
  for (const name of MODEL_CHOICES) element(name).value = state[name];
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
  const unmasked = none || "no attention is causal";
  const rows = [
    ["MACs, forward", costs.macs],
    ["MACs, forward, causal", costs.causal, false, unmasked],
    [`MACs, forward, window of ${grouped(state.window)} keys`, costs.windowed, false, unmasked],
    ["FLOPs, forward", costs.flops],
    ["MACs per token", costs.perToken, false, modelForm(model).tokens ? "no whole number" : "the input is no sequence of tokens"],
    ["MACs per sample", costs.perSample, false, "no whole number"],
    ["MACs, prefill", costs.prefill, false, none],
    ["MACs, decode step", costs.step, false, none],
    ["MACs, training step", costs.trainingMacs],
    ["MACs, training step, layers recomputed", costs.recomputed],
    [`training FLOPs of a step, rule ${state.rule}`, costs.training, false, "the rule needs one causal sequence of tokens"],
    ["FLOPs of softmax", costs.softmax],
    ["FLOPs of norms", costs.norms],
    ["FLOPs of elementwise operations", costs.elementwise],
    ["parameters", costs.params],
    ["active parameters", costs.active],
    [`weights, ${state.bytes} bytes each`, costs.weights, true],
    [`training state, ${state.optimizer}`, costs.state, true],
    [`cache, ${state.bytes} bytes each`, costs.cache, true, none],
  ];
  element("model-costs").innerHTML = `<caption>${escaped(model.name)}</caption>${costsHtml(rows)}`;
  drawRank(model, sizes);
  drawNearest(model, sizes, costs);
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
  element("model-command").textContent = modelCommand(model, sizes);
  element("model-says").textContent =
    `${model.name}: ${scaled(costs.macs, "auto")} MACs in one forward pass${!modelForm(model).tokens ? "" : ` of ${grouped(sizes.B * sizes.T)} tokens`} and ${scaled(costs.params, "auto")} parameters; ` +
    `most MACs, ${percent(first[1][0], costs.macs)}, are of: ${first[0]}.`;
}

/** Return rows of a label, a value, whether it is in bytes, and why there is none, as the inside of a table. */
function costsHtml(rows) {
  const cells = ([, value, isBytes, why]) =>
    value === null
      ? `<td class="why" colspan="2">none: ${escaped(why)}</td>`
      : `<td class="n">${grouped(value)}</td><td class="n">${isBytes ? binary(value) : scaled(value, "auto")}</td>`;
  const body = rows.map((row) => `<tr><th scope="row">${escaped(row[0])}</th>${cells(row)}</tr>`);
  return `<thead><tr><th>quantity</th><th class="n">exact</th><th class="n">rounded</th></tr></thead><tbody>${body.join("")}</tbody>`;
}

function drawRank(model, sizes) {
  const { why, plan, macs, held, sent, sync, state: kept } = rankCosts(model, sizes, +state.tp, +state.dp, state.optimizer);
  element("rank-why").textContent = why ? `No closed form of this plan here: ${why}. Further plans: headcount count PRESET --plan` : "";
  element("rank-costs").hidden = Boolean(why);
  if (why) return;
  const rows = [
    ["MACs, training step", macs],
    ["parameters kept", held],
    [`training state, ${state.optimizer}`, kept, true],
    ["sent for a microbatch", sent, true],
    ["sent for the sum of gradients", sync, true],
  ];
  element("rank-costs").innerHTML = `<caption>One of ${grouped(state.tp * state.dp)} ranks, plan ${escaped(plan)}</caption>${costsHtml(rows)}`;
}

function drawNearest(model, sizes, { macs, params }) {
  const rows = nearestMoa(model, sizes, 6, [state.macs, state.params].map(Number)).map(({ K, E, D, costs }) => {
    const over = [macs, params].map((size, i) => `<td class="n">${grouped(costs[i])}</td><td class="n">${times(ratio(costs[i], size))}</td>`);
    return `<tr><th scope="row">${K}, ${E}, ${D}</th>${over.join("")}</tr>`;
  });
  const heads = ["MACs", "over model", "parameters", "over model"].map((text) => `<th class="n">${text}</th>`);
  element("nearest").innerHTML = rows.length ? `<thead><tr><th>K, E, D</th>${heads.join("")}</tr></thead><tbody>${rows.join("")}</tbody>` : "";
  element("nearest-says").textContent = rows.length
    ? "MoA in place of its attention: the K, E and D with which the model comes nearest to this share of its MACs and parameters."
    : "No MoA takes the place of its attention.";
}

const OF_MODEL = ["model-command", "model-letters", "model-costs", "model-parts", "model-says", "nearest", "nearest-says", "rank-costs", "rank-why"];
const MODEL_CHOICES = ["rule", "bytes", "optimizer", "window", "tp", "dp", "macs", "params"];

function listenModel() {
  element("model").innerHTML = [...MODELS.presets.map((one) => one.name), "config.json"].map((name) => optionHtml(name)).join("");
  element("rule").innerHTML = MODELS.rules.map(({ name }) => optionHtml(name)).join("");
  element("optimizer").innerHTML = Object.keys(MODELS.recipes).map((name) => optionHtml(name)).join("");
  element("model").onchange = (event) => {
    if (event.target.value !== "config.json" || pasted) change({ model: event.target.value, changed: "" });
    else element("config").focus();
  };
  for (const name of MODEL_CHOICES)
    element(name).onchange = (event) => {
      const { value, type } = event.target;
      const why = type === "number" ? whyNotSize(value, 1) : "";
      element("model-why").textContent = why && `${name} ${why}`;
      change(why ? {} : { [name]: value });
    };
  element("model-letters").onchange = (event) => {
    const letter = event.target.dataset.size;
    changeModelSize(letter, event.target.value);
    element(`m-${letter}`)?.focus();
  };
  element("copy-model").onclick = () => navigator.clipboard?.writeText(element("model-command").textContent);
  element("read-config").onclick = () => {
    try {
      pasted = modelFrom(element("config").value);
      element("model-why").textContent = "";
      change({ model: "config.json", changed: "" });
    } catch (error) {
      pasted = null;
      for (const name of OF_MODEL) element(name).replaceChildren();
      element("model").value = "config.json";
      element("model-why").textContent = error.message;
    }
  };
}
