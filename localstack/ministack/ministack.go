// Package ministack runs MiniStack, an emulator of AWS services that needs no
// Docker, from PyPI. mirrorless uses its DynamoDB, and deploys its template there:
// functions run as the bootstrap binaries that they are, in processes.
//
//	s, err := ministack.Start(ctx, "")
//	defer s.Close()
//	// BaseEndpoint: s.Endpoint(), any region, any credentials
//
// It differs from AWS: numbers of more than 28 digits are rounded (an int64 is
// exact) and overlapping update paths are accepted. It listens on 127.0.0.1
// only and keeps nothing after its end.
package ministack

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"mirrorless/localstack/cache"
	"mirrorless/localstack/process"
)

// Version is the release of MiniStack on PyPI.
const Version = "1.5.33"

// Folder is where Find installs it, below the cache's folder.
const Folder = "ministack-sam-" + Version

// translator makes CloudFormation of a SAM template, as AWS does it.
const translator = "aws-sam-translator==1.115.0"

// missing is what a person without a usable Python has to know.
const missing = "ministack needs Python 3.10 or newer with pip and venv (Debian: apt-get install python3-venv)"

// Server is a running MiniStack.
type Server struct {
	process  *process.Process
	endpoint string
	folder   string
}

// Find installs MiniStack below cacheDir ([cache.Root] where it is empty) once,
// and returns the script that its Python, beside it, runs. Its error says in one
// line what is missing.
func Find(ctx context.Context, cacheDir string) (string, error) {
	dir, err := cache.Fill(ctx, cacheDir, Folder, func(dir string) error { return install(ctx, dir) })
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "bin", "ministack"), nil
}

func install(ctx context.Context, dir string) error {
	python, err := exec.LookPath("python3")
	if err != nil {
		return fmt.Errorf("%s: %w", missing, err)
	}
	const check = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))"
	if out, err := exec.CommandContext(ctx, python, "-c", check).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %s: %s%w", missing, python, lastLine(out), err)
	}
	for _, command := range [][]string{
		{python, "-m", "venv", dir},
		{filepath.Join(dir, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "ministack==" + Version, translator},
	} {
		if out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("install ministack: %s: %s%w", strings.Join(command, " "), lastLine(out), err)
		}
	}
	return nil
}

// lastLine is the last line of a program's output, ready to stand before the
// error that it ended with.
func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return last + ": "
	}
	return ""
}

// Start installs MiniStack if need be, starts it on a free port and returns
// when it answers. cacheDir is as for [Find].
func Start(ctx context.Context, cacheDir string) (*Server, error) {
	command, err := Find(ctx, cacheDir)
	if err != nil {
		return nil, err
	}
	ports, err := process.FreePorts(1)
	if err != nil {
		return nil, fmt.Errorf("start ministack: %w", err)
	}
	folder, err := os.MkdirTemp("", "ministack-")
	if err != nil {
		return nil, fmt.Errorf("start ministack: %w", err)
	}
	s := &Server{endpoint: fmt.Sprintf("http://127.0.0.1:%d", ports[0]), folder: folder}
	var output bytes.Buffer
	// The script's first line is where it was installed, which is another place
	// once the folder has moved.
	cmd := exec.Command(filepath.Join(filepath.Dir(command), "python"), command)
	// What the caller has set for its own AWS must not reach the emulator.
	cmd.Env = append(slices.DeleteFunc(cmd.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "AWS_") }),
		"BIND_HOST=127.0.0.1", "MINISTACK_HOST=127.0.0.1",
		"GATEWAY_PORT="+strconv.Itoa(ports[0]),
		"TMPDIR="+folder,
		"LOG_LEVEL=WARNING",
	)
	cmd.Stdout, cmd.Stderr = &output, &output
	if s.process, err = process.Start(cmd); err != nil {
		os.RemoveAll(folder)
		return nil, err
	}
	if err := s.awaitReady(ctx); err != nil {
		s.Close()
		return nil, fmt.Errorf("start ministack: %s%w", lastLine(output.Bytes()), err)
	}
	return s, nil
}

func (s *Server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("no answer from %s within a minute", s.endpoint))
	defer cancel()
	for {
		if err := s.ask(ctx); err == nil {
			return nil
		}
		select {
		case <-s.process.Done():
			return fmt.Errorf("process ended: %w", s.process.Err())
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// ask lists the tables: the health page answers before DynamoDB does.
func (s *Server) ask(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.endpoint, strings.NewReader("{}"))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-amz-json-1.0")
	request.Header.Set("X-Amz-Target", "DynamoDB_20120810.ListTables")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK || !bytes.Contains(body, []byte("TableNames")) {
		return fmt.Errorf("list tables: %s: %s", response.Status, body)
	}
	return nil
}

// Endpoint is the URL that stands for AWS_ENDPOINT_URL.
func (s *Server) Endpoint() string { return s.endpoint }

// Close ends the server and forgets its tables. It may be called again.
func (s *Server) Close() error {
	s.process.Kill()
	if err := os.RemoveAll(s.folder); err != nil {
		return fmt.Errorf("close ministack: %w", err)
	}
	return nil
}
