package stories_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/localstack/cache"
	"mirrorless/localstack/kafka"
	"mirrorless/localstack/ministack"
	"mirrorless/localstack/process"
	"mirrorless/localstack/realtest"
	"mirrorless/localstack/samtest"
	"mirrorless/shared/flow"
	"mirrorless/shared/mm2"
	"mirrorless/shared/state/dynamo"
)

// TestTheDeployGuideFollowedWordForWord does what docs/deploying.md says, and then
// docs/upgrading.md, in a clean folder: the stack works in an account on this
// machine, stops with its deletion, and comes back where it was.
func TestTheDeployGuideFollowedWordForWord(t *testing.T) {
	if !realtest.Full() {
		t.Skip("takes minutes: make test-deploy runs it")
	}
	bin := samtest.Find(t)
	ctx := within(t, 12*time.Minute)
	a, b := startBoth(t, kafka.Options{Brokers: 3}, kafka.Options{})
	source, target := connect(t, a), connect(t, b)
	create(ctx, t, source, 3, nil, "mm2-source-topic")
	produce(ctx, t, source, numbered("mm2-source-topic", "clusterA-msg-%d", 0, 50)...)
	commitAs(ctx, t, source, "app", "mm2-source-topic", 5)

	dir := cleanFolder(ctx, t)
	file := properties(t, a, b,
		"clusters = A, B", "A.bootstrap.servers = $A", "B.bootstrap.servers = $B",
		"A->B.enabled = true", "A->B.topics = mm2-source-topic", "B->A.enabled = false",
		"A.mirrorless.subnets = subnet-0a", "A.mirrorless.security.groups = sg-0a")
	if err := os.Rename(file, filepath.Join(dir, "mm2.properties")); err != nil {
		t.Fatal(err)
	}
	g := openGuide(t, dir, bin, "docs/deploying.md", "docs/upgrading.md")

	wantSmallPackages(t, g.until("sam deploy --stack-name mirrorless"))
	deployed := time.Now()
	cloud := accountOf(t, filepath.Join(dir, ".cache/local-aws.env"))
	// The first round may have been too early; the next one is a minute later.
	eventually(ctx, t, "event source mappings", func() bool { return len(cloud.mappings(ctx, t)) == 2 })
	made := cloud.mappings(ctx, t)
	t.Logf("the deployed topics function made %d event source mappings: %q", len(made), slices.Sorted(maps.Keys(made)))
	if diff := cmp.Diff([]string{"heartbeats", "mm2-source-topic"}, slices.Sorted(maps.Keys(made))); diff != "" {
		t.Errorf("topics of the mappings (-want +got):\n%s", diff)
	}
	produce(ctx, t, source, numbered("mm2-source-topic", "live-msg-%d", 0, 10)...)
	want := append(values("clusterA-msg-%d", 50), values("live-msg-%d", 10)...)
	wantCopies(ctx, t, b, want)
	eventually(ctx, t, "positions of 60 records in the stack's table", func() bool { return cloud.copied(ctx, t) == 60 })
	eventually(ctx, t, "OK from the function that Lambda's API invoked", func() bool { return cloud.mappings(ctx, t)["mm2-source-topic"] == "OK" })
	t.Logf("60 records on B, and their positions in the table, %v after the deployment", time.Since(deployed).Round(time.Second))

	g.wants(g.until("sam list stack-outputs"), `ServedFlow +A->B `, `FirstRound +ok `)
	g.wants(g.until("status mm2.properties --stack mirrorless"),
		`B holds everything that A had at \S+\.$`,
		`From the clusters, and from table and event sources of the stack mirrorless\.$`,
		` +heartbeats +Enabled `, ` +mm2-source-topic +Enabled +no +OK +mirrorless/mirrorless/A/B/mm2-source-topic$`)
	g.wants(g.until("verify mm2.properties"),
		`A->B: nothing to change; 2 topics are copied to B\.$`,
		`A->B: B is equal to A: 1 topic, 3 partitions, 60 records\.$`)
	g.until("sam deploy --stack-name mirrorless") // nothing has changed

	eventually(ctx, t, "a scheduled heartbeat", func() bool { return exists(ctx, t, target, "heartbeats") && ends(ctx, t, target, "heartbeats") > 0 })
	beat := first(ctx, t, b, "heartbeats")
	if h, err := mm2.ParseHeartbeat(beat.Key, beat.Value); err != nil || h.Source != "A" || h.Target != "B" {
		t.Errorf("got heartbeat %+v (%v), want one of A to B", h, err)
	}
	eventually(ctx, t, "a scheduled checkpoint", func() bool { return ends(ctx, t, target, "A.checkpoints.internal") > 0 })
	record := first(ctx, t, b, "A.checkpoints.internal")
	checkpoint, err := mm2.ParseCheckpoint(record.Key, record.Value)
	if want := (mm2.Checkpoint{Group: "app", Topic: "A.mm2-source-topic", Upstream: 5, Downstream: 5, Metadata: "from mm2-source-topic"}); err != nil || checkpoint != want {
		t.Errorf("got checkpoint %+v (%v), want %+v", checkpoint, err, want)
	}
	t.Logf("a heartbeat and a checkpoint on B %v after the deployment", time.Since(deployed).Round(time.Second))

	g.until("sam delete --stack-name mirrorless")
	cloud.wantNoMappings(ctx, t)
	if n := cloud.copied(ctx, t); n != 60 {
		t.Errorf("got positions of %d records in the table after sam delete, want it kept with 60", n)
	}
	produce(ctx, t, source, numbered("mm2-source-topic", "later-msg-%d", 0, 10)...)

	g.until("ExistingTable=true")
	wantCopies(ctx, t, b, append(want, values("later-msg-%d", 10)...))
	eventually(ctx, t, "positions of 70 records in the stack's table", func() bool { return cloud.copied(ctx, t) == 70 })
	if n := ends(ctx, t, target, "A.mm2-source-topic"); n != 70 {
		t.Errorf("got %d records on B, want 70: each once", n)
	}
	g.until("sam delete --stack-name mirrorless")
	cloud.wantNoMappings(ctx, t)
	g.end()
}

