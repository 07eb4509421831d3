package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/spf13/cobra"

	"mirrorless/shared/config"
	"mirrorless/shared/flow"
	"mirrorless/shared/function"
)

func configCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "config FILE",
		Short: "Say what an mm2.properties file means, and what is wrong with it",
		Long: `config reads an mm2.properties file and prints the clusters, the flows with the
settings that are in force, what is odd, what is wrong, and what run would do.
It opens no connection. It exits with 1 if the file has errors.`,
		Args: needsFile(propertiesFile),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := loadConfigHere(args[0])
			if err != nil {
				return err
			}
			write := writeConfig
			if asJSON {
				write = writeConfigJSON
			}
			if err := write(cmd.OutOrStdout(), c); err != nil {
				return err
			}
			if len(c.Errors) > 0 {
				return exit(exitFailed, nil)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object instead, also where the file has errors")
	return cmd
}

// awsLimit bounds the questions that a properties file asks AWS.
const awsLimit = 30 * time.Second

// loadConfig reads the properties file at path with this machine's files and
// environment, and what it names in AWS with the account that the environment
// names.
func loadConfig(path string) (*config.Config, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), awsLimit, fmt.Errorf("no answer within %s", awsLimit))
	defer cancel()
	vault := function.NewVault(func(ctx context.Context) (aws.Config, error) { return awsconfig.LoadDefaultConfig(ctx) }, function.VaultOptions{})
	c, err := config.Load(path, config.Sources{ReadFile: os.ReadFile, LookupEnv: os.LookupEnv, Secret: vault.Secret(ctx)})
	if err != nil {
		return nil, err
	}
	for _, findings := range [][]config.Finding{c.Errors, c.Warnings} {
		for i := range findings {
			findings[i].Message = vault.Hide(findings[i].Message)
		}
	}
	return c, nil
}

// loadConfigHere is loadConfig for those who open no connection: what the file
// names in AWS stays a name.
func loadConfigHere(path string) (*config.Config, error) {
	named := func(provider, path, key string) (string, error) {
		if path != "" {
			provider += ":" + path
		}
		return "${" + provider + ":" + key + "}", nil
	}
	return config.Load(path, config.Sources{ReadFile: os.ReadFile, LookupEnv: os.LookupEnv, Secret: named})
}

func writeConfigJSON(w io.Writer, c *config.Config) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(c)
}

