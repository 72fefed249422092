// Sends payments side by side, each with a key of its own, and repeats what fails with the same key.
//
//   node http_client.mjs PORT COUNT
//
// Prints a line of JSON for each payment.

import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';

const [port, count] = process.argv.slice(2).map(Number);
const mostAttempts = 50;

async function send(payment, key) {
  const answer = await fetch(`http://127.0.0.1:${port}/pay`, {
    method: 'POST',
    headers: { 'Idempotency-Key': `"${key}"`, 'Content-Type': 'text/plain' },
    body: payment,
  });
  return { answer, body: await answer.text() };
}

async function pay(payment) {
  const key = randomUUID();
  for (let attempt = 1; attempt <= mostAttempts; ++attempt) {
    try {
      const { answer, body } = await send(payment, key);
      const isTransient = answer.headers.get('Idempotency-Advice') === 'keep-key';
      if (!isTransient) {
        const replayed = answer.headers.get('Idempotent-Replayed') === 'true';
        return { payment, attempt, status: answer.status, replayed, body };
      }
    } catch (error) {
      if (!(error instanceof TypeError)) throw error; // fetch's word for a network that failed
    }
    await pause(10);
  }
  throw new Error(`payment ${payment} was given up`);
}

const payments = Array.from({ length: count }, (_, number) => `payment-${number}`);
for (const done of await Promise.all(payments.map(pay))) console.log(JSON.stringify(done));
