// The page: which model and engine, what is asked, and what is under way. Each part of it is a module of its own.

import { answer, writing } from "./answers.js";
import * as browser from "./browser.js";
import { find, make, megabytes, options, percent, seconds, terms } from "./elements.js";
import { Engine } from "./engine.js";
import * as offline from "./offline.js";
import * as questions from "./questions.js";
import * as settings from "./settings.js";

const ENGINES = { litert: "LiteRT.js", onnx: "ONNX Runtime" };
const FATAL = new Set(["BundleError", "RuntimeError"]); // after these the engine is started anew

const engine = new Engine();
let site = null;
let model = null; // of site.json
let chosen = null; // one of model.engines
let loaded = null; // the one that the engine has open
let info = null; // what the library knows of it
let busy = null; // "load" or "run"
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
  await showModel(site.models[0]);
  await keepOffline();
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
    ask();
  });
  find("form").addEventListener("input", () => { touched = true; });
  find("form").addEventListener("change", () => { find("problem").hidden = true; });
  find("model").addEventListener("change", (event) => showModel(site.models[Number(event.target.value)]));
  find("engine-options").addEventListener("change", (event) => chooseEngine(model.engines[Number(event.target.value)]));
  find("load").addEventListener("click", () => (busy === "load" ? stop() : attempt(load)));
  find("stop").addEventListener("click", stop);
  find("forget").addEventListener("click", async () => {
    await offline.forget(chosen);
    await showState();
  });
  find("again").addEventListener("click", () => ask());
  find("reload").addEventListener("click", offline.update);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !busy) ask();
    else if (event.key === "Escape" && busy) stop();
    else return;
    event.preventDefault();
  });
}

/** Starts the service worker. Pages without the headers that threads need are loaded once more, when it can add them. */
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
    return showState();
  }
  const once = "kerasformer-isolated";
  if (!(await offline.ready(10_000)) || globalThis.crossOriginIsolated || touched || busy || sessionStorage.getItem(once)) return;
  sessionStorage.setItem(once, "tried");
  location.reload();
}

async function showModel(one) {
  await leave();
  model = one;
  find("task").textContent = questions.says(model.task);
  questions.show(model, () => ask());
  find("settings").hidden = !questions.writes(model.task);
  if (questions.writes(model.task)) settings.show(model.generation);
  find("engines").hidden = model.engines.length < 2;
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
  engine.end();
  loaded = info = null;
  lost = "";
}

/** What the model's card says: whether it is loaded, what a load would cost, whether it works offline. */
async function showState() {
  const wanted = chosen;
  const kept = await offline.available(wanted, site.runtimes[wanted.engine]);
  if (wanted !== chosen || busy === "load") return;
  const ready = loaded === chosen;
  const size = `${megabytes(chosen.bytes)} and ${megabytes(runtimeBytes(chosen))} for its engine`;
  const words = [
    ready ? "Ready" : kept ? "On this device" : `Not loaded: ${size}`,
    kept ? "works offline" : "",
    ready && !kept && lost ? lost : "",
  ];
  find("state").textContent = words.filter(Boolean).join(" · ");
  find("state").classList.toggle("ready", ready);
  find("load").hidden = ready;
  find("load").textContent = "Load";
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
    ["Against the original model", fidelity.answers ? `${percent(fidelity.agreement)} of ${fidelity.answers} answers are the same` : "not compared"],
    ["Settings not followed here", Object.keys(info?.ignored ?? {}).join(", ")],
    ["Without a network", kept ? "works" : lost || "works after it was loaded once"],
  ];
  return found.filter(([term, said]) => said && (term !== "Reads" || chosen.capacity || chosen.max_length));
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
  try {
    await offline.ready(3000);
    const place = { base: new URL(wanted.base, location.href).href, engine: wanted.engine, threads: browser.threads() };
    info = (await engine.load(place, progressOf(wanted))).info;
    loaded = wanted;
    await offline.complete(wanted);
  } finally {
    setBusy(null);
    await showState();
  }
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

/** Runs the question that the fields hold; loads the model first where that is still to be done. */
function ask() {
  if (busy) return;
  touched = true;
  attempt(async () => {
    const asked = questions.asked(model);
    const told = { ...asked.options, ...(questions.writes(model.task) ? settings.settings() : {}) };
    clearAnswer();
    find("problem").hidden = true;
    await load();
    setBusy("run");
    showFrom("answer");
    await (questions.writes(model.task) ? write(asked, told) : answerAtOnce(asked, told));
  });
}

