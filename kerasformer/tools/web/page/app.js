// The state of the page: the selected model and engine, the current question, and the running task. Each part of the page
// has its own module.

import { answer, plainText, textElement } from "./answers.js";
import * as browser from "./browser.js";
import * as choices from "./choice.js";
import * as conversation from "./conversation.js";
import { find, make, megabytes, options, percent, seconds, terms } from "./elements.js";
import { Engine } from "./engine.js";
import { WrongAnswersError, explain } from "./failures.js";
import * as offline from "./offline.js";
import * as questions from "./questions.js";
import * as settings from "./settings.js";
import { copyText, linkTo, readLink } from "./share.js";

const ENGINES = { litert: "LiteRT.js", onnx: "ONNX Runtime" };
const SMALL = 48e6; // bytes that the page may download without being asked, on an unmetered connection

const trials = new Set(); // engines that are being compared
let engine = new Engine();
let site = null;
let model = null; // an entry of site.json
let choice = null; // what is known about the model's engines in this browser; see choice.js
let selected = null; // one of model.engines, or null if the page chooses
let chosen = null; // one of model.engines: the one to use
let loaded = null; // the one that the engine has open
let info = null; // the library's description of it
let busy = null; // "load" or "run"
let pending = Promise.resolve(); // settles when the current task ends
let turn = 0; // number of the latest task; earlier tasks are abandoned
let showsStop = false; // whether the Run button is Stop
let stopShownAt = 0; // when it became Stop
let sample = null; // the first example, with which engines are measured
let last = null; // the question that the visible answer belongs to
let offlineProblem = ""; // why a file could not be stored for offline use
let touched = false; // whether the user has interacted with the page

async function start() {
  if (location.protocol === "file:") return; // start.js shows the problem
  const problem = browser.problem();
  if (problem) return stopHere(problem.title, problem.text);
  try {
    site = await readSite();
  } catch (error) {
    return stopHere("The list of models is missing", `${error.message} Reload the page, or copy the complete folder that kerasformer web wrote to the server.`);
  }
  const unknown = site.models.filter(({ task }) => !questions.supports(task));
  site.models = site.models.filter(({ task }) => questions.supports(task));
  if (!site.models.length) {
    return stopHere("This page has no models", unknown.length ? `The page does not support ${unknown.map(({ task }) => task).join(", ")}.` : "The site was built without models.");
  }
  listen();
  find("model").replaceChildren(...site.models.map(({ title }, index) => make("option", { value: String(index) }, title)));
  find("model-field").hidden = site.models.length === 1;
  find("notes").replaceChildren(...browser.notes().map((note) => make("li", {}, note)));
  find("starting").hidden = true;
  find("form").hidden = false;
  await openLink();
  if (await enableOffline()) await runFirst();
}

/** Shows the question in the address, or the first example of the first model. */
async function openLink() {
  const link = readLink();
  const modelIndex = site.models.findIndex(({ name }) => name === link?.model);
  find("model").value = String(Math.max(0, modelIndex));
  await showModel(site.models[Math.max(0, modelIndex)]);
  if (!link) return;
  if (modelIndex < 0) return showError("", `The link is for a model that this page does not have: ${link.model}.`);
  const engineIndex = model.engines.findIndex((each) => choices.variant(each) === link.engine);
  if (engineIndex >= 0 && model.engines.length > 1) {
    find("engine-options").querySelector(`input[value="${engineIndex}"]`).checked = true;
    await chooseEngine(model.engines[engineIndex]);
  }
  questions.fill(model, link);
  if (questions.generates(model.task)) settings.fill(link);
}

/** Answers the question that the page opened with, unless this needs a download that the user may not want. */
async function runFirst() {
  if (touched || busy || !find("failure").hidden) return;
  const stored = await offline.available(chosen, site.runtimes[chosen.engine]);
  const { bytes } = await comparison();
  const cheap = !browser.metered() && bytes <= SMALL;
  if (!touched && (stored || cheap)) await ask({ automatic: true });
}

async function readSite() {
  const response = await fetch("site.json").catch(() => null);
  if (!response?.ok) throw new Error(`site.json could not be read${response ? `: the server answered ${response.status}` : ""}.`);
  const content = await response.json().catch(() => null);
  if (!Array.isArray(content?.models)) throw new Error("site.json is not a list that kerasformer web wrote.");
  return content;
}