// writeConfig prints c for a person.
func writeConfig(w io.Writer, c *config.Config) error {
	fmt.Fprintf(w, "%s: %s, %s enabled, %s, %s\n", c.File, counted(len(c.Clusters), "cluster"),
		counted(len(c.Enabled()), "flow"), counted(len(c.Warnings), "warning"), counted(len(c.Errors), "error"))
	writeClusters(w, c.Clusters)
	for _, f := range c.Flows {
		if f.Enabled {
			writeFlow(w, f)
		}
	}
	writePlan(w, c)
	writeFindings(w, "Warnings", c.Warnings)
	writeFindings(w, "Errors", c.Errors)
	return nil
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func writeClusters(w io.Writer, clusters []config.Cluster) {
	fmt.Fprintln(w, "\nClusters")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range clusters {
		how := c.SecurityProtocol
		if strings.HasPrefix(how, "SASL_") {
			how += " " + c.SASLMechanism
			if c.SASLUsername != "" {
				how += " as " + c.SASLUsername
			}
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\n", c.Alias, cmp.Or(strings.Join(c.BootstrapServers, ", "), "no servers"), how)
		if trust := trustOf(c); trust != "" {
			fmt.Fprintf(t, "\t%s\n", trust)
		}
	}
	t.Flush()
}

// trustOf says whom a cluster with TLS is taken for, and what it is shown; it is
// "" without TLS.
func trustOf(c config.Cluster) string {
	if !strings.HasSuffix(c.SecurityProtocol, "SSL") {
		return ""
	}
	client := c.Client(config.Admin)
	trust := "TLS: trusts the authorities of this machine"
	switch {
	case client["ssl.truststore.certificates"] != "":
		trust = "TLS: trusts ssl.truststore.certificates"
	case c.TruststoreLocation != "":
		trust = "TLS: trusts " + c.TruststoreLocation
	}
	if check := c.EndpointIdentification; check != nil && *check == "" {
		trust += ", does not check host names"
	} else {
		trust += ", checks host names"
	}
	switch store := client["ssl.keystore.location"]; {
	case client["ssl.keystore.key"] != "":
		trust += ", shows the certificate of ssl.keystore.certificate.chain"
	case store != "":
		trust += ", shows the certificate of " + store
	}
	return trust
}

// writeFlow prints the settings that are in force for f.
func writeFlow(w io.Writer, f config.Flow) {
	fmt.Fprintf(w, "\nFlow %s\n", f)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(t, "  %s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	line("topics", "%s", lists(f.Topics, f.TopicsExclude))
	line("names", "orders of %s is %s on %s (%s)", f.Source, f.RemoteTopic("orders"), f.Target, shortClass(f.PolicyClass))
	line("new topics", "%s, replication factor %s", periodic(f.RefreshTopics, "looked for", "looked for at the start only"), factor(f.ReplicationFactor))
	line("topic configs", "%s, but not %s", periodic(f.SyncTopicConfigs, "kept the same", "copied when a topic is created"), shortList(f.ConfigPropertiesExclude))
	line("ACLs", "%s", periodic(f.SyncTopicACLs, "rights to read copied", "not copied"))
	line("groups", "%s", lists(f.Groups, f.GroupsExclude))
	line("checkpoints", "%s", periodic(f.EmitCheckpoints, "written to "+f.CheckpointsTopic()+" on "+f.Target, "off"))
	line("group offsets", "%s", periodic(f.SyncGroupOffsets, "committed on "+f.Target+" for groups without members", "not committed on "+f.Target))
	if f.EmitOffsetSyncs {
		line("offset syncs", "written to %s on %s", f.OffsetSyncsTopic(), offsetSyncsCluster(f))
	} else {
		line("offset syncs", "off")
	}
	line("positions", "kept in the state, and in %s on %s for MirrorMaker 2", f.PositionsTopic, f.Target)
	line("heartbeats", "%s; those of %s are %scopied", periodic(f.EmitHeartbeats, "written to heartbeats on "+f.Target, "off"), f.Source, unless(f.ReplicateHeartbeats, "not "))
	line("reads "+f.Source, "%s", reads(f))
	line("writes to "+f.Target, "acks=all, each record once, compression.type=%s, max.request.size=%d", f.Compression, f.MaxRequestSize)
	line("invocations", "%d records at most, filled for %s", f.BatchSize, f.BatchDelay)
	t.Flush()
}

func lists(include, exclude []string) string {
	s := cmp.Or(strings.Join(include, ", "), "none")
	if len(exclude) > 0 {
		s += ", but not " + strings.Join(exclude, ", ")
	}
	return s
}

// shortList counts the items of a long list.
func shortList(items []string) string {
	if len(items) > 4 {
		return fmt.Sprintf("%s and %d more", strings.Join(items[:3], ", "), len(items)-3)
	}
	return cmp.Or(strings.Join(items, ", "), "none")
}

func periodic(p config.Periodic, on, off string) string {
	if !p.Enabled {
		return off
	}
	return on + " every " + shortDuration(p.Interval)
}

// shortDuration leaves out what is zero at the end: 10m for 10m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func factor(f config.ReplicationFactor) string {
	switch {
	case f.Value == -1:
		return "the brokers' default"
	case f.Written:
		return fmt.Sprint(f.Value)
	}
	return fmt.Sprintf("%d (by default; fewer where there are fewer brokers)", f.Value)
}

func shortClass(class string) string { return class[strings.LastIndexByte(class, '.')+1:] }

func unless(condition bool, s string) string {
	if condition {
		return ""
	}
	return s
}

func offsetSyncsCluster(f config.Flow) string {
	if f.OffsetSyncsOnTarget {
		return f.Target
	}
	return f.Source
}

func reads(f config.Flow) string {
	s := map[string]string{
		"earliest": "from the earliest record",
		"latest":   "from what arrives after the first start",
		"none":     "from the earliest record; gaps are found by offset",
	}[f.AutoOffsetReset]
	if f.IsolationLevel != "" {
		s += ", " + f.IsolationLevel
	}
	return s
}

// writePlan says what run would do with c.
func writePlan(w io.Writer, c *config.Config) {
	fmt.Fprintln(w, "\nWhat run would do")
	if len(c.Errors) > 0 {
		fmt.Fprintln(w, "  nothing before the errors below are gone")
		return
	}
	if len(c.Enabled()) == 0 {
		fmt.Fprintln(w, "  nothing: no flow is enabled")
		return
	}
	for _, f := range c.Enabled() {
		functions := []string{"topics", "mirror"}
		if f.EmitHeartbeats.Enabled {
			functions = append(functions, "heartbeat")
		}
		if f.EmitCheckpoints.Enabled || f.SyncGroupOffsets.Enabled || f.EmitOffsetSyncs {
			functions = append(functions, "checkpoint")
		}
		fmt.Fprintf(w, "  start %s for %s\n", strings.Join(functions, ", "), f)
		reverse, ok := c.Flow(f.Flow.Reverse())
		if ok && !reverse.Enabled && reverse.EmitHeartbeats.Enabled {
			fmt.Fprintf(w, "  write heartbeats on %s too, as MirrorMaker 2 does for %s though it is off (%s.emit.heartbeats.enabled)\n", f.Source, reverse, reverse)
		}
	}
	if quick := underAMinute(c.Enabled()); len(quick) > 0 {
		fmt.Fprintf(w, "  run honours seconds; on AWS a schedule runs once a minute at most, so there once a minute: %s\n", strings.Join(quick, ", "))
	}
}

// underAMinute lists the intervals that a schedule of AWS cannot keep.
func underAMinute(flows []config.Flow) []string {
	var quick []string
	for _, f := range flows {
		for _, p := range []struct {
			key      string
			periodic config.Periodic
		}{
			{"refresh.topics.interval.seconds", f.RefreshTopics},
			{"refresh.groups.interval.seconds", f.RefreshGroups},
			{"sync.topic.configs.interval.seconds", f.SyncTopicConfigs},
			{"emit.heartbeats.interval.seconds", f.EmitHeartbeats},
			{"emit.checkpoints.interval.seconds", f.EmitCheckpoints},
			{"sync.group.offsets.interval.seconds", f.SyncGroupOffsets},
		} {
			if p.periodic.Enabled && p.periodic.Interval < time.Minute {
				quick = append(quick, keyOf(flows, f.Flow, p.key)+" = "+fmt.Sprint(int(p.periodic.Interval/time.Second)))
			}
		}
	}
	return quick
}

// keyOf names a setting by its flow where there is more than one.
func keyOf(flows []config.Flow, f flow.Flow, key string) string {
	if len(flows) == 1 {
		return key
	}
	return f.String() + "." + key
}

func writeFindings(w io.Writer, title string, findings []config.Finding) {
	if len(findings) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", title)
	for _, f := range findings {
		fmt.Fprintf(w, "  %s\n", f)
	}
}
