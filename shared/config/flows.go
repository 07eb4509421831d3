package config

import (
	"cmp"
	"maps"
	"strings"

	"mirrorless/shared/flow"
)

// effective returns the keys that are in force for f: the flow's own before the
// top level's, each where it acts.
func (d *document) effective(f flow.Flow, keys []Key) map[string]entry {
	values := map[string]entry{}
	for _, k := range keys {
		if k.Places&OnFlow == 0 {
			continue
		}
		if k.Places&TopLevel != 0 {
			if e, ok := withLegacy(d.top, k.Name); ok {
				values[k.Name] = e
			}
		}
		if e, ok := withLegacy(d.flows[f], k.Name); ok {
			values[k.Name] = e
		}
	}
	// The worker of A->B belongs to B; at the top level its storage keys win.
	for _, k := range keys {
		if k.Places&OnFlow != 0 || k.Group == clusterGroup || strings.HasPrefix(k.Name, ownPrefix) {
			continue
		}
		if e, ok := d.clusters[f.Target][k.Name]; ok && k.Places&OnCluster != 0 {
			values[k.Name] = e
		}
		if e, ok := d.top[k.Name]; ok && k.Places&TopLevel != 0 {
			values[k.Name] = e
		}
	}
	return values
}

// withLegacy finds a key under its name, or under the one it had before.
func withLegacy(values map[string]entry, name string) (entry, bool) {
	if e, ok := values[name]; ok {
		return e, true
	}
	for old, now := range legacyKeys() {
		if now == name {
			e, ok := values[old]
			return e, ok
		}
	}
	return entry{}, false
}

// flowSettings works out everything about one ordered pair.
func (d *document) flowSettings(pair flow.Flow, keys []Key, r *report) Flow {
	s := settings{d.effective(pair, keys), r}
	f := Flow{
		Flow:        pair,
		Enabled:     s.boolean("enabled", false),
		SourceAlias: s.text("source.cluster.alias", pair.Source),
		TargetAlias: s.text("target.cluster.alias", pair.Target),
		Connector:   s.text("name", "MirrorSourceConnector"),
		TasksMax:    int(s.number("tasks.max", 1, 1, 1<<31-1)),

		Topics:                  s.list("topics", flow.DefaultTopics),
		TopicsExclude:           s.list("topics.exclude", flow.DefaultTopicsExclude),
		Groups:                  s.list("groups", flow.DefaultGroups),
		GroupsExclude:           s.list("groups.exclude", flow.DefaultGroupsExclude),
		ConfigPropertiesExclude: s.list("config.properties.exclude", plainConfigsExclude),
		UseDefaultsFromSource:   s.choice("use.defaults.from", "target", []string{"target", "source"}) == "source",

		Separator:         s.text("replication.policy.separator", flow.DefaultSeparator),
		ReplicationFactor: s.factor("replication.factor", 2),

		RefreshTopics:       s.periodic("refresh.topics.enabled", true, "refresh.topics.interval.seconds", 600),
		RefreshGroups:       s.periodic("refresh.groups.enabled", true, "refresh.groups.interval.seconds", 600),
		SyncTopicConfigs:    s.periodic("sync.topic.configs.enabled", true, "sync.topic.configs.interval.seconds", 600),
		SyncTopicACLs:       s.periodic("sync.topic.acls.enabled", true, "sync.topic.acls.interval.seconds", 600),
		EmitHeartbeats:      s.periodic("emit.heartbeats.enabled", true, "emit.heartbeats.interval.seconds", 1),
		EmitCheckpoints:     s.periodic("emit.checkpoints.enabled", true, "emit.checkpoints.interval.seconds", 60),
		SyncGroupOffsets:    s.periodic("sync.group.offsets.enabled", false, "sync.group.offsets.interval.seconds", 60),
		HeartbeatsReplicas:  s.factor("heartbeats.topic.replication.factor", 3),
		ReplicateHeartbeats: s.boolean("heartbeats.replication.enabled", true),
		CheckpointsReplicas: s.factor("checkpoints.topic.replication.factor", 3),

		EmitOffsetSyncs:     s.boolean("emit.offset-syncs.enabled", true),
		OffsetSyncsOnTarget: s.choice("offset-syncs.topic.location", "source", []string{"source", "target"}) == "target",
		OffsetSyncsReplicas: s.factor("offset-syncs.topic.replication.factor", 3),
		OffsetLagMax:        s.number("offset.lag.max", 100, -1<<63, 1<<63-1),

		PositionsTopic:        s.text("offset.storage.topic", "mm2-offsets."+pair.Source+".internal"),
		PositionsPartitions:   int32(s.number("offset.storage.partitions", 25, 1, 1<<31-1)),
		ConfigStorageReplicas: s.factor("config.storage.replication.factor", 3),
		OffsetStorageReplicas: s.factor("offset.storage.replication.factor", 3),
		StatusStorageReplicas: s.factor("status.storage.replication.factor", 3),
		OffsetFlushInterval:   s.millis("offset.flush.interval.ms", 60_000, 1, 1<<40),
		AdminTimeout:          s.millis("admin.timeout.ms", 60_000, 1, 1<<40),
		ExactlyOnce:           s.choice("exactly.once.source.support", "disabled", []string{"disabled", "preparing", "enabled"}) == "enabled",

		TolerateErrors:      s.choice("errors.tolerance", "none", []string{"none", "all"}) == "all",
		DeadLettersTopic:    s.text("errors.deadletterqueue.topic.name", deadLetters(pair.Source)),
		DeadLettersReplicas: s.factor("errors.deadletterqueue.topic.replication.factor", 3),
		DeadLettersContext:  s.boolean("errors.deadletterqueue.context.headers.enable", true),

		Compat:     s.choice("mirrorless.compat", "off", []string{"off", "mm2"}) == "mm2",
		Read:       Read(s.choice("mirrorless.read", string(ReadEvent), []string{"event", "source", "auto"})),
		Holes:      OnHole(s.choice("mirrorless.holes", string(HoleContinue), []string{"continue", "stop"})),
		Recreated:  OnRecreated(s.choice("mirrorless.recreated", string(RecreatedDefault), []string{"stop", "copy"})),
		BatchSize:  int(s.number("mirrorless.batch.size", 10_000, 1, 10_000)),
		BatchDelay: s.millis("mirrorless.batch.window", 500, 0, 300_000),
		Metrics:    Metrics(s.choice("mirrorless.metrics", string(MetricsFlow), []string{"flow", "topics", "partitions", "off"})),
		Mapping: Mapping{
			Metrics:         s.boolean("mirrorless.mapping.metrics", false),
			PartialFailures: s.boolean("mirrorless.mapping.partial.failures", false),
			Pollers:         s.pollers(),
		},

		aliases: d.aliases,
	}
	s.choice("mirrorless.deleted", "keep", []string{"keep"})
	s.number("consumer.poll.timeout.ms", 1000, -1<<63, 1<<63-1)
	s.policy(&f)
	s.filters(&f)
	d.addClients(&f, r)
	return f
}

