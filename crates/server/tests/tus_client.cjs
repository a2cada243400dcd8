// Uploads a file with tus-js-client, over as many connections as that takes, and prints where it is and how often it had to
// go on: node tus_client.cjs NODE_MODULES ENDPOINT FILE
const fs = require("node:fs");
const path = require("node:path");

const [modules, endpoint, file] = process.argv.slice(2);
const tus = require(path.join(modules, "tus-js-client"));

let resumed = 0;
const upload = new tus.Upload(fs.createReadStream(file), {
  endpoint,
  uploadSize: fs.statSync(file).size,
  metadata: { filename: path.basename(file), filetype: "video/mp4" },
  retryDelays: Array(50).fill(100),
  onShouldRetry: () => {
    resumed += 1;
    return true;
  },
  onError: (error) => {
    console.error(String(error));
    process.exit(1);
  },
  onSuccess: () => console.log(JSON.stringify({ url: upload.url, resumed })),
});
upload.start();
