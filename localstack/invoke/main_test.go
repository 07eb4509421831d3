package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/google/go-cmp/cmp"

	"mirrorless/localstack/runtimeapi"
	"mirrorless/shared/function"
)

// TestMain lets this binary be a bootstrap too: mirror's, which is what
// functions/mirror is, or one that echoes.
func TestMain(m *testing.M) {
	switch os.Getenv("BOOTSTRAP") {
	case "mirror":
		function.Start("mirror", function.Mirror)
	case "echo":
		lambda.Start(func(event json.RawMessage) (json.RawMessage, error) { return event, nil })
	default:
		os.Exit(m.Run())
	}
}

// bootstrap are the options of a function that this binary is.
func bootstrap(t *testing.T, name string, logs io.Writer) runtimeapi.Options {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return runtimeapi.Options{Path: self, Timeout: 30 * time.Second, Env: map[string]string{"BOOTSTRAP": name}, Logs: logs}
}

func TestTheResponseIsPrinted(t *testing.T) {
	event := filepath.Join(t.TempDir(), "event.json")
	if err := os.WriteFile(event, []byte(`{"text":"hello"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	o := bootstrap(t, "echo", t.Output())
	if err := invoke(t.Context(), o, event, &out); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), `{"text":"hello"}`+"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := invoke(t.Context(), o, event+".not", &out); err == nil || !strings.HasPrefix(err.Error(), "read the event: ") {
		t.Errorf("got %v, want that the event cannot be read", err)
	}
}

func TestMirrorSaysWhatItLacks(t *testing.T) {
	dir := t.TempDir()
	nobody := nobodyAt(t)
	file := filepath.Join(dir, "mm2.properties")
	text := "clusters = A, B\nA.bootstrap.servers = " + nobody + "\nB.bootstrap.servers = " + nobody + "\nA->B.enabled = true\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	table := emptyTable(t)
	for name, c := range map[string]struct {
		env  map[string]string
		want string // in what is logged or returned
	}{
		"without variables": {nil, "MIRRORLESS_CONFIG is not set: set it to the path of an mm2.properties file"},
		"without a table":   {map[string]string{"MIRRORLESS_CONFIG": file}, "MIRRORLESS_TABLE is not set"},
		"without Kafka": {map[string]string{
			"MIRRORLESS_CONFIG": file, "MIRRORLESS_TABLE": "t", "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": table,
			"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret",
		}, "at " + nobody + " over PLAINTEXT: nothing listens there"},
	} {
		t.Run(name, func(t *testing.T) {
			var logs, out bytes.Buffer
			o := bootstrap(t, "mirror", &logs)
			maps.Copy(o.Env, c.env)
			err := invoke(t.Context(), o, "../../events/self-managed.json", &out)
			if _, ok := errors.AsType[*runtimeapi.FunctionError](err); !ok || out.Len() > 0 {
				t.Fatalf("got %v and response %q, want a function's error", err, out.String())
			}
			if said := logs.String() + err.Error(); !strings.Contains(said, c.want) {
				t.Errorf("got no %q in:\n%s", c.want, said)
			}
		})
	}
}

func TestAFunctionGetsItsVariablesOnly(t *testing.T) {
	got := variables([]string{"MIRRORLESS_FLOW=A->B", "AWS_REGION=us-east-1", "HOME=/root", "AWSX=1", "MIRRORLESS_TABLE="})
	want := map[string]string{"MIRRORLESS_FLOW": "A->B", "AWS_REGION": "us-east-1", "MIRRORLESS_TABLE": ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
}

// nobodyAt is an address at which nothing listens.
func nobodyAt(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// emptyTable is a DynamoDB in which nothing is found.
func emptyTable(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := []byte("{}")
		if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".BatchGetItem") {
			body = []byte(`{"Responses": {}, "UnprocessedKeys": {}}`)
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.Header().Set("X-Amz-Crc32", strconv.FormatUint(uint64(crc32.ChecksumIEEE(body)), 10))
		w.Write(body)
	}))
	t.Cleanup(server.Close)
	return server.URL
}
