"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const page = document.getElementById("page");
const CHUNK = 200;
const NUMBERS = new Set(["sessions", "share", "time", "wait", "steps", "tokens", "CPU", "first step that differs"]);

// All texts come from models and sandboxes: they become text nodes, never markup.
function make(name, options = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(options)) {
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function drawing(name, options, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(options)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function time(seconds) {
  if (seconds === null) return "–";
  if (seconds >= 100) return `${seconds.toFixed(0)} s`;
  if (seconds >= 1) return `${seconds.toFixed(2)} s`;
  return seconds >= 1e-3 ? `${(seconds * 1e3).toFixed(1)} ms` : `${(seconds * 1e6).toFixed(0)} µs`;
}

function size(bytes) {
  return bytes >= 1 << 20 ? `${(bytes / 1048576).toFixed(0)} MiB` : `${(bytes / 1024).toFixed(0)} KiB`;
}

function count(number) { return number ? String(number) : "–"; }
function words(text) { return text.replaceAll("_", " "); }

// Rows that are drawn when they are looked at: the next ones when the end comes into view.
function lazily(parent, rows, draw) {
  let drawn = 0;
  const more = make("button", { class: "more", onclick: next });
  function next() {
    more.remove();
    parent.append(...rows.slice(drawn, drawn + CHUNK).map(draw));
    drawn = Math.min(drawn + CHUNK, rows.length);
    if (drawn < rows.length) {
      more.textContent = `Show more (${rows.length - drawn} left)`;
      (parent.tagName === "TBODY" ? parent.closest(".scroll") : parent).append(more);
    }
  }
  next();
  return {
    upTo(index) { while (drawn <= index && drawn < rows.length) next(); },
  };
}

function tiles(pairs) {
  return make("div", { class: "tiles" }, ...pairs.map(([name, value]) =>
    make("div", { class: "tile" }, make("b", {}, value), make("span", { class: "dim" }, name))));
}

function table(columns, rows) {
  const body = make("tbody");
  const around = make("div", { class: "scroll" }, make("table", {},
    make("thead", {}, make("tr", {}, ...columns.map((name) => make("th", NUMBERS.has(name) ? { class: "num" } : {}, name)))), body));
  lazily(body, rows, (cells) => make("tr", {}, ...cells.map((cell) =>
    cell instanceof Node && cell.nodeName === "TD" ? cell : make("td", {}, cell))));
  return around;
}

function number(text) { return make("td", { class: "num" }, text); }
function link(index, text) { return make("a", { href: `#session-${index}` }, text); }
function end(session) {
  return make("span", { class: session.is_failed ? "failed" : "good" },
    `${session.is_failed ? "✗" : "✓"} ${words(session.end)}`);
}

function histogram(name, values) {
  const box = make("div", { class: "chart" }, make("p", { class: "label" }, name));
  if (!values.length) { box.append(make("p", { class: "dim" }, "not traced")); return box; }
  const sorted = [...values].sort((a, b) => a - b);
  const most = sorted[sorted.length - 1] || 1e-9;
  const bins = new Array(24).fill(0);
  for (const value of sorted) bins[Math.min(23, Math.floor((value / most) * 24))] += 1;
  const high = Math.max(...bins);
  const svg = drawing("svg", { viewBox: "0 0 240 100", preserveAspectRatio: "none", role: "img", "aria-label": name });
  bins.forEach((count, bin) => {
    const tall = (count / high) * 96;
    const bar = drawing("rect", { x: bin * 10 + 1, y: 98 - tall, width: 8, height: tall });
    bar.append(drawing("title", {}, `${count} from ${time((bin / 24) * most)} to ${time(((bin + 1) / 24) * most)}`));
    svg.append(bar);
  });
  const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
  box.append(svg, make("p", { class: "dim" },
    `0 to ${time(most)} · median ${time(at(0.5))} · 95th percentile ${time(at(0.95))}`));
  return box;
}

function missing(parent) {
  if (data.missing.length) {
    parent.append(make("details", {}, make("summary", {}, `What is missing in this report (${data.missing.length})`),
      make("div", { class: "body dim" }, ...data.missing.map((one) => make("p", {}, one)))));
  }
}

function runView() {
  const sessions = data.sessions;
  const bad = sessions.map((session, index) => [session, index]).filter(([session]) => session.is_failed);
  page.replaceChildren(make("h1", {}, `Run ${data.name}`));
  page.append(make("div", { class: `verdict ${bad.length ? "bad" : ""}` }, make("b", {},
    bad.length ? `${bad.length} of ${sessions.length} sessions went wrong.` : `All ${sessions.length} sessions went well.`),
    ...(bad.length ? [make("span", {}, ` The first: ${bad[0][0].key}: ${bad[0][0].message || words(bad[0][0].end)} `),
      link(bad[0][1], "Look at it")] : [])));
  const total = (pick) => sessions.reduce((sum, session) => sum + (pick(session) || 0), 0);
  page.append(tiles([["sessions", String(sessions.length)], ["steps", String(total((one) => one.steps.length))],
    ["time in all", time(total((one) => one.seconds))], ["CPU in all", time(total((one) => one.cpu))],
    ["tokens", count(total((one) => one.tokens))]]));
  missing(page);
  const counts = new Map();
  for (const session of sessions) counts.set(session.end, (counts.get(session.end) || 0) + 1);
  page.append(make("h2", {}, "Outcomes"), table(["outcome", "sessions", "share"], [...counts].sort((a, b) => b[1] - a[1])
    .map(([name, count]) => [words(name), number(String(count)), number(`${((count / sessions.length) * 100).toFixed(0)} %`)])));
  page.append(make("h2", {}, "Times"), make("div", { class: "charts" },
    histogram("a session", sessions.map((one) => one.seconds)),
    histogram("wait for a sandbox", sessions.map((one) => one.wait).filter((one) => one !== null)),
    histogram("a step", sessions.flatMap((one) => one.steps.map((step) => step.seconds)))));
  if (data.pairs) comparison();
  if (bad.length) {
    page.append(make("h2", {}, "What went wrong"), table(["session", "end", "why"], bad.map(([session, index]) =>
      [link(index, session.key), end(session), session.message])));
  }
  const rows = sessions.map((session, index) => [session, index]).sort((a, b) => b[0].seconds - a[0].seconds);
  page.append(make("h2", {}, "All sessions, the slowest first"), table(
    ["session", "end", "time", "wait", "steps", "tokens", "CPU"], rows.map(([session, index]) =>
      [link(index, session.key), end(session), number(time(session.seconds)), number(time(session.wait)),
        number(String(session.steps.length)), number(count(session.tokens)), number(time(session.cpu))])));
}

function comparison() {
  const other = data.other.sessions;
  const flips = data.pairs.filter((pair) => pair.flipped);
  const gained = flips.filter((pair) => pair.flipped === "gained").length;
  const sum = (sessions, pick) => sessions.reduce((total, one) => total + (pick(one) || 0), 0);
  page.append(make("h2", {}, `Compared with ${data.other.name}`), make("p", {},
    `${data.pairs.length} tasks are in both: ${gained} gained, ${flips.length - gained} lost. `
    + `Time ${time(sum(other, (one) => one.seconds))} → ${time(sum(data.sessions, (one) => one.seconds))}, `
    + `tokens ${sum(other, (one) => one.tokens)} → ${sum(data.sessions, (one) => one.tokens)}.`),
    table(["task", "", "before", "now", "first step that differs", "time", "tokens"], data.pairs.map((pair) => {
      const [before, after] = [other[pair.before], data.sessions[pair.after]];
      return [link(pair.after, pair.key), make("span", { class: pair.flipped }, pair.flipped), end(before), end(after),
        number(pair.differs ? String(pair.differs) : "–"), number(`${time(before.seconds)} → ${time(after.seconds)}`),
        number(`${before.tokens} → ${after.tokens}`)];
    })));
}

function part(name, text) {
  return text ? [make("p", { class: "label" }, name), make("pre", {}, text)] : [];
}

function stepView(step) {
  const made = make("details", { class: step.is_failed ? "bad" : "", id: `step-${step.number}` },
    make("summary", {}, make("b", { class: step.is_failed ? "failed" : "" }, `${step.number}`),
      make("span", { class: "grow" }, step.intent || words(step.kind)),
      ...(step.end === "ok" || step.end === "accepted" ? [] : [make("span", { class: "tag failed" },
        words(step.end) + (step.exception ? `: ${step.exception.split(":")[0]}` : ""))]),
      ...(step.rollback === "done" ? [make("span", { class: "tag" }, "rolled back")] : []),
      ...(step.review ? [make("span", { class: "tag" }, `reviewed for ${time(step.review)}`)] : []),
      ...step.tools.slice(0, 3).map((name) => make("span", { class: "tag" }, name)),
      make("span", { class: "dim" }, time(step.seconds))));
  made.addEventListener("toggle", () => {
    if (!made.open || made.querySelector(".body")) return;
    const facts = [step.reason && `reason ${step.reason}`, step.blame && `blame ${step.blame}`,
      step.lost && `lost ${step.lost}`, step.rollback && `rollback ${step.rollback}`,
      `started after ${time(step.start)}`, step.cpu && `CPU ${time(step.cpu)}`, step.memory && `memory ${size(step.memory)}`,
      step.changed && `${step.changed} files changed`, step.tokens && `${step.tokens} tokens`].filter(Boolean);
    made.append(make("div", { class: "body" }, make("p", { class: "dim" }, facts.join(" · ")),
      ...part("error", step.exception), ...part("code", step.code), ...part("output", step.output),
      ...part("files", step.files.join("\n")), ...part("tools", step.tools.join("\n"))));
  });
  return made;
}

function waterfall(session) {
  const around = make("div", { class: "fall" });
  const total = Math.max(1e-6, ...session.bars.map((bar) => bar[3] + bar[4]));
  const services = [...new Set(session.bars.map((bar) => bar[2]))];
  lazily(around, session.bars, ([depth, name, service, start, length, bad]) => {
    const bar = make("i", { class: `s${services.indexOf(service) % 4} ${bad ? "bad" : ""}` });
    bar.style.left = `${(start / total) * 100}%`;
    bar.style.width = `${(length / total) * 100}%`;
    const said = make("span", { class: bad ? "failed" : "" }, name);
    said.style.paddingLeft = `${Math.min(depth, 12) * 0.7}rem`;
    return make("div", { class: "span", title: `${name} · ${service} · ${time(length / 1e3)}` }, said,
      make("div", { class: "track" }, bar), make("span", { class: "num dim" }, time(length / 1e3)));
  });
  return around;
}

function sessionView(index) {
  const session = data.sessions[index];
  page.replaceChildren();
  if (data.sessions.length > 1) page.append(make("nav", {}, make("a", { href: "#" }, `← Run ${data.name}`)));
  page.append(make("h1", {}, session.key));
  page.append(make("p", { class: "dim" }, [session.sandbox && `sandbox ${session.sandbox}`, `trace ${session.trace_id}`,
    new Date(session.began * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC"].filter(Boolean).join(" · ")));
  const bad = session.steps.filter((step) => step.is_failed);
  const last = session.is_failed ? bad[bad.length - 1] : null;
  const list = make("div");
  const steps = lazily(list, session.steps, stepView);
  const show = (step) => {
    steps.upTo(session.steps.indexOf(step));
    const found = document.getElementById(`step-${step.number}`);
    found.open = true;
    found.scrollIntoView({ block: "center" });
  };
  page.append(make("div", { class: `verdict ${session.is_failed ? "bad" : ""}` },
    make("b", {}, session.is_failed ? `Went wrong: ${words(session.end)}. ` : `Went well: ${words(session.end)}. `),
    make("span", {}, session.message ? `${session.message} ` : ""),
    ...(last ? [make("button", { class: "more", onclick: () => show(last) }, `Show step ${last.number}`)] : []),
    ...(bad.length && !session.is_failed ? [make("span", { class: "dim" }, `${bad.length} of ${session.steps.length} steps failed on the way.`)] : [])));
  page.append(tiles([["time", time(session.seconds)], ["wait for a sandbox", time(session.wait)],
    ["steps", `${session.steps.length}`], ["failed steps", `${bad.length}`], ["CPU", time(session.cpu)],
    ["tokens", count(session.tokens)]]));
  missing(page);
  if (session.task) page.append(...part("task", session.task));
  page.append(make("div", { class: "columns" },
    make("section", {}, make("h2", {}, "Steps"), session.steps.length ? list : make("p", { class: "dim" }, "none were traced")),
    make("section", {}, make("h2", {}, "Where the time went"), waterfall(session))));
}

function draw() {
  const asked = /^#session-(\d+)$/.exec(location.hash);
  const index = asked ? Number(asked[1]) : data.sessions.length === 1 ? 0 : -1;
  if (!data.sessions.length) page.replaceChildren(make("h1", {}, data.name), make("p", {}, "No session was found."));
  else if (index >= 0 && index < data.sessions.length) sessionView(index);
  else runView();
  if (!asked) return;
  window.scrollTo(0, 0);
}

window.addEventListener("hashchange", draw);
draw();
