package config

import (
	"slices"
	"strings"

	"mirrorless/shared/flow"
)

// Kind is the type of a key's value.
type Kind string

// The kinds of values.
const (
	Boolean  Kind = "boolean"
	Number   Kind = "number"
	Text     Kind = "text"
	List     Kind = "list"
	Patterns Kind = "list of patterns"
	Class    Kind = "class"
	Secret   Kind = "secret"
	Seconds  Kind = "seconds"
	Millis   Kind = "milliseconds"
	Choice   Kind = "one of"
	Factor   Kind = "replication factor"
)

// Place is a set of the places where a key acts.
type Place uint8

// The places of a key: `key`, `A->B.key`, `A.key` (or `B.key`, where what the
// key is about belongs to the target).
const (
	TopLevel Place = 1 << iota
	OnFlow
	OnCluster

	Anywhere = TopLevel | OnFlow // where most keys of MirrorMaker 2 act
)

// Key is one key that the file may have.
type Key struct {
	Name    string
	Group   string // heading in the documentation
	Kind    Kind
	Choices []string // of a Choice, in lower case
	Default string   // as it would be written
	Places  Place
	// Sentence says what the key does here.
	Sentence string
	// NotYet says what is missing, for a key that is read but does not act. It is
	// a warning wherever the key asks for what is missing.
	NotYet string
	// Silent keys are read and mean nothing here, for good. All of a file's go
	// into one warning.
	Silent bool
}

// Keys returns every key that is read, in the order of the documentation.
func Keys() []Key {
	return slices.Concat(topLevelKeys(), topicKeys(), groupKeys(), heartbeatKeys(), generalKeys(), refusedKeys(), ownKeys(), clusterKeys(), silentKeys())
}

func topLevelKeys() []Key {
	return []Key{
		{
			Name: "clusters", Group: "The file", Kind: List, Places: TopLevel,
			Sentence: "The aliases of all clusters. Required.",
		},
		{
			Name: "config.providers", Group: "The file", Kind: List, Places: TopLevel,
			Sentence: "Names of providers for `${provider:path:key}` in values; each has `config.providers.<name>.class`: Kafka's EnvVarConfigProvider, FileConfigProvider or DirectoryConfigProvider.",
		},
	}
}

const topicGroup = "Topics"

func topicKeys() []Key {
	return []Key{
		{
			Name: "enabled", Group: topicGroup, Kind: Boolean, Default: "false", Places: OnFlow,
			Sentence: "Whether the flow runs. Only true, in any case, switches it on.",
		},
		{
			Name: "topics", Group: topicGroup, Kind: Patterns, Default: flow.DefaultTopics, Places: Anywhere,
			Sentence: "Java regular expressions, each for the whole name of a topic to copy.",
		},
		{
			Name: "topics.exclude", Group: topicGroup, Kind: Patterns, Default: flow.DefaultTopicsExclude, Places: Anywhere,
			Sentence: "Topics not to copy; wins over topics. Internal topics are never copied, whatever this says.",
		},
		{
			Name: "config.properties.exclude", Group: topicGroup, Kind: Patterns, Default: plainConfigsExclude, Places: Anywhere,
			Sentence: "Topic configs that are not copied.",
		},
		{
			Name: "use.defaults.from", Group: topicGroup, Kind: Choice, Choices: []string{"target", "source"}, Default: "target", Places: OnFlow,
			Sentence: "source also copies the topic configs that nobody set on the source.",
		},
		{
			Name: "refresh.topics.enabled", Group: topicGroup, Kind: Boolean, Default: "true", Places: Anywhere,
			Sentence: "Whether new topics and partitions are looked for after the start.",
		},
		{
			Name: "refresh.topics.interval.seconds", Group: topicGroup, Kind: Seconds, Default: "600", Places: Anywhere,
			Sentence: "How often.",
		},
		{
			Name: "replication.factor", Group: topicGroup, Kind: Factor, Default: "2", Places: Anywhere,
			Sentence: "Of the topics that are created to be copied into; -1 leaves it to the target's brokers.",
		},
		{
			Name: "sync.topic.configs.enabled", Group: topicGroup, Kind: Boolean, Default: "true", Places: Anywhere,
			Sentence: "Whether configs of topics are kept the same after the topic was created.",
		},
		{
			Name: "sync.topic.configs.interval.seconds", Group: topicGroup, Kind: Seconds, Default: "600", Places: Anywhere,
			Sentence: "How often.",
		},
		{
			Name: "sync.topic.acls.enabled", Group: topicGroup, Kind: Boolean, Default: "true", Places: Anywhere,
			Sentence: "Whether the right to read a topic is copied with it.",
		},
		{
			Name: "sync.topic.acls.interval.seconds", Group: topicGroup, Kind: Seconds, Default: "600", Places: Anywhere,
			Sentence: "How often.",
		},
		{
			Name: "consumer.auto.offset.reset", Group: topicGroup, Kind: Choice, Choices: []string{"earliest", "latest", "none"}, Default: "earliest", Places: OnFlow | OnCluster,
			Sentence: "Where a partition starts that has no position yet. As `A.consumer.auto.offset.reset` it wins over `A->B.consumer.auto.offset.reset`.",
		},
	}
}

