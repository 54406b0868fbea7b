// The routes of /openapi.json, as a page. Nothing is loaded from elsewhere, and all texts are text.
"use strict";

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// The type of a value in a few words: "integer from 1 to 100", "list of string".
function typeOf(schema, schemas) {
  if (schema.$ref) return typeOf(schemas[schema.$ref.split("/").pop()], schemas);
  if (schema.anyOf) return [...new Set(schema.anyOf.map((each) => typeOf(each, schemas)))].join(" or ");
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return `list of ${typeOf(schema.items ?? {}, schemas)}`;
  const bounds = [["from", schema.minimum], ["to", schema.maximum]].filter(([, bound]) => bound !== undefined);
  return [schema.type ?? "value", ...bounds.flat()].join(" ");
}

// The settings of a request, in the address or in the body's JSON.
function settingsTable(settings, schemas) {
  const table = element("table");
  const head = element("tr");
  head.append(...["setting", "type", "default", "meaning"].map((text) => element("th", text)));
  table.append(head);
  for (const { name, required, schema, description } of settings) {
    const row = element("tr");
    const usual = required ? "(required)" : JSON.stringify(schema.default ?? null);
    const cells = [name, typeOf(schema, schemas), usual, (description ?? schema.description ?? "").replaceAll("`", "")];
    row.append(...cells.map((text) => element("td", text)));
    table.append(row);
  }
  return table;
}

function routeSection(path, method, route, schemas) {
  const section = element("section");
  section.append(element("h2", `${method.toUpperCase()} ${path}`), element("p", route.description ?? ""));
  if (route.parameters?.length) {
    section.append(element("p", "In the address:", "about"), settingsTable(route.parameters, schemas));
  }
  const body = route.requestBody?.content?.["application/json"]?.schema;
  if (body) {
    const { properties, required } = schemas[body.$ref.split("/").pop()];
    const settings = Object.entries(properties).map(([name, schema]) => ({ name, schema, required: required?.includes(name) }));
    section.append(element("p", "As JSON in the body:", "about"), settingsTable(settings, schemas));
  }
  const statuses = Object.keys(route.responses).filter((status) => status !== "200");
  if (statuses.length) section.append(element("p", `Answers 200, or an error: ${statuses.join(", ")}.`, "about"));
  return section;
}

(async () => {
  const described = await (await fetch("/openapi.json")).json();
  const schemas = described.components.schemas;
  for (const [path, methods] of Object.entries(described.paths)) {
    for (const [method, route] of Object.entries(methods)) {
      document.getElementById("routes").append(routeSection(path, method, route, schemas));
    }
  }
})();
