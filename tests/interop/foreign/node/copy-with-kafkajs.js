// By kafkajs. How it is called: tests/interop/foreign/copying.py.
const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, group, source, out, abortEvery, more = '{}'] = process.argv.slice(2)
const RECORDS_OF_A_TRANSACTION = 10
const kafka = new Kafka({
  brokers: [bootstrap],
  logLevel: logLevel.ERROR,
  retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 50 },
  ...JSON.parse(more),
})
const producer = kafka.producer({ transactionalId: group, idempotent: true, maxInFlightRequests: 1 })
const consumer = kafka.consumer({
  groupId: group,
  sessionTimeout: 3000,
  heartbeatInterval: 300,
  readUncommitted: false,
})
let ended = 0

async function copy(topic, partition, messages) {
  const aborts = (ended + 1) % Number(abortEvery) === 0
  const offset = (BigInt(messages[messages.length - 1].offset) + 1n).toString()
  const transaction = await producer.transaction()
  await transaction.send({ topic: out, messages: messages.map(({ value }) => ({ value, partition })) })
  await transaction.sendOffsets({
    consumerGroupId: group,
    topics: [{ topic, partitions: [{ partition, offset }] }],
  })
  if (aborts) {
    await transaction.abort()
  } else {
    await transaction.commit()
  }
  ended += 1
  console.log(aborts ? 'aborted' : 'committed')
  return !aborts
}

async function copyBatch({ batch: { topic, partition, messages }, resolveOffset, heartbeat, isRunning, isStale }) {
  let begin = 0
  while (begin < messages.length && isRunning() && !isStale()) {
    const some = messages.slice(begin, begin + RECORDS_OF_A_TRANSACTION)
    // What was aborted is written again. Whatever goes wrong in a transaction ends the process: the next one begins
    // behind the last that was committed.
    if (await copy(topic, partition, some).catch(end)) {
      begin += some.length
      resolveOffset(some[some.length - 1].offset)
      await heartbeat()
    }
  }
}

function end(error) {
  console.error(error)
  process.exit(1)
}

async function main() {
  await producer.connect()
  await consumer.connect()
  await consumer.subscribe({ topics: [source], fromBeginning: true })
  await consumer.run({ autoCommit: false, eachBatchAutoResolve: false, eachBatch: copyBatch })
}

process.on('unhandledRejection', end)
main().catch(end)