// deadLetters is the dead-letter topic of a source where nobody names one.
func deadLetters(source string) string { return "mirrorless-dead-letters." + source + ".internal" }

// policy fills in how topics are named.
func (s settings) policy(f *Flow) {
	const key = "replication.policy.class"
	e := s.values[key]
	f.PolicyClass = s.text(key, flow.DefaultPolicyClass)
	options := flow.PolicyOptions{
		Class:             f.PolicyClass,
		Separator:         f.Separator,
		SeparatorSet:      s.written("replication.policy.separator"),
		InternalSeparator: s.boolean("replication.policy.internal.topic.separator.enabled", true),
		SourceAlias:       f.SourceAlias,
	}
	policy, err := flow.NewPolicy(options)
	if err != nil {
		hint := "set " + flow.IdentityPolicyClass + " if it keeps topic names, else " + flow.DefaultPolicyClass
		s.bad(e, "Java classes cannot be loaded here: "+hint)
		// Other keys are judged with the policy that such a class most often is.
		options.Class = flow.IdentityPolicyClass
		policy, _ = flow.NewPolicy(options)
	}
	f.PolicyClass = qualified(f.PolicyClass)
	if !policy.Identity() && f.SourceAlias+f.Separator == "" {
		// Names stay as they are, so nothing can be read from them either; the
		// default policy would take the first letter of a name for an alias.
		options.Class = flow.IdentityPolicyClass
		policy, _ = flow.NewPolicy(options)
	}
	f.Policy = policy

	for key, own := range map[string]string{
		"topic.filter.class":           mirrorPackage + "DefaultTopicFilter",
		"group.filter.class":           mirrorPackage + "DefaultGroupFilter",
		"config.property.filter.class": mirrorPackage + "DefaultConfigPropertyFilter",
		"forwarding.admin.class":       "org.apache.kafka.clients.admin.ForwardingAdmin",
	} {
		if class := s.text(key, own); class != own && class != own[strings.LastIndexByte(own, '.')+1:] {
			s.bad(s.values[key], "Java classes cannot be loaded here: remove the key, or set "+own)
		}
	}
}

// qualified gives a policy of Kafka's its Java package.
func qualified(class string) string {
	for _, c := range []string{flow.DefaultPolicyClass, flow.IdentityPolicyClass} {
		if class == strings.TrimPrefix(c, mirrorPackage) {
			return c
		}
	}
	return class
}

