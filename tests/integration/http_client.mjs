// Sends payments side by side, each with a key of its own. Repeating what fails is left to the HTTP client, got: it repeats
// a POST when it is told that it may, with the same header fields, and so with the same key.
//
//   node http_client.mjs PORT COUNT
//
// Prints a line of JSON for each payment.

import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';

const got = createRequire(import.meta.url)('got'); // along NODE_PATH, where Debian's packages are
const [port, count] = process.argv.slice(2).map(Number);

const client = got.extend({
  retry: {
    limit: 50,
    methods: ['POST'], // not among got's own: without a key it would not be safe
    statusCodes: [408, 409, 429, 500, 503], // 409: the first one is still running; Retry-After says how long
    calculateDelay: ({ computedValue }) => Math.min(computedValue, 10), // got's decision (0: no more), at a test's pace
  },
});

async function pay(payment) {
  const answer = await client.post(`http://127.0.0.1:${port}/pay`, {
    headers: { 'Idempotency-Key': `"${randomUUID()}"`, 'Content-Type': 'text/plain' },
    body: payment,
  });
  const replayed = answer.headers['idempotent-replayed'] === 'true';
  return { payment, attempt: answer.retryCount + 1, status: answer.statusCode, replayed, body: answer.body };
}

const payments = Array.from({ length: count }, (_, number) => `payment-${number}`);
for (const done of await Promise.all(payments.map(pay))) console.log(JSON.stringify(done));
