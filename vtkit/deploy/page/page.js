// The search page. All that documents and queries say is text: nodes are made, markup never.
"use strict";

const form = document.getElementById("form");
const results = document.getElementById("results");
const field = (name) => form.elements.namedItem(name);
let latest = 0;

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// A snippet in parts, of which every second one is a word that found the document.
function marked(parts) {
  const paragraph = element("p");
  paragraph.dir = "auto";
  paragraph.append(...parts.map((part, number) => (number % 2 ? element("mark", part) : part)));
  return paragraph;
}

// The words of a latent term, 271:instagram facebook twitter; none for a token.
const themeWords = (token) => (/^\d+:\(?(\S.*?)\)?$/s.exec(token)?.[1] ?? "").split(" ").filter(Boolean);

// A token, or the best word of a latent term.
function readable(token) {
  const [best] = themeWords(token);
  return best ? `theme \u201c${best}\u201d` : token;
}

// A token or word with what it adds to a score; the longer the bar, the more.
function chip(name, weight, score) {
  const made = element("span");
  const shown = element("bdi");
  shown.append(name);
  made.append(shown, ` ${weight.toFixed(2)}`);
  made.style.setProperty("--share", `${Math.round((100 * weight) / (score || 1))}%`);
  return made;
}

function wordList(words, score) {
  const list = element("div", undefined, "tokens");
  for (const { word, score: part, encoder, bm25, tokens, terms } of words) {
    const theme = tokens.map(({ token }) => themeWords(token)[0]).find(Boolean);
    const made = chip(word || `meaning, no single word${theme ? ` (${theme})` : ""}`, part, score);
    const sides = [["encoder", encoder, tokens], ["BM25", bm25, terms]].filter(([, sum]) => sum);
    const said = sides.map(([name, sum, by]) => `${name} ${sum.toFixed(2)}: ${by.map(({ token }) => readable(token)).join(", ")}`);
    made.title = said.join("\n");
    list.append(made);
  }
  return list;
}

// The tokens of a query, each with a link to the documents in which it weighs most.
function tokenList({ run, tokens, special_tokens: special }, score) {
  const list = element("div", undefined, "tokens");
  for (const { token, weight } of tokens) {
    const link = element("a", readable(token));
    const words = themeWords(token).join(", ");
    link.title = words ? `A theme that the model learned; these words use it most: ${words}` : "Documents in which it weighs most";
    link.href = `?${new URLSearchParams({ unit: token, run })}`;
    list.append(chip(link, weight, score));
  }
  const sum = special.reduce((total, { weight }) => total + weight, 0);
  if (sum) list.append(element("span", `special tokens ${sum.toFixed(2)}`, "special"));
  return list;
}

// A document's fields; addresses are links.
function fieldList(fields) {
  const list = element("dl", undefined, "fields");
  for (const [name, value] of Object.entries(fields)) {
    const text = Array.isArray(value) ? value.join(", ") : String(value);
    const shown = element("dd", /^https?:\/\//i.test(text) ? undefined : text);
    shown.dir = "auto";
    if (!shown.firstChild) {
      const link = element("a", text);
      link.href = text;
      link.rel = "noopener noreferrer nofollow";
      shown.append(link);
    }
    list.append(element("dt", name), shown);
  }
  return list;
}

function resultItem(result, elsewhere) {
  const item = element("li");
  const title = element("h3", result.title || result.id);
  title.dir = "auto";
  const about = element("div", undefined, "about");
  const shown = [`${result.rank}.`, result.score.toFixed(3), result.id];
  if (elsewhere) {
    const rank = elsewhere.get(result.id);
    shown.push(rank ? `beside: ${rank}.` : "beside: not among them");
  }
  about.append(...shown.map((text) => element("span", text)));
  item.append(title, about, marked(result.parts));
  if (Object.keys(result.fields).length) item.append(fieldList(result.fields));
  item.append(wordList(result.words, result.score));
  return item;
}

function column(found, other) {
  const section = element("section");
  section.append(element("h2", found.run));
  if (found.error) {
    section.append(element("p", found.error, "error"));
    return section;
  }
  for (const warning of found.warnings) section.append(element("p", warning, "warning"));
  const largest = Math.max(...found.tokens.map(({ weight }) => weight), 0);
  section.append(tokenList(found, largest));
  if (!found.results.length) section.append(element("p", "Nothing found: no document that was searched shares a term with the query."));
  const elsewhere = other && other.results && new Map(other.results.map(({ id, rank }) => [id, rank]));
  const list = element("ol");
  list.append(...found.results.map((result) => resultItem(result, elsewhere)));
  section.append(list);
  return section;
}

async function ask(run) {
  const asked = new URLSearchParams({ q: field("q").value, run, top: field("top").value, why: "1" });
  if (field("where").value.trim()) asked.set("where", field("where").value);
  const unit = new URLSearchParams(location.search).get("unit");
  if (unit) asked.set("unit", unit);
  try {
    const answer = await fetch(`/search?${asked}`);
    return { run, ...(await answer.json()) };
  } catch (error) {
    return { run, error: `The server does not answer (${error.message}).` };
  }
}

async function search() {
  const number = ++latest;
  const runs = [field("run").value, field("beside").value].filter(Boolean);
  const found = await Promise.all(runs.map(ask));
  if (number !== latest) return; // a later search is under way
  results.replaceChildren(...found.map((each, index) => column(each, found[1 - index])));
  document.title = `${field("q").value} – vtkit search`;
}

function readAddress() {
  const asked = new URLSearchParams(location.search);
  for (const name of ["q", "where", "run", "beside", "top"]) if (asked.has(name)) field(name).value = asked.get(name);
  if (field("run").selectedIndex < 0) field("run").selectedIndex = 0;
  if (field("beside").selectedIndex < 0) field("beside").selectedIndex = 0;
  if (field("top").selectedIndex < 0) field("top").selectedIndex = 0;
  if (field("q").value.trim() || asked.has("unit")) search();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  history.pushState(null, "", `?${new URLSearchParams(new FormData(form))}`);
  search();
});
for (const name of ["run", "beside", "top"]) field(name).addEventListener("change", () => form.requestSubmit());
addEventListener("popstate", readAddress);

(async () => {
  const info = await (await fetch("/info")).json();
  const runs = Object.entries(info.runs);
  field("run").append(...runs.map(([name, documents]) => new Option(`${name} (${documents.toLocaleString()} documents)`, name)));
  field("beside").append(new Option("beside it: none", ""), ...runs.map(([name]) => new Option(`beside it: ${name}`, name)));
  field("beside").hidden = runs.length < 2;
  const types = new Map(Object.values(info.fields).flatMap(Object.entries));
  field("where").hidden = !types.size;
  field("where").title = [...types].map(([name, type]) => `${name}: ${type}`).join("\n");
  readAddress();
})();