async function answerAtOnce(asked, told) {
  const { result, figures } = await engine.run(asked.inputs, told, null);
  const other = asked.more === null ? null : (await engine.run(asked.more, told, null)).result;
  showAnswer(answer(model, result, { ...asked, other }), figures);
  find("spoken").textContent = `Answer: ${find("result").innerText.replaceAll(/\n+/g, ", ")}`;
}

/** Shows a text while it is written. Screen readers are told sentences, for single tokens are noise. */
async function write(asked, told) {
  const given = model.task === "text-generation" ? asked.shown : "";
  find("result").replaceChildren(...writing(given, " "));
  find("result").setAttribute("aria-busy", "true");
  const text = find("result").querySelector(".new");
  text.textContent = "";
  text.classList.add("writing");
  let unsaid = "";
  const { result, figures } = await engine.run(asked.inputs, told, (piece) => {
    text.append(piece);
    unsaid += piece;
    const end = unsaid.search(/[.!?…]\s/) + 1;
    if (end) {
      find("spoken").textContent = unsaid.slice(0, end);
      unsaid = unsaid.slice(end);
    }
  });
  showAnswer(answer(model, result, asked), figures);
  find("spoken").textContent = unsaid;
}

function showAnswer(elements, figures) {
  const end = ENDS[figures.finish_reason];
  find("result").replaceChildren(...elements, ...(end ? [make("p", { className: "muted small" }, end)] : []));
  find("figures").replaceChildren(...terms(inWords(figures)));
  find("figures").hidden = false;
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
function inWords(figures) {
  const rows = [["Time", seconds(figures.seconds)]];
  if (figures.tokens !== undefined) {
    rows.unshift(
      ["Tokens/s", figures.tokens_per_second ? figures.tokens_per_second.toFixed(1) : "–"],
      ["First token", seconds(figures.first_token_seconds ?? 0)],
      ["Tokens", String(figures.tokens)]);
  }
  rows.push(["Read", `${figures.prompt_tokens} tokens`]);
  if (figures.memory_bytes) rows.push(["Memory", megabytes(figures.memory_bytes)]);
  return rows;
}

/** Scrolls to something unless it begins in sight: on a phone the answer is below the fold. */
function showFrom(id) {
  const { top } = find(id).getBoundingClientRect();
  if (top < 0 || top > innerHeight / 2) find(id).scrollIntoView({ block: "start" });
}

function clearAnswer() {
  find("result").replaceChildren(make("p", { className: "muted" }, "It appears here."));
  find("figures").hidden = true;
  find("spoken").textContent = "";
}

/** Ends a generation, which keeps what it wrote, or a load. */
function stop() {
  if (busy === "load") {
    engine.end();
    loaded = null;
  } else engine.cancel();
}

/** Does something that may fail, and says so. */
async function attempt(something) {
  try {
    await something();
  } catch (error) {
    await fail(error);
  } finally {
    find("result").removeAttribute("aria-busy");
    setBusy(null);
  }
}

const TITLES = {
  RangeError: "Something is missing", CapacityError: "The text is too long", GenerationError: "These settings do not work",
  InputError: "This cannot be read", BundleError: "The model could not be loaded", RuntimeError: "The engine could not do it",
};

async function fail(error) {
  clearAnswer();
  find("problem").hidden = true;
  if (error.name === "AbortError") return;
  if (FATAL.has(error.name)) {
    engine.end();
    loaded = info = null;
  }
  if (error.name === "BundleError") await offline.repair(chosen);
  find("problem-title").textContent = TITLES[error.name] ?? "Something went wrong";
  find("problem-text").textContent = error.message;
  find("again").hidden = !FATAL.has(error.name);
  find("problem").hidden = false;
  showFrom("problem");
  await showState();
}

function setBusy(what) {
  busy = what;
  find("run").disabled = Boolean(what);
  find("stop").hidden = what !== "run";
  find("model").disabled = find("engines").disabled = Boolean(what);
  find("load").textContent = what === "load" ? "Cancel" : "Load";
  find("load").disabled = what === "run";
  find("progress").hidden = what !== "load";
  if (what === "load") find("progress").value = 0;
}

start();
