package cluster

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// props reads one set of client properties and collects what is wrong with it.
type props struct {
	alias  string
	values map[string]string
	errs   []error
}

// fail notes an error of a key. hint must not hold a secret.
func (p *props) fail(key, hint string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf("%s.%s: %s", p.alias, key, fmt.Sprintf(hint, args...)))
}

// number returns a whole number, within what franz-go takes.
func (p *props) number(key string, byDefault, least, most int64) int64 {
	value, ok := p.values[key]
	if !ok {
		return byDefault
	}
	n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	if err != nil {
		p.fail(key, "%q is no whole number", value)
		return byDefault
	}
	return min(max(n, least), most)
}

// duration returns a number of milliseconds.
func (p *props) duration(key string, byDefault, least, most time.Duration) time.Duration {
	ms := p.number(key, byDefault.Milliseconds(), least.Milliseconds(), most.Milliseconds())
	return time.Duration(ms) * time.Millisecond
}

// Idle connections are closed long before a frozen function loses them.
const maxIdle = 30 * time.Second

// limits maps the settings that tune a client. Those of a producer concern what
// franz-go's own producer writes.
func (p *props) limits() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.ClientID(p.text("client.id", "mirrorless")),
		kgo.ConnIdleTimeout(p.duration("connections.max.idle.ms", maxIdle, time.Second, maxIdle)),
		kgo.RequestTimeoutOverhead(p.duration("request.timeout.ms", 30*time.Second, 100*time.Millisecond, 15*time.Minute)),
		kgo.RetryBackoffFn(p.backoff()),
	}
	if p.has("request.timeout.ms") {
		opts = append(opts, kgo.ProduceRequestTimeout(p.duration("request.timeout.ms", 0, 100*time.Millisecond, time.Hour)))
	}
	if p.has("metadata.max.age.ms") {
		age := p.duration("metadata.max.age.ms", 0, 10*time.Millisecond, time.Hour)
		opts = append(opts, kgo.MetadataMaxAge(age), kgo.MetadataMinAge(min(age, 2500*time.Millisecond)))
	}
	opts = append(opts, p.producer()...)
	return append(opts, p.consumer()...)
}

func (p *props) producer() []kgo.Opt {
	var opts []kgo.Opt
	if p.has("max.request.size") {
		size := p.number("max.request.size", 0, 1<<10, 1<<30)
		opts = append(opts, kgo.ProducerBatchMaxBytes(int32(size)), kgo.BrokerMaxWriteBytes(int32(max(size, 100<<20))))
	}
	if p.has("compression.type") {
		opts = append(opts, kgo.ProducerBatchCompression(p.compression()))
	}
	return opts
}

// compression reads compression.type and the level that goes with it.
func (p *props) compression() kgo.CompressionCodec {
	level := func(codec string, c kgo.CompressionCodec) kgo.CompressionCodec {
		if key := "compression." + codec + ".level"; p.has(key) {
			return c.WithLevel(int(p.number(key, 0, -1<<17, 22)))
		}
		return c
	}
	switch codec := strings.ToLower(p.text("compression.type", "none")); codec {
	case "none":
		return kgo.NoCompression()
	case "gzip":
		return level(codec, kgo.GzipCompression())
	case "snappy":
		return kgo.SnappyCompression()
	case "lz4":
		return level(codec, kgo.Lz4Compression())
	case "zstd":
		return level(codec, kgo.ZstdCompression())
	}
	p.fail("compression.type", "set none, gzip, snappy, lz4 or zstd")
	return kgo.NoCompression()
}

func (p *props) consumer() []kgo.Opt {
	var opts []kgo.Opt
	if p.has("fetch.min.bytes") {
		opts = append(opts, kgo.FetchMinBytes(int32(p.number("fetch.min.bytes", 1, 0, 1<<30))))
	}
	if p.has("fetch.max.bytes") {
		size := p.number("fetch.max.bytes", 0, 1<<10, 1<<30)
		opts = append(opts, kgo.FetchMaxBytes(int32(size)), kgo.BrokerMaxReadBytes(int32(min(max(2*size, 100<<20), 1<<30))))
	}
	if p.has("max.partition.fetch.bytes") {
		opts = append(opts, kgo.FetchMaxPartitionBytes(int32(p.number("max.partition.fetch.bytes", 0, 1, 1<<30))))
	}
	if p.has("fetch.max.wait.ms") {
		opts = append(opts, kgo.FetchMaxWait(p.duration("fetch.max.wait.ms", 0, 10*time.Millisecond, time.Hour)))
	}
	if p.has("client.rack") {
		opts = append(opts, kgo.Rack(p.text("client.rack", "")))
	}
	switch p.text("isolation.level", "") {
	case "", "read_uncommitted":
	case "read_committed":
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	default:
		p.fail("isolation.level", "set read_committed or read_uncommitted")
	}
	return opts
}

// backoff doubles retry.backoff.ms up to retry.backoff.max.ms. A third of it is
// chance, so that functions that began together do not come back together.
func (p *props) backoff() func(int) time.Duration {
	first := p.duration("retry.backoff.ms", 100*time.Millisecond, time.Millisecond, time.Hour)
	most := max(first, p.duration("retry.backoff.max.ms", time.Second, time.Millisecond, time.Hour))
	return func(try int) time.Duration {
		d := min(most, first<<min(max(try-1, 0), 16))
		return d - d/3 + rand.N(d/3+1)
	}
}

// fraction returns a number between 0.5 and 1, as the windows of logins are.
func (p *props) fraction(key string, byDefault float64) float64 {
	value := p.text(key, "")
	if value == "" {
		return byDefault
	}
	f, err := strconv.ParseFloat(value, 64)
	if err != nil {
		p.fail(key, "%q is no number", value)
		return byDefault
	}
	return min(max(f, 0.5), 1)
}

func (p *props) has(key string) bool {
	_, ok := p.values[key]
	return ok
}

func (p *props) text(key, byDefault string) string {
	if value := strings.TrimSpace(p.values[key]); value != "" {
		return value
	}
	return byDefault
}
