package config_test

import (
	"fmt"
	"strings"
	"testing"

	"mirrorless/docs/docstest"
	"mirrorless/shared/config"
)

//go:generate go test -run TestDocumentationIsCurrent -update .

func TestDocumentationIsCurrent(t *testing.T) {
	docstest.Current(t, "configuration.md", document())
}

func TestEveryKeyIsDocumented(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range config.Keys() {
		switch {
		case k.Sentence == "", k.Group == "", k.Kind == "", k.Places == 0:
			t.Errorf("%s: incomplete", k.Name)
		case seen[k.Name]:
			t.Errorf("%s: twice in the table", k.Name)
		case !strings.HasSuffix(k.Sentence, "."):
			t.Errorf("%s: the sentence does not end", k.Name)
		case strings.HasPrefix(k.Name, "mirrorless.") != (k.Group == "Keys of our own"):
			t.Errorf("%s: keys of our own begin with mirrorless., and no others do", k.Name)
		}
		seen[k.Name] = true
	}
}

// document writes docs/configuration.md from the key table.
func document() string {
	var b strings.Builder
	b.WriteString(`<!-- Generated from the key table in shared/config by: go generate ./shared/config -->
# Configuration

mirrorless reads the mm2.properties file of MirrorMaker 2. ` + "`mirrorless config FILE`" + ` says what a file means: clusters, flows with every setting in force, what is odd, what is wrong. ` + "`--json`" + ` gives the same as one JSON object. It exits with 1 if the file has errors.

## How a file is read

Java decides: ISO 8859-1, ` + "`\\u`" + ` escapes, ` + "`\\`" + ` at the end of a line, the last of several equal keys. Three things go beyond it, because what the author meant is plain: blanks around values are dropped (MirrorMaker 2 takes ` + "`true `" + ` for false in one place and for true in another), a byte-order mark is dropped, and ` + "`topics.blacklist`, `groups.blacklist` and `config.properties.blacklist`" + `, which Kafka 4.0 stopped reading without a word, are read as the ` + "`*.exclude`" + ` keys they were.

Everything else that surprises is a warning with its line: a key that stands twice, an unknown key (with the nearest known one), a key where it does nothing (with where it belongs), a flow between clusters that are not declared. Settings of Connect's workers and of Java clients that do not reach us are listed in one line. Values that are not valid, placeholders that nothing fills in, clusters without servers, and Java classes that cannot be run here are errors, all of them at once.

## Where a key stands

| written as | what it is for |
|---|---|
| ` + "`key`" + ` | every flow, or every cluster |
| ` + "`A->B.key`" + ` | the flow from A to B; wins over the top level |
| ` + "`A.key`" + ` | the cluster A; wins over the top level |
| ` + "`A.consumer.x`, `A.producer.x`, `A.admin.x`" + ` | one kind of client of A; wins over ` + "`A.x`" + ` |
| ` + "`A->B.consumer.x`, `A->B.admin.x`" + ` | that kind of client in the flow; ` + "`A.consumer.x`" + ` wins over it, ` + "`A->B.source.consumer.x`" + ` wins over both |
| ` + "`A->B.producer.override.x`" + ` | the producer of the copied records; wins over ` + "`B.producer.x`" + ` |
| ` + "`A->B.producer.x`" + ` | only the producer of the offset syncs, as in MirrorMaker 2 |

Of the settings of clients these act: ` + "`client.id`, `client.rack`, `compression.type` and `compression.*.level`, `connections.max.idle.ms` (30 s at most), `fetch.max.bytes`, `fetch.max.wait.ms`, `fetch.min.bytes`, `isolation.level`, `max.partition.fetch.bytes`, `max.request.size`, `metadata.max.age.ms`, `request.timeout.ms`, `retry.backoff.ms`, `retry.backoff.max.ms`, `socket.connection.setup.timeout.ms`" + ` and the connection settings below. Records are always written with ` + "`acks=all`" + `.

Any value may hold ` + "`${provider:path:key}`" + `, resolved as ` + "`config.providers`" + ` declares. ` + "`${env:NAME}` and `${file:PATH:KEY}`" + ` are resolved undeclared too, with a warning, for MirrorMaker 2 would not. So are ` + "`${secretsmanager:ID:KEY}`" + ` (a key of a secret that is a JSON object; without ` + "`:KEY`" + ` the whole secret) and ` + "`${ssm:/NAME}`" + ` (a parameter); a name may be an ARN. A function reads them when it starts and every ten minutes after, and at once when a login is refused; it keeps what is secret out of logs and errors. ` + "`mirrorless config`" + ` leaves them as they are.

Patterns are Java regular expressions for the whole name. An unescaped ` + "`[` or `&&`" + ` inside a character class is refused.

A replication factor that nobody wrote gives way to a cluster with fewer brokers, with a warning; one that is written does not.

On AWS a schedule runs once a minute at most; ` + "`mirrorless run`" + ` honours seconds.
`)
	group := ""
	for _, k := range config.Keys() {
		if k.Group != group {
			group = k.Group
			fmt.Fprintf(&b, "\n## %s\n\n| key | where | type | default | |\n|---|---|---|---|---|\n", group)
		}
		sentence := k.Sentence
		if k.NotYet != "" {
			sentence += " **Today:** " + k.NotYet + "."
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", k.Name, places(k), kind(k), byDefault(k), cell(sentence))
	}
	return b.String()
}

func places(k config.Key) string {
	var p []string
	if k.Places&config.TopLevel != 0 {
		p = append(p, "top level")
	}
	if k.Places&config.OnFlow != 0 {
		p = append(p, "`A->B.`")
	}
	if k.Places&config.OnCluster != 0 {
		p = append(p, "`A.`")
	}
	return strings.Join(p, ", ")
}

func kind(k config.Key) string {
	if k.Kind == config.Choice && k.Name != "security.protocol" {
		return "`" + strings.Join(k.Choices, "`, `") + "`"
	}
	return string(k.Kind)
}

func byDefault(k config.Key) string {
	if k.Default == "" {
		return ""
	}
	return "`" + cell(k.Default) + "`"
}

// cell keeps a bar from ending a cell of the table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
