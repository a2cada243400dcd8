// node drain.mjs postgres://…: drains 20,000 no-op jobs in the fastest settings that graphile-worker documents
// (https://worker.graphile.org/docs/performance) and prints jobs per second.
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";

const JOBS = 20_000;
const [connectionString] = process.argv.slice(2);
const logger = new Logger(() => () => {});

const utils = await makeWorkerUtils({ connectionString, logger });
await utils.migrate();
await utils.release();

const client = new pg.Client({ connectionString });
await client.connect();
await client.query(
  `SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(
     SELECT json_populate_record(NULL::graphile_worker.job_spec, json_build_object(
       'identifier', 'noop', 'payload', json_build_object('n', n, 'text', repeat('x', 180))))
     FROM generate_series(1, $1) AS n))`,
  [JOBS],
);

let left = JOBS;
const started = process.hrtime.bigint();
const runner = await run({
  preset: {
    worker: {
      connectionString,
      concurrentJobs: 24,
      maxPoolSize: 25,
      localQueue: { size: 500 },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
    },
  },
  logger,
  noHandleSignals: true,
  taskList: {
    noop: () => {
      left -= 1;
      if (left === 0) setImmediate(() => runner.stop());
    },
  },
});
await runner.promise;
const seconds = Number(process.hrtime.bigint() - started) / 1e9;

const { rows } = await client.query("SELECT count(*)::int AS jobs FROM graphile_worker._private_jobs");
await client.end();
if (rows[0].jobs !== 0) throw new Error(`${rows[0].jobs} jobs are left`);
console.log(Math.round(JOBS / seconds));
process.exit(0);