/** Shows why the page cannot work, and nothing else. */
function stopHere(title, text) {
  find("starting").hidden = true;
  find("form").hidden = true;
  find("problem-title").textContent = title;
  find("problem-text").textContent = text;
  find("problem").hidden = false;
}

function listen() {
  find("form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (!showsStop) ask();
    else if (performance.now() - stopShownAt > 400) stop(); // ignores the second click of a double click
  });
  find("form").addEventListener("input", () => {
    touched = true;
    questions.markExample(model);
    showWhetherCurrent();
  });
  find("model").addEventListener("change", (event) => showModel(site.models[Number(event.target.value)]));
  find("engine-options").addEventListener("change", async ({ target: { value } }) => {
    const one = value === "" ? null : model.engines[Number(value)];
    choice = { ...choice, manual: one && choices.variant(one) };
    choices.write(site, model, choice);
    await chooseEngine(one);
  });
  find("measure").addEventListener("click", () => perform(async () => {
    engine.end();
    loaded = info = null;
    await load(true);
  }));
  find("load").addEventListener("click", () => perform(() => load()));
  find("forget").addEventListener("click", async () => {
    await offline.forget(chosen);
    await showState();
  });
  find("retry").addEventListener("click", () => ask());
  find("halt").addEventListener("click", stop);
  find("copy").addEventListener("click", async () => {
    showStatus(await copyText(plainText(find("result"))) ? "Copied." : "This browser does not allow copying. Select the text and copy it.");
  });
  find("again").addEventListener("click", () => ask({ question: last }));
  find("fresh").addEventListener("click", () => {
    conversation.reset();
    clearAnswer();
    find("field-text").focus();
  });
  find("share").addEventListener("click", async () => {
    const link = linkTo(last.link);
    history.replaceState(null, "", link);
    showStatus(await copyText(link) ? "Link copied." : "The link is in the address bar.");
  });
  addEventListener("hashchange", async () => {
    if (!readLink()) return;
    touched = false;
    await openLink();
    await runFirst();
  });
  find("reload").addEventListener("click", offline.update);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask();
    else if (event.key === "Escape" && busy) stop();
    else return;
    event.preventDefault();
  });
}

/**
 * Starts the service worker. A page without the headers that threads need is reloaded once, so that the worker can add them.
 * @returns {Promise<boolean>} Whether the page was not reloaded.
 */
async function enableOffline() {
  try {
    await offline.start({
      onUpdate: () => { find("update").hidden = false; },
      onStored: showState,
      onFailed: (path, reason) => {
        offlineProblem = `${path.split("/").pop()} is not available offline: ${reason}.`;
        showState();
      },
    });
  } catch (error) {
    offlineProblem = `Offline use is not possible: ${error.message}`;
    await showState();
    return true;
  }
  const once = "kerasformer-isolated";
  if (!(await offline.ready(10_000)) || globalThis.crossOriginIsolated || touched || busy || sessionStorage.getItem(once)) return true;
  sessionStorage.setItem(once, "tried");
  location.reload();
  return false;
}

/** Shows a model, after the current task. */
function showModel(one) {
  return switchTo(() => prepareModel(one));
}

async function prepareModel(one) {
  model = one;
  conversation.reset();
  find("fresh").hidden = true;
  clearErrors();
  find("task").textContent = questions.purpose(model);
  questions.show(model, () => ask());
  sample = sampleOf(model);
  find("settings").hidden = !questions.generates(model.task);
  if (questions.generates(model.task)) settings.show(model.generation, mostTokens(model));
  find("engine-card").hidden = model.engines.length < 2 && !model.engines[0].gpu;
  choice = choices.read(site, model);
  const manual = model.engines.findIndex((each) => choices.variant(each) === choice.manual);
  find("engine-options").replaceChildren(...options("engine", [
    { value: "", label: "Automatic", detail: "fastest with right answers" },
    ...model.engines.map((each, index) => ({ value: String(index), label: ENGINES[each.engine], detail: `${recipe(each)} · ${megabytes(each.bytes)}` })),
  ], manual < 0 ? "" : String(manual)));
  clearAnswer();
  showAsChat(chats());
  offerStop(false);
  await selectEngine(model.engines[manual] ?? null);
}

