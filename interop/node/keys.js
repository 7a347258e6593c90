// Asks the service about keys of bytes, as a crawler in Node.js does. Prints the answers as JSON.
// Its arguments are the directory of the contract and the address of the server.
"use strict";

const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [proto, address] = process.argv.slice(2);
const definition = loader.loadSync("seenset/v1/dedup_service.proto", {
  includeDirs: [proto],
  keepCase: true,
});
const { seenset } = grpc.loadPackageDefinition(definition);
const dedup = new seenset.v1.DedupService(address, grpc.credentials.createInsecure());

function call(method, request) {
  const deadline = new Date(Date.now() + 30_000);
  return new Promise((resolve, reject) => {
    dedup[method](request, { deadline }, (error, answer) =>
      error ? reject(error) : resolve(answer.seen),
    );
  });
}

async function main() {
  const answers = [];
  // In `key` both of these would be the text of two U+FFFD.
  for (const bytes of [[255, 254], [253, 252], [255, 254]]) {
    answers.push(await call("QueryAndAdd", { binary_key: Buffer.from(bytes) }));
  }
  const keys = [[255, 254], [251], [251]].map((bytes) => Buffer.from(bytes));
  answers.push(await call("QueryAndAddBatch", { binary_keys: keys }));
  const stream = dedup.QueryAndAddStream();
  const streamed = new Promise((resolve, reject) => {
    stream.on("data", (answer) => resolve(answer.seen));
    stream.on("error", reject);
  });
  stream.write({ binary_keys: [Buffer.from([251]), Buffer.from([250])] });
  stream.end();
  answers.push(await streamed);
  // Text is the same key in either field.
  answers.push(await call("QueryAndAdd", { key: "ä" }));
  answers.push(await call("Query", { binary_key: Buffer.from("ä") }));
  console.log(JSON.stringify(answers));
  dedup.close();
}

main();
