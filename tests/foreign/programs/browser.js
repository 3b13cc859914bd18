// Controls Chromium: reads commands {"do": name, …} from standard input, one on each line, and prints one answer for each.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const SWITCHES = ["--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];
// WebGPU on Chromium's driver in software.
const WEBGPU = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan", "--use-vulkan=swiftshader",
  "--disable-gpu-sandbox", "--ignore-gpu-blocklist"];

const gpu = process.env.KERASFORMER_BROWSER === "webgpu";
const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium", headless: true, args: [...SWITCHES, ...(gpu ? WEBGPU : ["--disable-gpu"])],
  ignoreDefaultArgs: gpu ? ["--disable-gpu"] : [],
});
let context = null;
let page = null;
let errors = []; // errors of the page and its console
let requests = []; // addresses that the page asked for

const COMMANDS = {
  /** Opens a page in a new profile; `scripts` run before those of the page. */
  async open({ width, height, scheme = "light", scripts = [], phone = false, motion = "no-preference" }) {
    await context?.close();
    context = await browser.newContext({
      viewport: { width, height }, colorScheme: scheme, isMobile: phone, hasTouch: phone, deviceScaleFactor: phone ? 2 : 1, reducedMotion: motion,
    });
    context.setDefaultTimeout(120_000);
    for (const script of scripts) await context.addInitScript(script);
    page = await context.newPage();
    errors = [];
    requests = [];
    page.on("request", (request) => requests.push(request.url()));
    page.on("pageerror", (error) => errors.push(String(error)));
    page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
  },
  go: ({ url }) => page.goto(url).then(() => null),
  reload: () => page.reload().then(() => null),
  click: ({ at }) => page.click(at),
  fill: ({ at, text }) => page.fill(at, text),
  choose: ({ at, label }) => page.selectOption(at, { label }).then(() => null),
  press: ({ key }) => page.keyboard.press(key),
  type: ({ text }) => page.keyboard.type(text),
  /** Limits the storage of the page's origin to a number of bytes. */
  async quota({ bytes }) {
    const session = await context.newCDPSession(page);
    await session.send("Storage.overrideQuotaForOrigin", { origin: new URL(page.url()).origin, quotaSize: bytes });
  },
  text: ({ at }) => page.innerText(at),
  visible: ({ at }) => page.isVisible(at),
  /** Waits until an expression is true; polls from outside, because the page's policy forbids evaluating strings. */
  async until({ script, seconds = 60 }) {
    for (const end = Date.now() + 1000 * seconds; !(await page.evaluate(script).catch(() => false));) {
      if (Date.now() > end) throw new Error(`still false: ${script}; the page shows: ${await page.innerText("body")}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  },
  run: ({ script }) => page.evaluate(script),
  picture: ({ path, whole = true }) => page.screenshot({ path, fullPage: whole }).then(() => null),
  console: () => errors,
  requests: () => requests,
  /** Makes the processor so many times slower, for the page that is opened next. */
  async throttle({ times }) {
    const session = await context.newCDPSession(page);
    await session.send("Emulation.setCPUThrottlingRate", { rate: times });
  },
  /** Returns violations of accessibility rules. */
  async axe() {
    await page.evaluate(readFileSync(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8"));
    const report = await page.evaluate("axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']})");
    return report.violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map(({ html }) => html).join(" | ")}`);
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  try {
    console.log(JSON.stringify({ value: (await COMMANDS[command.do](command)) ?? null }));
  } catch (error) {
    console.log(JSON.stringify({ error: String(error), console: errors }));
  }
}
await browser.close();
