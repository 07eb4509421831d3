package function

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/cluster"
	"mirrorless/shared/config"
	"mirrorless/shared/metrics"
	"mirrorless/shared/mirror"
	"mirrorless/shared/state"
	"mirrorless/shared/target"
	"mirrorless/shared/topics"
)

// Parts are what the functions of one flow are made of. Fill in the exported
// fields; ClientOptions and EventSources may be left out. Clients are made when a
// function first asks for them, and shared by those that run in one process.
type Parts struct {
	Config   *config.Config
	Settings config.Flow
	Store    state.Store
	// Stack names the deployment in consumer group names.
	Stack string
	// Owner is unique to this process or environment; leases bear it.
	Owner string
	// EventSources keeps the event sources in step; nil where that is not topics'
	// business.
	EventSources topics.EventSources
	Logger       *slog.Logger
	// AWS is the account in which topics keeps the event sources of Stack, and
	// whose identity logs in to Amazon MSK; nil where there is none.
	AWS *aws.Config
	// ClientOptions are applied to every Kafka client last.
	ClientOptions []kgo.Opt
	// Metrics takes the flow's metrics, in lines of CloudWatch's embedded metric
	// format; nobody wants them if nil.
	Metrics io.Writer

	mu      sync.Mutex
	clients map[string]*kgo.Client
	metrics *metrics.Writer
}

// Close closes the clients, not the store.
func (p *Parts) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.clients {
		c.Close()
	}
	clear(p.clients)
}

// writer writes the flow's metrics, as one for all functions of this process; nil
// where nobody wants them.
func (p *Parts) writer() *metrics.Writer {
	if p.Metrics == nil || p.Settings.Metrics == config.MetricsOff {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.metrics == nil {
		p.metrics = metrics.New(p.Metrics, metrics.Options{Settings: p.Settings, Logger: p.Logger})
	}
	return p.metrics
}

func (p *Parts) source(role config.Role) (*kgo.Client, error) {
	return p.dial(p.Settings.Source, role, p.Settings.SourceClient(role))
}

func (p *Parts) target(role config.Role) (*kgo.Client, error) {
	return p.dial(p.Settings.Target, role, p.Settings.TargetClient(role))
}

func (p *Parts) dial(alias string, role config.Role, properties map[string]string) (*kgo.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clients == nil {
		p.clients = map[string]*kgo.Client{}
	}
	key := string(role) + " " + alias
	if c := p.clients[key]; c != nil {
		return c, nil
	}
	options := p.ClientOptions
	if p.AWS != nil && p.AWS.Credentials != nil {
		options = append(slices.Clip(options), withCredentials(p.AWS.Credentials))
	}
	c, err := cluster.Dial(alias, properties, options...)
	if err != nil {
		return nil, err
	}
	p.clients[key] = c
	return c, nil
}

// explain says more of an error that is no broker's answer: which cluster could
// not be reached, over which protocol, and the likely cause.
func (p *Parts) explain(err error) error {
	_, network := errors.AsType[net.Error](err)
	if !network && !errors.Is(err, io.EOF) && !errors.Is(err, context.DeadlineExceeded) && !cluster.Refused(err) {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var failing []error
	other := err
	said := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(p.clients)) {
		c := p.clients[key]
		e, ok := errors.AsType[*cluster.Error](cluster.Explain(c, err))
		switch {
		case !ok || said[e.Alias]:
		case cluster.Unreachable(c):
			said[e.Alias] = true
			failing = append(failing, e)
		case strings.Contains(err.Error(), "cluster "+e.Alias):
			other = e
		}
	}
	if failing != nil {
		return errors.Join(failing...)
	}
	return other
}

// both dials the two clusters in the given roles.
func (p *Parts) both(source, target config.Role) (a, b *kgo.Client, err error) {
	a, errA := p.source(source)
	b, errB := p.target(target)
	return a, b, errors.Join(errA, errB)
}

// log is the target's partitions, written as the target's producer settings
// say, and in transactions if they are asked for.
func (p *Parts) log(client *kgo.Client) (mirror.Target, error) {
	compress, err := target.Compression(p.Settings.Compression)
	if err != nil {
		return nil, fmt.Errorf("set up producer of cluster %s: %w", p.Settings.Target, err)
	}
	o := target.Options{
		Compress:   compress,
		BatchBytes: min(int(p.Settings.MaxRequestSize), target.DefaultBatchBytes),
	}
	if !p.Settings.ExactlyOnce {
		return target.New(client, o), nil
	}
	return target.NewTransactions(client, target.TransactionOptions{
		Options: o, Flow: p.Settings.Flow,
		Connector: p.Settings.Connector, Cluster: p.Settings.SourceAlias, Positions: p.Settings.PositionsTopic,
	}), nil
}

// offsetSyncs is the client of the producer of offset syncs.
func (p *Parts) offsetSyncs() (*kgo.Client, error) {
	alias := p.Settings.Source
	if p.Settings.OffsetSyncsOnTarget {
		alias = p.Settings.Target
	}
	return p.dial(alias, "offset-syncs", p.Settings.OffsetSyncsClient())
}

// reverse is what the file says of the other direction.
func (p *Parts) reverse() *config.Flow {
	f, ok := p.Config.Flow(p.Settings.Reverse())
	if !ok {
		return nil
	}
	return &f
}