// filters compiles the lists of patterns.
func (s settings) filters(f *Flow) {
	compile := func(key string, patterns []string) flow.Patterns {
		p, err := flow.CompilePatterns(patterns)
		if err != nil && !reference.MatchString(s.values[key].value) {
			s.report.err(s.values[key], "%v", err)
		}
		return p
	}
	f.TopicFilter = flow.Filter{Include: compile("topics", f.Topics), Exclude: compile("topics.exclude", f.TopicsExclude)}
	f.GroupFilter = flow.Filter{Include: compile("groups", f.Groups), Exclude: compile("groups.exclude", f.GroupsExclude)}
	f.ConfigFilter = flow.ConfigFilter{
		Exclude:            compile("config.properties.exclude", f.ConfigPropertiesExclude),
		DefaultsFromSource: f.UseDefaultsFromSource,
	}
}

// addClients fills in the settings of the flow's clients, and what follows from
// them.
func (d *document) addClients(f *Flow, r *report) {
	f.source, f.target = map[Role]map[string]string{}, map[Role]map[string]string{}
	add := func(to map[Role]map[string]string, side string, role Role, props map[string]entry) {
		settings{props, r}.checkClient()
		values := plain(props, role)
		values["client.id"] = clientID(values["client.id"], f.Flow, side+"-"+string(role))
		to[role] = values
	}
	for _, role := range roles() {
		add(f.source, "source", role, d.flowClient(f.Flow, "source", f.Source, role))
		add(f.target, "target", role, d.flowClient(f.Flow, "target", f.Target, role))
	}
	f.offsetSyncs = f.source[Producer]
	if f.OffsetSyncsOnTarget {
		f.offsetSyncs = f.target[Producer]
	}
	add(f.target, "target", Producer, d.dataProducer(f.Flow))

	producer := settings{d.dataProducer(f.Flow), r}
	f.Compression = producer.choice("compression.type", "none", []string{"none", "gzip", "snappy", "lz4", "zstd"})
	f.MaxRequestSize = int32(producer.number("max.request.size", 1<<20, 1, 1<<31-1))
	consumer := settings{d.flowClient(f.Flow, "source", f.Source, Consumer), r}
	f.AutoOffsetReset = consumer.choice("auto.offset.reset", "earliest", []string{"earliest", "latest", "none"})
	f.IsolationLevel = consumer.choice("isolation.level", "", []string{"read_committed", "read_uncommitted"})
}

// CheckpointsTopic is the topic on the target that holds the flow's checkpoints.
func (f Flow) CheckpointsTopic() string { return f.Policy.CheckpointsTopic(f.SourceAlias) }

// OffsetSyncsTopic is the topic of the flow's offset syncs, on the source or,
// with OffsetSyncsOnTarget, on the target.
func (f Flow) OffsetSyncsTopic() string {
	if f.OffsetSyncsOnTarget {
		return f.Policy.OffsetSyncsTopic(f.SourceAlias)
	}
	return f.Policy.OffsetSyncsTopic(f.TargetAlias)
}

// RemoteTopic is the name on the target of a topic of the source.
func (f Flow) RemoteTopic(topic string) string { return f.Policy.Remote(f.SourceAlias, topic) }

// Selector returns the rule that says which topics of the source are copied.
func (f Flow) Selector() flow.Selector {
	s := flow.Selector{
		Flow:                flow.Flow{Source: f.SourceAlias, Target: f.TargetAlias},
		Policy:              f.Policy,
		Topics:              f.TopicFilter,
		ReplicateHeartbeats: f.ReplicateHeartbeats,
		Aliases:             f.aliases,
		Compat:              f.Compat,
	}
	if !f.Compat {
		// An empty alias hides every cycle; the declared one does not.
		s.Flow.Target = cmp.Or(f.TargetAlias, f.Target)
	}
	return s
}

// SourceClient returns the Java client properties of the flow's client of the
// source cluster: the Consumer is the one that reads the records to be copied.
// The map belongs to the caller. It holds secrets.
func (f Flow) SourceClient(role Role) map[string]string { return maps.Clone(f.source[role]) }

// TargetClient returns the Java client properties of the flow's client of the
// target cluster: the Producer is the one that writes the copied records
// (`B.producer.` and `A->B.producer.override.`). The map belongs to the caller.
// It holds secrets.
func (f Flow) TargetClient(role Role) map[string]string { return maps.Clone(f.target[role]) }

// OffsetSyncsClient returns the Java client properties of the producer of offset
// syncs, which writes to the source or, with OffsetSyncsOnTarget, to the target.
// Only it sees `A->B.producer.`. The map belongs to the caller. It holds secrets.
func (f Flow) OffsetSyncsClient() map[string]string { return maps.Clone(f.offsetSyncs) }
