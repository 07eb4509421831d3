package kafka

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/localstack/process"
)

// node is one broker, one controller, or both.
type node struct {
	id                 int
	broker, controller bool
	address            string            // host:port of the listener that answers
	behind, front      string            // addresses of the listener behind Options.Front, and of what is there
	listeners          map[string]string // addresses of Options.Listeners, by their names
	settings           map[string]string
	properties         string // path of server.properties
	log                string
}

// newClusterID is 16 random bytes as Kafka's Uuid prints them; a leading "-"
// would be an option to its tools.
func newClusterID() string {
	for {
		var id [16]byte
		rand.Read(id[:])
		if s := base64.RawURLEncoding.EncodeToString(id[:]); s[0] != '-' {
			return s
		}
	}
}

// layOut decides nodes, ports and settings.
func layOut(dir string, options Options) ([]*node, error) {
	ports, free := options.Ports, 1 // the controller's port is always a free one
	if ports == nil {
		free += options.Brokers
	}
	if options.Front != nil {
		free += options.Brokers
	}
	free += options.Brokers * len(options.Listeners)
	found, err := process.FreePorts(free)
	if err != nil {
		return nil, err
	}
	controllerAddress := address(found[0])
	found = found[1:]
	if ports == nil {
		ports, found = found[:options.Brokers], found[options.Brokers:]
	}
	next := func() string {
		port := found[0]
		found = found[1:]
		return address(port)
	}
	var nodes []*node
	for i, port := range ports {
		n := &node{id: i + 1, broker: true, controller: options.Brokers == 1, address: address(port), listeners: map[string]string{}}
		for name := range options.Listeners {
			n.listeners[name] = next()
		}
		if options.Front != nil {
			n.behind = next()
			if n.front, err = options.Front(n.id, n.behind); err != nil {
				return nil, fmt.Errorf("set up the front of node %d: %w", n.id, err)
			}
		}
		nodes = append(nodes, n)
	}
	if options.Brokers > 1 {
		nodes = append(nodes, &node{id: Controller, controller: true, address: controllerAddress})
	}
	for _, n := range nodes {
		home := filepath.Join(dir, fmt.Sprintf("node-%d", n.id))
		n.properties = filepath.Join(home, "server.properties")
		n.log = filepath.Join(home, "server.log")
		n.settings = n.defaults(filepath.Join(home, "data"), controllerAddress, options)
		maps.Copy(n.settings, options.Properties)
	}
	return nodes, nil
}

func address(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

func (n *node) defaults(data, controllerAddress string, options Options) map[string]string {
	var roles, listeners []string
	if n.broker {
		roles = append(roles, "broker")
		listeners = append(listeners, "PLAINTEXT://"+n.address)
	}
	if n.controller {
		roles = append(roles, "controller")
		listeners = append(listeners, "CONTROLLER://"+controllerAddress)
	}
	var protocols strings.Builder
	protocols.WriteString("PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT")
	if n.front != "" {
		listeners = append(listeners, "FRONT://"+n.behind)
		protocols.WriteString(",FRONT:PLAINTEXT")
	}
	var advertised strings.Builder
	advertised.WriteString("PLAINTEXT://" + n.address + ",FRONT://" + n.front)
	for name, address := range n.listeners {
		listeners = append(listeners, name+"://"+address)
		protocols.WriteString("," + name + ":" + options.Listeners[name])
		advertised.WriteString("," + name + "://" + address)
	}
	replicas := strconv.Itoa(min(3, options.Brokers))
	inSync := strconv.Itoa(min(2, options.Brokers))
	settings := map[string]string{
		"node.id":                             strconv.Itoa(n.id),
		"process.roles":                       strings.Join(roles, ","),
		"listeners":                           strings.Join(listeners, ","),
		"listener.security.protocol.map":      protocols.String(),
		"controller.listener.names":           "CONTROLLER",
		"controller.quorum.bootstrap.servers": controllerAddress,
		"log.dirs":                            data,

		"offsets.topic.replication.factor":                 replicas,
		"transaction.state.log.replication.factor":         replicas,
		"transaction.state.log.min.isr":                    inSync,
		"share.coordinator.state.topic.replication.factor": replicas,
		"share.coordinator.state.topic.min.isr":            inSync,
		"group.initial.rebalance.delay.ms":                 "0",
	}
	if n.front != "" {
		settings["advertised.listeners"] = advertised.String()
	}
	if !options.Production {
		maps.Copy(settings, map[string]string{
			// Fifty partitions each take a noticeable time to create.
			"offsets.topic.num.partitions":         "5",
			"transaction.state.log.num.partitions": "5",
			// The default is half of the small heap.
			"log.cleaner.dedupe.buffer.size": strconv.Itoa(16 << 20),
			"broker.session.timeout.ms":      "3000",
			"broker.heartbeat.interval.ms":   "500",
		})
	}
	return settings
}

// propertyEscapes are what a value needs so that java.util.Properties reads it
// back; names here need nothing.
var propertyEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`, "\t", `\t`)

func (n *node) writeProperties() error {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(n.settings)) {
		fmt.Fprintf(&b, "%s=%s\n", name, propertyEscapes.Replace(n.settings[name]))
	}
	if err := os.MkdirAll(filepath.Dir(n.properties), 0o755); err != nil {
		return fmt.Errorf("write settings of node %d: %w", n.id, err)
	}
	if err := os.WriteFile(n.properties, []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("write settings of node %d: %w", n.id, err)
	}
	return nil
}

// awaitReady returns when the node answers and, where it is a broker, knows at
// least so many brokers, itself among them.
func (c *Cluster) awaitReady(ctx context.Context, n *node, brokers int) error {
	p, err := c.process(n.id)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(n.address), kgo.RequestRetries(0), kgo.DialTimeout(2*time.Second))
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		err := c.ask(ctx, client, n, brokers)
		if err == nil {
			return nil
		}
		select {
		case <-p.Done():
			return n.ended(p)
		case <-ctx.Done():
			return fmt.Errorf("node %d: %w: %w", n.id, context.Cause(ctx), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *Cluster) ask(ctx context.Context, client *kgo.Client, n *node, brokers int) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	seed := client.SeedBrokers()[0]
	if !n.broker {
		_, err := seed.Request(ctx, kmsg.NewPtrApiVersionsRequest())
		return err
	}
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = []kmsg.MetadataRequestTopic{} // none; null would be all
	response, err := seed.Request(ctx, request)
	if err != nil {
		return err
	}
	metadata := response.(*kmsg.MetadataResponse)
	// Where another program has taken the port, its Kafka answers.
	if id := metadata.ClusterID; id == nil || *id != c.id {
		return fmt.Errorf("%s is not a broker of this cluster", n.address)
	}
	known := metadata.Brokers
	self := slices.ContainsFunc(known, func(b kmsg.MetadataResponseBroker) bool { return int(b.NodeID) == n.id })
	if !self || len(known) < brokers {
		return fmt.Errorf("broker knows %d of %d brokers", len(known), brokers)
	}
	return nil
}

// ended tells why the process of a node that should run has ended.
func (n *node) ended(p *process.Process) error {
	log, err := os.ReadFile(n.log)
	if err != nil {
		return fmt.Errorf("node %d ended: %w", n.id, errors.Join(p.Err(), err))
	}
	reasons := []error{p.Err(), errors.New(firstLines(log, "ERROR", "FATAL", "Exception"))}
	if strings.Contains(string(log), "Address already in use") {
		reasons = append(reasons, errPortTaken)
	}
	return fmt.Errorf("node %d ended: %w", n.id, errors.Join(reasons...))
}
