// Shows the service's OpenAPI document, and gives each click on a POST an Idempotency-Key of its own.
"use strict";

const HEADER = "Idempotency-Key";

// crypto.randomUUID exists on secure origins alone; getRandomValues exists everywhere.
function freshKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return "docs-" + Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// The header is required, and so Swagger UI would ask for it at every call. Here it may stay empty.
function makeKeyOptional(document) {
  for (const path of Object.values(document.paths)) {
    for (const operation of Object.values(path)) {
      for (const parameter of operation.parameters || []) {
        if (parameter.in === "header" && parameter.name.toLowerCase() === HEADER.toLowerCase()) {
          parameter.required = false;
          parameter.description = "Leave empty: this page sends a fresh key at each click. Repeat one to replay its answer.";
        }
      }
    }
  }
  return document;
}

function addKey(request) {
  const names = Object.keys(request.headers || {}).map((name) => name.toLowerCase());
  if ((request.method || "GET").toUpperCase() === "POST" && !names.includes(HEADER.toLowerCase())) {
    request.headers = { ...request.headers, [HEADER]: freshKey() };
  }
  return request;
}

async function start() {
  const response = await fetch("/openapi.json");
  SwaggerUIBundle({
    spec: makeKeyOptional(await response.json()),
    dom_id: "#swagger-ui",
    deepLinking: true,
    displayRequestDuration: true,
    requestInterceptor: addKey,
    // null: the document is not sent to a validator elsewhere.
    validatorUrl: null,
  });
}

start();
