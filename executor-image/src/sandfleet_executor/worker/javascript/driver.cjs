"use strict";
// What runs in the Node.js of a context. The main thread evaluates cells; a second thread reads requests, so that an
// interrupt is heard while a cell never yields. Descriptor 3: requests, 4: answers, in the frames of base/frames.py.
const { Worker, isMainThread, parentPort } = require("node:worker_threads");
const inspector = require("node:inspector");
const fs = require("node:fs");

// How long a cell has to hear of an interrupt, in milliseconds.
const PATIENCE = 100;
const REQUESTS = 3, ANSWERS = 4, PREFIX = 8;

function encode(header, payload) {
  const text = Buffer.from(JSON.stringify(header).replace(/[\u0080-\uffff]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0")));
  const prefix = Buffer.alloc(PREFIX);
  prefix.writeUInt32BE(text.length, 0);
  prefix.writeUInt32BE(payload.length, 4);
  return Buffer.concat([prefix, text, payload]);
}

if (!isMainThread) listen();
else serve();

// The second thread.
function listen() {
  const { state } = require("node:worker_threads").workerData;
  const { Socket } = require("node:net");
  const session = new inspector.Session();
  session.connectToMainThread();
  let waiting = Buffer.alloc(0);
  const socket = new Socket({ fd: REQUESTS, readable: true, writable: false });
  socket.on("data", (data) => {
    waiting = waiting.length ? Buffer.concat([waiting, data]) : data;
    while (waiting.length >= PREFIX) {
      const header = waiting.readUInt32BE(0), end = PREFIX + header + waiting.readUInt32BE(4);
      if (waiting.length < end) return;
      take(JSON.parse(waiting.subarray(PREFIX, PREFIX + header)), waiting.toString("utf8", PREFIX + header, end));
      waiting = waiting.subarray(end);
    }
  });
  // The context is over.
  socket.on("close", () => process.kill(process.pid, "SIGKILL"));
  // One after the other: what ends one cell must not hit the next.
  let earlier = Promise.resolve();
  function take(request, source) {
    earlier = earlier.then(async () => {
      parentPort.postMessage({ ...request, source });
      if (request.op === "interrupt") await end(request.cell);
    });
  }

  async function end(cell) {
    // A cell that waits ends by the message. One that ends by itself must not be terminated a moment later, nor one that
    // was terminated again: that would hit Node's own code between two callbacks, and end Node.
    await new Promise((done) => setTimeout(done, PATIENCE));
    if (Atomics.compareExchange(state, 0, cell, -1) !== cell) return;
    await new Promise((done) => session.post("Runtime.terminateExecution", done));
    // Where nothing runs, the next that does is terminated. That has to be this, and not Node's own code.
    await new Promise((done) => session.post("Runtime.evaluate", { expression: "0" }, done));
  }
}

// The main thread.
function serve() {
  const { createRequire } = require("node:module");
  const path = require("node:path"), util = require("node:util"), vm = require("node:vm");
  const { promiseHooks } = require("node:v8");
  const write = fs.writeSync, fstat = fs.fstatSync, open = fs.openSync;
  const acorn = require("internal/deps/acorn/acorn/dist/acorn");
  const SyncWriteStream = require("internal/fs/sync_write_stream");
  const session = new inspector.Session();
  session.connect();
  // Cells are TypeScript: Node takes their types out, and leaves all else in its place.
  const typed = process.argv.includes("--typescript"), strip = typed ? require("node:module").stripTypeScriptTypes : null;
  if (typed && !strip) {
    write(2, `Node ${process.versions.node} cannot strip types: TypeScript needs Node 22.13 or later\n`);
    process.reallyExit(1);
  }
  const MOST_RESULT = 16 << 20, MOST_TEXT = 1 << 20, MOST_VALUE = 64 << 10, MOST_JSON = 64 << 10, MOST_ROWS = 50;
  const SHOWS = Symbol.for("Jupyter.display");
  // The cell that runs.
  let running = null;

  const look = require("./looks.cjs")(session);

  function send(header, payload = Buffer.alloc(0)) {
    let rest = encode(header, payload);
    while (rest.length) rest = rest.subarray(write(ANSWERS, rest));
  }

  function cut(text, most) {
    const data = Buffer.from(String(text));
    return data.length <= most ? data.toString() : data.toString("utf8", 0, most) + `\n… ${data.length - most} bytes left out …`;
  }

  // The representations of a value by MIME type, as Deno's kernel asks for them.
  async function bundle(value) {
    if (value !== null && (typeof value === "object" || typeof value === "function") && typeof value[SHOWS] === "function")
      return await value[SHOWS]();
    const found = { "text/plain": util.inspect(value, { depth: 4, maxArrayLength: 100, maxStringLength: MOST_TEXT }) };
    if (Array.isArray(value) && value.length && value.every(isRow)) found["text/html"] = table(value);
    if (value !== null && typeof value === "object" && (Array.isArray(value) || isRow(value))) {
      const text = asJson(value);
      if (text && text.length <= MOST_JSON) found["application/json"] = text;
    }
    return found;
  }

  function isRow(value) {
    return value !== null && typeof value === "object" && Object.getPrototypeOf(value) === Object.prototype;
  }

  function asJson(value) {
    try {
      return JSON.stringify(value);
    } catch {
      return ""; // A cycle, or a number that JSON does not have.
    }
  }

  function table(rows) {
    const shown = rows.slice(0, MOST_ROWS), names = [...new Set(shown.flatMap(Object.keys))].slice(0, MOST_ROWS);
    const escape = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
    const cells = (row) => names.map((name) => `<td>${escape(cut(name in row ? row[name] : "", 1000))}</td>`).join("");
    const more = rows.length > MOST_ROWS ? `<p>${rows.length - MOST_ROWS} more rows</p>` : "";
    const head = names.map((name) => `<th>${escape(name)}</th>`).join("");
    return `<table><thead><tr>${head}</tr></thead><tbody>${shown.map((row) => `<tr>${cells(row)}</tr>`).join("")}</tbody></table>${more}`;
  }

  function parts(found) {
    const listed = [], datas = [];
    let dropped = 0, total = 0;
    for (const [mime, data] of Object.entries(found ?? {}).slice(0, 64)) {
      const isBinary = /^(image\/(?!svg)|audio\/|video\/|application\/(pdf|octet-stream))/.test(mime);
      const bytes = Buffer.isBuffer(data) || data instanceof Uint8Array ? Buffer.from(data)
        : typeof data === "string" ? Buffer.from(data, isBinary ? "base64" : "utf8") : Buffer.from(asJson(data) || String(data));
      if (total + bytes.length > MOST_RESULT) dropped += bytes.length;
      else {
        total += bytes.length;
        listed.push({ mime: mime.slice(0, 128), size: bytes.length });
        datas.push(bytes);
      }
    }
    return [{ parts: listed, dropped }, Buffer.concat(datas)];
  }

  async function show(value, main) {
    const cell = running;
    const [header, payload] = parts(await bundle(value));
    // What a cell shows after its end is dropped.
    if (cell !== null && cell === running) send({ event: "result", main, ...header }, payload);
  }

  function finish(cell, error, status) {
    if (cell !== running) return;
    running = null;
    Atomics.store(state, 0, -1);
    for (const [name, value] of Object.entries(cell.before))
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    repair();
    if (error) send({ event: "error", ...error });
    send({ event: "done", status });
  }

  function interrupted(cell) {
    finish(cell, { name: "Interrupted", value: "", traceback: "", frames: [] }, "interrupted");
    // The session waits for the promise of the cell, which may never be kept.
    session.disconnect();
    session.connect();
    takerId = "";
  }

  // Opens streams anew that the cell has closed: Node has no dup2, but a new descriptor has the lowest number.
  function repair() {
    for (const [fd, mode] of [[0, "r"], [1, "a"], [2, "a"]])
      try {
        fstat(fd);
      } catch {
        open(fd ? `/proc/${process.ppid}/fd/${fd}` : "/dev/null", mode);
      }
  }

  function describe(details) {
    const thrown = details.thrown, isError = thrown instanceof Error || util.types.isNativeError(thrown);
    let name = "Error", value = "", stack = "";
    try {
      name = isError ? String(thrown.name || thrown.constructor?.name || "Error") : "Uncaught";
      value = isError ? String(thrown.message) : util.inspect(thrown);
      stack = isError ? String(thrown.stack) : `Uncaught ${value}`;
    } catch {
      value = "<cannot show the value: its properties raise>";
    }
    const lines = stack.split("\n"), own = lines.findIndex((line) => line.includes("node:inspector") || line.includes(__filename));
    if (own >= 0) lines.length = own;
    if (name === "SyntaxError" && details.line) value += ` (line ${details.line})`;
    const source = running?.source.split("\n") ?? [], frames = [];
    for (const line of lines.slice(0, 200)) {
      const found = /^\s+at (?:(.*) \()?(.*?):(\d+):\d+\)?$/.exec(line);
      if (!found || found[2].startsWith("node:")) continue;
      const text = found[2] === running?.file ? source[found[3] - 1] ?? "" : "";
      frames.push({ file: cut(found[2], 500), line: Number(found[3]), function: cut(found[1] || "<cell>", 500), source: cut(text.trim(), 500) });
    }
    // As in Python, the frame of the failure is the last one.
    return { name: cut(name, 200), value: cut(value, MOST_VALUE), traceback: cut(lines.join("\n"), MOST_VALUE), frames: frames.reverse().slice(-50) };
  }

  // Static imports of a cell, and `import()`, which the console of Node does not have. Line numbers stay.
  function rewrite(source) {
    let tree;
    try {
      tree = acorn.parse(source, { ecmaVersion: "latest", sourceType: "module", allowAwaitOutsideFunction: true, allowReturnOutsideFunction: false });
    } catch {
      return source; // V8 says what is wrong, or knows what acorn does not.
    }
    const edits = [];
    (function walk(node) {
      if (!node || typeof node.type !== "string") return;
      if (node.type === "ImportDeclaration") edits.push([node.start, node.end, statement(node)]);
      if (node.type === "ImportExpression") edits.push([node.start, node.start + 6, "globalThis[Symbol.for('sandfleet.import')]"]);
      for (const child of Object.values(node))
        if (Array.isArray(child)) child.forEach(walk);
        else if (child && typeof child === "object") walk(child);
    })(tree);
    for (const [start, end, text] of edits.sort((a, b) => b[0] - a[0])) {
      const lines = source.slice(start, end).split("\n").length - text.split("\n").length;
      source = source.slice(0, start) + text + "\n".repeat(Math.max(0, lines)) + source.slice(end);
    }
    return source;
  }

  function statement(node) {
    const from = `await globalThis[Symbol.for('sandfleet.import')](${JSON.stringify(node.source.value)});`;
    const whole = node.specifiers.find((one) => one.type === "ImportNamespaceSpecifier");
    const named = node.specifiers.filter((one) => one !== whole).map((one) =>
      `${one.type === "ImportDefaultSpecifier" ? "default" : one.imported.name ?? JSON.stringify(one.imported.value)}: ${one.local.name}`);
    if (!node.specifiers.length) return from;
    if (!whole) return `var {${named.join(", ")}} = ${from}`;
    return `var ${whole.local.name} = ${from}` + (named.length ? ` var {${named.join(", ")}} = ${whole.local.name};` : "");
  }

  function importer() {
    const where = path.join(process.cwd(), "cell.mjs"), loader = vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER;
    if (loader === undefined) return (name) => import(name.startsWith(".") ? path.resolve(name) : name);
    return new vm.Script("(name, options) => import(name, options)", { filename: where, importModuleDynamically: loader }).runInThisContext();
  }

  function evaluate(cell) {
    try {
      if (strip) cell.source = strip(cell.source, { mode: "strip" });
    } catch (error) {
      return finish(cell, { ...describe({ thrown: error }), name: "SyntaxError" }, "error");
    }
    const expression = `${rewrite(cell.source)}\n//# sourceURL=${cell.file}`;
    const options = { expression, replMode: true, awaitPromise: true, userGesture: false };
    // Held, because V8 says of a promise that nothing holds that it was collected, and Node 24 ends if it hears that.
    const unhook = promiseHooks.onInit((promise) => {
      cell.promise ??= promise;
      unhook();
    });
    session.post("Runtime.evaluate", options, (error, answer) => {
      if (isAsked || cell !== running) return;
      // Anything but the end of the cell is the end of Node, which would wait for the other thread. Node 24 calls it an
      // internal error when a cell was terminated.
      if (error && !/was terminated|Internal error/.test(error.message)) process.reallyExit(70);
      conclude(cell, error ?? answer);
    });
    unhook();
  }

  function conclude(cell, answer) {
    // It was terminated: what follows now would be too.
    if (!answer.result) return void setImmediate(interrupted, cell);
    const failed = answer.exceptionDetails, object = failed?.exception ?? answer.result;
    // The value itself, which the protocol only describes.
    session.post("Runtime.callFunctionOn", {
      functionDeclaration: "function(value) { this(value) }", objectId: taker(),
      arguments: [object.objectId ? { objectId: object.objectId } : object.unserializableValue ? { unserializableValue: object.unserializableValue } : { value: object.value }],
    }, () => {
      const value = taken.value;
      session.post("Runtime.releaseObjectGroup", { objectGroup: "" });
      if (failed) return finish(cell, describe({ thrown: value, line: failed.lineNumber + 1 }), "error");
      if (value !== undefined) {
        hide("_", value);
        cell.shown.push(show(value, true));
      }
      Promise.all(cell.shown).then(() => finish(cell, null, "ok"), (error) => finish(cell, describe({ thrown: error }), "error"));
    });
  }

  const taken = { value: undefined };
  let takerId = "";
  function taker() {
    if (!takerId)
      session.post("Runtime.evaluate", { expression: "globalThis[Symbol.for('sandfleet.take')]" }, (_, answer) => (takerId = answer.result.objectId));
    return takerId;
  }

  function hide(name, value) {
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
  }

  hide(Symbol.for("sandfleet.take"), (value) => (taken.value = value));
  hide(Symbol.for("sandfleet.import"), (...given) => importer()(...given));
  hide("require", createRequire(path.join(process.cwd(), "cell.cjs")));
  hide("display", (value) => void running?.shown.push(show(value, false)));
  // What is printed is written at once: the end of the cell comes behind it.
  for (const [name, fd] of [["stdout", 1], ["stderr", 2]]) {
    const stream = new SyncWriteStream(fd, { autoClose: false });
    stream.fd = fd;
    Object.defineProperty(process, name, { get: () => stream, configurable: true });
  }
  process.on("uncaughtException", (error) => write(2, `Uncaught ${util.inspect(error)}\n`));
  process.on("SIGINT", () => {});
  // Node would not end by itself: the other thread holds it.
  const exit = process.exit;
  let isAsked = false;
  process.exit = (...given) => {
    isAsked = true;
    try {
      exit(...given);
    } catch (error) {
      isAsked = false; // It is no code.
      throw error;
    }
  };
  process.on("exit", () => {
    if (!isAsked) process.reallyExit(70);
    // A cell that still waits would end while Node takes itself apart, which is fatal.
    session.disconnect();
  });
  // The loader of the main context is used on purpose.
  const warn = process.emitWarning;
  process.emitWarning = function (warning, ...rest) {
    if (!/USE_MAIN_CONTEXT_DEFAULT_LOADER|stripTypeScriptTypes/.test(String(warning))) warn.call(this, warning, ...rest);
  };

  // The number of the cell that runs, for the other thread; -1 between cells.
  const state = new Int32Array(new SharedArrayBuffer(4)).fill(-1);
  const worker = new Worker(__filename, { stdin: false, workerData: { state } });
  if (typed) send({ event: "ready" });
  worker.on("message", (request) => {
    if (request.op === "interrupt") {
      // It waits for something.
      if (running?.cell === request.cell) interrupted(running);
      return;
    }
    if (request.op !== "execute") {
      // Between two cells.
      const found = running ? null : look(request);
      send({ event: "looked", number: request.number }, Buffer.from(JSON.stringify(found)));
      return;
    }
    const before = {};
    for (const [name, value] of Object.entries(request.envs)) {
      before[name] = process.env[name];
      process.env[name] = value;
    }
    running = { ...request, before, shown: [], file: `cell-${request.cell}.js` };
    Atomics.store(state, 0, request.cell);
    evaluate(running);
  });
}
