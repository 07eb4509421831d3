package kafka

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"mirrorless/localstack/process"
)

// mainClass is the class that the script of a name runs.
func mainClass(tool string) (string, bool) {
	class, ok := map[string]string{
		"kafka-acls":                "org.apache.kafka.tools.AclCommand",
		"kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
		"kafka-cluster":             "org.apache.kafka.tools.ClusterTool",
		"kafka-configs":             "kafka.admin.ConfigCommand",
		"kafka-console-consumer":    "org.apache.kafka.tools.consumer.ConsoleConsumer",
		"kafka-console-producer":    "org.apache.kafka.tools.ConsoleProducer",
		"kafka-consumer-groups":     "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
		"kafka-consumer-perf-test":  "org.apache.kafka.tools.ConsumerPerformance",
		"kafka-delete-records":      "org.apache.kafka.tools.DeleteRecordsCommand",
		"kafka-dump-log":            "org.apache.kafka.tools.DumpLogSegments",
		"kafka-get-offsets":         "org.apache.kafka.tools.GetOffsetShell",
		"kafka-leader-election":     "org.apache.kafka.tools.LeaderElectionCommand",
		"kafka-log-dirs":            "org.apache.kafka.tools.LogDirsCommand",
		"kafka-metadata-quorum":     "org.apache.kafka.tools.MetadataQuorumCommand",
		"kafka-producer-perf-test":  "org.apache.kafka.tools.ProducerPerformance",
		"kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
		"kafka-storage":             "kafka.tools.StorageTool",
		"kafka-topics":              "org.apache.kafka.tools.TopicCommand",
		"kafka-transactions":        "org.apache.kafka.tools.TransactionsCommand",
	}[tool]
	return class, ok
}

// Tool runs one of Kafka's own tools by the name of its script, without ".sh",
// and returns what it printed on stdout. Its error holds what it said on
// stderr; stdout is returned beside it. Warnings of a tool that succeeds are
// dropped.
func (in Installation) Tool(ctx context.Context, name string, args ...string) (string, error) {
	return in.ToolInput(ctx, nil, name, args...)
}

// ToolInput is [Installation.Tool] for a tool that reads stdin.
func (in Installation) ToolInput(ctx context.Context, stdin io.Reader, name string, args ...string) (string, error) {
	class, ok := mainClass(name)
	if !ok {
		return "", fmt.Errorf("run %s: not one of Kafka's tools known here", name)
	}
	var stdout, stderr bytes.Buffer
	cmd := in.run(in.quickFlags(), "tools", class, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	p, err := process.Start(cmd)
	if err != nil {
		return "", err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		p.Kill()
		return stdout.String(), fmt.Errorf("run %s: %w", name, context.Cause(ctx))
	}
	if err := p.Err(); err != nil {
		said := slices.Concat(stderr.Bytes(), stdout.Bytes())
		return stdout.String(), fmt.Errorf("run %s %s: %w: %s", name, strings.Join(args, " "), err, firstLines(said, "Error", "Exception"))
	}
	return stdout.String(), nil
}
