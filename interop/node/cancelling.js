// Makes calls that are cancelled or whose deadlines are short, and beside them, on the same
// connection, calls without a deadline. Prints as JSON how the calls of each kind ended.
// Its arguments are the directory of the contract and the address of the server.
"use strict";

const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const CALLERS = 100;
const CALLS = 40;

const [proto, address] = process.argv.slice(2);
const definition = loader.loadSync("seenset/v1/dedup_service.proto", {
  includeDirs: [proto],
  keepCase: true,
});
const { seenset } = grpc.loadPackageDefinition(definition);
const dedup = new seenset.v1.DedupService(address, grpc.credentials.createInsecure());

const ended = { impatient: {}, patient: {} };

function call(kind, key, { deadline_ms, cancel_ms }) {
  const options = deadline_ms === undefined ? {} : { deadline: Date.now() + deadline_ms };
  return new Promise((resolve) => {
    const pending = dedup.QueryAndAdd({ key }, options, (error) => {
      const code = grpc.status[error ? error.code : grpc.status.OK];
      ended[kind][code] = (ended[kind][code] ?? 0) + 1;
      resolve();
    });
    if (cancel_ms !== undefined) {
      setTimeout(() => pending.cancel(), cancel_ms);
    }
  });
}

async function impatient(caller) {
  for (let i = 0; i < CALLS; i += 1) {
    const patience_ms = (caller + i) % 10;
    const how = i % 2 === 0 ? { cancel_ms: patience_ms } : { deadline_ms: patience_ms };
    await call("impatient", `${caller} ${i}`, how);
  }
}

async function main() {
  let left = CALLERS;
  const callers = Array.from({ length: CALLERS }, async (_, caller) => {
    await impatient(caller);
    left -= 1;
  });
  for (let i = 0; left > 0; i += 1) {
    await call("patient", `patient ${i}`, {});
  }
  await Promise.all(callers);
  console.log(JSON.stringify(ended));
  dedup.close();
}

main();