/** The most new tokens that the cache of each engine holds, after one of the prompt or the start token; `null` if unknown. */
function mostTokens({ engines }) {
  const capacities = engines.map(({ capacity }) => capacity).filter(Boolean);
  return capacities.length ? Math.min(...capacities) - 1 : null;
}

/** Selects an engine; with `null`, the page chooses one when it is needed. */
function chooseEngine(one) {
  return switchTo(() => selectEngine(one));
}

async function selectEngine(one) {
  selected = one;
  chosen = one ?? model.engines.find((each) => choices.variant(each) === choice.best) ?? (await comparison()).tried[0];
  await showState();
}

/** The first example, which the fields contain after `questions.show`; `null` if the task has none. */
function sampleOf(one) {
  try {
    return questions.readFields(one);
  } catch {
    return null;
  }
}

/**
 * The engines that the page would compare before the first use of the model, and the bytes that it would download.
 * @param {boolean} [all] Whether the user asked for all of them.
 */
async function comparison(all = false) {
  const sizes = await Promise.all(model.engines.map(async (one) => ({
    engine: one, bytes: await offline.missing(one, site.runtimes[one.engine], runtimeBytes(one)),
  })));
  const planned = choices.plan(sizes, { metered: browser.metered(), all });
  const bytes = sizes.reduce((sum, each) => sum + (planned.tried.includes(each.engine) ? each.bytes : 0), 0);
  const known = planned.tried.every((one) => !["untried", undefined].includes(choice.rows[choices.variant(one)]?.status));
  return { ...planned, bytes, decided: known && choice.best !== null };
}

/** Ends the current task, closes the engine, and runs `change`. What the user requests meanwhile runs after it. */
async function switchTo(change) {
  turn += 1;
  endEngines();
  offerStop(false);
  const previous = pending;
  const switched = (async () => {
    await previous;
    loaded = info = null;
    offlineProblem = "";
    await change();
  })();
  pending = switched.catch(() => {}); // a change that fails must not end later tasks
  await switched;
}

/** Ends the engine, and those that are being compared. */
function endEngines() {
  engine.end();
  for (const each of trials) each.end();
  trials.clear();
}

/** Shows whether the model is loaded, the size of its download, and whether it works offline. */
async function showState() {
  const shown = chosen;
  const stored = await offline.available(shown, site.runtimes[shown.engine]);
  const { tried, bytes, decided } = await comparison();
  if (shown !== chosen || (busy === "load" && loaded !== chosen)) return;
  const ready = loaded === chosen;
  const several = !selected && !decided && tried.length > 1;
  const size = several ? `${megabytes(bytes)} for ${tried.length} engines, which are compared once`
    : `${megabytes(chosen.bytes)}, plus ${megabytes(runtimeBytes(chosen))} for the engine`;
  const parts = [
    ready ? `Ready: ${describe(chosen)}` : stored ? "Stored on this device" : `Not loaded: ${size}`,
    ready && rowOf(chosen)?.status === "differs" ? "its answers are not those of the original model" : "",
    stored ? "works offline" : "",
    ready && !stored ? offlineProblem : "",
  ];
  find("state").textContent = parts.filter(Boolean).join(" · ");
  find("state").classList.toggle("ready", ready);
  find("load").hidden = ready || Boolean(busy);
  find("forget").hidden = !stored;
  find("facts").replaceChildren(...terms(facts(stored)));
  find("card").href = chosen.card ?? "";
  find("card-line").hidden = !chosen.card;
  choices.show(model, choice, selected, (one) => `${ENGINES[one.engine]} ${recipe(one)}`);
}

/** What is known about an engine in this browser. */
function rowOf(one) {
  return choice.rows[choices.variant(one)];
}

/** @param {boolean} stored Whether the model is stored on this device. @returns {[string, string][]} Facts about the model. */
function facts(stored) {
  const { fidelity } = chosen;
  const rows = [
    ["Name", model.name === model.title ? "" : model.name],
    ["Task", questions.title(model.task)],
    ["Architecture", model.architecture],
    ["Licence", model.license],
    ["Engine", ENGINES[chosen.engine] + (info ? `, ${place(info)}` : "")],
    ["Weights", recipe(chosen)],
    ["Size", `${megabytes(chosen.bytes)}, plus ${megabytes(runtimeBytes(chosen))} for the engine`],
    ["Longest text", chosen.capacity && !chosen.max_length ? `${chosen.capacity} tokens, including generated ones` : `${chosen.max_length ?? chosen.capacity} tokens${questions.inParts(model.task) ? "; longer texts are read in parts" : ""}`],
    ["Compared with the original model", sameAnswers(fidelity)],
    ["Compared in this browser", rowOf(chosen) ? choices.inWords(rowOf(chosen)) : ""],
    ["Ignored settings", Object.keys(info?.ignored ?? {}).join(", ")],
    ["Examples", model.examples.credit ?? ""],
    ["Offline use", stored ? "yes" : offlineProblem || "after the model was loaded once"],
  ];
  return rows.filter(([term, value]) => value && (term !== "Longest text" || chosen.capacity || chosen.max_length));
}

