package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"mirrorless/shared/config"
	"mirrorless/shared/state"
	"mirrorless/shared/state/dynamo"
	"mirrorless/shared/state/embedded"
)

// stateFile is the state of a local run, in its folder.
const stateFile = "state.db"

// stateDir is the folder that a local run of a properties file keeps its state
// in.
func stateDir(flag, file string) string {
	if flag != "" {
		return flag
	}
	return filepath.Join(filepath.Dir(file), ".mirrorless")
}

// stackName is the name that a state folder gives to its stacks. It is made with
// the folder: another folder is another deployment, with consumer groups of its
// own.
func stackName(dir string) (string, error) {
	path := filepath.Join(dir, "id")
	known, err := os.ReadFile(path)
	if err == nil {
		return strings.TrimSpace(string(known)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the stack's id: %w", err)
	}
	var b [4]byte
	rand.Read(b[:])
	id := "run-" + hex.EncodeToString(b[:])
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the state's folder: %w", err)
	}
	if err := os.WriteFile(path, []byte(id+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("keep the stack's id: %w", err)
	}
	return id, nil
}

// stores opens the state of each flow.
type stores interface {
	Store(ctx context.Context, f config.Flow) (state.Store, error)
	// Table is what the functions are told with the flow, "" where they are not.
	Table(f config.Flow) string
	io.Closer
}

// inFile keeps all flows in one file.
type inFile struct{ *embedded.File }

func openFile(dir string) (stores, error) {
	f, err := embedded.Open(filepath.Join(dir, stateFile), embedded.Options{})
	if errors.Is(err, embedded.ErrInUse) {
		return nil, fmt.Errorf("%w: is another mirrorless run using %s?", err, dir)
	}
	if err != nil {
		return nil, err
	}
	return inFile{f}, nil
}

func (s inFile) Store(_ context.Context, f config.Flow) (state.Store, error) {
	return s.File.Store(f.Flow)
}

func (s inFile) Table(config.Flow) string { return "" }

// inTables keeps each flow in a DynamoDB table of its own, which it creates.
type inTables struct {
	client *dynamodb.Client
	stack  string
}

// openTables reaches the DynamoDB that the environment names. A local run must
// not make tables in somebody's AWS account by accident, so it has to be named.
func openTables(ctx context.Context, stack string) (stores, error) {
	if os.Getenv("AWS_ENDPOINT_URL") == "" && os.Getenv("AWS_ENDPOINT_URL_DYNAMODB") == "" {
		return nil, errors.New("--functions bootstrap keeps its state in DynamoDB: set AWS_ENDPOINT_URL or AWS_ENDPOINT_URL_DYNAMODB to an emulator, as in http://127.0.0.1:4566")
	}
	sdk, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("set up the AWS client: %w", err)
	}
	return &inTables{dynamodb.NewFromConfig(sdk), stack}, nil
}

func (s *inTables) Store(ctx context.Context, f config.Flow) (state.Store, error) {
	store := dynamo.New(s.client, s.Table(f), dynamo.Options{})
	return store, store.CreateTable(ctx)
}

var notInTableNames = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

func (s *inTables) Table(f config.Flow) string {
	return notInTableNames.ReplaceAllString(fmt.Sprintf("mirrorless-%s-%s-%s", s.stack, f.Source, f.Target), "_")
}

func (s *inTables) Close() error { return nil }
