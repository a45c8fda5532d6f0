// Shows the OpenAPI document that the page names. The key that is entered stays in this page: it is stored nowhere.
"use strict";

const place = document.getElementById("api");

SwaggerUIBundle({
  domNode: place,
  url: place.dataset.document,
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  persistAuthorization: false,
  tryItOutEnabled: true,
  validatorUrl: null,
  withCredentials: false,
});
