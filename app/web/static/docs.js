// Shows the service's OpenAPI document. Each click on a POST gets a new Idempotency-Key, and ids of what an answer has made
// are filled in where an operation asks for them.
"use strict";

const HEADER = "Idempotency-Key";

// The path parameter that takes an id, by the beginning of the id.
const PARAMETERS = { bud: "budget_id", res: "reservation_id", run: "run_id", swp: "sweep_id", aud: "audit_id", key: "key_id", ds: "dataset_id", ent: "entry_id" };

// crypto.randomUUID exists only on secure origins; getRandomValues exists everywhere.
function freshKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return "docs-" + Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// Follows a reference to a component that several operations share.
function resolved(description, part) {
  return part.$ref ? part.$ref.slice(2).split("/").reduce((found, step) => found[step], description) : part;
}

function* operations(description) {
  for (const [path, item] of Object.entries(description.paths)) {
    for (const [method, operation] of Object.entries(item)) {
      yield { path, method, parameters: (operation.parameters || []).map((each) => resolved(description, each)) };
    }
  }
}

// The header is required, so Swagger UI would ask for it at every call. Here it may stay empty.
function makeKeyOptional(description) {
  for (const { parameters } of operations(description)) {
    for (const parameter of parameters) {
      if (parameter.in === "header" && parameter.name.toLowerCase() === HEADER.toLowerCase()) {
        parameter.required = false;
        parameter.description = "Leave empty: this page sends a fresh key at each click. Repeat one to replay its answer.";
      }
    }
  }
  return description;
}

// An error's answer names its codes, and the schema of a problem says what each means. Here the meanings are shown beside
// the codes.
function explainCodes(description) {
  const { schemas, responses } = description.components;
  const lines = schemas.ProblemBody.properties.code.description.matchAll(/^- `(\w+)`: .*$/gm);
  const explained = Object.fromEntries(Array.from(lines, ([line, code]) => [code, line]));
  for (const response of Object.values(responses)) {
    const [phrase, codes] = response.description.split(": ");
    response.description = [`${phrase}.`, "", ...Array.from(codes.matchAll(/\w+/g), ([code]) => explained[code])].join("\n");
  }
  return description;
}

function addKey(request) {
  const names = Object.keys(request.headers || {}).map((name) => name.toLowerCase());
  if ((request.method || "GET").toUpperCase() === "POST" && !names.includes(HEADER.toLowerCase())) {
    request.headers = { ...request.headers, [HEADER]: freshKey() };
  }
  return request;
}

// Keeps the operations whose path, name or summary contains every word.
function findOperations(tags, phrase) {
  const words = phrase.toLowerCase().split(/\s+/);
  const has = (operation) => {
    const text = [operation.get("path"), operation.getIn(["operation", "operationId"]), operation.getIn(["operation", "summary"])];
    return words.every((word) => text.join(" ").toLowerCase().includes(word));
  };
  return tags.map((tag) => tag.update("operations", (all) => all.filter(has))).filter((tag) => tag.get("operations").size);
}

// The page has its own beginning, with a field for finding operations, in place of Swagger UI's.
const OurParts = () => ({
  fn: { opsFilter: findOperations },
  wrapComponents: { InfoContainer: () => () => null, FilterContainer: () => () => null },
});

// Gives names to what Swagger UI leaves unnamed for screen readers, and lets the keyboard reach everything.
function nameControls(part) {
  const set = (selector, attribute, value) => {
    for (const each of part.querySelectorAll(`${selector}:not([${attribute}])`)) each.setAttribute(attribute, value(each));
  };
  set(".examples-select-element", "aria-label", () => "Example");
  set("textarea.body-param__text", "aria-label", () => "Request body");
  set("tr[data-param-name] select, tr[data-param-name] textarea", "aria-label", (each) => each.closest("tr").dataset.paramName);
  set("tr[data-property-name] :is(input, select, textarea)", "aria-label", (each) => each.closest("tr").dataset.propertyName);
  set("pre", "tabindex", () => "0");
}

// Swagger UI opens the operation of the address with which the page is loaded, but not of a link that is followed later.
function openOperation(ui) {
  const [, tag, operation] = decodeURIComponent(location.hash.slice(1)).split("/");
  if (!operation) return;
  ui.layoutActions.show(["operations-tag", tag], true);
  ui.layoutActions.show(["operations", tag, operation], true);
  const place = document.getElementById(`operations-${tag.replaceAll(" ", "_")}-${operation}`);
  if (place) place.scrollIntoView();
}

function followScheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
  dark.addEventListener("change", apply);
  apply();
}

async function start() {
  const response = await fetch("openapi.json");
  const description = explainCodes(makeKeyOptional(await response.json()));
  // Requests go to where this page is, even if a proxy serves it below a path.
  const below = new URL(".", location.href).pathname.slice(0, -1);
  if (below) description.servers = [{ url: below }];

  function fillIn(answer) {
    const id = answer.ok && answer.body && answer.body.id;
    const name = typeof id === "string" && PARAMETERS[id.split("_")[0]];
    for (const { path, method, parameters } of operations(description)) {
      if (name && parameters.some((parameter) => parameter.in === "path" && parameter.name === name)) {
        ui.specActions.changeParam([path, method], name, "path", id, false);
      }
    }
    return answer;
  }

  const ui = SwaggerUIBundle({
    spec: description,
    dom_id: "#swagger-ui",
    plugins: [OurParts],
    deepLinking: true,
    displayRequestDuration: true,
    tryItOutEnabled: true,
    docExpansion: "none",
    syntaxHighlight: { theme: "obsidian" },
    defaultModelsExpandDepth: 0,
    requestInterceptor: addKey,
    responseInterceptor: fillIn,
    // With null, the document is not sent to a validator elsewhere.
    validatorUrl: null,
  });

  document.getElementById("find").addEventListener("input", (event) => {
    const phrase = event.target.value.trim();
    // Groups begin closed, because drawing all of their operations at once is slow.
    for (const { name } of description.tags) ui.layoutActions.show(["operations-tag", name], phrase !== "");
    ui.layoutActions.updateFilter(phrase);
  });
  addEventListener("hashchange", () => openOperation(ui));
  const shown = document.getElementById("swagger-ui");
  new MutationObserver(() => nameControls(shown)).observe(shown, { childList: true, subtree: true });
}

document.querySelector(".skip").addEventListener("click", () => document.getElementById("operations").focus());
followScheme();
start();
