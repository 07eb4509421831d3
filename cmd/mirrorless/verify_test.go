package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The stories in testdata/verify have two clusters, which the files
// mm2.properties (A->B) and both.properties (both flows) name A and B, and a command that writes to them.
func TestVerifyScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/verify",
		Setup: func(env *testscript.Env) error {
			for _, alias := range []string{"A", "B"} {
				c, err := kfake.NewCluster(kfake.NumBrokers(1))
				if err != nil {
					return err
				}
				env.Defer(c.Close)
				env.Setenv(alias, c.ListenAddrs()[0])
			}
			text := fmt.Sprintf("clusters = A, B\nA.bootstrap.servers = %s\nB.bootstrap.servers = %s\nA->B.enabled = true\n", env.Getenv("A"), env.Getenv("B"))
			// The flow after A->B fails, for nothing listens there.
			down := strings.Replace(text, "A, B", "A, B, C", 1) + "C.bootstrap.servers = 127.0.0.1:1\nC->B.enabled = true\n"
			both := text + "B->A.enabled = true\n"
			return errors.Join(
				os.WriteFile(filepath.Join(env.WorkDir, "mm2.properties"), []byte(text), 0o600),
				os.WriteFile(filepath.Join(env.WorkDir, "down.properties"), []byte(down), 0o600),
				os.WriteFile(filepath.Join(env.WorkDir, "both.properties"), []byte(both), 0o600))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"write": write},
	})
}

// write CLUSTER TOPIC COUNT [FAULT=RECORD…] writes records, the even ones to
// partition 0 and the odd ones to partition 1. Each twelfth has a header that
// is null. The fault is without, twice, value, or nulls, which drops null
// headers from that record on.
func write(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(ts.Getenv(args[0])), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	ts.Check(err)
	defer client.Close()
	topic := args[1]
	count, err := strconv.Atoi(args[2])
	ts.Check(err)
	fault := map[string]int{"without": -1, "twice": -1, "value": -1, "nulls": count}
	for _, arg := range args[3:] {
		name, record, _ := strings.Cut(arg, "=")
		fault[name], err = strconv.Atoi(record)
		ts.Check(err)
	}
	_, err = kadm.NewClient(client).CreateTopic(ctx, 2, 1, nil, topic)
	ts.Check(err)
	var records []*kgo.Record
	for i := range count {
		r := kgo.Record{
			Topic: topic, Partition: int32(i % 2), Timestamp: time.UnixMilli(1_700_000_000_000 + int64(i)),
			Key: fmt.Append(nil, "key ", i), Value: fmt.Append(nil, "secret ", i),
			Headers: []kgo.RecordHeader{{Key: "kept", Value: []byte("x")}},
		}
		if i%12 == 0 && i < fault["nulls"] {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: "lost"})
		}
		if i == fault["value"] {
			r.Value = []byte("other")
		}
		if i != fault["without"] {
			records = append(records, &r)
		}
		if i == fault["twice"] {
			records = append(records, new(r))
		}
	}
	ts.Check(client.ProduceSync(ctx, records...).FirstErr())
}