/**
 * The share of answers that equal those of the original model, and the number of near ties if it was measured. For a model that
 * generates, these are next tokens of given texts; freely generated texts differ more, because they diverge after a difference.
 */
function sameAnswers(fidelity) {
  if (!fidelity.answers) return "not compared";
  const ties = fidelity.near_ties ? `; ${fidelity.near_ties} are near ties` : "";
  const { generated } = fidelity;
  const [answers, free] = typeof generated === "number" ? ["next tokens of given texts", `, ${percent(generated)} of freely generated tokens`] : ["answers", ""];
  return `${percent(fidelity.agreement)} of ${fidelity.answers} ${answers} are the same${free}${ties}`;
}

/** `LiteRT.js, int8, 4.4 MB`. */
function describe(one) {
  return `${ENGINES[one.engine]}, ${recipe(one)}, ${megabytes(one.bytes)}`;
}

function recipe({ recipe: name, profile }) {
  return ({ none: "float32", fp16: "float16" }[name] ?? name) + (profile === "portable" ? " portable" : "");
}

/** Bytes of an engine with its largest build; a browser downloads one of several builds. */
function runtimeBytes({ engine: name }) {
  const files = site.runtimes[name];
  const wasm = files.filter(({ path }) => path.endsWith(".wasm")).map(({ bytes }) => bytes);
  const code = files.filter(({ path }) => path.endsWith("index.js") || path.endsWith(".mjs")).reduce((sum, { bytes }) => sum + bytes, 0);
  return Math.max(...wasm) + code;
}

/**
 * Opens the engine to use, unless it is open. Before the first use of a model, the page compares its engines.
 * @param {boolean} [again] Whether to compare all engines, also those that were compared before.
 */
async function load(again = false) {
  if (loaded === chosen && !again) return;
  setBusy("load");
  await offline.ready(3000);
  if (again || (!selected && !(await comparison()).decided)) await compareEngines(again);
  else {
    info = await open(engine, chosen);
    loaded = chosen;
    if (!rowOf(loaded)?.verdict) await checkSelected();
  }
  await offline.complete(loaded);
  await showState();
}

/** Where an open engine runs. */
function place({ accelerator, threads }) {
  return accelerator === "webgpu" ? "on the GPU" : `${threads} ${threads === 1 ? "thread" : "threads"}`;
}

/** Opens a bundle in an engine; returns the library's description of it. */
async function open(into, one, stage = "", { threads = browser.threads(), accelerator = "cpu" } = rowOf(one) ?? {}) {
  const request = { base: new URL(one.base, location.href).href, task: model.task, engine: one.engine, threads, accelerator };
  return (await into.load(request, progressOf(one, stage && `${stage}: `))).info;
}

/** Compares engines and opens the best one. */
async function compareEngines(all) {
  const { tried, untried } = await comparison(all);
  const how = {
    open, sample, generates: questions.generates(model.task), engines: trials,
    onStage: (text) => {
      find("progress").removeAttribute("value");
      find("state").textContent = text;
    },
  };
  let rows = {};
  let result = null;
  while (!result?.best && (tried.length || untried.length)) {
    const group = tried.length ? tried.splice(0) : untried.splice(0, 1).map((each) => each.engine);
    result = await choices.compare(group, how).finally(() => { // the best engine is no longer one of these
      for (const each of trials) each.end();
      trials.clear();
    });
    rows = { ...rows, ...result.rows };
  }
  for (const each of untried) rows[choices.variant(each.engine)] = { status: "untried", bytes: each.bytes };
  choice = { rows, best: result.best && choices.variant(result.best), manual: null };
  const lasting = Object.entries(rows).filter(([, row]) => row.status !== "failed" || row.lasting);
  choices.write(site, model, { ...choice, rows: Object.fromEntries(lasting) });
  if (!result.best) throw result.error ?? new WrongAnswersError(Object.values(rows).map(choices.inWords).join("; "));
  engine.end();
  ({ engine, info } = result);
  selected = null;
  chosen = loaded = result.best;
  find("engine-options").querySelector("input").checked = true;
}

