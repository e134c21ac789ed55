// A test of a consumer against `kohort testing serve`, in Go:
//
//	kohort testing serve --control 8475 &
//	go mod init billing && go mod tidy   # Where there is no go.mod yet.
//	go test -v
package billing

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type values = map[string]any

func call(t *testing.T, path string, body values) values {
	t.Helper()
	control := os.Getenv("CONTROL")
	if control == "" {
		control = "http://127.0.0.1:8475"
	}
	content, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.Post(control+path, "application/json", bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var answer values
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v", path, answer["error"])
	}
	return answer
}

func TestAWorkerWhoseSessionEndsComesBackAndMissesNothing(t *testing.T) {
	made := call(t, "/brokers", values{})
	broker := fmt.Sprintf("/brokers/%v", made["id"])
	group := broker + "/groups/billing"
	defer call(t, broker+"/close", values{})
	call(t, broker+"/create_topic", values{"name": "orders", "partitions": 2})
	call(t, broker+"/produce", values{"topic": "orders", "value": "first"})

	client, err := kgo.NewClient(
		kgo.SeedBrokers(made["bootstrap_servers"].(string)),
		kgo.ClientID("worker-1"),
		kgo.ConsumerGroup("billing"),
		kgo.ConsumeTopics("orders"),
		kgo.HeartbeatInterval(100*time.Millisecond),
		kgo.AutoCommitInterval(100*time.Millisecond),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var seen []string
	poll := func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		client.PollFetches(ctx).EachRecord(func(record *kgo.Record) {
			seen = append(seen, string(record.Value))
		})
	}

	poll()
	call(t, group+"/wait", values{"state": "Stable", "members": 1})
	call(t, group+"/expire", values{"client_id": "worker-1"})
	call(t, broker+"/produce", values{"topic": "orders", "value": "second"})
	for !slices.Contains(seen, "second") {
		poll()
	}
	call(t, group+"/wait", values{"state": "Stable", "members": 1, "timeout": 30})
	why := fmt.Sprint(call(t, group+"/why", values{})["why"])
	if !strings.Contains(why, "missed its session timeout") {
		t.Fatal(why)
	}
}
