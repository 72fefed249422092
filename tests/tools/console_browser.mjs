// Drives headless Chromium over its debugging pipe (https://chromedevtools.github.io/devtools-protocol/), with nothing but Node.
//
//   node console_browser.mjs CHROMIUM URL SCENARIO FOLDER [TOKEN]
//
// Ends with 0 when the scenario went as it should, and with 1 and a sentence otherwise.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { inflateSync } from "node:zlib";

const [chromium, url, scenario, folder, token] = process.argv.slice(2);
const limit = 60_000; // only ends what hangs

function check(holds, sentence) {
  if (!holds) throw new Error(sentence);
}

class Browser {
  #process; #profile; #last = 0; #waiting = new Map(); #events = []; #rest = Buffer.alloc(0); #session;

  constructor() {
    this.#profile = mkdtempSync(join(folder, "profile-"));
    const words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
      "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions", "--lang=en-GB",
      "--remote-debugging-pipe", "--user-data-dir=" + this.#profile, "about:blank"];
    this.#process = spawn(chromium, words, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"], env: { ...process.env, TZ: "Europe/Berlin" } });
    this.#process.on("error", (problem) => { console.error(problem.message); process.exit(1); });
    this.#process.stdio[4].on("data", (bytes) => this.#read(bytes));
  }
  #read(bytes) {
    this.#rest = Buffer.concat([this.#rest, bytes]);
    for (let end; (end = this.#rest.indexOf(0)) >= 0; this.#rest = this.#rest.subarray(end + 1)) {
      const message = JSON.parse(this.#rest.subarray(0, end).toString());
      if (message.id) {
        const { resolve, reject } = this.#waiting.get(message.id);
        this.#waiting.delete(message.id);
        if (message.error) reject(new Error(message.error.message)); else resolve(message.result);
      } else {
        this.#events = this.#events.filter((event) => !event(message));
      }
    }
  }
  #send(method, params, session) {
    const id = ++this.#last;
    this.#process.stdio[3].write(JSON.stringify({ id, method, params, sessionId: session }) + "\0");
    return new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
  }
  send(method, params = {}) { return this.#send(method, params, this.#session); }
  // Whatever happens from now on: `seen` is called with each event and says whether it has seen enough.
  on(seen) { this.#events.push(seen); }
  once(method) {
    return new Promise((resolve) => this.on((message) => { if (message.method !== method) return false; resolve(message.params); return true; }));
  }

  async open(address) {
    const { targetId } = await this.#send("Target.createTarget", { url: "about:blank" });
    this.#session = (await this.#send("Target.attachToTarget", { targetId, flatten: true })).sessionId;
    for (const domain of ["Page", "Runtime", "Log", "Accessibility"]) await this.send(domain + ".enable");
    this.complaints = [];
    this.on((message) => {
      if (message.method === "Runtime.exceptionThrown") this.complaints.push(message.params.exceptionDetails.exception?.description ?? message.params.exceptionDetails.text);
      if (message.method === "Log.entryAdded" && message.params.entry.source === "security") this.complaints.push(message.params.entry.text);
      if (message.method === "Page.javascriptDialogOpening") this.complaints.push("a script of a record ran");
      return false;
    });
    await this.size(1280, 800);
    const loaded = this.once("Page.loadEventFired");
    await this.send("Page.navigate", { url: address });
    await loaded;
  }
  async close() {
    const ended = new Promise((resolve) => this.#process.on("exit", resolve));
    this.#send("Browser.close").catch(() => {});
    await ended;
    rmSync(this.#profile, { recursive: true, force: true, maxRetries: 5 });
  }

  async evaluate(expression) {
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    check(!exceptionDetails, "in the page: " + (exceptionDetails?.exception?.description ?? exceptionDetails?.text));
    return result.value;
  }
  // Waits until the expression holds in the page: looked at after each change of the document and of the focus.
  async until(expression) {
    const inside = `new Promise((resolve) => {
      const look = () => { let holds = false; try { holds = ${expression}; } catch {} if (holds) { observer.disconnect(); document.removeEventListener("focusin", look); resolve(holds); } };
      const observer = new MutationObserver(look);
      observer.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
      document.addEventListener("focusin", look);
      look();
    })`;
    let timer;
    const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error("this never came: " + expression)), limit); });
    try { return await Promise.race([this.evaluate(inside), late]); } finally { clearTimeout(timer); }
  }

