package faultproxy

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"slices"
	"time"
)

// Cut resets all connections and returns how many there were.
func (p *Proxy) Cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for l := range p.links {
		if l.cut() {
			n++
		}
	}
	p.counts.Cut += n
	return n
}

// HalfOpen makes the present connections lose what is sent in a direction from
// now on, as a firewall does that has forgotten them: nobody is told. New
// connections are whole. It returns how many there were.
func (p *Proxy) HalfOpen(d Direction) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.lost[d].Store(true)
	}
	p.counts.HalfOpen += len(p.links)
	return len(p.links)
}

// Refuse resets new connections, while it is on.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// Answer cuts all connections, and answers the first HTTP request of each new
// one with a raw response, without passing it on. nil ends it.
func (p *Proxy) Answer(response []byte) {
	p.mu.Lock()
	p.answer = response
	p.mu.Unlock()
	if response != nil {
		p.Cut()
	}
}

// reply reads one HTTP request and answers it.
func reply(client *net.TCPConn, response []byte) {
	defer client.Close()
	_ = client.SetDeadline(time.Now().Add(afterglow))
	r, err := http.ReadRequest(bufio.NewReader(client))
	if err != nil {
		return
	}
	if _, err := io.Copy(io.Discard, r.Body); err == nil {
		_, _ = client.Write(response)
	}
}

// Stall keeps all bytes from moving, in old and new connections, while it is on.
// None are lost.
func (p *Proxy) Stall(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case on && p.stalled == nil:
		p.stalled = make(chan struct{})
	case !on && p.stalled != nil:
		close(p.stalled)
		p.stalled = nil
	}
}

// Delay holds up everything that is read from now on, by a time between the two;
// zeros end it. The bytes of a connection keep their order, and what a client
// has sent arrives although it has closed its end.
func (p *Proxy) Delay(least, most time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.least, p.most = least, max(least, most)
}

// Limit bounds each connection to so many bytes a second in either direction; 0
// ends it.
func (p *Proxy) Limit(bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate = bytes
}

// Late is a request that arrives when nobody waits for it any more.
type Late struct {
	// Match says of the beginning of a request (of HTTP, the whole head) whether
	// it is to be late; nil takes the next one.
	Match func(head []byte) bool
	// Cut resets the client's connection when the request has been taken, and
	// what follows the request is lost. Else the client has to lose its patience
	// by itself, and all that it sends until then is late.
	Cut bool
	// After is the time from the end of the client's connection to the delivery.
	After time.Duration
	// Told, unless nil, gets what was delivered and what the upstream has answered
	// to it within two seconds, from a goroutine of its own. Answers to what the
	// client had sent before may be among it.
	Told func(request, answer []byte)
}

// Requests matches Kafka requests by their keys.
func Requests(keys ...int16) func(head []byte) bool {
	return func(head []byte) bool {
		return len(head) >= 6 && slices.Contains(keys, int16(binary.BigEndian.Uint16(head[4:])))
	}
}

// Late holds the next request that matches, and delivers it when its client is
// gone. Several calls wait side by side, each for a request of its own.
func (p *Proxy) Late(l Late) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = append(p.late, &l)
}

// Heal ends all faults that last. What was cut stays cut, half open stays half
// open, and what is held is delivered in its time.
func (p *Proxy) Heal() {
	p.Refuse(false)
	p.Answer(nil)
	p.Stall(false)
	p.Delay(0, 0)
	p.Limit(0)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = nil
}

// takeLate returns the call of Late that a request matches, nil for none.
func (p *Proxy) takeLate(head []byte) *Late {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, l := range p.late {
		if l.Match == nil || l.Match(head) {
			p.late = slices.Delete(p.late, i, i+1)
			p.counts.Held++
			return l
		}
	}
	return nil
}

// giveBack undoes takeLate.
func (p *Proxy) giveBack(l *Late) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = append(p.late, l)
	p.counts.Held--
}

// count changes the counts.
func (p *Proxy) count(change func(*Counts)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.counts)
}

// settled counts a late request as done.
func (p *Proxy) settled(delivered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if delivered {
		p.counts.Delivered++
	} else {
		p.counts.Dropped++
	}
}

// delay is that of bytes that are read now.
func (p *Proxy) delay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.most == p.least {
		return p.least
	}
	return p.least + time.Duration(p.rng.Int64N(int64(p.most-p.least)))
}

// flow returns what to wait for before bytes may move, nil for nothing, and how
// many may move in a second, 0 for any.
func (p *Proxy) flow() (stalled chan struct{}, rate int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stalled, p.rate
}
