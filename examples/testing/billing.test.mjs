// A test of a consumer against `kohort testing serve`, in JavaScript:
//
//   kohort testing serve --control 8475 &
//   npm install kafkajs && node --test billing.test.mjs
import assert from 'node:assert/strict'
import test from 'node:test'
import kafkajs from 'kafkajs'

const control = process.env.CONTROL ?? 'http://127.0.0.1:8475'

async function call(path, body = {}) {
  const response = await fetch(control + path, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  })
  const answer = await response.json()
  if (!response.ok) throw new Error(answer.error)
  return answer
}

test('a worker whose session ends comes back and misses nothing', async () => {
  const { id, bootstrap_servers: bootstrap } = await call('/brokers')
  const broker = `/brokers/${id}`
  const group = `${broker}/groups/billing`
  await call(`${broker}/create_topic`, { name: 'orders', partitions: 2 })
  await call(`${broker}/produce`, { topic: 'orders', value: 'first' })

  const kafka = new kafkajs.Kafka({
    clientId: 'worker-1',
    brokers: [bootstrap],
    logLevel: kafkajs.logLevel.NOTHING,
  })
  const consumer = kafka.consumer({ groupId: 'billing', heartbeatInterval: 100 })
  const seen = []
  await consumer.connect()
  await consumer.subscribe({ topics: ['orders'], fromBeginning: true })
  await consumer.run({ eachMessage: async ({ message }) => seen.push(message.value.toString()) })
  try {
    await call(`${group}/wait`, { state: 'Stable', members: 1, lag: 0 })
    await call(`${group}/expire`, { client_id: 'worker-1' })
    await call(`${broker}/produce`, { topic: 'orders', value: 'second' })
    await call(`${group}/wait`, { state: 'Stable', members: 1, lag: 0, timeout: 30 })
    // At least once: what was not committed when the session ended comes again.
    assert.deepEqual(new Set(seen), new Set(['first', 'second']))
    const { why } = await call(`${group}/why`)
    assert.match(why.join('\n'), /missed its session timeout/)
  } finally {
    await consumer.disconnect()
    await call(`${broker}/close`)
  }
})
