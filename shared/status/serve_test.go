package status_test

import (
	"context"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mirrorless/shared/status"
)

func serve(t *testing.T, token string) status.Endpoint {
	t.Helper()
	s := httptest.NewServer(status.Handler(token, func(context.Context) []status.Report {
		return []status.Report{{Flow: "A->B", Answer: status.Yes, At: noon}}
	}))
	t.Cleanup(s.Close)
	return status.Endpoint{Address: s.Listener.Addr().String(), PID: 1, Token: token}
}

func TestARunningProcessIsAsked(t *testing.T) {
	at := serve(t, status.NewToken())
	got, err := status.Ask(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]status.Report{{Flow: "A->B", Answer: status.Yes, At: noon}}, got); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}
}

func TestNobodyIsToldWithoutTheToken(t *testing.T) {
	for _, token := range []string{"", "guess"} {
		at := serve(t, status.NewToken())
		at.Token = token
		got, err := status.Ask(t.Context(), at)
		if err == nil || !strings.Contains(err.Error(), "401") || got != nil {
			t.Errorf("token %q: got %v, %v", token, got, err)
		}
	}
}

func TestTokensDiffer(t *testing.T) {
	if a, b := status.NewToken(), status.NewToken(); a == b || len(a) < 20 {
		t.Errorf("got %s and %s", a, b)
	}
}

func TestAProcessThatIsGoneOrSilent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go io.Copy(io.Discard, conn)
		}
	}()
	at := status.Endpoint{Address: l.Addr().String(), Token: "x"}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := status.Ask(ctx, at); err == nil || !strings.Contains(err.Error(), "deadline exceeded") {
		t.Errorf("silent: got %v", err)
	}
	l.Close()
	if _, err := status.Ask(t.Context(), at); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("gone: got %v", err)
	}
}
