package kafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"mirrorless/localstack/process"
)

// Options say what cluster to start. The zero value is one broker.
type Options struct {
	// Brokers is how many there are, 1 by default. A single broker is its own
	// controller; several have a controller beside them, so that killing a
	// broker leaves somebody who elects the next leaders.
	Brokers int
	// Ports are the brokers' ports; free ones by default.
	Ports []int
	// Dir holds data, settings and logs and has to be new or empty. By default
	// a temporary folder that Close removes.
	Dir string
	// Properties are added to the settings of every broker, over those chosen
	// here. They have the names of Kafka's server.properties.
	Properties map[string]string
	// Production gives the brokers the JVM settings of kafka-server-start.sh
	// and Kafka's own time-outs, for benchmarks. By default brokers are small,
	// start quickly, and are found dead after three seconds instead of nine.
	Production bool
	// Front, if not nil, gives every broker a second listener and is called with
	// that listener's address. Clients who come that way are told to come to the
	// address that it returns, so that a proxy there sees all that they say.
	// [Cluster.Bootstrap] and what brokers say to each other pass by it. A start
	// that is tried again calls it again.
	Front func(node int, address string) (string, error)
	// Listeners gives every broker further listeners: their names, in capitals,
	// and their security protocols. What they need goes into Properties, under
	// listener.name.<name in lower case>. [Cluster.Listener] tells their addresses.
	Listeners map[string]string
}

const (
	// Controller is the node of the controller in a cluster of several brokers.
	Controller = 100

	startTimeout = 2 * time.Minute
	// portAttempts is how often a start chooses ports anew when another program
	// was quicker to take one.
	portAttempts = 3
)

// Cluster is a running Kafka cluster. Brokers are the nodes 1, 2, 3, …
type Cluster struct {
	installation Installation
	id           string
	dir          string
	temporary    bool
	nodes        []*node
	flags        []string

	mu        sync.Mutex
	processes map[int]*process.Process
}

// errPortTaken is returned by a start whose port another program has taken.
var errPortTaken = errors.New("port is taken")

// Start formats and starts a cluster and returns when every broker answers and
// knows all the others. ctx limits the start, not the cluster's life.
func (in Installation) Start(ctx context.Context, options Options) (*Cluster, error) {
	for attempt := 1; ; attempt++ {
		c, err := in.start(ctx, options)
		if errors.Is(err, errPortTaken) && options.Ports == nil && options.Dir == "" && attempt < portAttempts {
			continue
		}
		return c, err
	}
}

func (in Installation) start(ctx context.Context, options Options, flags ...string) (*Cluster, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
	defer cancel()
	if options.Brokers == 0 {
		options.Brokers = max(1, len(options.Ports))
	}
	if options.Ports != nil && len(options.Ports) != options.Brokers {
		return nil, fmt.Errorf("start Kafka: %d ports for %d brokers", len(options.Ports), options.Brokers)
	}
	c := &Cluster{installation: in, id: newClusterID(), processes: map[int]*process.Process{}}
	if options.Production {
		c.flags = scriptFlags("-Xmx1G", "-Xms1G")
	} else {
		c.flags = append(in.quickFlags(), flags...)
	}
	if err := c.makeDir(options.Dir); err != nil {
		return nil, fmt.Errorf("start Kafka: %w", err)
	}
	if err := c.boot(ctx, options); err != nil {
		return nil, fmt.Errorf("start Kafka: %w", errors.Join(err, c.Close()))
	}
	return c, nil
}

func (c *Cluster) makeDir(dir string) (err error) {
	if dir == "" {
		c.temporary = true
		c.dir, err = os.MkdirTemp("", "kafka-")
		return err
	}
	if c.dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(c.dir)
	if err == nil && len(entries) > 0 {
		return fmt.Errorf("folder %s is not empty", c.dir)
	}
	return err
}

func (c *Cluster) boot(ctx context.Context, options Options) error {
	var err error
	if c.nodes, err = layOut(c.dir, options); err != nil {
		return err
	}
	formats, formatContext := errgroup.WithContext(ctx)
	for _, n := range c.nodes {
		if err := n.writeProperties(); err != nil {
			return err
		}
		formats.Go(func() error { return c.format(formatContext, n) })
	}
	if err := formats.Wait(); err != nil {
		return err
	}
	for _, n := range c.nodes {
		if err := c.launch(n); err != nil {
			return err
		}
	}
	ready, readyContext := errgroup.WithContext(ctx)
	for _, n := range c.nodes {
		ready.Go(func() error { return c.awaitReady(readyContext, n, options.Brokers) })
	}
	return ready.Wait()
}

