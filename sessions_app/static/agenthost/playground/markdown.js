// Markdown as DOM nodes. Text becomes text nodes and nothing is parsed as HTML, so what an agent writes cannot become a script, a
// style or a request. Covers headings, paragraphs, lists, quotes, code, tables, rules, emphasis and links; pictures become links.

import { link, make } from "./dom.js";

const DEEPEST = 12;
const MOST_COLUMNS = 60;
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`\s]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*$/;
const RULE = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(\s+|$)(.*)$/;
const QUOTE = /^ {0,3}>\s?/;
const DIVIDER = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;

// The nodes of a text.
export function markdown(text) {
  const whole = document.createDocumentFragment();
  blocks(text.replaceAll("\r\n", "\n").split("\n"), whole, 0);
  return whole;
}

function blocks(lines, parent, depth) {
  for (let at = 0; at < lines.length; ) {
    if (!lines[at].trim()) at += 1;
    else at = block(lines, at, parent, depth);
  }
}

function block(lines, at, parent, depth) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return fenced(lines, at, fence, parent);
  const heading = HEADING.exec(line);
  if (heading) {
    // The page has the first levels.
    const element = make(`h${Math.min(6, heading[1].length + 2)}`);
    inline(heading[2] ?? "", element, 0);
    parent.append(element);
    return at + 1;
  }
  if (RULE.test(line)) {
    parent.append(make("hr"));
    return at + 1;
  }
  if (depth < DEEPEST && QUOTE.test(line)) return quoted(lines, at, parent, depth);
  if (depth < DEEPEST && ITEM.test(line)) return listed(lines, at, parent, depth);
  if (line.includes("|") && at + 1 < lines.length && DIVIDER.test(lines[at + 1]) && cells(line).length <= MOST_COLUMNS) return table(lines, at, parent);
  return paragraph(lines, at, parent, depth);
}

function fenced(lines, at, fence, parent) {
  const closing = new RegExp(`^ {0,3}${fence[1][0]}{${fence[1].length},}\\s*$`);
  let end = at + 1;
  while (end < lines.length && !closing.test(lines[end])) end += 1;
  parent.append(make("pre", { tabindex: "0" }, make("code", {}, lines.slice(at + 1, end).join("\n"))));
  return end + 1;
}

function quoted(lines, at, parent, depth) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  const quote = make("blockquote");
  blocks(lines.slice(at, end).map((line) => line.replace(QUOTE, "")), quote, depth + 1);
  parent.append(quote);
  return end;
}

function listed(lines, at, parent, depth) {
  const first = ITEM.exec(lines[at]);
  const ordered = /\d/.test(first[2]);
  const start = ordered ? Number.parseInt(first[2], 10) : 1;
  const list = make(ordered ? "ol" : "ul", { start: ordered && start !== 1 ? String(start) : null });
  while (at < lines.length) {
    const item = ITEM.exec(lines[at]);
    if (!item || /\d/.test(item[2]) !== ordered || RULE.test(lines[at])) break;
    const indent = item[1].length + item[2].length + Math.min(4, Math.max(1, item[3].length));
    const content = [item[4]];
    for (at += 1; at < lines.length; at += 1) {
      const line = lines[at];
      if (line.trim() && indentation(line) < Math.min(indent, 2)) break;
      if (!line.trim() && (at + 1 >= lines.length || indentation(lines[at + 1]) < Math.min(indent, 2))) break;
      content.push(line.slice(Math.min(indent, indentation(line))));
    }
    const element = make("li");
    blocks(content, element, depth + 1);
    // A short item is text, not a paragraph.
    if (element.firstElementChild?.tagName === "P") element.firstElementChild.replaceWith(...element.firstElementChild.childNodes);
    list.append(element);
    while (at < lines.length && !lines[at].trim() && at + 1 < lines.length && ITEM.test(lines[at + 1])) at += 1;
  }
  parent.append(list);
  return at;
}

function indentation(line) {
  return line.length - line.trimStart().length;
}

function table(lines, at, parent) {
  const head = cells(lines[at]);
  const body = make("tbody");
  let end = at + 2;
  for (; end < lines.length && lines[end].includes("|"); end += 1) {
    const row = cells(lines[end]);
    body.append(make("tr", {}, head.map((_, column) => filled("td", row[column] ?? ""))));
  }
  const top = make("thead", {}, make("tr", {}, head.map((cell) => filled("th", cell))));
  parent.append(make("div", { class: "scrolling", tabindex: "0" }, make("table", {}, top, body)));
  return end;
}

function cells(line) {
  return line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
}

function filled(tag, text) {
  const element = make(tag);
  inline(text, element, 0);
  return element;
}

function paragraph(lines, at, parent, depth) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !begins(lines[end], depth)) end += 1;
  const element = make("p");
  lines.slice(at, end).forEach((line, index) => {
    if (index) element.append(make("br"));
    inline(line.trim(), element, 0);
  });
  parent.append(element);
  return end;
}

function begins(line, depth) {
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || (depth < DEEPEST && (QUOTE.test(line) || ITEM.test(line)));
}

// In this order. Each form is bounded, so a line takes linear time.
const FORMS = [
  [/^(`+)(?!`)([^]{0,2000}?[^`])\1(?!`)/, (found) => make("code", {}, found[2].trim() || found[2])],
  [/^!\[([^\]]{0,500})\]\(\s*<?([^\s()<>]{1,2000})>?[^)]{0,200}\)/, (found) => make("span", { class: "note" }, "Picture: ", link(found[2], found[1] || found[2]))],
  [/^\[([^\]]{1,500})\]\(\s*<?([^\s()<>]{1,2000})>?[^)]{0,200}\)/, (found, depth) => within(link(found[2]), found[1], depth)],
  [/^<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/, (found) => link(found[1], found[1])],
  [/^https?:\/\/[^\s<>()[\]"'`*]{1,1999}[^\s<>()[\]"'`*.,;:!?]/, (found) => link(found[0], found[0])],
  [/^(\*\*|__)(?=\S)([^]{0,2000}?[^\s\\])\1/, (found, depth) => within(make("strong"), found[2], depth)],
  [/^~~(?=\S)([^]{0,2000}?[^\s\\])~~/, (found, depth) => within(make("del"), found[1], depth)],
  [/^(\*|_)(?=[^\s*_])([^]{0,2000}?[^\s*_\\])\1(?![\w*_])/, (found, depth) => within(make("em"), found[2], depth)],
];
const SPECIAL = /[\\`!\[<*_~]|https?:\/\//g;
const MOST_FORMS = 2000;

function within(element, text, depth) {
  inline(text, element, depth + 1);
  return element;
}

function inline(text, parent, depth) {
  if (depth > DEEPEST) return void parent.append(text);
  let plain = "";
  let at = 0;
  for (let tries = 0; at < text.length; tries += 1) {
    SPECIAL.lastIndex = at;
    const next = tries < MOST_FORMS ? SPECIAL.exec(text) : null;
    if (next === null) break;
    plain += text.slice(at, next.index);
    at = next.index;
    if (text[at] === "\\" && /[!-/:-@[-`{-~]/.test(text[at + 1] ?? "")) {
      plain += text[at + 1];
      at += 2;
      continue;
    }
    const rest = text.slice(at, at + 4500);
    const inWord = text[at] === "_" && /\w/.test(text[at - 1] ?? "");
    const form = inWord ? undefined : FORMS.map(([pattern, build]) => [pattern.exec(rest), build]).find(([found]) => found);
    if (form === undefined) {
      plain += text[at];
      at += 1;
      continue;
    }
    if (plain) parent.append(plain);
    plain = "";
    parent.append(form[1](form[0], depth));
    at += form[0][0].length;
  }
  plain += text.slice(at);
  if (plain) parent.append(plain);
}