// wantCopies waits for records on B, and wants these values in any order.
func wantCopies(ctx context.Context, t *testing.T, b *kafka.Cluster, want []string) {
	t.Helper()
	got := read(ctx, t, b, "A.mm2-source-topic", len(want))
	slices.Sort(got)
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)), got); diff != "" {
		t.Errorf("records on B (-want +got):\n%s", diff)
	}
}

// wantSmallPackages looks for what sam deploy has uploaded: a package for each
// function.
func wantSmallPackages(t *testing.T, printed string) {
	t.Helper()
	const most = 9_000_000
	var sizes []int
	for _, match := range regexp.MustCompile(`Uploading to [0-9a-f]{32}  \d+ / (\d+)  \(100\.00%\)`).FindAllStringSubmatch(printed, -1) {
		size, err := strconv.Atoi(match[1])
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, size)
	}
	t.Logf("the functions' packages have %d bytes", sizes)
	if len(sizes) != 4 || slices.Max(sizes) > most {
		t.Errorf("got packages of %d bytes, want four of %d at most in:\n%s", sizes, most, printed)
	}
}

// first is the first record of a topic.
func first(ctx context.Context, t *testing.T, c *kafka.Cluster, topic string) *kgo.Record {
	t.Helper()
	client := connect(t, c, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for {
		fetches := client.PollRecords(ctx, 1)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		for record := range fetches.RecordsAll() {
			return record
		}
	}
}

// values are numbered's.
func values(format string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf(format, i))
	}
	return out
}

// cleanFolder is a copy of the repository as a new clone has it. Only MiniStack is
// there already, where it was downloaded before.
func cleanFolder(ctx context.Context, t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "mirrorless")
	list := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard")
	list.Dir = ".."
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSuffix(name, "\n")
		text, err := os.ReadFile(filepath.Join("..", name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		to := filepath.Join(dir, name)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o755)
		}
		if err == nil {
			err = os.WriteFile(to, text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ministack.Find(ctx, ""); err != nil { // it is installed from here on
		realtest.Missing(t, err)
	}
	root, err := cache.Root()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, ".cache"), 0o755); err != nil {
		t.Fatal(err)
	}
	name := ministack.Folder
	if err := os.Symlink(filepath.Join(root, name), filepath.Join(dir, ".cache", name)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// guide is a shell that does what pages say, a block at a time.
type guide struct {
	t      *testing.T
	blocks []string
	shell  *process.Process
	next   io.Writer
	lines  chan string
}

// openGuide starts a shell in a folder, for the blocks marked sh of some pages.
func openGuide(t *testing.T, dir, bin string, pages ...string) *guide {
	t.Helper()
	g := &guide{t: t, lines: make(chan string, 1000)}
	var script strings.Builder
	script.WriteString("set -euo pipefail\n")
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(dir, page))
		if err != nil {
			t.Fatal(err)
		}
		for i, part := range strings.Split(string(text), "\n```sh\n") {
			block, _, ok := strings.Cut(part, "\n```")
			if i == 0 || !ok {
				continue
			}
			g.blocks = append(g.blocks, block)
			fmt.Fprintf(&script, "read -r _ <&3\n%s\necho %s\n", block, blockEnd)
		}
	}
	// The account of "make local-aws &" is ended as the page says.
	script.WriteString("read -r _ <&3\nkill %1\nwait\n")
	cmd := exec.Command("bash", "-c", script.String())
	cmd.Dir = dir
	// The new user has AWS's tools, and no account.
	cmd.Env = slices.DeleteFunc(samtest.Env(bin), func(variable string) bool {
		return strings.HasPrefix(variable, "AWS_") && !strings.HasPrefix(variable, "AWS_EC2_METADATA")
	})
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = []*os.File{read}, in, in
	if g.shell, err = process.Start(cmd); err != nil {
		t.Fatal(err)
	}
	read.Close()
	in.Close()
	g.next = write
	go func() {
		defer close(g.lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			g.lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		g.shell.Kill()
		write.Close()
	})
	return g
}