/** Checks an engine that was not compared with others because the user selected it. */
async function checkSelected() {
  const { seconds, rate, ...old } = rowOf(loaded) ?? {};
  choice = { ...choice, rows: { ...choice.rows, [choices.variant(loaded)]: { ...old, ...await choices.check(engine, loaded) } } };
  choices.write(site, model, choice);
}

/** Returns a function that shows the progress of a load: the bytes of all files, then an indeterminate bar while the engine starts. */
function progressOf(opening, before) {
  const received = new Map();
  return ({ stage, file, loaded: bytes }) => {
    received.set(file, bytes);
    const sum = Math.min(opening.bytes, [...received.values()].reduce((total, value) => total + value, 0));
    const downloading = stage === "download";
    if (downloading) find("progress").value = sum / opening.bytes;
    else find("progress").removeAttribute("value");
    const words = downloading ? `loading ${megabytes(sum)} of ${megabytes(opening.bytes)}, ${percent(sum / opening.bytes)}` : "preparing the model";
    find("state").textContent = before ? before + words : words[0].toUpperCase() + words.slice(1);
  };
}

/**
 * Answers a question, and loads the model first if necessary. A running generation ends; the visible answer stays until the next
 * one arrives.
 * @param {{question?: any, automatic?: boolean}} [how] The question, by default the one in the fields; `automatic` if the page
 *     starts it without the user: the page then neither scrolls nor announces the answer to screen readers.
 */
function ask({ question, automatic = false } = {}) {
  return perform(async (isAbandoned) => {
    clearErrors();
    const query = question ?? fromFields();
    const takeBack = chats() ? send(query) : () => {};
    try {
      await load();
      if (isAbandoned()) return takeBack();
      setBusy("run");
      if (!automatic && !chats()) showFrom("answer");
      await (questions.generates(model.task) ? generate(query, automatic) : answerAtOnce(query, automatic));
    } catch (error) {
      takeBack();
      throw error;
    }
  }, automatic);
}

/** Ends the current task and then runs `task`, unless another one was requested meanwhile. Until then, the Run button is Stop. */
async function perform(task, automatic = false) {
  const mine = ++turn;
  if (busy === "run") engine.cancel();
  if (!automatic) {
    touched = true;
    offerStop(true);
  }
  await pending;
  if (mine !== turn) return;
  pending = attempt(() => task(() => mine !== turn), automatic);
  await pending;
  if (mine === turn) offerStop(false);
}

/** The contents of the fields and the settings. */
function fromFields() {
  const query = questions.readFields(model);
  return { ...query, settings: questions.generates(model.task) ? settings.settings() : {} };
}

async function answerAtOnce(query, automatic) {
  const { result, figures } = await engine.run(query.inputs, query.options, null);
  const second = query.more === null ? null : await engine.run(query.more, query.options, null);
  if (second) figures.chunks = Math.max(figures.chunks, second.figures.chunks);
  showAnswer(answer(model, result, { ...query, other: second?.result ?? null, labels: info.labels }), figures, query, {});
  if (!automatic) find("spoken").textContent = `Answer: ${plainText(find("result")).replaceAll("\n", ", ")}`;
}

/** Whether the model answers messages. */
function chats() {
  return model?.task === "conversation";
}

/** Moves a message from its field to the conversation. @returns {() => void} Moves it back, unless another one was typed. */
function send(query) {
  const field = find("field-text");
  if (field.value === query.shown) field.value = "";
  find("result").replaceChildren(...conversation.turns(query.inputs));
  showLastTurn();
  return () => {
    field.value ||= query.shown;
    find("result").replaceChildren(...(last ? conversation.turns(conversation.kept()) : [placeholder()]));
  };
}

/** Shows the end of a long conversation, which scrolls. */
function showLastTurn() {
  if (chats()) find("result").scrollTop = find("result").scrollHeight;
}

