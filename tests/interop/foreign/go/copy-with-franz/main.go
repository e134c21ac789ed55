// By franz-go. How it is called: tests/interop/foreign/copying.py.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"kohort/tests/interop/foreign/login"
)

func main() {
	bootstrap, group, source, out := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	abortEvery, err := strconv.Atoi(os.Args[5])
	if err != nil {
		log.Fatal(err)
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.TransactionalID(group),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.SessionTimeout(3 * time.Second),
		kgo.HeartbeatInterval(300 * time.Millisecond),
	}
	if who := login.Read(6); who != nil {
		auth := scram.Auth{User: who.User, Pass: who.Password}
		mechanism := auth.AsSha256Mechanism()
		if who.Mechanism == "SCRAM-SHA-512" {
			mechanism = auth.AsSha512Mechanism()
		}
		options = append(options, kgo.DialTLSConfig(who.TLS()), kgo.SASL(mechanism))
	}
	session, err := kgo.NewGroupTransactSession(options...)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	for ended := 0; ; {
		fetches := session.PollRecords(ctx, 10)
		fetches.EachError(func(topic string, partition int32, err error) {
			log.Printf("%s-%d: %v", topic, partition, err)
		})
		if fetches.NumRecords() == 0 {
			continue
		}
		aborts := (ended+1)%abortEvery == 0
		if err := session.Begin(); err != nil {
			log.Fatal(err)
		}
		sent := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Topic: out, Partition: record.Partition, Value: record.Value}, sent.Promise())
		})
		failure := sent.Err()
		if failure != nil {
			log.Printf("write: %v", failure)
		}
		// What is not committed is read again: the session goes back by itself.
		committed, err := session.End(ctx, kgo.TransactionEndTry(failure == nil && !aborts))
		switch {
		case err != nil:
			log.Fatal(err)
		case committed:
			fmt.Println("committed")
		case aborts:
			fmt.Println("aborted")
		default:
			continue
		}
		ended++
	}
}
