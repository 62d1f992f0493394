// Loaded by Node.js before the hub's proxy. The proxy reaches hub and notebooks by addresses of this machine, and their
// certificates have these addresses. Node.js would compare a certificate with the name that the browser used instead,
// and a hub that has a name which nobody wrote into that certificate would answer 503.
"use strict";
const https = require("https");

https.Agent = class extends https.Agent {
  constructor(options) {
    super({ ...options, servername: "" }); // no name: the address is compared
  }
};