/** Shows a text while it is generated. Screen readers get whole sentences, since single tokens are hard to follow. */
async function generate(query, automatic) {
  const used = { ...query.settings };
  if (used.do_sample) used.seed ??= settings.freshSeed();
  const draft = textElement(model.task === "text-generation" ? query.shown : "", "");
  const shown = chats() ? [...conversation.turns(query.inputs), conversation.turn("assistant", draft)] : [draft];
  const text = draft.querySelector(".new");
  text.classList.add("writing");
  let unspoken = "";
  const { result, figures } = await engine.run(query.inputs, { ...query.options, ...used }, (piece) => {
    if (!draft.isConnected) replaceAnswer(query, ...shown);
    text.append(piece);
    showLastTurn();
    unspoken += piece;
    const end = unspoken.search(/[.!?…]\s/) + 1;
    if (end) {
      if (!automatic) find("spoken").textContent = unspoken.slice(0, end);
      unspoken = unspoken.slice(end);
    }
  });
  showAnswer(answer(model, result, query), figures, query, used);
  if (chats()) {
    conversation.keep(result[0].generated_text);
    find("fresh").hidden = false;
    showLastTurn();
  }
  if (!automatic) find("spoken").textContent = unspoken;
}

/** Shows an answer with its figures; `used` are the settings of the generation, including a seed chosen at random. */
function showAnswer(elements, figures, query, used) {
  const notes = [ENDS[figures.finish_reason], figures.chunks > 1 && readInParts(figures)].filter(Boolean);
  replaceAnswer(query, ...elements, ...notes.map((note) => make("p", { className: "muted small" }, note)));
  const rows = terms(inWords(figures, used));
  find("main-figures").replaceChildren(...rows.slice(0, 2));
  find("more-figures").replaceChildren(...rows.slice(2));
  find("figures").hidden = false;
  last = { ...query, link: { model: model.name, engine: choices.variant(chosen), ...query.texts, ...inLink(used) } };
  find("keep").hidden = false;
  find("again").hidden = !used.do_sample || query.settings.seed !== undefined; // with a fixed seed, the text would be the same
}

/** Replaces the last answer, and shows the question unless it is part of the answer. */
function replaceAnswer(query, ...elements) {
  clearAnswer();
  find("question").textContent = query.texts.question ?? [query.shown, query.more].filter(Boolean).join(" / ");
  find("question").hidden = ["text-generation", "conversation", "token-classification", "zero-shot-token-classification", "fill-mask"].includes(model.task);
  find("answer").classList.remove("stale");
  find("result").replaceChildren(...elements);
}

/** Settings for a link, including a seed chosen at random. */
function inLink(used) {
  return questions.generates(model.task) ? settings.inLink(used) : {};
}

/** Shows the result of copying. */
function showStatus(text) {
  find("copy-status").textContent = text;
}

/** How a text was read that is longer than the model, or than the parts in which the model finds answers. */
function readInParts({ chunks, texts = 1 }) {
  if (texts > 1) return `Some texts are longer than the model reads at once. They were read in overlapping parts, the longest in ${chunks}.`;
  return `The text is longer than the model reads at once. It was read in ${chunks} overlapping parts.`;
}

/** Why a text ended, unless the model ended it. */
const ENDS = {
  stop: "Stopped at the stop text.",
  length: "Stopped at the maximum number of new tokens.",
  capacity: "Stopped because the model cannot hold more tokens.",
  time: "Stopped at the time limit.",
  cancelled: "Stopped by you.",
};

/** The figures of a run, as terms and values; the page shows the first two, and the others on demand. */
function inWords(figures, { seed }) {
  const time = ["Time", seconds(figures.seconds)];
  const input = ["Input", `${figures.prompt_tokens} tokens`];
  const memory = figures.memory_bytes ? [["Memory", megabytes(figures.memory_bytes)]] : [];
  if (figures.tokens === undefined) return [time, ...memory, input];
  return [
    ["Speed", figures.tokens_per_second ? `${figures.tokens_per_second.toFixed(1)} tokens/s` : "–"],
    time,
    ["First token after", seconds(figures.first_token_seconds ?? 0)],
    ["Output", `${figures.tokens} ${figures.tokens === 1 ? "token" : "tokens"}`],
    input,
    ...memory,
    ...(seed === undefined ? [] : [["Seed", String(seed)]]),
  ];
}

