"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const page = document.getElementById("page");
const CHUNK = 200;
const NUMBERS = new Set(["sessions", "share", "time", "wait", "steps", "failed", "tokens", "CPU", "steps that differ"]);

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

function moment(seconds) {
  return seconds > 0 && seconds < 8.64e12 ? `${new Date(seconds * 1000).toISOString().replace("T", " ").slice(0, 19)} UTC` : "";
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

// The end of a text, where errors stand.
function tail(text, lines) {
  const all = text.trimEnd().split("\n");
  return all.length > lines ? `… ${all.length - lines} lines\n${all.slice(-lines).join("\n")}` : all.join("\n");
}

function failures(session) { return session.failures; }

// A task says more than the name of its agent; its first line is enough of it.
function title(session) { return firstLine(session.task) || session.key; }

// What few readers ask for is behind a switch: phases, processors, ids.
function switchOf() {
  const button = make("button", { class: "more", onclick: () => { page.classList.toggle("inner"); said(); } });
  function said() { button.textContent = page.classList.contains("inner") ? "Hide internals" : "Show internals"; }
  said();
  return button;
}
function steps(session) { return session.steps.length || session.count; }

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

// How many sessions had a sandbox at each moment, and above them how many waited for one.
function overTime(sessions) {
  const known = sessions.filter((one) => one.began > 0);
  const box = make("div", { class: "chart" }, make("p", { class: "label" }, "sessions over time"));
  if (known.length < 2) return null;
  const first = known.reduce((least, one) => Math.min(least, one.began), Infinity);
  const last = known.reduce((most, one) => Math.max(most, one.began + (one.wait || 0) + one.seconds), 0);
  const step = (last - first) / 119 || 1;
  const [working, both] = [new Array(121).fill(0), new Array(121).fill(0)];
  for (const { began, wait, seconds } of known) {
    const [from, open, until] = [began, began + (wait || 0), began + (wait || 0) + seconds].map((at) => Math.floor((at - first) / step));
    for (let place = from; place < Math.max(until, from + 1); place += 1) { both[place] += 1; working[place] += place >= open; }
  }
  const most = Math.max(...both);
  const area = (counts, kind) => drawing("polygon", { class: kind,
    points: `0,98 ${counts.slice(0, 120).map((count, place) => `${place * 2},${98 - (count / most) * 96}`).join(" ")} 238,98` });
  box.append(drawing("svg", { viewBox: "0 0 240 100", preserveAspectRatio: "none", role: "img", "aria-label": "sessions over time" },
    area(both, "waiting"), area(working, "working")),
  make("p", { class: "dim" }, `0 to ${time(last - first)} · at most ${most} at once`,
    ...(both.some((count, place) => count > working[place]) ? [make("span", { class: "waiting" }, " ■"), " waiting for a sandbox"] : [])));
  return box;
}

function missing(parent) {
  if (data.missing.length) {
    parent.append(make("details", { class: "internal" }, make("summary", {}, `What is missing in this report (${data.missing.length})`),
      make("div", { class: "body dim" }, ...data.missing.map((one) => make("p", {}, one)))));
  }
}

function runView() {
  const sessions = data.sessions;
  const bad = sessions.map((session, index) => [session, index]).filter(([session]) => session.is_failed);
  page.replaceChildren(make("nav", {}, switchOf()), make("h1", {}, `Run ${data.name}`));
  page.append(make("div", { class: `verdict ${bad.length ? "bad" : ""}` }, make("b", {},
    bad.length ? `${bad.length} of ${sessions.length} sessions went wrong.` : `All ${sessions.length} sessions went well.`),
    ...(bad.length ? [make("span", {}, ` The first: ${bad[0][0].key}: ${bad[0][0].message || words(bad[0][0].end)} `),
      link(bad[0][1], "Look at it")] : [])));
  const total = (pick) => sessions.reduce((sum, session) => sum + (pick(session) || 0), 0);
  page.append(tiles([["sessions", String(sessions.length)], ["steps", String(total(steps))],
    ["failed steps", String(total(failures))], ["time in all", time(total((one) => one.seconds))], ["CPU in all", time(total((one) => one.cpu))],
    ["tokens", count(total((one) => one.tokens))]]), ...data.facts.map((one) => make("p", { class: "dim" }, one)));
  const counts = new Map();
  for (const { end, blame } of sessions) counts.set(end, [((counts.get(end) || [0])[0]) + 1, blame]);
  page.append(make("h2", {}, "Outcomes"), table(["outcome", "sessions", "share", "whose failure"],
    [...counts].sort((a, b) => b[1][0] - a[1][0]).map(([name, [count, blame]]) =>
      [words(name), number(String(count)), number(`${((count / sessions.length) * 100).toFixed(0)} %`), blame])));
  page.append(make("h2", {}, "Times"), make("div", { class: "charts" },
    histogram("a session", sessions.map((one) => one.seconds)),
    histogram("wait for a sandbox", sessions.map((one) => one.wait).filter((one) => one !== null)),
    histogram("a step", sessions.flatMap((one) => one.steps.map((step) => step.seconds))), overTime(sessions)));
  if (data.pairs) comparison();
  if (bad.length) {
    const reasons = new Map();
    for (const [{ message }] of bad) reasons.set(message, (reasons.get(message) || 0) + 1);
    page.append(make("h2", {}, "What went wrong"));
    if (reasons.size > 1 && reasons.size < bad.length) {
      page.append(table(["sessions", "why"], [...reasons].sort((a, b) => b[1] - a[1]).map(([why, count]) => [number(String(count)), why])));
    }
    page.append(table(["session", "end", "why"], bad.map(([session, index]) => [link(index, session.key), end(session), session.message])));
  }
  const rows = sessions.map((session, index) => [session, index]).sort((a, b) => b[0].seconds - a[0].seconds);
  page.append(make("h2", {}, "All sessions, the slowest first"), table(
    ["session", "end", "time", "wait", "steps", "failed", "tokens", "CPU"], rows.map(([session, index]) =>
      [link(index, session.key), end(session), number(time(session.seconds)), number(time(session.wait)),
        number(String(steps(session))), number(count(failures(session))), number(count(session.tokens)), number(time(session.cpu))])));
  missing(page);
}

function comparison() {
  const other = data.other.sessions;
  const flips = data.pairs.filter((pair) => pair.flipped);
  const gained = flips.filter((pair) => pair.flipped === "gained").length;
  const sum = (sessions, pick) => sessions.reduce((total, one) => total + (pick(one) || 0), 0);
  const both = (pick, show) => `${show(sum(other, pick))} → ${show(sum(data.sessions, pick))}`;
  page.append(make("h2", {}, `Compared with ${data.other.name}`), make("p", {},
    `${data.pairs.length} tasks are in both: ${gained} gained, ${flips.length - gained} lost. `
    + `Time ${both((one) => one.seconds, time)}, CPU ${both((one) => one.cpu, time)}, `
    + `${[...other, ...data.sessions].some((one) => one.tokens) ? `tokens ${both((one) => one.tokens, String)}, ` : ""}steps ${both(steps, String)}.`),
    table(["task", "", "before", "now", "steps that differ", "time", "tokens"], data.pairs.map((pair, place) => {
      const [before, after] = [other[pair.before], data.sessions[pair.after]];
      return [make("a", { href: `#pair-${place}` }, pair.key), make("span", { class: pair.flipped }, pair.flipped),
        end(before), end(after), number(pair.differs ? `${pair.differs} of ${pair.rows.length}` : "–"),
        number(`${time(before.seconds)} → ${time(after.seconds)}`), number(before.tokens || after.tokens ? `${before.tokens} → ${after.tokens}` : "–")];
    })));
}

// One task in both runs: its steps side by side.
function pairView(place) {
  const pair = data.pairs[place];
  const [before, after] = [data.other.sessions[pair.before], data.sessions[pair.after]];
  page.replaceChildren(make("nav", {}, make("a", { href: "#" }, `← Run ${data.name}`), switchOf()), make("h1", {}, pair.key));
  const first = pair.rows.find((row) => !row[2]);
  const shown = first && (first[1] < 0 ? before.steps[first[0]] : after.steps[first[1]]).number;
  page.append(make("div", { class: `verdict ${after.is_failed ? "bad" : ""}` },
    make("b", {}, { lost: "It was solved before, and fails now. ", gained: "It failed before, and is solved now. " }[pair.flipped]
      || "It ended alike in both runs. "),
    make("span", {}, first ? `The first difference is at step ${shown}.` : "No step differs.")));
  if (![before, after].every((one) => one.steps.some((step) => step.code))) {
    page.append(make("p", { class: "dim" }, "Code is missing: steps are compared by what they are and how they ended."));
  }
  const head = (name, one) => make("div", {}, make("h2", {}, name), make("p", {}, end(one), ` ${one.message}`),
    make("p", { class: "dim" }, `${time(one.seconds)} · CPU ${time(one.cpu)} · ${one.tokens ? `${one.tokens} tokens · ` : ""}${steps(one)} steps`));
  const rows = make("div");
  page.append(make("div", { class: "sides" }, head(data.other.name, before), head(data.name, after)), rows);
  lazily(rows, pair.rows, ([left, right, alike]) => make("div", { class: `sides ${alike ? "" : "differs"}` },
    ...[[before, left], [after, right]].map(([one, place]) =>
      place < 0 ? make("p", { class: "dim gone" }, "no such step") : stepView(one.steps[place], !alike))));
}

function part(name, text) {
  return text ? [...(name ? [make("p", { class: "label" }, name)] : []), make("pre", {}, text)] : [];
}

// Plots are images of the page itself: nothing in them runs, and nothing is loaded.
function plot(picture) {
  const said = `${picture.mime}, ${size(picture.size)}`;
  if (!picture.data) return make("p", { class: "dim" }, `plot (${said}) ${picture.why}`);
  return make("img", { class: "plot", alt: said, src: `data:${picture.mime};base64,${picture.data}` });
}

// A data frame as its cell has displayed it.
function frame({ rows, head }) {
  const cell = (name, text) => make(name, /^[-+]?[\d.,]+([eE][-+]?\d+)?%?$/.test(text) ? { class: "num" } : {}, text);
  return make("div", { class: "scroll frame" }, make("table", {},
    make("thead", {}, ...rows.slice(0, head).map((row) => make("tr", {}, ...row.map((text) => make("th", {}, text))))),
    make("tbody", {}, ...rows.slice(head).map((row) => make("tr", {}, ...row.map((text, place) => cell(place ? "td" : "th", text)))))));
}

function stepBody(step) {
  const notes = [step.lost && `Lost: ${step.lost}.`, step.rollback === "done" ? "Its variables were rolled back."
    : step.rollback && `Its variables were not rolled back: ${step.rollback.replace("refused: ", "")}.`,
    step.hosts?.length && `hosts: ${step.hosts.join(", ")}`].filter(Boolean);
  const facts = [step.reason && `reason ${step.reason}`, step.blame && `blame ${step.blame}`,
    `started after ${time(step.start)}`, step.cpu && `CPU ${time(step.cpu)}`, step.memory && `memory ${size(step.memory)}`,
    step.changed && `${step.changed} files changed`, step.tokens && `${step.tokens} tokens`].filter(Boolean);
  return make("div", { class: "body" }, ...part("", step.code), ...part("error", step.exception),
    ...(notes.length ? [make("p", { class: "dim" }, notes.join(" "))] : []), ...part(step.code ? "output" : "", step.output),
    ...step.frames.map(frame), ...step.pictures.map(plot), make("p", { class: "dim internal" }, facts.join(" · ")), ...part("files", step.files.join("\n")), ...part("tools", step.tools.join("\n")),
    ...part("reviews", step.reviews.join("\n")));
}

function stepView(step, open) {
  const made = make("details", { class: step.is_failed ? "bad" : "", id: `step-${step.number}` },
    make("summary", {}, make("b", { class: step.is_failed ? "failed" : "" }, `${step.number}`),
      make("span", { class: "grow" }, step.intent || firstLine(step.code) || (step.end === "accepted" && firstLine(step.output)) || words(step.kind)),
      ...(["ok", "accepted", "recorded"].includes(step.end) ? [] : [make("span", { class: "tag failed" },
        words(step.end) + (step.exception ? `: ${step.exception.split(":")[0]}` : ""))]),
      ...(step.frames.length ? [make("span", { class: "tag" }, "table")] : []),
      ...(step.rollback === "done" ? [make("span", { class: "tag" }, "rolled back")] : []),
      ...(step.review ? [make("span", { class: "tag" }, `reviewed for ${time(step.review)}`)] : []),
      ...(step.pictures.length ? [make("span", { class: "tag" }, step.pictures.length > 1 ? `${step.pictures.length} plots` : "plot")] : []),
      ...step.tools.slice(0, 3).map((name) => make("span", { class: "tag" }, name)),
      make("span", { class: "dim" }, time(step.seconds))));
  const fill = () => { if (made.open && !made.querySelector(".body")) made.append(stepBody(step)); };
  made.addEventListener("toggle", fill);
  // What a reader looks for stands open: what failed, what was drawn, and the answer.
  if (open === true || step.is_failed || step.pictures.some((one) => one.data) || step.end === "accepted") { made.open = true; fill(); }
  return made;
}

function firstLine(code) { return code.trimStart().split("\n", 1)[0].slice(0, 120); }

function waterfall(session) {
  const around = make("div", { class: "fall" });
  const total = session.bars.reduce((most, bar) => Math.max(most, bar[3] + bar[4]), 1e-6);
  const services = [...new Set(session.bars.map((bar) => bar[2]))];
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => {
    const tick = make("span", {}, time((total * share) / 1e3));
    tick.style.left = `${share * 100}%`;
    return tick;
  });
  around.append(make("div", { class: "span axis dim" }, make("span", {}, services.join(", ")), make("div", { class: "track" }, ...ticks), make("span")));
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

function cause(step) { return step.exception.split(":")[0] || words(step.end); }

// Failed steps right before one, the last five of them: the first may be why the others failed.
function inARow(all, last) {
  const found = [];
  for (let place = all.indexOf(last) - 1; place >= 0 && all[place].is_failed && found.length < 5; place -= 1) found.unshift(all[place]);
  return found;
}

// What went wrong, and the end of what the code said: the answer to the first question stands at the top.
function verdict(session, bad, last, show) {
  const box = make("div", { class: `verdict ${session.is_failed ? "bad" : ""}` },
    make("b", {}, `${session.is_failed ? "Went wrong" : session.end === "running" ? "Not over" : "Went well"}: ${words(session.end)}. `),
    // What is made of the step itself is told below.
    make("span", {}, last && session.message.startsWith(`step ${last.number} ended with`) ? "" : session.message));
  if (last) {
    const place = last.number === session.steps.length ? "the last one" : `of ${session.steps.length}`;
    box.append(make("p", {}, make("span", {}, `Step ${last.number}, ${place}, ended with ${words(last.end)}`
      + `${last.blame ? `, blame: ${last.blame}` : ""}${last.rollback === "done" ? "; its variables were rolled back" : ""}. `),
    make("button", { class: "more", onclick: () => show(last) }, `Show step ${last.number}`)));
    const before = inARow(session.steps, last);
    if (before.length) {
      box.append(make("p", { class: "dim" }, `${before.length === 1 ? "The step" : "The steps"} before it failed, too: ${before.map((step) => `${step.number} (${cause(step)})`).join(", ")}.`));
    }
    box.append(...part("it wanted", last.intent), ...part("error", tail(last.exception, 4)),
      ...part("code", tail(last.code, 8)), ...(last.exception.includes(":") ? [] : part("output", tail(last.output, 6))));
  } else if (bad.length) {
    box.append(make("p", { class: "dim" }, `${bad.length} of ${session.steps.length} steps failed on the way.`));
  }
  return box;
}

function sessionView(index) {
  const session = data.sessions[index];
  page.replaceChildren();
  page.append(make("nav", {}, ...(data.sessions.length > 1 || data.pairs ? [make("a", { href: "#" }, `← Run ${data.name}`)] : []), switchOf()));
  const heading = title(session);
  page.append(make("h1", {}, heading));
  page.append(make("p", { class: "dim" }, [heading !== session.key && session.key,
    session.sandbox && !session.key.endsWith(session.sandbox) && `sandbox ${session.sandbox}`, moment(session.began)].filter(Boolean).join(" · ")));
  if (session.trace_id) page.append(make("p", { class: "dim internal" }, `trace ${session.trace_id}`));
  const bad = session.steps.filter((step) => step.is_failed);
  const last = session.is_failed ? bad[bad.length - 1] : null;
  const list = make("div");
  const drawn = lazily(list, session.steps, stepView);
  page.append(verdict(session, bad, last, (step) => {
    drawn.upTo(session.steps.indexOf(step));
    const found = document.getElementById(`step-${step.number}`);
    found.open = true;
    found.scrollIntoView({ block: "center" });
  }));
  if (session.answer) page.append(make("div", { class: "answer" }, ...part("Answer", session.answer)));
  page.append(tiles([["time", time(session.seconds)], ["steps", `${steps(session)}`], ["failed steps", `${failures(session)}`],
    ...(session.wait === null ? [] : [["wait for a sandbox", time(session.wait)]]),
    ...(session.cpu ? [["CPU", time(session.cpu)]] : []), ...(session.tokens ? [["tokens", String(session.tokens)]] : [])]));
  if (session.task !== heading) page.append(...part("task", session.task));
  page.append(make("h2", {}, "Steps"), session.steps.length ? list : make("p", { class: "dim" }, "None are known."));
  if (session.bars.length) page.append(make("section", { class: "internal" }, make("h2", {}, "Where the time went"), waterfall(session)));
  missing(page);
}

function draw() {
  const asked = /^#session-(\d+)$/.exec(location.hash);
  const pair = /^#pair-(\d+)$/.exec(location.hash);
  const index = asked ? Number(asked[1]) : data.sessions.length === 1 && !data.pairs ? 0 : -1;
  if (!data.sessions.length) page.replaceChildren(make("h1", {}, data.name), make("p", {}, "No session was found."));
  else if (pair && data.pairs && Number(pair[1]) < data.pairs.length) pairView(Number(pair[1]));
  else if (index >= 0 && index < data.sessions.length) sessionView(index);
  else runView();
  if (!asked && !pair) return;
  window.scrollTo(0, 0);
}

window.addEventListener("hashchange", draw);
draw();
// Milliseconds from the opening of the page to here, for those who measure it.
document.body.dataset.drawn = performance.now().toFixed(0);