  async key(name, modifiers = 0) {
    const codes = { Enter: [13, "\r"], Tab: [9], Escape: [27], " ": [32, " "], ArrowDown: [40], ArrowUp: [38], Home: [36], End: [35] };
    const [code, text] = codes[name] ?? [name.toUpperCase().charCodeAt(0), name];
    const event = { key: name, windowsVirtualKeyCode: code, modifiers };
    await this.send("Input.dispatchKeyEvent", { ...event, type: text ? "keyDown" : "rawKeyDown", ...(text ? { text } : {}) });
    await this.send("Input.dispatchKeyEvent", { ...event, type: "keyUp" });
  }
  type(text) { return this.send("Input.insertText", { text }); }
  async tab_to(selector) {
    for (let step = 0; step < 60; ++step) {
      if (await this.evaluate(`!!document.activeElement.matches(${JSON.stringify(selector)})`)) return;
      await this.key("Tab");
    }
    throw new Error("the Tab key does not lead to " + selector);
  }

  async size(width, height) { await this.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false }); }
  async scheme(value) { await this.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value }] }); }
  async screenshot(name) {
    const bytes = Buffer.from((await this.send("Page.captureScreenshot", { format: "png" })).data, "base64");
    writeFileSync(join(folder, name + ".png"), bytes);
    check(shades(bytes) > 50, name + " is blank");
  }
}

// How many different bytes the picture has: a blank one has few.
function shades(png) {
  const parts = [];
  for (let at = 8; at < png.length; at += 12 + png.readUInt32BE(at)) {
    if (png.toString("latin1", at + 4, at + 8) === "IDAT") parts.push(png.subarray(at + 8, at + 8 + png.readUInt32BE(at)));
  }
  return new Set(inflateSync(Buffer.concat(parts))).size;
}

// ---- what every view must have

async function check_names(browser, where) {
  const { nodes } = await browser.send("Accessibility.getFullAXTree");
  const controls = ["button", "textbox", "searchbox", "radio", "checkbox", "combobox", "link", "dialog", "table", "img", "image", "region", "search", "group"];
  const nameless = nodes.filter((node) => !node.ignored && controls.includes(node.role?.value) && !(node.name?.value ?? "").trim());
  check(nameless.length === 0, where + ": without a name: " + nameless.map((node) => node.role.value).join(", "));
  check(nodes.some((node) => !node.ignored && node.role?.value === "button"), where + ": there are no buttons");
}

// WCAG 2.1, 1.4.3: 4.5 to 1 for text.
const contrast = `(() => {
  const parts = (color) => (color.match(/[\\d.]+/g) || []).map(Number);
  const light = (color) => { const [r, g, b] = parts(color).map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = (element) => { for (let e = element; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; const p = parts(c); if (p.length === 3 || p[3] === 1) return c; } return "rgb(255, 255, 255)"; };
  const bad = [];
  for (const element of (document.querySelector("dialog[open]") || document.body).querySelectorAll("*")) {
    const has_text = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!has_text || element.closest("svg") || !element.checkVisibility() || element.closest(":disabled")) continue;
    const a = light(getComputedStyle(element).color), b = light(ground(element));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(element.tagName + " " + element.textContent.trim().slice(0, 30) + " " + ratio.toFixed(2));
  }
  return bad;
})()`;

async function check_view(browser, name) {
  await check_names(browser, name);
  const bad = await browser.evaluate(contrast);
  check(bad.length === 0, name + ": hard to read: " + bad.join("; "));
  const wide = await browser.evaluate("Math.max(document.documentElement.scrollWidth, ...[...document.querySelectorAll('dialog[open]')].map((d) => d.scrollWidth)) - innerWidth");
  check(wide <= 0, name + ": wider than the window by " + wide);
  await browser.screenshot(name);
}

const with_rows = "document.querySelectorAll('#rows tr').length > 0";
const row_in_focus = "document.activeElement.closest('#rows tr')?.textContent ?? ''";
const rows_named = (text) => `[...document.querySelectorAll("#rows tr")].filter((row) => row.textContent.includes(${JSON.stringify(text)}))`;

