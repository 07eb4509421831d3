package kafka_test

import (
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/faultproxy"
	"mirrorless/localstack/kafka"
	"mirrorless/localstack/kafka/kafkatest"
)

func TestClientsOfAFrontStayThere(t *testing.T) {
	ctx := limit(t, 3*time.Minute)
	proxies := map[int]*faultproxy.Proxy{}
	c := kafkatest.Start(t, kafka.Options{Brokers: 2, Front: func(node int, address string) (string, error) {
		p, err := faultproxy.Start(faultproxy.Options{Upstream: address, Protocol: faultproxy.Kafka})
		if err != nil {
			return "", err
		}
		t.Cleanup(p.Close)
		proxies[node] = p
		return p.Addr(), nil
	}})
	servers := func(seeds ...string) (all []string) {
		t.Helper()
		cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.DefaultProduceTopic("orders"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		admin := kadm.NewClient(cl)
		brokers, err := admin.ListBrokers(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range brokers {
			all = append(all, net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))))
		}
		if topics, err := admin.ListTopics(ctx); err != nil {
			t.Fatal(err)
		} else if !topics.Has("orders") {
			if _, err := admin.CreateTopic(ctx, 2, 1, nil, "orders"); err != nil {
				t.Fatal(err)
			}
		}
		for p := range int32(2) {
			if err := cl.ProduceSync(ctx, &kgo.Record{Partition: p, Value: []byte("x")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		return all
	}
	if got, want := servers(c.Seeds()...), c.Seeds(); !slices.Equal(got, want) {
		t.Errorf("direct clients: got brokers %q, want %q", got, want)
	}
	for node, p := range proxies {
		if n := p.Counts().Connections; n > 0 {
			t.Errorf("got %d connections through the proxy of node %d before anybody came", n, node)
		}
	}
	want := []string{proxies[1].Addr(), proxies[2].Addr()}
	if got := servers(proxies[1].Addr()); !slices.Equal(got, want) {
		t.Errorf("clients of the front: got brokers %q, want %q", got, want)
	}
	for node, p := range proxies {
		if p.Counts().Connections == 0 {
			t.Errorf("got no connection through the proxy of node %d", node)
		}
	}
}
