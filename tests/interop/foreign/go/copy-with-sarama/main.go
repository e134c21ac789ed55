// By sarama. How it is called: tests/interop/foreign/copying.py.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"

	"kohort/tests/interop/foreign/login"
)

const recordsOfATransaction = 10

// One claim at a time has a transaction: the producer can have one.
type copier struct {
	producer   sarama.SyncProducer
	group      string
	out        string
	abortEvery int
	lock       sync.Mutex
	ended      int
}

func (c *copier) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (c *copier) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c *copier) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		records := next(session.Context(), claim.Messages())
		if len(records) == 0 {
			return nil
		}
		c.lock.Lock()
		// What was aborted is written again, unless the partition may be another's by now.
		for session.Context().Err() == nil && !c.copy(records) {
		}
		c.lock.Unlock()
	}
}

// Waits for a first record, and takes what is there behind it.
func next(ctx context.Context, messages <-chan *sarama.ConsumerMessage) []*sarama.ConsumerMessage {
	var records []*sarama.ConsumerMessage
	select {
	case <-ctx.Done():
		return nil
	case record, open := <-messages:
		if !open {
			return nil
		}
		records = append(records, record)
	}
	for len(records) < recordsOfATransaction {
		select {
		case record, open := <-messages:
			if !open {
				return records
			}
			records = append(records, record)
		default:
			return records
		}
	}
	return records
}

// Tells whether the records and the position behind them have been committed.
func (c *copier) copy(records []*sarama.ConsumerMessage) bool {
	aborts := (c.ended+1)%c.abortEvery == 0
	if err := c.write(records); err != nil {
		log.Printf("write: %v", err)
		c.abort()
		return false
	}
	if aborts {
		c.abort()
	} else {
		for {
			err := c.producer.CommitTxn()
			if err == nil {
				break
			}
			log.Printf("commit: %v", err)
			c.endIfFatal()
			if c.producer.TxnStatus()&sarama.ProducerTxnFlagAbortableError != 0 {
				c.abort()
				return false
			}
		}
	}
	c.ended++
	if aborts {
		fmt.Println("aborted")
	} else {
		fmt.Println("committed")
	}
	return !aborts
}

func (c *copier) write(records []*sarama.ConsumerMessage) error {
	if err := c.producer.BeginTxn(); err != nil {
		return err
	}
	messages := make([]*sarama.ProducerMessage, len(records))
	for i, record := range records {
		messages[i] = &sarama.ProducerMessage{
			Topic: c.out, Partition: record.Partition, Value: sarama.ByteEncoder(record.Value),
		}
	}
	if err := c.producer.SendMessages(messages); err != nil {
		// Its own words are how many there are.
		var each sarama.ProducerErrors
		if errors.As(err, &each) && len(each) > 0 {
			return each[0]
		}
		return err
	}
	last := records[len(records)-1]
	position := &sarama.PartitionOffsetMetadata{Partition: last.Partition, Offset: last.Offset + 1, LeaderEpoch: -1}
	positions := map[string][]*sarama.PartitionOffsetMetadata{last.Topic: {position}}
	return c.producer.AddOffsetsToTxn(positions, c.group)
}

func (c *copier) abort() {
	for {
		c.endIfFatal()
		err := c.producer.AbortTxn()
		if err == nil {
			return
		}
		log.Printf("abort: %v", err)
	}
}

func (c *copier) endIfFatal() {
	if c.producer.TxnStatus()&sarama.ProducerTxnFlagFatalError != 0 {
		log.Fatal("the producer cannot go on")
	}
}

// What sarama leaves to another library.
type conversation struct {
	hash scram.HashGeneratorFcn
	*scram.ClientConversation
}

func (c *conversation) Begin(user, password, authorization string) error {
	client, err := c.hash.NewClient(user, password, authorization)
	if err == nil {
		c.ClientConversation = client.NewConversation()
	}
	return err
}

func secure(config *sarama.Config, who *login.Login) {
	hash := scram.SHA256
	if who.Mechanism == sarama.SASLTypeSCRAMSHA512 {
		hash = scram.SHA512
	}
	// It takes being denied a group for something that passes.
	config.Metadata.Retry.Max = 2
	config.Net.TLS.Enable = true
	config.Net.TLS.Config = who.TLS()
	config.Net.SASL.Enable = true
	config.Net.SASL.Mechanism = sarama.SASLMechanism(who.Mechanism)
	config.Net.SASL.User = who.User
	config.Net.SASL.Password = who.Password
	config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{hash: hash} }
}

func main() {
	bootstrap, group, source, out := []string{os.Args[1]}, os.Args[2], os.Args[3], os.Args[4]
	abortEvery, err := strconv.Atoi(os.Args[5])
	if err != nil {
		log.Fatal(err)
	}
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Net.MaxOpenRequests = 1
	config.Metadata.Retry.Max = 100
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Transaction.ID = group
	config.Producer.Transaction.Retry.Max = 100
	config.Producer.Retry.Max = 100
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Session.Timeout = 3 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond

	if who := login.Read(6); who != nil {
		secure(config, who)
	}

	producer, err := sarama.NewSyncProducer(bootstrap, config)
	if err != nil {
		log.Fatal(err)
	}
	consumer, err := sarama.NewConsumerGroup(bootstrap, group, config)
	if err != nil {
		log.Fatal(err)
	}
	copier := &copier{producer: producer, group: group, out: out, abortEvery: abortEvery}
	for {
		if err := consumer.Consume(context.Background(), []string{source}, copier); err != nil {
			log.Printf("consume: %v", err)
			time.Sleep(100 * time.Millisecond)
		}
	}
}