async function open_row(browser, text) {
  await browser.until(`${rows_named(text)}.length > 0`);
  const rows = await browser.evaluate("document.querySelectorAll('#rows tr').length");
  await browser.key("j");
  await browser.key("Home");
  for (let step = 0; step < rows && !(await browser.evaluate(row_in_focus)).includes(text); ++step) await browser.key("j");
  check((await browser.evaluate(row_in_focus)).includes(text), "j does not lead to " + text);
  await browser.key("Enter");
  await browser.until("document.querySelector('#detail').open && document.activeElement.id === 'detail-title'");
}

async function fill_in_settlement(browser) {
  await browser.tab_to("input[value=success]");
  await browser.key(" ");
  await browser.key("ArrowDown");  // the next of the choices: it was not done, and shall not be
  await browser.until("document.querySelector('input[value=failed]').checked");
  await browser.tab_to("#text-failed");
  await browser.type("refused by the bank");
  await browser.tab_to("#reason");
  await browser.type("ticket 4711");
  await browser.tab_to("#who");
  await browser.type("alice");
  await browser.tab_to("#token");
  await browser.type(token);
}

// ---- scenarios

const scenarios = {
  async settle(browser) {
    await open_row(browser, "order-7");
    await check_view(browser, "detail");
    await fill_in_settlement(browser);
    await check_view(browser, "settle");
    await browser.key("Enter");
    await browser.until("!document.querySelector('#confirm').hidden && document.activeElement.id === 'back'");
    await check_view(browser, "confirm");
    await browser.key("Tab", 8);  // with Shift
    await browser.until("document.activeElement.id === 'yes'");
    await browser.key("Enter");
    await browser.until("!document.querySelector('#detail').open && document.querySelector('#said').textContent.includes('settled')");
    await browser.until(`${rows_named("order-7")}.length === 0`);
    await browser.until("!!document.activeElement.closest('#rows tr')");
  },

  async changed(browser) {
    await open_row(browser, "order-7");
    await fill_in_settlement(browser);
    const told = new Promise((resolve) => process.once("SIGUSR2", resolve));
    console.log("settle order-7");
    await told;
    await browser.tab_to("#settle button[type=submit]");
    await browser.key("Enter");
    await browser.until("document.activeElement.id === 'back'");
    await browser.key("Tab", 8);
    await browser.key("Enter");
    await browser.until("document.querySelector('#detail-body [role=alert]')?.textContent.includes('no longer the one') && document.querySelector('#detail-body').textContent.includes('done')");
    check(await browser.evaluate("document.querySelector('#settle').hidden"), "what is finished can be settled");
  },

  async wrong_token(browser) {
    await open_row(browser, "order-7");
    await fill_in_settlement(browser);
    await browser.key("Enter");
    await browser.until("document.activeElement.id === 'back'");
    await browser.key("Tab", 8);
    await browser.key("Enter");
    await browser.until("document.querySelector('#settle-problem').textContent.includes('not the token') && document.activeElement.id === 'token'");
    await check_names(browser, "a wrong token");
    await browser.key("Escape");
    await browser.until("!document.querySelector('#detail').open");
  },

  async early_retry(browser) {
    await open_row(browser, "order-new");
    await browser.tab_to("input[value=success]");
    await browser.key(" ");
    await browser.key("ArrowDown");
    await browser.key("ArrowDown");
    await browser.until("document.querySelector('input[value=retry]').checked && !document.querySelector('#force-field').hidden");
    await check_view(browser, "early");
    await browser.tab_to("#reason");
    await browser.type("the bank knows nothing");
    await browser.tab_to("#who");
    await browser.type("bob");
    await browser.tab_to("#token");
    await browser.type(token);
    const go = async () => {
      await browser.until("document.activeElement.id === 'back'");
      await browser.key("Tab", 8);
      await browser.key("Enter");
    };
    await browser.key("Enter");
    await go();
    await browser.until("document.querySelector('#settle-problem').textContent.includes('Too early')");
    await browser.tab_to("#force");
    await browser.key(" ");
    await browser.tab_to("#settle button[type=submit]");
    await browser.key("Enter");
    await go();
    await browser.until("!document.querySelector('#detail').open");
  },

  async strange_keys(browser) {
    await open_row(browser, "<img src=x onerror=alert(1)>");
    const counts = await browser.evaluate("[document.querySelectorAll('img, script').length, document.querySelectorAll('#rows img').length]");
    check(counts[0] === 1 && counts[1] === 0, "a key became a part of the page");
    const title = await browser.evaluate("document.querySelector('#detail-title').textContent");
    check(title === "payment:<img src=x onerror=alert(1)>", "the key is shown as " + title);
    const trace = await browser.evaluate("document.querySelector('#detail-body').textContent");
    check(trace.includes("<script>alert(2)</script>"), "the trace is not shown as it is");
    check(trace.includes("\\u{202e}"), "what turns text around is not spelled out");
    await browser.key("Escape");
  },

  async read_only(browser) {
    await browser.until("document.querySelector('#rights').textContent === 'read-only'");
    await open_row(browser, "order-7");
    const shown = await browser.evaluate("[...document.querySelectorAll('#detail button, #detail input')].filter((e) => e.checkVisibility()).map((e) => e.id || e.textContent)");
    check(!shown.some((name) => ["reason", "who", "token", "yes"].includes(name)), "there are controls that settle: " + shown);
    check(await browser.evaluate("document.querySelector('#settle').hidden && document.querySelector('#confirm').hidden"), "there is a form that settles");
    await check_view(browser, "read-only");
  },

  async views(browser) {
    await browser.until("!!document.querySelector('#duplicates svg')");
    for (const [width, height] of [[1280, 800], [360, 740]]) {
      for (const scheme of ["light", "dark"]) {
        await browser.size(width, height);
        await browser.scheme(scheme);
        await check_view(browser, `first-${width}-${scheme}`);
        await open_row(browser, "order-7");
        await check_view(browser, `record-${width}-${scheme}`);
        await browser.key("Escape");
        await browser.until("!document.querySelector('#detail').open");
        await browser.key("?");
        await browser.until("document.querySelector('#help').open");
        await check_view(browser, `help-${width}-${scheme}`);
        await browser.key("Escape");
        await browser.until("!document.querySelector('#help').open");
      }
    }
    await browser.size(1280, 800);
    await browser.scheme("light");
    await browser.key("3");
    await browser.until(`${rows_named("order-done")}.length > 0`);
    await check_view(browser, "all");
  },

  // Beyond the loopback who reads needs the token as well.
  async login(browser) {
    await browser.until("document.querySelector('#login').open");
    await check_view(browser, "login");
    await browser.type("this-is-not-the-token");
    await browser.key("Enter");
    await browser.until("document.querySelector('#login').open && document.querySelector('#login-problem').textContent.includes('not the token')");
    await browser.type(token);
    await browser.key("Enter");
    await browser.until(`!document.querySelector("#login").open && ${with_rows}`);
    await open_row(browser, "order-7");
    check(await browser.evaluate("document.querySelector('#token-field').hidden"), "the token is asked for again");
  },

  // A refresh leaves focus and scroll where they are.
  async refresh(browser) {
    await browser.until(with_rows);
    await browser.size(1280, 500);
    await browser.key("j");
    await browser.key("End");
    const before = await browser.evaluate(`[${row_in_focus}.slice(0, 20), scrollY]`);
    check(before[1] > 0, "there is nothing to scroll");
    console.log("settle order-7");
    await browser.until(`${rows_named("order-7")}.length === 0`);
    const after = await browser.evaluate(`[${row_in_focus}.slice(0, 20), scrollY]`);
    check(before[0] === after[0], "the focus went from " + before[0] + " to " + after[0]);
    await browser.key("ArrowUp");
    check((await browser.evaluate(row_in_focus)) !== "", "the arrows do not go on");
    check(await browser.evaluate("document.querySelectorAll('#rows button[tabindex=\"0\"]').length === 1"), "Tab does not lead to one row");
  },

  async away(browser) {
    await browser.until(with_rows);
    console.log("away");
    await browser.until("!document.querySelector('#trouble').hidden && document.querySelector('#trouble').textContent.includes('The store does not answer')");
    await check_view(browser, "away");
    console.log("back");
    await browser.until("document.querySelector('#trouble').hidden");
  },
};

const browser = new Browser();
try {
  await browser.open(url);
  await scenarios[scenario](browser);
  check(browser.complaints.length === 0, "the browser complains: " + browser.complaints.join("; "));
} catch (problem) {
  console.log("FAILED: " + problem.message);
  try { await browser.screenshot("failed-" + scenario); } catch { /* there is none */ }
  process.exitCode = 1;
} finally {
  await browser.close();
}
