package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// A cluster that takes connections and says nothing is waited for until somebody
// has had enough.
func TestAnInterruptedCommandSaysSoByItsExitCode(t *testing.T) {
	for _, command := range []string{"plan", "verify"} {
		t.Run(command, func(t *testing.T) {
			silent, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer silent.Close()
			file := filepath.Join(t.TempDir(), "mm2.properties")
			text := fmt.Sprintf("clusters = A, B\nA.bootstrap.servers = %[1]s\nB.bootstrap.servers = %[1]s\nA->B.enabled = true\n", silent.Addr())
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, interrupt := context.WithCancelCause(t.Context())
			defer interrupt(nil)
			go func() {
				if c, err := silent.Accept(); err == nil {
					defer c.Close()
					interrupt(errors.New("interrupt signal received"))
					<-t.Context().Done()
				}
			}()
			if got := run(ctx, []string{command, file}); got != exitInterrupted {
				t.Errorf("got exit code %d, want %d", got, exitInterrupted)
			}
		})
	}
}
