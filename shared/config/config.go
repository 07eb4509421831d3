// Package config reads an mm2.properties file as MirrorMaker 2 reads it and
// says what it means: which clusters, which flows, the effective settings of
// each flow and of each client, and every oddity of the file by name.
//
//	config, err := config.Load("mm2.properties", config.Sources{
//		ReadFile:  os.ReadFile,
//		LookupEnv: os.LookupEnv,
//	})
//	if err != nil { … }                  // the file cannot be read at all
//	if err := config.Err(); err != nil { … } // everything that is wrong, at once
//	f, ok := config.Flow(flow.Flow{Source: "A", Target: "B"})
//
// Java decides what the bytes mean (ISO 8859-1, escapes, continuations, the
// last duplicate wins); the author's intent decides in three things: values are
// trimmed, a byte-order mark is dropped, and the *.blacklist keys that Kafka 4.0
// stopped reading are the *.exclude keys they once were.
//
// The package opens no connection and reads no environment of its own: files
// and variables come in through Sources.
package config

import (
	"errors"
	"fmt"
	"strings"

	"mirrorless/shared/flow"
)

// Config is one mm2.properties file, read and judged. It is complete also where
// Errors is not empty: what could be understood is there.
type Config struct {
	// File is the name the file was loaded under, as it appears in Findings.
	File string
	// Clusters holds the declared clusters in the order of the key `clusters`.
	Clusters []Cluster
	// Flows holds every ordered pair of declared clusters that is enabled or
	// has a key of its own, in the order of the key `clusters`, by source then
	// target.
	Flows []Flow
	// Warnings and Errors are in file order.
	Warnings []Finding
	Errors   []Finding

	// pairs holds the settings of every ordered pair, listed in Flows or not.
	pairs map[flow.Flow]Flow
}

// Finding is one thing worth saying about a file. Its text never holds a
// password, a JAAS option or key material.
type Finding struct {
	File    string `json:"file"`
	Line    int    `json:"line"` // 1 is the first; 0 where no line is to blame
	Key     string `json:"key"`
	Message string `json:"message"`
}

// String returns "file:line: key: message", without the parts that are empty.
func (f Finding) String() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d", f.Line)
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	if f.Key != "" {
		b.WriteString(f.Key)
		b.WriteString(": ")
	}
	b.WriteString(f.Message)
	return b.String()
}

// Err returns nil, or one error that lists everything that is wrong with the
// file, one finding a line.
func (c *Config) Err() error {
	errs := make([]error, len(c.Errors))
	for i, f := range c.Errors {
		errs[i] = errors.New(f.String())
	}
	return errors.Join(errs...)
}

// Cluster returns the cluster declared under alias.
func (c *Config) Cluster(alias string) (Cluster, bool) {
	for _, cluster := range c.Clusters {
		if cluster.Alias == alias {
			return cluster, true
		}
	}
	return Cluster{}, false
}

// Flow returns the settings of the ordered pair f, whether it is listed in
// Flows or not; ok is false where the file does not declare both clusters. The
// reverse direction's heartbeat settings are found this way.
func (c *Config) Flow(f flow.Flow) (settings Flow, ok bool) {
	settings, ok = c.pairs[f]
	return settings, ok
}

// Enabled returns the flows that are switched on, in the order of Flows.
func (c *Config) Enabled() []Flow {
	var on []Flow
	for _, f := range c.Flows {
		if f.Enabled {
			on = append(on, f)
		}
	}
	return on
}

// Aliases returns the aliases of all declared clusters.
func (c *Config) Aliases() []string {
	aliases := make([]string, len(c.Clusters))
	for i, cluster := range c.Clusters {
		aliases[i] = cluster.Alias
	}
	return aliases
}