const blockEnd = "end-of-a-block-of-the-guide"

// until does blocks up to the next one that contains a text, and returns what that
// one printed.
func (g *guide) until(text string) string {
	g.t.Helper()
	for len(g.blocks) > 0 {
		block := g.blocks[0]
		g.blocks = g.blocks[1:]
		began := time.Now()
		fmt.Fprintln(g.next, "next")
		var out strings.Builder
		ended := false
		for line := range g.lines {
			if ended = line == blockEnd; ended {
				break
			}
			fmt.Fprintln(&out, line)
		}
		if !ended {
			<-g.shell.Done()
			g.t.Fatalf("the guide's commands failed (%v):\n%s\nthey printed:\n%s", g.shell.Err(), block, out.String())
		}
		g.t.Logf("%v for:\n%s", time.Since(began).Round(time.Second), block)
		if strings.Contains(block, text) {
			return out.String()
		}
	}
	g.t.Fatalf("the guide has no more commands with %q", text)
	return ""
}

// wants checks that each pattern matches a line of what a block printed, from its
// begin.
func (g *guide) wants(printed string, lines ...string) {
	g.t.Helper()
	for _, line := range lines {
		if !regexp.MustCompile(`(?m)^` + line).MatchString(printed) {
			g.t.Errorf("got no line %q in:\n%s", line, printed)
		}
	}
}

// end wants all blocks to be done, and ends the account.
func (g *guide) end() {
	g.t.Helper()
	if len(g.blocks) > 0 {
		g.t.Errorf("the guide has commands that were not followed:\n%s", strings.Join(g.blocks, "\n"))
	}
	fmt.Fprintln(g.next, "next")
	for range g.lines {
	}
	<-g.shell.Done()
}

// cloud is the account that the guide started.
type cloud struct {
	lambda *lambda.Client
	store  *dynamo.Store
}

// accountOf reads the variables of "make local-aws".
func accountOf(t *testing.T, file string) cloud {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	variables := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "export ")), "=")
		variables[name] = value
	}
	config := aws.Config{
		Region:      variables["AWS_REGION"],
		Credentials: credentials.NewStaticCredentialsProvider(variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"], ""),
	}
	return cloud{
		lambda: lambda.NewFromConfig(config, func(o *lambda.Options) { o.BaseEndpoint = aws.String(variables["AWS_ENDPOINT_URL_LAMBDA"]) }),
		store: dynamo.New(dynamodb.NewFromConfig(config, func(o *dynamodb.Options) { o.BaseEndpoint = aws.String(variables["AWS_ENDPOINT_URL"]) }),
			"mirrorless", dynamo.Options{}),
	}
}

// mappings are the results of the account's event source mappings, of whatever
// function, by topic.
func (c cloud) mappings(ctx context.Context, t *testing.T) map[string]string {
	t.Helper()
	out, err := c.lambda.ListEventSourceMappings(ctx, &lambda.ListEventSourceMappingsInput{})
	if err != nil {
		t.Fatal(err)
	}
	results := map[string]string{}
	for _, m := range out.EventSourceMappings {
		results[strings.Join(m.Topics, ",")] = aws.ToString(m.LastProcessingResult)
	}
	return results
}

func (c cloud) wantNoMappings(ctx context.Context, t *testing.T) {
	t.Helper()
	left := c.mappings(ctx, t)
	t.Logf("after sam delete there are %d event source mappings", len(left))
	if len(left) > 0 {
		t.Errorf("got mappings of %q after sam delete, want none", slices.Sorted(maps.Keys(left)))
	}
}

// copied is how many records the stack's positions say are copied.
func (c cloud) copied(ctx context.Context, t *testing.T) (records int64) {
	t.Helper()
	var partitions []flow.TopicPartition
	for n := range int32(3) {
		partitions = append(partitions, flow.TopicPartition{Topic: "mm2-source-topic", Partition: n})
	}
	positions, err := c.store.Positions(ctx, partitions)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range positions {
		records += p.Copied
	}
	return records
}
