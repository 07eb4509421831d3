package faultproxy_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"mirrorless/localstack/faultproxy"
)

// patience is what a test waits for what must come; soon is what it waits to
// see that something does not.
const (
	patience = 10 * time.Second
	soon     = 50 * time.Millisecond
)

// upstream is a server that keeps what each connection sends, and echoes it.
type upstream struct {
	net.Listener
	mu    sync.Mutex
	cond  *sync.Cond
	bytes map[int]*bytes.Buffer // by connection, from 0
	ended map[int]bool
}

func serve(t *testing.T) *upstream {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &upstream{Listener: l, bytes: map[int]*bytes.Buffer{}, ended: map[int]bool{}}
	u.cond = sync.NewCond(&u.mu)
	var running sync.WaitGroup
	running.Go(func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { u.keep(n, c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	return u
}

func (u *upstream) keep(n int, c net.Conn) {
	defer c.Close()
	buf := make([]byte, 64<<10)
	for {
		got, err := c.Read(buf)
		u.mu.Lock()
		if u.bytes[n] == nil {
			u.bytes[n] = &bytes.Buffer{}
		}
		u.bytes[n].Write(buf[:got])
		u.ended[n] = err != nil
		u.cond.Broadcast()
		u.mu.Unlock()
		if err != nil {
			return
		}
		if _, err := c.Write(buf[:got]); err != nil {
			return
		}
	}
}

// received waits until a connection has sent what is wanted.
func (u *upstream) received(t *testing.T, n int, want string) {
	t.Helper()
	u.await(t, func() bool { return u.bytes[n] != nil && u.bytes[n].String() == want }, func() string {
		if u.bytes[n] == nil {
			return "nothing"
		}
		return u.bytes[n].String()
	}, want)
}

func (u *upstream) await(t *testing.T, yes func() bool, got func() string, want string) {
	t.Helper()
	late := false
	timer := time.AfterFunc(patience, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		late = true
		u.cond.Broadcast()
	})
	defer timer.Stop()
	u.mu.Lock()
	defer u.mu.Unlock()
	for !yes() {
		if late {
			t.Fatalf("upstream: got %q, want %q", got(), want)
		}
		u.cond.Wait()
	}
}

// connections is how many there were.
func (u *upstream) connections() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.bytes)
}

func start(t *testing.T, protocol faultproxy.Protocol, to string) *faultproxy.Proxy {
	t.Helper()
	p, err := faultproxy.Start(faultproxy.Options{Upstream: to, Protocol: protocol, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func dial(t *testing.T, p *faultproxy.Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp4", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func write(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

func wantEcho(t *testing.T, c net.Conn, want string) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("got %q, %v; want %q", got, err, want)
	}
}

// wantSilence fails if anything comes, or the connection ends.
func wantSilence(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(soon))
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %d bytes, %v; want none", n, err)
	}
}

func wantEnd(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if n, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %d bytes, %v; want the end of the connection", n, err)
	}
}

// request is a Kafka request of a kind.
func request(key int16, body string) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(4+len(body)))
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	return string(append(b, "\x00\x01"+body...))
}

func TestBytesPassBothWaysUnchanged(t *testing.T) {
	for name, protocol := range map[string]faultproxy.Protocol{"raw": faultproxy.Raw, "kafka": faultproxy.Kafka} {
		t.Run(name, func(t *testing.T) {
			u := serve(t)
			p := start(t, protocol, u.Addr().String())
			c := dial(t, p)
			body := make([]byte, 3<<20)
			rand.NewChaCha8([32]byte{}).Read(body)
			sent := request(0, string(body)) + request(3, "")
			var writing sync.WaitGroup
			writing.Go(func() { _, _ = io.WriteString(c, sent) })
			wantEcho(t, c, sent)
			writing.Wait()
			if got := p.Counts(); got != (faultproxy.Counts{Connections: 1}) {
				t.Errorf("got %+v, want one connection", got)
			}
		})
	}
}

func TestTheEndOfOneSideIsTheEndOfTheOther(t *testing.T) {
	u := serve(t)
	p := start(t, faultproxy.Raw, u.Addr().String())
	c := dial(t, p)
	write(t, c, "last words")
	c.Close()
	u.received(t, 0, "last words")
	u.await(t, func() bool { return u.ended[0] }, func() string { return "open" }, "ended")
}

