package faultproxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// piece is the most that is passed on at once, and the longest HTTP head.
	piece = 32 << 10
	// queue is how many pieces may be on their way in one direction.
	queue = 64
	// afterglow is how long an answer to nobody is awaited.
	afterglow = 2 * time.Second
	// mostHeld bounds what is held of one connection; the rest is lost.
	mostHeld = 64 << 20
)

// link is one connection through the proxy.
type link struct {
	p      *Proxy
	client *net.TCPConn
	up     *net.TCPConn
	lost   [2]atomic.Bool // by direction: half open
	dead   chan struct{}  // closed when the client's side has ended

	mu    sync.Mutex
	ended bool
	held  *Late
	kept  []byte // what is held
}

// chunk is what is under way in one direction.
type chunk struct {
	bytes []byte
	due   time.Time
}

func newLink(p *Proxy, client, up *net.TCPConn) *link {
	return &link{p: p, client: client, up: up, dead: make(chan struct{})}
}

// run passes bytes on in both directions until one side ends, and delivers what
// was held.
func (l *link) run() {
	var both sync.WaitGroup
	both.Go(func() { l.carry(Up, l.up, l.readUp) })
	both.Go(func() { l.carry(Down, l.client, l.readDown) })
	both.Wait()
	if late := l.late(); late != nil {
		l.p.settled(l.deliver(late))
	}
	l.reset()
}

// late is what is held in this connection, nil for nothing.
func (l *link) late() *Late {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

// carry moves bytes in one direction. What has been read when it ends is still
// written; then the connection ends.
func (l *link) carry(d Direction, to *net.TCPConn, read func(send func([]byte) bool)) {
	chunks := make(chan chunk, queue)
	var writing sync.WaitGroup
	writing.Go(func() {
		for c := range chunks {
			if !l.pass(d, to, c) {
				l.end()
			}
		}
	})
	read(func(b []byte) bool {
		select {
		case chunks <- chunk{b, time.Now().Add(l.p.delay())}:
			return true
		case <-l.dead:
			return false
		}
	})
	close(chunks)
	writing.Wait()
	l.end()
}

// pass writes a chunk when its time has come. It returns false where that is of
// no use any more.
func (l *link) pass(d Direction, to *net.TCPConn, c chunk) bool {
	if t := time.Until(c.due); t > 0 {
		l.p.count(func(c *Counts) { c.Delayed++ })
		if !l.wait(d, t) {
			return false
		}
	}
	stalled, rate := l.p.flow()
	if stalled != nil {
		l.p.count(func(c *Counts) { c.Stalled++ })
	}
	for stalled != nil {
		select {
		case <-stalled:
			stalled, rate = l.p.flow()
		case <-l.dead:
			if !l.goesOn(d) {
				return false
			}
			stalled = nil
		}
	}
	if l.lost[d].Load() {
		l.p.count(func(c *Counts) { c.Lost++ })
		return true
	}
	if rate > 0 {
		l.p.count(func(c *Counts) { c.Limited++ })
	}
	if _, err := to.Write(c.bytes); err != nil {
		return false
	}
	return rate == 0 || l.wait(d, time.Duration(len(c.bytes))*time.Second/time.Duration(rate))
}

// wait returns false where the connection ended meanwhile.
func (l *link) wait(d Direction, t time.Duration) bool {
	if t <= 0 {
		return true
	}
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.dead:
		return l.goesOn(d)
	}
}

// goesOn says whether bytes are to move although the client is gone: a late
// request makes sense to the upstream only after all that came before it.
func (l *link) goesOn(d Direction) bool { return d == Up && l.late() != nil }

func (l *link) readDown(send func([]byte) bool) {
	for {
		buf := make([]byte, piece)
		n, err := l.up.Read(buf)
		if n > 0 && !send(buf[:n]) || err != nil {
			return
		}
	}
}

