// Package faultproxy is a TCP proxy on 127.0.0.1 that does to connections what
// networks do: it cuts them, leaves them half open, delays and throttles them,
// and delivers a request when its sender is long gone.
//
//	p, err := faultproxy.Start(faultproxy.Options{Upstream: broker, Protocol: faultproxy.Kafka, Seed: 1})
//	defer p.Close()
//	// clients go to p.Addr()
//	p.Cut()
//	p.Late(faultproxy.Late{Match: faultproxy.Requests(0), Cut: true, After: time.Second})
//	p.Heal()
//
// Without a fault, bytes pass as they come. Faults of different kinds may
// overlap. What a proxy chooses follows from its seed and from the order of what
// happens to it. It is for tests: it trusts whoever connects.
package faultproxy

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Protocol is what clients speak, as far as the proxy has to know where a
// request begins.
type Protocol int

// The protocols.
const (
	// Raw has no requests: whatever comes next is one.
	Raw Protocol = iota
	// Kafka is Kafka's own.
	Kafka
	// HTTP is HTTP/1.1 with requests that say their Content-Length.
	HTTP
)

// Options describe a proxy. Upstream is needed.
type Options struct {
	// Upstream is the address that connections are passed on to.
	Upstream string
	Protocol Protocol
	// Seed is where the proxy's choices begin.
	Seed uint64
}

// Direction is that of bytes, as the client sees them.
type Direction int

// The directions.
const (
	Up   Direction = iota // from the client to the upstream
	Down                  // from the upstream to the client
)

// Counts are what has happened in a proxy.
type Counts struct {
	Connections int // passed on
	Refused     int // reset when they were made
	Answered    int // requests that the proxy answered itself
	Cut         int // connections that were reset
	HalfOpen    int // connections that were left half open
	Lost        int // pieces of bytes that went into a half open connection
	Stalled     int // pieces that did not move for a while
	Delayed     int // pieces that were held up
	Limited     int // pieces that were slowed down
	Held        int // requests that were held back
	Delivered   int // of those, the ones that reached the upstream late
	Dropped     int // of those, the ones whose upstream was gone too
}

// Proxy passes connections on. Its methods may be called from several
// goroutines.
type Proxy struct {
	o        Options
	listener net.Listener
	running  sync.WaitGroup
	closing  chan struct{}

	mu     sync.Mutex
	closed bool
	rng    *rand.Rand
	links  map[*link]struct{}
	counts Counts

	refuse      bool
	answer      []byte
	stalled     chan struct{} // closed when bytes may move again; nil while they move
	least, most time.Duration // of the delay
	rate        int
	late        []*Late
}

// Start starts a proxy on a free port of 127.0.0.1.
func Start(o Options) (*Proxy, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start fault proxy: %w", err)
	}
	p := &Proxy{
		o: o, listener: listener, closing: make(chan struct{}),
		rng: rand.New(rand.NewPCG(o.Seed, 0)), links: map[*link]struct{}{},
	}
	p.running.Go(p.accept)
	return p, nil
}

// Addr is where clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Counts returns what has happened so far.
func (p *Proxy) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

// Close resets all connections, drops what is held, and returns when nothing
// runs any more. It may be called again.
func (p *Proxy) Close() {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.closing)
		p.listener.Close()
	}
	for l := range p.links {
		l.reset()
	}
	p.mu.Unlock()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.running.Go(func() { p.serve(c.(*net.TCPConn)) })
	}
}

// serve passes one connection on, until it ends.
func (p *Proxy) serve(client *net.TCPConn) {
	if p.turnAway(client) {
		return
	}
	up, err := net.Dial("tcp4", p.o.Upstream)
	if err != nil {
		reset(client)
		return
	}
	l := newLink(p, client, up.(*net.TCPConn))
	p.mu.Lock()
	if p.closed {
		l.reset()
	}
	p.links[l] = struct{}{}
	p.counts.Connections++
	p.mu.Unlock()
	l.run()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// turnAway deals with a connection that is not to be passed on.
func (p *Proxy) turnAway(client *net.TCPConn) bool {
	p.mu.Lock()
	refuse, answer := p.refuse, p.answer
	switch {
	case refuse:
		p.counts.Refused++
	case answer != nil:
		p.counts.Answered++
	}
	p.mu.Unlock()
	switch {
	case refuse:
		reset(client)
	case answer != nil:
		reply(client, answer)
	default:
		return false
	}
	return true
}

// reset ends a connection with RST, so that nobody waits for the rest.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