func TestCutResetsWhatIsOpenAndNothingElse(t *testing.T) {
	u := serve(t)
	p := start(t, faultproxy.Raw, u.Addr().String())
	one, two := dial(t, p), dial(t, p)
	for _, c := range []net.Conn{one, two} {
		write(t, c, "x")
		wantEcho(t, c, "x")
	}
	if got := p.Cut(); got != 2 {
		t.Errorf("got %d connections cut, want 2", got)
	}
	wantEnd(t, one)
	wantEnd(t, two)
	three := dial(t, p)
	write(t, three, "y")
	wantEcho(t, three, "y")
}

func TestAHalfOpenConnectionLosesOneDirection(t *testing.T) {
	t.Run("the answer", func(t *testing.T) {
		u := serve(t)
		p := start(t, faultproxy.Raw, u.Addr().String())
		c := dial(t, p)
		write(t, c, "a")
		wantEcho(t, c, "a")
		p.HalfOpen(faultproxy.Down)
		write(t, c, "b")
		u.received(t, 0, "ab")
		wantSilence(t, c)
		other := dial(t, p)
		write(t, other, "c")
		wantEcho(t, other, "c")
	})
	t.Run("the request", func(t *testing.T) {
		u := serve(t)
		p := start(t, faultproxy.Raw, u.Addr().String())
		c := dial(t, p)
		write(t, c, "a")
		wantEcho(t, c, "a")
		p.HalfOpen(faultproxy.Up)
		write(t, c, "b")
		wantSilence(t, c)
		u.received(t, 0, "a")
	})
}

func TestRefusedConnectionsDoNotReachTheUpstream(t *testing.T) {
	u := serve(t)
	p := start(t, faultproxy.Raw, u.Addr().String())
	p.Refuse(true)
	if c, err := net.Dial("tcp4", p.Addr()); err == nil { // else the reset was quicker
		defer c.Close()
		wantEnd(t, c)
	}
	p.Heal()
	c := dial(t, p)
	write(t, c, "x")
	wantEcho(t, c, "x")
	if got := u.connections(); got != 1 {
		t.Errorf("got %d connections at the upstream, want 1", got)
	}
}

func TestAnswerStandsForTheUpstream(t *testing.T) {
	calls := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		_, _ = io.Copy(w, r.Body)
	}))
	defer server.Close()
	p := start(t, faultproxy.HTTP, server.Listener.Addr().String())
	client := &http.Client{Transport: &http.Transport{}}
	post := func() (int, string) {
		t.Helper()
		r, err := client.Post("http://"+p.Addr(), "text/plain", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		body, _ := io.ReadAll(r.Body)
		return r.StatusCode, string(body)
	}
	if code, body := post(); code != 200 || body != "body" {
		t.Errorf("got %d %q, want the upstream's answer", code, body)
	}
	p.Answer([]byte("HTTP/1.1 503 Busy\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbusy"))
	if code, body := post(); code != 503 || body != "busy" {
		t.Errorf("got %d %q, want 503 busy", code, body)
	}
	p.Heal()
	if code, body := post(); code != 200 || body != "body" {
		t.Errorf("got %d %q, want the upstream's answer again", code, body)
	}
	if calls != 2 {
		t.Errorf("got %d calls of the upstream, want 2", calls)
	}
}

func TestAStallLosesNothing(t *testing.T) {
	u := serve(t)
	p := start(t, faultproxy.Raw, u.Addr().String())
	c := dial(t, p)
	p.Stall(true)
	write(t, c, "one")
	wantSilence(t, c)
	late := dial(t, p)
	write(t, late, "two")
	wantSilence(t, late)
	p.Heal()
	wantEcho(t, c, "one")
	wantEcho(t, late, "two")
	if got := p.Counts(); got != (faultproxy.Counts{Connections: 2, Stalled: 2}) {
		t.Errorf("got %+v, want two pieces stalled", got)
	}
}

func TestADelayHoldsUpBothDirections(t *testing.T) {
	u := serve(t)
	p := start(t, faultproxy.Raw, u.Addr().String())
	c := dial(t, p)
	p.Delay(soon, soon)
	began := time.Now()
	write(t, c, "x")
	wantEcho(t, c, "x")
	if took := time.Since(began); took < 2*soon {
		t.Errorf("got an answer after %v, want at least %v", took, 2*soon)
	}
	if got := p.Counts(); got != (faultproxy.Counts{Connections: 1, Delayed: 2}) {
		t.Errorf("got %+v, want two pieces delayed", got)
	}
}