// readUp reads what the client sends, request by request, and holds what is to
// be late.
func (l *link) readUp(send func([]byte) bool) {
	r := bufio.NewReaderSize(l.client, piece)
	for {
		head, size, err := l.request(r)
		if err != nil {
			if r.Buffered() > 0 { // part of a request: the upstream sees it too
				rest, _ := r.Peek(r.Buffered())
				send(bytes.Clone(rest))
			}
			return
		}
		if late := l.p.takeLate(head); late != nil {
			l.hold(r, late, size)
			return
		}
		for size > 0 {
			buf := make([]byte, min(size, piece))
			n, err := r.Read(buf)
			size -= n
			if n > 0 && !send(buf[:n]) || err != nil {
				return
			}
		}
	}
}

// request waits for the next request and returns its beginning, which the next
// read spoils, and how many bytes it has.
func (l *link) request(r *bufio.Reader) (head []byte, size int, err error) {
	switch l.p.o.Protocol {
	case Kafka:
		// The length of what follows, and the request's key.
		if head, err = r.Peek(6); err != nil {
			return nil, 0, err
		}
		return head, 4 + int(binary.BigEndian.Uint32(head)), nil
	case HTTP:
		return httpRequest(r)
	}
	if _, err = r.Peek(1); err != nil {
		return nil, 0, err
	}
	head, err = r.Peek(r.Buffered())
	return head, len(head), err
}

func httpRequest(r *bufio.Reader) (head []byte, size int, err error) {
	end := -1
	for n := 1; end < 0; n = len(head) + 1 {
		if _, err = r.Peek(n); err != nil { // also where the head is longer than the buffer
			return nil, 0, err
		}
		if head, err = r.Peek(r.Buffered()); err != nil {
			return nil, 0, err
		}
		end = bytes.Index(head, []byte("\r\n\r\n"))
	}
	head = head[:end+4]
	parsed, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
	if err != nil {
		return nil, 0, fmt.Errorf("read HTTP request: %w", err)
	}
	return head, len(head) + int(max(parsed.ContentLength, 0)), nil
}

// hold keeps what the client sends until it is gone.
func (l *link) hold(r *bufio.Reader, late *Late, size int) {
	l.mu.Lock()
	if l.ended { // too late to be late: the next one is
		l.mu.Unlock()
		l.p.giveBack(late)
		return
	}
	l.held = late
	l.mu.Unlock()
	var kept []byte
	if late.Cut {
		kept = make([]byte, min(size, mostHeld))
		n, _ := io.ReadFull(r, kept)
		kept = kept[:n]
		reset(l.client)
	} else {
		kept, _ = io.ReadAll(io.LimitReader(r, mostHeld))
		_, _ = io.Copy(io.Discard, r)
	}
	l.mu.Lock()
	l.kept = kept
	l.mu.Unlock()
}

// deliver sends what was held when its time has come, and lets the upstream
// answer to nobody.
func (l *link) deliver(late *Late) bool {
	t := time.NewTimer(late.After)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.p.closing:
		return false
	}
	_ = l.up.SetDeadline(time.Now().Add(afterglow))
	if l.lost[Up].Load() {
		return false
	}
	if _, err := l.up.Write(l.kept); err != nil {
		return false
	}
	answer, _ := io.ReadAll(io.LimitReader(l.up, mostHeld))
	if late.Told != nil {
		late.Told(l.kept, answer)
	}
	return true
}

// end closes the client's side, and the upstream's unless something is held for
// it.
func (l *link) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.ended = true
	close(l.dead)
	_ = l.client.Close()
	if l.held == nil {
		_ = l.up.Close()
	} else {
		_ = l.up.SetReadDeadline(time.Now()) // nobody reads the answers any more
	}
}

// cut resets both sides, but for the upstream's where something is held for it.
// It is false where they have ended already.
func (l *link) cut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	reset(l.client)
	if l.held == nil {
		reset(l.up)
	}
	return true
}

// reset ends both sides for good.
func (l *link) reset() {
	l.end()
	reset(l.client)
	reset(l.up)
}