// plainConfigsExclude is the default as MirrorMaker 2 writes it; every entry is
// a pattern whose dots match themselves too.
var plainConfigsExclude = strings.ReplaceAll(flow.DefaultConfigPropertiesExclude, `\`, "")

const groupGroup = "Groups and offsets"

func groupKeys() []Key {
	return []Key{
		{
			Name: "groups", Group: groupGroup, Kind: Patterns, Default: flow.DefaultGroups, Places: Anywhere,
			Sentence: "Java regular expressions, each for the whole name of a group whose offsets are translated.",
		},
		{
			Name: "groups.exclude", Group: groupGroup, Kind: Patterns, Default: flow.DefaultGroupsExclude, Places: Anywhere,
			Sentence: "Groups not to translate; wins over groups.",
		},
		{
			Name: "refresh.groups.enabled", Group: groupGroup, Kind: Boolean, Default: "true", Places: Anywhere,
			Sentence: "Whether new groups are looked for after the start.",
		},
		{
			Name: "refresh.groups.interval.seconds", Group: groupGroup, Kind: Seconds, Default: "600", Places: Anywhere,
			Sentence: "How often.",
		},
		{
			Name: "emit.checkpoints.enabled", Group: groupGroup, Kind: Boolean, Default: "true", Places: Anywhere,
			Sentence: "Whether translated offsets are written to the checkpoints topic on the target.",
		},
		{
			Name: "emit.checkpoints.interval.seconds", Group: groupGroup, Kind: Seconds, Default: "60", Places: Anywhere,
			Sentence: "How often.",
		},
		{
			Name: "sync.group.offsets.enabled", Group: groupGroup, Kind: Boolean, Default: "false", Places: Anywhere,
			Sentence: "Whether translated offsets are committed on the target for groups that have no member there.",
		},
		{
			Name: "sync.group.offsets.interval.seconds", Group: groupGroup, Kind: Seconds, Default: "60", Places: Anywhere,
			Sentence: "How often.",
		},
		{
			Name: "checkpoints.topic.replication.factor", Group: groupGroup, Kind: Factor, Default: "3", Places: Anywhere,
			Sentence: "Of the checkpoints topic.",
		},
		{
			Name: "emit.offset-syncs.enabled", Group: groupGroup, Kind: Boolean, Default: "true", Places: Anywhere,
			Sentence: "Whether offset syncs are written for MirrorMaker 2's own tools. Offsets are translated here without them (KIP-1031).",
		},
		{
			Name: "offset-syncs.topic.location", Group: groupGroup, Kind: Choice, Choices: []string{"source", "target"}, Default: "source", Places: Anywhere,
			Sentence: "The cluster that holds the offset syncs (KIP-716). target needs no right to write on the source.",
		},
		{
			Name: "offset-syncs.topic.replication.factor", Group: groupGroup, Kind: Factor, Default: "3", Places: Anywhere,
			Sentence: "Of the topic of offset syncs.",
		},
		{
			Name: "offset.lag.max", Group: groupGroup, Kind: Number, Default: "100", Places: Anywhere,
			Sentence: "Records between two offset syncs. Translation does not depend on it here: it is exact.",
		},
	}
}

const heartbeatGroup = "Heartbeats"

func heartbeatKeys() []Key {
	return []Key{
		{
			Name: "emit.heartbeats.enabled", Group: heartbeatGroup, Kind: Boolean, Default: "true", Places: Anywhere,
			Sentence: "Whether the flow writes heartbeats on its target. On for B->A even where B->A is not enabled.",
		},
		{
			Name: "emit.heartbeats.interval.seconds", Group: heartbeatGroup, Kind: Seconds, Default: "1", Places: Anywhere,
			Sentence: "How often.",
		},
		{
			Name: "heartbeats.topic.replication.factor", Group: heartbeatGroup, Kind: Factor, Default: "3", Places: Anywhere,
			Sentence: "Of the heartbeats topic.",
		},
		{
			Name: "heartbeats.replication.enabled", Group: heartbeatGroup, Kind: Boolean, Default: "true", Places: Anywhere,
			Sentence: "Whether the source's heartbeats are copied, whatever topics says (KIP-1089).",
		},
	}
}

const generalGroup = "Names, policies and the rest"

func generalKeys() []Key {
	return []Key{
		{
			Name: "replication.policy.class", Group: generalGroup, Kind: Class, Default: flow.DefaultPolicyClass, Places: Anywhere,
			Sentence: "How topics are named on the target: DefaultReplicationPolicy (A.orders) or IdentityReplicationPolicy (orders) of org.apache.kafka.connect.mirror.",
		},
		{
			Name: "replication.policy.separator", Group: generalGroup, Kind: Text, Default: flow.DefaultSeparator, Places: Anywhere,
			Sentence: "Stands between alias and topic; may be empty.",
		},
		{
			Name: "replication.policy.internal.topic.separator.enabled", Group: generalGroup, Kind: Boolean, Default: "true", Places: Anywhere,
			Sentence: "Whether the separator also stands in the names of the checkpoints and offset syncs topics (KIP-949).",
		},
		{
			Name: "source.cluster.alias", Group: generalGroup, Kind: Text, Default: "A", Places: Anywhere,
			Sentence: "The name of the source in topic names and internal records, where it is to differ from its alias.",
		},
		{
			Name: "target.cluster.alias", Group: generalGroup, Kind: Text, Default: "B", Places: Anywhere,
			Sentence: "The name of the target in internal records, where it is to differ from its alias.",
		},
		{
			Name: "name", Group: generalGroup, Kind: Text, Default: "MirrorSourceConnector", Places: Anywhere,
			Sentence: "The connector's name in the position records, by which MirrorMaker 2 finds them.",
		},
		{
			Name: "admin.timeout.ms", Group: generalGroup, Kind: Millis, Default: "60000", Places: Anywhere,
			Sentence: "Bound on each administrative step.",
		},
		{
			Name: "topic.filter.class", Group: generalGroup, Kind: Class, Default: mirrorPackage + "DefaultTopicFilter", Places: Anywhere,
			Sentence: "Only Kafka's own.",
		},
		{
			Name: "group.filter.class", Group: generalGroup, Kind: Class, Default: mirrorPackage + "DefaultGroupFilter", Places: Anywhere,
			Sentence: "Only Kafka's own.",
		},
		{
			Name: "config.property.filter.class", Group: generalGroup, Kind: Class, Default: mirrorPackage + "DefaultConfigPropertyFilter", Places: Anywhere,
			Sentence: "Only Kafka's own.",
		},
		{
			Name: "forwarding.admin.class", Group: generalGroup, Kind: Class, Default: "org.apache.kafka.clients.admin.ForwardingAdmin", Places: Anywhere,
			Sentence: "Only Kafka's own.",
		},
		{
			Name: "offset.storage.topic", Group: generalGroup, Kind: Text, Default: "mm2-offsets.A.internal", Places: TopLevel | OnCluster,
			Sentence: "The topic of position records, by which MirrorMaker 2 can take over at any time. The top level wins over `B.offset.storage.topic`.",
		},
		{
			Name: "offset.storage.partitions", Group: generalGroup, Kind: Number, Default: "25", Places: TopLevel | OnCluster,
			Sentence: "Its partitions, where it has to be created.",
		},
		{
			Name: "offset.storage.replication.factor", Group: generalGroup, Kind: Factor, Default: "3", Places: TopLevel | OnCluster,
			Sentence: "Its replication factor.",
		},
		{
			Name: "config.storage.replication.factor", Group: generalGroup, Kind: Factor, Default: "3", Places: TopLevel | OnCluster,
			Sentence: "Of Connect's mm2-configs topic, which is not made here.",
		},
		{
			Name: "status.storage.replication.factor", Group: generalGroup, Kind: Factor, Default: "3", Places: TopLevel | OnCluster,
			Sentence: "Of Connect's mm2-status topic, which is not made here.",
		},
		{
			Name: "offset.flush.interval.ms", Group: generalGroup, Kind: Millis, Default: "60000", Places: OnCluster,
			Sentence: "As `B.offset.flush.interval.ms`: how often position records and offset syncs are written.",
		},
		{
			Name: "exactly.once.source.support", Group: generalGroup, Kind: Choice, Choices: []string{"disabled", "preparing", "enabled"}, Default: "disabled", Places: OnCluster,
			Sentence: "As `B.exactly.once.source.support = enabled`: one transaction per partition and batch.",
		},
	}
}

const (
	mirrorPackage = "org.apache.kafka.connect.mirror."
	ownGroup      = "Keys of our own"
	ownPrefix     = "mirrorless."
)

func ownKeys() []Key {
	return []Key{
		{
			Name: "mirrorless.compat", Group: ownGroup, Kind: Choice, Choices: []string{"off", "mm2"}, Default: "off", Places: Anywhere,
			Sentence: "mm2 does as MirrorMaker 2 does where that is worse.",
		},
		{
			Name: "mirrorless.read", Group: ownGroup, Kind: Choice, Choices: []string{"event", "source", "auto"}, Default: "event", Places: Anywhere,
			Sentence: "event appends the records of the payload; source copies the batches they came in from the source, still compressed; auto chooses.",
			NotYet:   "only event is there yet, and is used",
		},
		{
			Name: "mirrorless.holes", Group: ownGroup, Kind: Choice, Choices: []string{"continue", "stop"}, Default: "continue", Places: Anywhere,
			Sentence: "What to do when records are gone from the source before they were copied. Both record the hole.",
		},
		{
			Name: "mirrorless.recreated", Group: ownGroup, Kind: Choice, Choices: []string{"stop", "copy"}, Default: "", Places: Anywhere,
			Sentence: "What to do when a topic was deleted and created again. Unset, a new topic on the target stops the partition and a new one on the source is copied; both are said.",
		},
		{
			Name: "mirrorless.deleted", Group: ownGroup, Kind: Choice, Choices: []string{"keep"}, Default: "keep", Places: Anywhere,
			Sentence: "What happens on the target when a topic of the source is deleted: it stays.",
		},
		{
			Name: "mirrorless.batch.size", Group: ownGroup, Kind: Number, Default: "10000", Places: Anywhere,
			Sentence: "Records in one invocation of mirror at most, 1 to 10000 (BatchSize of the event source).",
		},
		{
			Name: "mirrorless.batch.window", Group: ownGroup, Kind: Millis, Default: "500", Places: Anywhere,
			Sentence: "How long an invocation waits to fill, 0 to 300000 (MaximumBatchingWindowInSeconds of the event source, which takes whole seconds).",
		},
		{
			Name: "mirrorless.metrics", Group: ownGroup, Kind: Choice, Choices: []string{"flow", "topics", "partitions", "off"}, Default: "flow", Places: Anywhere,
			Sentence: "What the functions' metrics are of: the flow as a whole; each topic, and the flow; each partition, each topic and the flow; nothing. CloudWatch takes about $0.30 a month for each metric, and topics makes a dozen of each topic. docs/metrics.md lists them.",
		},
		{
			Name: "mirrorless.mapping.metrics", Group: ownGroup, Kind: Boolean, Default: "false", Places: Anywhere,
			Sentence: "Whether Lambda, too, counts events, errors and lag of each event source (EventCount, ErrorCount and KafkaMetrics of MetricsConfig). CloudWatch charges for each.",
		},
		{
			Name: "mirrorless.mapping.partial.failures", Group: ownGroup, Kind: Boolean, Default: "false", Places: Anywhere,
			Sentence: "Whether a partition that fails leaves the others of its batch alone (ReportBatchItemFailures). Lambda's guide has it with provisioned pollers.",
		},
		{
			Name: "mirrorless.mapping.pollers.min", Group: ownGroup, Kind: Number, Places: Anywhere,
			Sentence: "Pollers that each event source keeps, 1 to 200 (provisioned mode, which costs while idle). Unset, with max unset too, pollers come on demand.",
		},
		{
			Name: "mirrorless.mapping.pollers.max", Group: ownGroup, Kind: Number, Places: Anywhere,
			Sentence: "Pollers that each event source may have, 1 to 2000; Lambda's default in provisioned mode is 200.",
		},
		{
			Name: "mirrorless.mapping.pollers.group", Group: ownGroup, Kind: Text, Places: Anywhere,
			Sentence: "Name under which the event sources share what their pollers cost (PollerGroupName): at most 100 of them in one VPC, and 2000 for all their max together.",
		},
		{
			Name: "mirrorless.msk.arn", Group: ownGroup, Kind: Text, Places: OnCluster,
			Sentence: "ARN of the Amazon MSK cluster, for the event source; without it the cluster is self-managed.",
		},
		{
			Name: "mirrorless.secret.arn", Group: ownGroup, Kind: Text, Places: OnCluster,
			Sentence: "ARN of the secret with the credentials that the event source logs in with.",
		},
		{
			Name: "mirrorless.ca.arn", Group: ownGroup, Kind: Text, Places: OnCluster,
			Sentence: "ARN of the secret with the certificates, as PEM text, by which the event source trusts the brokers of a self-managed cluster; without it public ones.",
		},
		{
			Name: "mirrorless.subnets", Group: ownGroup, Kind: List, Places: OnCluster,
			Sentence: "Subnets in which the event source reaches a self-managed cluster.",
		},
		{
			Name: "mirrorless.security.groups", Group: ownGroup, Kind: List, Places: OnCluster,
			Sentence: "Security groups with which it does.",
		},
	}
}

const clusterGroup = "Connections"

func clusterKeys() []Key {
	const everywhere = TopLevel | OnCluster
	return []Key{
		{
			Name: "bootstrap.servers", Group: clusterGroup, Kind: List, Places: everywhere,
			Sentence: "host:port pairs. Required for each cluster.",
		},
		{
			Name: "security.protocol", Group: clusterGroup, Kind: Choice, Choices: []string{"plaintext", "ssl", "sasl_plaintext", "sasl_ssl"}, Default: "PLAINTEXT", Places: everywhere,
			Sentence: "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, in any case.",
		},
		{
			Name: "sasl.mechanism", Group: clusterGroup, Kind: Text, Default: "GSSAPI", Places: everywhere,
			Sentence: "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM. Kafka's default, GSSAPI, is not supported.",
		},
		{
			Name: "sasl.jaas.config", Group: clusterGroup, Kind: Secret, Places: everywhere,
			Sentence: "Credentials for PLAIN and SCRAM, as Kafka's JaasContext reads them; for OAUTHBEARER, they may be in sasl.oauthbearer.client.credentials.client.id and .client.secret instead. AWS_MSK_IAM takes the function's own role instead.",
		},
		{
			Name: "sasl.oauthbearer.token.endpoint.url", Group: clusterGroup, Kind: Text, Places: everywhere,
			Sentence: "Where OAUTHBEARER gets its tokens, by the client credentials grant: an https, http or file URL.",
		},
		{
			Name: "sasl.oauthbearer.client.credentials.client.id", Group: clusterGroup, Kind: Text, Places: everywhere,
			Sentence: "Who asks for tokens; clientId in the JAAS line where it is missing.",
		},
		{
			Name: "sasl.oauthbearer.client.credentials.client.secret", Group: clusterGroup, Kind: Secret, Places: everywhere,
			Sentence: "The secret of who asks; clientSecret in the JAAS line where it is missing.",
		},
		{
			Name: "sasl.oauthbearer.scope", Group: clusterGroup, Kind: Text, Places: everywhere,
			Sentence: "Scope of the tokens; scope in the JAAS line where it is missing.",
		},
		{
			Name: "ssl.truststore.location", Group: clusterGroup, Kind: Text, Places: everywhere,
			Sentence: "File of the certificates to trust; without it the system's.",
		},
		{
			Name: "ssl.truststore.type", Group: clusterGroup, Kind: Text, Default: "JKS", Places: everywhere,
			Sentence: "PEM, PKCS12 or JKS; a file that is of another type is read as what it is.",
		},
		{
			Name: "ssl.truststore.password", Group: clusterGroup, Kind: Secret, Places: everywhere,
			Sentence: "Of a PKCS12 or JKS file.",
		},
		{
			Name: "ssl.truststore.certificates", Group: clusterGroup, Kind: Secret, Places: everywhere,
			Sentence: "The certificates themselves, as PEM text.",
		},
		{
			Name: "ssl.keystore.location", Group: clusterGroup, Kind: Text, Places: everywhere,
			Sentence: "File of the client's certificate and key.",
		},
		{
			Name: "ssl.keystore.type", Group: clusterGroup, Kind: Text, Default: "JKS", Places: everywhere,
			Sentence: "As ssl.truststore.type.",
		},
		{
			Name: "ssl.keystore.password", Group: clusterGroup, Kind: Secret, Places: everywhere,
			Sentence: "Of a PKCS12 or JKS file.",
		},
		{
			Name: "ssl.keystore.certificate.chain", Group: clusterGroup, Kind: Secret, Places: everywhere,
			Sentence: "The client's certificate as PEM text.",
		},
		{
			Name: "ssl.keystore.key", Group: clusterGroup, Kind: Secret, Places: everywhere,
			Sentence: "The client's key as PEM text.",
		},
		{
			Name: "ssl.key.password", Group: clusterGroup, Kind: Secret, Places: everywhere,
			Sentence: "Of the key in a JKS file.",
		},
		{
			Name: "ssl.endpoint.identification.algorithm", Group: clusterGroup, Kind: Text, Default: "https", Places: everywhere,
			Sentence: "Empty switches the check of the broker's host name off.",
		},
		{
			Name: "ssl.enabled.protocols", Group: clusterGroup, Kind: List, Default: "TLSv1.2, TLSv1.3", Places: everywhere,
			Sentence: "TLS versions; none below 1.2 is spoken.",
		},
		{
			Name: "ssl.cipher.suites", Group: clusterGroup, Kind: List, Places: everywhere,
			Sentence: "Cipher suites of TLS 1.2, by their IANA names.",
		},
	}
}

func silentKeys() []Key {
	const group = "Without effect here"
	return []Key{
		{
			Name: "errors.log.enable", Group: group, Kind: Boolean, Default: "false", Places: Anywhere, Silent: true,
			Sentence: "A record that the target refuses is always logged.",
		},
		{
			Name: "errors.log.include.messages", Group: group, Kind: Boolean, Default: "false", Places: Anywhere, Silent: true,
			Sentence: "Nothing of a record's content is ever logged.",
		},
		{
			Name: "errors.retry.timeout", Group: group, Kind: Millis, Default: "0", Places: Anywhere, Silent: true,
			Sentence: "What may pass is tried again until the function's time is up, and then by the event source.",
		},
		{
			Name: "errors.retry.delay.max.ms", Group: group, Kind: Millis, Default: "60000", Places: Anywhere, Silent: true,
			Sentence: "The pauses grow to a second.",
		},
		{
			Name: "tasks.max", Group: group, Kind: Number, Default: "1", Places: Anywhere, Silent: true,
			Sentence: "There are no tasks: invocations follow the partitions.",
		},
		{
			Name: "consumer.poll.timeout.ms", Group: group, Kind: Millis, Default: "1000", Places: Anywhere, Silent: true,
			Sentence: "Nothing polls.",
		},
		{
			Name: "metric.names.formats", Group: group, Kind: List, Default: "legacy", Places: Anywhere, Silent: true,
			Sentence: "There is no JMX; docs/metrics.md has what there is.",
		},
		{
			Name: "dedicated.mode.enable.internal.rest", Group: group, Kind: Boolean, Default: "false", Places: TopLevel, Silent: true,
			Sentence: "Functions do not talk to each other.",
		},
		{
			Name: "listeners", Group: group, Kind: List, Default: "http://:8083", Places: TopLevel, Silent: true,
			Sentence: "Nothing listens.",
		},
	}
}