func TestALimitSlowsDown(t *testing.T) {
	u := serve(t)
	p := start(t, faultproxy.Raw, u.Addr().String())
	c := dial(t, p)
	p.Limit(100_000)
	began := time.Now()
	body := strings.Repeat("x", 10_000)
	write(t, c, body)
	wantEcho(t, c, body)
	write(t, c, "y")
	wantEcho(t, c, "y")
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("got 10 kB after %v, want at least 100ms", took)
	}
	if got := p.Counts(); got.Limited < 4 { // one of each in both directions
		t.Errorf("got %+v, want four pieces limited at least", got)
	}
}

func TestALateRequestArrivesWhenItsClientIsGone(t *testing.T) {
	first, produce, more := request(3, "metadata"), request(0, "produce"), request(0, "more")
	t.Run("cut off by the proxy", func(t *testing.T) {
		u := serve(t)
		p := start(t, faultproxy.Kafka, u.Addr().String())
		p.Late(faultproxy.Late{Match: faultproxy.Requests(0), Cut: true, After: soon})
		c := dial(t, p)
		write(t, c, first)
		wantEcho(t, c, first)
		write(t, c, produce)
		wantEnd(t, c)
		again := dial(t, p)
		write(t, again, produce)
		wantEcho(t, again, produce)
		u.received(t, 1, produce)
		u.received(t, 0, first+produce)
		u.Close()
		p.Close() // returns when all has been counted
		got := p.Counts()
		if got.Held != 1 || got.Delivered+got.Dropped != 1 {
			t.Errorf("got %+v, want one request held and settled", got)
		}
	})
	t.Run("gone by itself", func(t *testing.T) {
		u := serve(t)
		p := start(t, faultproxy.Kafka, u.Addr().String())
		told := make(chan string, 2)
		p.Late(faultproxy.Late{Match: faultproxy.Requests(0), Told: func(request, answer []byte) {
			told <- string(request)
			told <- string(answer)
		}})
		c := dial(t, p)
		write(t, c, first+produce)
		wantEcho(t, c, first)
		write(t, c, more)
		wantSilence(t, c)
		u.received(t, 0, first)
		c.Close()
		u.received(t, 0, first+produce+more)
		if request, answer := <-told, <-told; request != produce+more || answer != produce+more {
			t.Errorf("told of request %q and answer %q, want both to be %q", request, answer, produce+more)
		}
	})
	t.Run("after what was sent before it, however slow", func(t *testing.T) {
		u := serve(t)
		p := start(t, faultproxy.Kafka, u.Addr().String())
		p.Late(faultproxy.Late{Match: faultproxy.Requests(0), Cut: true})
		p.Delay(soon, soon)
		c := dial(t, p)
		write(t, c, first+produce)
		wantEnd(t, c)
		u.received(t, 0, first+produce)
	})
	t.Run("not after the end of the proxy", func(t *testing.T) {
		u := serve(t)
		p := start(t, faultproxy.Kafka, u.Addr().String())
		p.Late(faultproxy.Late{Match: faultproxy.Requests(0), Cut: true, After: time.Hour})
		c := dial(t, p)
		write(t, c, first)
		wantEcho(t, c, first)
		write(t, c, produce)
		wantEnd(t, c)
		p.Close()
		u.received(t, 0, first)
	})
}

func TestALateRequestOfHTTPIsWhole(t *testing.T) {
	u := serve(t)
	p := start(t, faultproxy.HTTP, u.Addr().String())
	p.Late(faultproxy.Late{Match: func(head []byte) bool { return bytes.Contains(head, []byte("UpdateItem")) }, Cut: true})
	read := "POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: GetItem\r\nContent-Length: 2\r\n\r\n{}"
	body := strings.Repeat("x", 100_000)
	update := "POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: UpdateItem\r\nContent-Length: 100000\r\n\r\n" + body
	c := dial(t, p)
	write(t, c, read[:40])
	write(t, c, read[40:])
	wantEcho(t, c, read)
	write(t, c, update)
	wantEnd(t, c)
	u.received(t, 0, read+update)
}
