// The page: which model and engine, what is asked, and what is under way. Each part of it is a module of its own.

import { answer, plain, writing } from "./answers.js";
import * as browser from "./browser.js";
import { find, make, megabytes, options, percent, seconds, terms } from "./elements.js";
import { Engine } from "./engine.js";
import { explained } from "./failures.js";
import * as offline from "./offline.js";
import * as questions from "./questions.js";
import * as settings from "./settings.js";
import { copied, linkTo, linked } from "./share.js";

const ENGINES = { litert: "LiteRT.js", onnx: "ONNX Runtime" };
const SMALL = 32e6; // bytes that may be loaded unasked, where it costs nothing

const engine = new Engine();
let site = null;
let model = null; // of site.json
let chosen = null; // one of model.engines
let loaded = null; // the one that the engine has open
let info = null; // what the library knows of it
let busy = null; // "load" or "run"
let underWay = Promise.resolve(); // ends with the last question
let turn = 0; // of what was wanted last; all before it is given up
let stops = false; // Run is Stop
let began = 0; // when it became that
let last = null; // the question that the answer on the page is of
let lost = ""; // why a file could not be kept for offline use
let touched = false; // the user has done something here

async function start() {
  if (location.protocol === "file:") return; // start.js has said it
  const problem = browser.problem();
  if (problem) return stopHere(problem.title, problem.text);
  try {
    site = await readSite();
  } catch (error) {
    return stopHere("The list of models is missing", `${error.message} Copy the whole folder that kerasformer web wrote to the server, or reload the page.`);
  }
  const unknown = site.models.filter(({ task }) => !questions.known(task));
  site.models = site.models.filter(({ task }) => questions.known(task));
  if (!site.models.length) {
    return stopHere("There is no model here", unknown.length ? `The page has no view for ${unknown.map(({ task }) => task).join(", ")}.` : "The site was written without one.");
  }
  listen();
  find("model").replaceChildren(...site.models.map(({ title }, place) => make("option", { value: String(place) }, title)));
  find("model-field").hidden = site.models.length === 1;
  find("notes").replaceChildren(...browser.notes().map((note) => make("li", {}, note)));
  find("starting").hidden = true;
  find("form").hidden = false;
  await openLink();
  if (await keepOffline()) await runFirst();
}

/** Shows the question of the address, or the first example of the first model. */
async function openLink() {
  const link = linked();
  const wanted = site.models.findIndex(({ name }) => name === link?.model);
  find("model").value = String(Math.max(0, wanted));
  await showModel(site.models[Math.max(0, wanted)]);
  if (!link) return;
  if (wanted < 0) return complain("", `The link asks for a model that this page does not have: ${link.model}.`);
  const place = model.engines.findIndex(({ base }) => variant(base) === link.engine);
  if (place > 0) {
    find("engine-options").querySelectorAll("input")[place].checked = true;
    await chooseEngine(model.engines[place]);
  }
  questions.fill(model, link);
  if (questions.writes(model.task)) settings.fill(link);
}

/** Answers what the page opened with, unless that would cost someone a download that they may not want. */
async function runFirst() {
  if (touched || busy || !find("failure").hidden) return;
  const kept = await offline.available(chosen, site.runtimes[chosen.engine]);
  const free = !browser.metered() && chosen.bytes + runtimeBytes(chosen) <= SMALL;
  if (!touched && (kept || free)) await ask({ unasked: true });
}

async function readSite() {
  const response = await fetch("site.json").catch(() => null);
  if (!response?.ok) throw new Error(`site.json could not be read${response ? `: the server answered ${response.status}` : ""}.`);
  const content = await response.json().catch(() => null);
  if (!Array.isArray(content?.models)) throw new Error("site.json is not as kerasformer web writes it.");
  return content;
}

