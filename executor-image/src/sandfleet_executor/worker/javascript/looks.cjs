"use strict";
// Completion and inspection. V8 itself evaluates what stands before the cursor, and refuses what would change something.
const KEYWORDS = ("async await break case catch class const continue debugger default delete do else export extends false finally for" +
  " function if import in instanceof let new null of return static super switch this throw true try typeof undefined var void while yield").split(" ");
const NAME = /^[A-Za-z_$][\w$]*$/;
const MEMBER = /((?:[A-Za-z_$][\w$]*|"[^"\\\n]*"|'[^'\\\n]*'|\[[^[\]\n]*\])(?:\??\.[A-Za-z_$][\w$]*)*)\??\.([\w$]*)$/;
const WORD = /[\w$]*$/, CHAIN = /[A-Za-z_$][\w$]*(?:\??\.[\w$]+)*$/;
// How long an evaluation may take, in milliseconds; matches, and characters of a source.
const MOST_TIME = 500, MOST_MATCHES = 5000, MOST_SOURCE = 40000;

module.exports = function looks(session) {
  // The answer comes before the call returns: the session is this thread's own.
  function ask(method, options) {
    let found = null;
    session.post(method, options, (error, answer) => (found = error || answer.exceptionDetails ? null : answer));
    return found;
  }

  function evaluate(expression, more) {
    const options = { expression, throwOnSideEffect: true, timeout: MOST_TIME, silent: true, objectGroup: "looks", ...more };
    return ask("Runtime.evaluate", options)?.result ?? null;
  }

  function names(object) {
    if (!object?.objectId || object.subtype === "proxy") return [];
    const found = ask("Runtime.getProperties", { objectId: object.objectId, ownProperties: false });
    return (found?.result ?? []).map((each) => each.name);
  }

  function complete(before) {
    const member = MEMBER.exec(before), begun = member ? member[2] : WORD.exec(before)[0];
    const all = member ? names(evaluate(`Object(${member[1]})`))
      : [...(ask("Runtime.globalLexicalScopeNames", {})?.names ?? []), ...names(evaluate("globalThis")), ...KEYWORDS];
    const matches = [...new Set(all)].filter((name) => NAME.test(name) && name.startsWith(begun)).sort();
    return { matches: matches.slice(0, MOST_MATCHES), begun: begun.length };
  }

  function inspect(before, behind, detail) {
    const word = /^[\w$]*/.exec(behind)[0], chain = CHAIN.exec(before + word);
    const found = chain && evaluate(chain[0], { generatePreview: true });
    if (!found || (found.type === "undefined" && !chain[0].endsWith("undefined"))) return "";
    if (found.type === "function") return described(chain[0], found.description ?? "", detail);
    if (found.type !== "object") return `${found.type}: ${found.description ?? JSON.stringify(found.value) ?? found.type}`;
    const shown = (found.preview?.properties ?? []).map((each) => `  ${each.name}: ${each.value ?? each.type}`);
    return [`${found.className ?? found.subtype ?? found.type}: ${found.description ?? "null"}`, ...shown].join("\n");
  }

  function described(name, source, detail) {
    const given = /^[^(]*(\([^)]*\))/.exec(source) ?? /^\s*([\w$]+)\s*=>/.exec(source), kind = source.startsWith("class") ? "class" : "function";
    return [`Signature: ${name}${given ? given[1] : "()"}`, `Type: ${kind}`, ...(detail ? [source.slice(0, MOST_SOURCE)] : [])].join("\n");
  }

  return function look(request) {
    // Positions are in characters of Unicode.
    const characters = [...request.source], before = characters.slice(0, request.cursor).join(""), behind = characters.slice(request.cursor).join("");
    try {
      return request.op === "complete" ? complete(before) : { text: inspect(before, behind, request.detail_level) };
    } finally {
      ask("Runtime.releaseObjectGroup", { objectGroup: "looks" });
    }
  };
};
