// Makes calls that are cancelled or whose deadlines are short, and beside them, on the same
// connection, calls without a deadline and batches of one stream. Prints as JSON how the calls of
// each kind ended.
// Its arguments are the directory of the contract, and the address and the process of the server,
// which is stopped while calls are made and cancelled, so that it finds all of them cancelled.
"use strict";

const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const CALLERS = 240;
const ROUNDS = 10;
// For what the client has to send to be on its way.
const PAUSE_MS = 200;

const [proto, address, server] = process.argv.slice(2);
const definition = loader.loadSync("seenset/v1/dedup_service.proto", {
  includeDirs: [proto],
  keepCase: true,
});
const { seenset } = grpc.loadPackageDefinition(definition);
const dedup = new seenset.v1.DedupService(address, grpc.credentials.createInsecure());

const ended = { impatient: {}, patient: {}, streamed: {} };

function count(kind, code) {
  ended[kind][grpc.status[code]] = (ended[kind][grpc.status[code]] ?? 0) + 1;
}

function call(kind, key, { deadline_ms, cancel_ms }) {
  const options = deadline_ms === undefined ? {} : { deadline: Date.now() + deadline_ms };
  return new Promise((resolve) => {
    const pending = dedup.QueryAndAdd({ key }, options, (error) => {
      count(kind, error ? error.code : grpc.status.OK);
      resolve();
    });
    if (cancel_ms !== undefined) {
      setTimeout(() => pending.cancel(), cancel_ms);
    }
  });
}

const pause = () => new Promise((resolve) => setTimeout(resolve, PAUSE_MS));

async function impatient(round) {
  process.kill(Number(server), "SIGSTOP");
  const calls = Array.from({ length: CALLERS }, (_, caller) => {
    const how = caller % 2 === 0 ? { cancel_ms: PAUSE_MS / 2 } : { deadline_ms: PAUSE_MS / 2 };
    return call("impatient", `${round} ${caller}`, how);
  });
  await pause();
  await pause();
  process.kill(Number(server), "SIGCONT");
  await Promise.all(calls);
}

// One batch after the other on one stream.
function streamer() {
  const stream = dedup.QueryAndAddStream();
  let answered;
  stream.on("data", () => answered(grpc.status.OK));
  stream.on("error", (error) => answered?.(error.code));
  const send = (key) =>
    new Promise((resolve) => {
      answered = resolve;
      stream.write({ keys: [key] });
    });
  return { send, end: () => stream.end() };
}

async function main() {
  const stream = streamer();
  for (let round = 0; round < ROUNDS; round += 1) {
    await impatient(round);
    await call("patient", `patient ${round}`, {});
    const code = await stream.send(`streamed ${round}`);
    count("streamed", code);
    if (code !== grpc.status.OK) {
      break;
    }
  }
  stream.end();
  console.log(JSON.stringify(ended));
  dedup.close();
}

main();