/** The page cannot work: says why, and shows nothing else. */
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
    if (!stops) ask();
    else if (performance.now() - began > 400) stop(); // a double click is none
  });
  find("form").addEventListener("input", () => { touched = true; });
  find("model").addEventListener("change", (event) => showModel(site.models[Number(event.target.value)]));
  find("engine-options").addEventListener("change", (event) => chooseEngine(model.engines[Number(event.target.value)]));
  find("load").addEventListener("click", () => perform(load));
  find("forget").addEventListener("click", async () => {
    await offline.forget(chosen);
    await showState();
  });
  find("retry").addEventListener("click", () => ask());
  find("copy").addEventListener("click", async () => {
    tell(await copied(plain(find("result"))) ? "Copied." : "This browser lets no page copy. Select the text.");
  });
  find("again").addEventListener("click", () => ask({ question: last }));
  find("share").addEventListener("click", async () => {
    const link = linkTo(last.link);
    history.replaceState(null, "", link);
    tell(await copied(link) ? "Link copied." : "The link is in the address bar.");
  });
  addEventListener("hashchange", async () => {
    if (!linked()) return;
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
 * Starts the service worker. Pages without the headers that threads need are loaded once more, when it can add them.
 * @returns {Promise<boolean>} Whether this page stays.
 */
async function keepOffline() {
  try {
    await offline.start({
      onUpdate: () => { find("update").hidden = false; },
      onKept: showState,
      onLost: (path, reason) => {
        lost = `${path.split("/").pop()} is not kept for offline use: ${reason}.`;
        showState();
      },
    });
  } catch (error) {
    lost = `Nothing is kept for offline use: ${error.message}`;
    await showState();
    return true;
  }
  const once = "kerasformer-isolated";
  if (!(await offline.ready(10_000)) || globalThis.crossOriginIsolated || touched || busy || sessionStorage.getItem(once)) return true;
  sessionStorage.setItem(once, "tried");
  location.reload();
  return false;
}

async function showModel(one) {
  await leave();
  model = one;
  mendAll();
  find("task").textContent = questions.says(model.task);
  questions.show(model, () => ask());
  find("settings").hidden = !questions.writes(model.task);
  if (questions.writes(model.task)) settings.show(model.generation);
  find("engine-card").hidden = model.engines.length < 2;
  find("engine-options").replaceChildren(...options("engine", model.engines.map((each, place) => ({
    value: String(place), label: ENGINES[each.engine], detail: `${recipe(each)} · ${megabytes(each.bytes)}`,
  })), "0"));
  clearAnswer();
  await chooseEngine(model.engines[0]);
}

async function chooseEngine(one) {
  await leave();
  chosen = one;
  await showState();
}

/** Ends what is under way, and closes the engine: it is another model's. */
async function leave() {
  turn += 1;
  engine.end();
  await underWay;
  offerStop(false);
  loaded = info = null;
  lost = "";
}

/** What the model's card says: whether it is loaded, what a load would cost, whether it works offline. */
async function showState() {
  const wanted = chosen;
  const kept = await offline.available(wanted, site.runtimes[wanted.engine]);
  if (wanted !== chosen || (busy === "load" && loaded !== chosen)) return;
  const ready = loaded === chosen;
  const size = `${megabytes(chosen.bytes)} and ${megabytes(runtimeBytes(chosen))} for its engine`;
  const words = [
    ready ? `Ready: ${describe(chosen)}` : kept ? "On this device" : `Not loaded: ${size}`,
    kept ? "works offline" : "",
    ready && !kept && lost ? lost : "",
  ];
  find("state").textContent = words.filter(Boolean).join(" · ");
  find("state").classList.toggle("ready", ready);
  find("load").hidden = ready || Boolean(busy);
  find("forget").hidden = !kept;
  find("facts").replaceChildren(...terms(facts(kept)));
}

function facts(kept) {
  const { fidelity } = chosen;
  const found = [
    ["Task", model.task],
    ["Architecture", info ? `${info.name} (${model.model_type})` : model.model_type],
    ["Engine", ENGINES[chosen.engine] + (info ? `, ${info.threads} ${info.threads === 1 ? "thread" : "threads"}` : "")],
    ["Weights", recipe(chosen)],
    ["Size", `${megabytes(chosen.bytes)}; the engine has ${megabytes(runtimeBytes(chosen))}`],
    ["Reads", chosen.capacity && !chosen.max_length ? `up to ${chosen.capacity} tokens, with those that it writes` : `up to ${chosen.max_length ?? chosen.capacity} tokens`],
    ["Against the original model", sameAnswers(fidelity)],
    ["Settings not followed here", Object.keys(info?.ignored ?? {}).join(", ")],
    ["Examples", model.examples.credit ?? ""],
    ["Without a network", kept ? "works" : lost || "works after it was loaded once"],
  ];
  return found.filter(([term, said]) => said && (term !== "Reads" || chosen.capacity || chosen.max_length));
}

/** How many answers are those of the original model, and how many are near ties where that was measured. */
function sameAnswers(fidelity) {
  if (!fidelity.answers) return "not compared";
  const ties = fidelity.near_ties ? `, ${fidelity.near_ties} are near ties` : "";
  return `${percent(fidelity.agreement)} of ${fidelity.answers} answers are the same${ties}`;
}

/** `LiteRT.js, int8, 4.4 MB`. */
function describe(one) {
  return `${ENGINES[one.engine]}, ${recipe(one)}, ${megabytes(one.bytes)}`;
}

/** The last folder of a bundle's address, which tells the engines of a model apart. */
function variant(base) {
  return base.split("/").at(-2);
}

function recipe({ recipe: name }) {
  return { none: "float32", fp16: "float16" }[name] ?? name;
}

/** Of the largest build: a browser takes one of several. */
function runtimeBytes({ engine: name }) {
  const files = site.runtimes[name];
  const wasm = files.filter(({ path }) => path.endsWith(".wasm")).map(({ bytes }) => bytes);
  const code = files.filter(({ path }) => path.endsWith("index.js") || path.endsWith(".mjs")).reduce((sum, { bytes }) => sum + bytes, 0);
  return Math.max(...wasm) + code;
}

/** Opens the chosen bundle, unless it is open. */
async function load() {
  if (loaded === chosen) return;
  const wanted = chosen;
  setBusy("load");
  await offline.ready(3000);
  const place = { base: new URL(wanted.base, location.href).href, engine: wanted.engine, threads: browser.threads() };
  info = (await engine.load(place, progressOf(wanted))).info;
  loaded = wanted;
  await offline.complete(wanted);
  await showState();
}

/** Shows how far a load is: the bytes of all its files, then an uncertain bar while the engine prepares them. */
function progressOf(wanted) {
  const got = new Map();
  return ({ stage, file, loaded: bytes }) => {
    got.set(file, bytes);
    const sum = Math.min(wanted.bytes, [...got.values()].reduce((total, value) => total + value, 0));
    const downloading = stage === "download";
    if (downloading) find("progress").value = sum / wanted.bytes;
    else find("progress").removeAttribute("value");
    find("state").textContent = downloading ? `Loading ${megabytes(sum)} of ${megabytes(wanted.bytes)}` : "Preparing the model";
  };
}

/**
 * Answers a question, and loads the model first where that is still to be done. An answer that is being written ends; the one that
 * is there stays until the next one comes.
 * @param {{question?: any, unasked?: boolean}} [how] The question, that of the fields by default; `unasked` for what the page does by
 *     itself, which moves nothing and is not read out.
 */
function ask({ question, unasked = false } = {}) {
  return perform(async (isGivenUp) => {
    mendAll();
    const asked = question ?? fromFields();
    await load();
    if (isGivenUp()) return;
    setBusy("run");
    if (!unasked) showFrom("answer");
    await (questions.writes(model.task) ? write(asked, unasked) : answerAtOnce(asked, unasked));
  }, unasked);
}

/** Does something after what is under way, which ends early, unless something else was wanted meanwhile. Run is Stop until then. */
async function perform(something, unasked = false) {
  const mine = ++turn;
  if (busy === "run") engine.cancel();
  if (!unasked) {
    touched = true;
    offerStop(true);
  }
  await underWay;
  if (mine !== turn) return;
  underWay = attempt(() => something(() => mine !== turn), unasked);
  await underWay;
  if (mine === turn) offerStop(false);
}

/** What the fields and the settings say. */
function fromFields() {
  const asked = questions.asked(model);
  return { ...asked, told: questions.writes(model.task) ? settings.settings() : {} };
}

async function answerAtOnce(asked, unasked) {
  const { result, figures } = await engine.run(asked.inputs, asked.options, null);
  const other = asked.more === null ? null : (await engine.run(asked.more, asked.options, null)).result;
  showAnswer(answer(model, result, { ...asked, other, labels: info.labels }), figures, asked, {});
  if (!unasked) find("spoken").textContent = `Answer: ${plain(find("result")).replaceAll("\n", ", ")}`;
}

/** Shows a text while it is written. Screen readers are told sentences, for single tokens are noise. */
async function write(asked, unasked) {
  const told = { ...asked.told };
  if (told.do_sample) told.seed ??= settings.freshSeed();
  const begun = writing(model.task === "text-generation" ? asked.shown : "", "");
  const text = begun.querySelector(".new");
  text.classList.add("writing");
  let unsaid = "";
  const { result, figures } = await engine.run(asked.inputs, { ...asked.options, ...told }, (piece) => {
    if (!begun.isConnected) replaceAnswer(asked, begun);
    text.append(piece);
    unsaid += piece;
    const end = unsaid.search(/[.!?…]\s/) + 1;
    if (end) {
      if (!unasked) find("spoken").textContent = unsaid.slice(0, end);
      unsaid = unsaid.slice(end);
    }
  });
  showAnswer(answer(model, result, asked), figures, asked, told);
  if (!unasked) find("spoken").textContent = unsaid;
}

function showAnswer(elements, figures, asked, told) {
  const end = ENDS[figures.finish_reason];
  replaceAnswer(asked, ...elements, ...(end ? [make("p", { className: "muted small" }, end)] : []));
  find("figures").replaceChildren(...terms(inWords(figures, told)));
  find("figures").hidden = false;
  last = { ...asked, link: { model: model.name, engine: variant(chosen.base), ...asked.texts, ...inLink(told) } };
  find("keep").hidden = false;
  find("again").hidden = !told.do_sample || asked.told.seed !== undefined; // the same again would be the same
}

/** Shows something instead of the last answer, with the question unless it is a part of the answer. */
function replaceAnswer(asked, ...elements) {
  clearAnswer();
  find("asked").textContent = asked.texts.question ?? [asked.shown, asked.more].filter(Boolean).join(" / ");
  find("asked").hidden = ["text-generation", "token-classification", "fill-mask"].includes(model.task);
  find("result").classList.remove("stale");
  find("result").replaceChildren(...elements);
}

/** Settings for a link, with what was drawn by chance. */
function inLink(told) {
  return questions.writes(model.task) ? settings.inLink(told) : {};
}

/** Says what became of an answer that was to be kept. */
function tell(what) {
  find("kept").textContent = what;
}

/** Why a text ends where it does, unless the model ended it itself. */
const ENDS = {
  stop: "Ended at the text to stop at.",
  length: "Ended at the token limit of the settings.",
  capacity: "Ended because the model can hold no more tokens.",
  time: "Ended because the time was up.",
  cancelled: "Stopped by you.",
};

/** Figures of a run. */
function inWords(figures, { seed }) {
  const rows = [["Time", seconds(figures.seconds)]];
  if (figures.tokens !== undefined) {
    rows.unshift(
      ["Tokens/s", figures.tokens_per_second ? figures.tokens_per_second.toFixed(1) : "–"],
      ["First token", seconds(figures.first_token_seconds ?? 0)],
      ["Tokens", String(figures.tokens)]);
  }
  rows.push(["Read", `${figures.prompt_tokens} tokens`]);
  if (figures.memory_bytes) rows.push(["Memory", megabytes(figures.memory_bytes)]);
  if (seed !== undefined) rows.push(["Seed", String(seed)]);
  return rows;
}

/** Scrolls to something unless it begins in sight: on a phone the answer is below the fold. */
function showFrom(id) {
  const { top } = find(id).getBoundingClientRect();
  if (top < 0 || top > innerHeight / 2) find(id).scrollIntoView({ block: "start" });
}

function clearAnswer() {
  last = null;
  find("result").replaceChildren(make("p", { className: "muted" }, "It appears here."));
  for (const id of ["asked", "keep", "figures"]) find(id).hidden = true;
  find("spoken").textContent = "";
  tell("");
}

/** Ends a generation, which keeps what it wrote, or a load. */
function stop() {
  const mine = ++turn;
  underWay.then(() => mine === turn && offerStop(false));
  if (busy === "load") {
    engine.end();
    loaded = null;
  } else engine.cancel();
}

/** Does something that may fail, and says so. */
async function attempt(something, unasked = false) {
  try {
    await something();
  } catch (error) {
    await fail(error, unasked);
  } finally {
    setBusy(null);
    showState(); // looks into the browser's storage, for which nobody has to wait
  }
}

/** Says what went wrong, where it can be mended; the last answer stays. */
async function fail(error, unasked) {
  if (error.name === "AbortError") return;
  const { field, text, detail, fatal } = explained(error, questions.mainField(model));
  if (fatal) {
    engine.end();
    loaded = info = null;
  }
  if (error.name === "BundleError") await offline.repair(chosen);
  complain(field, text, detail);
  find("retry").hidden = !fatal;
  if (unasked) return;
  if (field) find(field).focus();
  else showFrom("failure");
}

/** Shows a complaint by its field, or by the model where `field` is "". */
function complain(field, text, detail) {
  if (field.startsWith("set")) find("settings").open = true;
  questions.complain(field || "model", text, detail);
  if (!field) find("failure").hidden = false;
}

function mendAll() {
  find("failure").hidden = true;
  for (const error of document.querySelectorAll("[id^=error-]")) questions.mend(error.id.slice("error-".length));
}

/** What the page does by itself leaves the button for the user's question. */
function offerStop(offered) {
  if (offered && !stops) began = performance.now();
  stops = offered;
  find("run").textContent = stops ? "Stop" : "Run";
  find("run").classList.toggle("stops", stops);
}

function setBusy(what) {
  busy = what;
  find("doing").textContent = what === "run" ? "Working…" : "";
  find("result").classList.toggle("stale", what === "run");
  find("result").setAttribute("aria-busy", String(what === "run"));
  document.querySelector(".writing")?.classList.remove("writing");
  find("load").hidden = Boolean(what) || loaded === chosen;
  find("progress").hidden = what !== "load";
  if (what === "load") find("progress").value = 0;
}

start();