/**
 * Places the answers above the field for the next message, as in a chat, or beside or below the fields. They are moved in the
 * document, so that the order of the keyboard and of screen readers is that on the screen.
 * @param {boolean} chat
 */
function showAsChat(chat) {
  find("form").classList.toggle("chat", chat);
  find("answer-title").textContent = chat ? model.title : "Answer";
  find("model-title").textContent = model.title;
  find("model-title").hidden = chat || site.models.length > 1;
  find("ask")[chat ? "before" : "after"](find("answer"));
  find(chat ? "fields" : "settings").after(find("send"));
}

/** Dims an answer that does not belong to the fields and settings, and says so. */
function showWhetherCurrent() {
  if (busy === "run") return;
  const earlier = last !== null && !belongsToFields(last);
  find("answer").classList.toggle("stale", earlier);
  find("activity").textContent = earlier ? "For an earlier input" : "";
}

/** Whether the fields and settings contain a question. A conversation belongs to all of its messages. */
function belongsToFields({ texts, settings: used }) {
  if (chats()) return true;
  try {
    const now = fromFields();
    return JSON.stringify([now.texts, now.settings]) === JSON.stringify([texts, used]);
  } catch {
    return false; // a field is empty or invalid
  }
}

/** Scrolls to an element unless its start is visible: on a phone, the answer is below the screen. */
function showFrom(id) {
  const { top } = find(id).getBoundingClientRect();
  if (top < 0 || top > innerHeight / 2) find(id).scrollIntoView({ block: "start" });
}

function placeholder() {
  return make("p", { className: "muted" }, chats() ? "Send a message." : "The answer appears here.");
}

function clearAnswer() {
  last = null;
  find("result").replaceChildren(placeholder());
  for (const id of ["question", "keep", "figures"]) find(id).hidden = true;
  find("answer").classList.remove("stale");
  find("spoken").textContent = "";
  showStatus("");
}

/** Ends a generation, whose text so far remains, or a load. */
function stop() {
  const mine = ++turn;
  pending.then(() => mine === turn && offerStop(false));
  if (busy === "load") {
    endEngines();
    loaded = null;
  } else engine.cancel();
}

/** Runs a task, and shows its error if it fails. */
async function attempt(task, automatic = false) {
  try {
    await task();
  } catch (error) {
    await showFailure(error, automatic);
  } finally {
    setBusy(null);
    showState(); // reads the browser's storage; there is no need to wait for it
  }
}

/** Shows an error beside the field where it can be corrected; the last answer remains visible. */
async function showFailure(error, automatic) {
  if (error.name === "AbortError") return;
  const { field, text, detail, fatal } = explain(error, questions.limitedField(model));
  if (fatal) {
    engine.end();
    loaded = info = null;
  }
  if (error.name === "BundleError") for (const one of model.engines) await offline.repair(one);
  showError(field, text, detail);
  find("retry").hidden = !fatal;
  if (automatic) return;
  if (field) find(field).focus();
  else showFrom("failure");
}

/** Shows an error beside its field, or beside the model if `field` is "". */
function showError(field, text, detail) {
  if (field.startsWith("set")) find("settings").open = true;
  questions.showError(field || "model", text, detail);
  if (!field) find("failure").hidden = false;
}

function clearErrors() {
  find("failure").hidden = true;
  for (const error of document.querySelectorAll("[id^=error-]")) questions.clearError(error.id.slice("error-".length));
}

/** Makes the Run button Stop, or Run again. */
function offerStop(offered) {
  if (offered && !showsStop) stopShownAt = performance.now();
  showsStop = offered;
  find("run").textContent = showsStop ? "Stop" : chats() ? "Send" : "Run";
  find("run").classList.toggle("stops", showsStop);
}

/** @param {"load" | "run" | null} activity */
function setBusy(activity) {
  busy = activity;
  if (activity === "run") {
    find("activity").textContent = "Working…";
    find("answer").classList.add("stale"); // until the next answer begins
  } else showWhetherCurrent();
  find("halt").hidden = activity !== "run";
  find("result").setAttribute("aria-busy", String(activity === "run"));
  document.querySelector(".writing")?.classList.remove("writing");
  find("load").hidden = Boolean(activity) || loaded === chosen;
  find("progress").hidden = activity !== "load";
  if (activity === "load") find("progress").value = 0;
}

start();