func (c *Cluster) format(ctx context.Context, n *node) error {
	args := []string{"format", "--cluster-id", c.id, "--config", n.properties}
	if n.controller {
		args = append(args, "--standalone")
	} else {
		args = append(args, "--no-initial-controllers")
	}
	_, err := c.installation.Tool(ctx, "kafka-storage", args...)
	return err
}

func (c *Cluster) launch(n *node) error {
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open log of node %d: %w", n.id, err)
	}
	defer log.Close()
	cmd := c.installation.run(c.flags, "server", "kafka.Kafka", n.properties)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := process.Start(cmd)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.processes[n.id] = p
	return nil
}

// Bootstrap is the brokers' addresses as bootstrap.servers has them.
func (c *Cluster) Bootstrap() string { return strings.Join(c.Seeds(), ",") }

// Seeds are the brokers' addresses.
func (c *Cluster) Seeds() []string {
	var addresses []string
	for _, n := range c.nodes {
		if n.broker {
			addresses = append(addresses, n.address)
		}
	}
	return addresses
}

// Listener is the brokers' addresses of one of Options.Listeners, as
// bootstrap.servers has them.
func (c *Cluster) Listener(name string) string {
	var addresses []string
	for _, n := range c.nodes {
		if a, ok := n.listeners[name]; ok {
			addresses = append(addresses, a)
		}
	}
	return strings.Join(addresses, ",")
}

// ID is the cluster id.
func (c *Cluster) ID() string { return c.id }

// Nodes are the ids of the brokers, in order.
func (c *Cluster) Nodes() []int {
	var ids []int
	for _, n := range c.nodes {
		if n.broker {
			ids = append(ids, n.id)
		}
	}
	return ids
}

// LogFile is the path of a node's log.
func (c *Cluster) LogFile(node int) string {
	n, err := c.node(node)
	if err != nil {
		return ""
	}
	return n.log
}

func (c *Cluster) node(id int) (*node, error) {
	i := slices.IndexFunc(c.nodes, func(n *node) bool { return n.id == id })
	if i < 0 {
		return nil, fmt.Errorf("no node %d in the cluster", id)
	}
	return c.nodes[i], nil
}

func (c *Cluster) process(id int) (*process.Process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.processes[id]
	if !ok {
		return nil, fmt.Errorf("no node %d in the cluster", id)
	}
	return p, nil
}

// Process is a node's process: its id, and what it uses.
func (c *Cluster) Process(node int) (*process.Process, error) { return c.process(node) }

// Kill ends a node with SIGKILL.
func (c *Cluster) Kill(node int) error {
	p, err := c.process(node)
	if err != nil {
		return fmt.Errorf("kill node: %w", err)
	}
	p.Kill()
	return nil
}

// Stop lets a node hand over its leaderships and end; when ctx ends first, the
// node is killed.
func (c *Cluster) Stop(ctx context.Context, node int) error {
	p, err := c.process(node)
	if err != nil {
		return fmt.Errorf("stop node: %w", err)
	}
	return p.Stop(ctx)
}

// Restart starts a killed or stopped node on its data and its port, kills it
// first where it still runs, and returns when it answers. Right after a kill,
// that takes until the controller takes the former one for dead.
func (c *Cluster) Restart(ctx context.Context, node int) error {
	n, err := c.node(node)
	if err != nil {
		return fmt.Errorf("restart node: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
	defer cancel()
	if err := c.Kill(node); err != nil {
		return err
	}
	if err := c.launch(n); err != nil {
		return err
	}
	if err := c.awaitReady(ctx, n, 1); err != nil {
		return fmt.Errorf("restart node %d: %w", node, err)
	}
	return nil
}

// Close kills all nodes and removes a temporary folder. It may be called again.
func (c *Cluster) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.processes {
		p.Kill()
	}
	if !c.temporary {
		return nil
	}
	if err := os.RemoveAll(c.dir); err != nil {
		return fmt.Errorf("close cluster: %w", err)
	}
	return nil
}
