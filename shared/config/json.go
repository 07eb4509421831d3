package config

import (
	"bytes"
	"encoding/json"
	"time"
)

// MarshalJSON returns what `mirrorless config --json` prints: clusters without
// their secrets, flows with their effective settings under the names that the
// file has for them, and the findings.
func (c *Config) MarshalJSON() ([]byte, error) {
	view := struct {
		Clusters []clusterView `json:"clusters"`
		Flows    []flowView    `json:"flows"`
		Warnings []Finding     `json:"warnings"`
		Errors   []Finding     `json:"errors"`
	}{[]clusterView{}, []flowView{}, orEmpty(c.Warnings), orEmpty(c.Errors)}
	for _, cluster := range c.Clusters {
		view.Clusters = append(view.Clusters, viewOfCluster(cluster))
	}
	for _, f := range c.Flows {
		view.Flows = append(view.Flows, viewOfFlow(f))
	}
	// json.Marshal would turn the > of A->B into an escape.
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(view)
	return b.Bytes(), err
}

// clusterView has null for what nobody wrote: an empty endpoint identification
// algorithm means something.
type clusterView struct {
	Alias                  string   `json:"alias"`
	BootstrapServers       []string `json:"bootstrap.servers"`
	SecurityProtocol       string   `json:"security.protocol"`
	SASLMechanism          *string  `json:"sasl.mechanism"`
	SASLUsername           *string  `json:"sasl.username"`
	TruststoreLocation     *string  `json:"ssl.truststore.location"`
	EndpointIdentification *string  `json:"ssl.endpoint.identification.algorithm"`
	MSKARN                 string   `json:"mirrorless.msk.arn,omitempty"`
	SecretARN              string   `json:"mirrorless.secret.arn,omitempty"`
	CAARN                  string   `json:"mirrorless.ca.arn,omitempty"`
	Subnets                []string `json:"mirrorless.subnets,omitempty"`
	SecurityGroups         []string `json:"mirrorless.security.groups,omitempty"`
}

func viewOfCluster(c Cluster) clusterView {
	return clusterView{
		Alias:                  c.Alias,
		BootstrapServers:       orEmpty(c.BootstrapServers),
		SecurityProtocol:       c.SecurityProtocol,
		SASLMechanism:          orNull(c.SASLMechanism),
		SASLUsername:           orNull(c.SASLUsername),
		TruststoreLocation:     orNull(c.TruststoreLocation),
		EndpointIdentification: c.EndpointIdentification,
		MSKARN:                 c.MSK.ARN,
		SecretARN:              c.MSK.SecretARN,
		CAARN:                  c.MSK.CAARN,
		Subnets:                c.MSK.Subnets,
		SecurityGroups:         c.MSK.SecurityGroups,
	}
}

type flowView struct {
	Source  string `json:"source"`
	Target  string `json:"target"`
	Enabled bool   `json:"enabled"`

	Topics              []string `json:"topics"`
	TopicsExclude       []string `json:"topics.exclude"`
	Groups              []string `json:"groups"`
	GroupsExclude       []string `json:"groups.exclude"`
	ReplicationFactor   int16    `json:"replication.factor"`
	TasksMax            int      `json:"tasks.max"`
	PolicyClass         string   `json:"replication.policy.class"`
	Separator           string   `json:"replication.policy.separator"`
	SourceAlias         string   `json:"source.cluster.alias"`
	TargetAlias         string   `json:"target.cluster.alias"`
	RemoteNameOfOrders  string   `json:"remote_name_of_orders"`
	CheckpointsTopic    string   `json:"checkpoints_topic"`
	OffsetSyncsTopic    string   `json:"offset_syncs_topic"`
	OffsetSyncsLocation string   `json:"offset-syncs.topic.location"`
	SyncTopicACLs       bool     `json:"sync.topic.acls.enabled"`
	SyncTopicConfigs    bool     `json:"sync.topic.configs.enabled"`
	RefreshTopics       bool     `json:"refresh.topics.enabled"`
	EmitCheckpoints     bool     `json:"emit.checkpoints.enabled"`
	CheckpointsInterval int64    `json:"emit.checkpoints.interval.seconds"`
	SyncGroupOffsets    bool     `json:"sync.group.offsets.enabled"`
	SyncGroupInterval   int64    `json:"sync.group.offsets.interval.seconds"`
	AutoOffsetReset     string   `json:"source_consumer.auto.offset.reset"`
	IsolationLevel      string   `json:"source_consumer.isolation.level,omitempty"`
	MaxRequestSize      string   `json:"target.producer.max.request.size,omitempty"`

	Compat    string      `json:"mirrorless.compat"`
	Read      Read        `json:"mirrorless.read"`
	Holes     OnHole      `json:"mirrorless.holes"`
	Recreated OnRecreated `json:"mirrorless.recreated"`
	Deleted   string      `json:"mirrorless.deleted"`
	BatchSize int         `json:"mirrorless.batch.size"`
	Window    int64       `json:"mirrorless.batch.window"`
	Metrics   Metrics     `json:"mirrorless.metrics"`
	// The keys of mirrorless.mapping.
	MappingMetrics  bool   `json:"mirrorless.mapping.metrics"`
	PartialFailures bool   `json:"mirrorless.mapping.partial.failures"`
	PollersMin      int32  `json:"mirrorless.mapping.pollers.min,omitempty"`
	PollersMax      int32  `json:"mirrorless.mapping.pollers.max,omitempty"`
	PollersGroup    string `json:"mirrorless.mapping.pollers.group,omitempty"`

	Others otherSetting `json:"mirrorless.other.settings"`
}

// otherSetting holds what else is in force, keys of MirrorMaker 2 under one of
// our own so that the flow itself has no more than the well-known ones.
type otherSetting struct {
	RefreshTopicsInterval int64    `json:"refresh.topics.interval.seconds"`
	RefreshGroups         bool     `json:"refresh.groups.enabled"`
	RefreshGroupsInterval int64    `json:"refresh.groups.interval.seconds"`
	ConfigsExclude        []string `json:"config.properties.exclude"`
	ConfigsInterval       int64    `json:"sync.topic.configs.interval.seconds"`
	ACLsInterval          int64    `json:"sync.topic.acls.interval.seconds"`
	UseDefaultsFrom       string   `json:"use.defaults.from"`
	EmitHeartbeats        bool     `json:"emit.heartbeats.enabled"`
	HeartbeatsInterval    int64    `json:"emit.heartbeats.interval.seconds"`
	HeartbeatsReplication bool     `json:"heartbeats.replication.enabled"`
	HeartbeatsFactor      int16    `json:"heartbeats.topic.replication.factor"`
	CheckpointsFactor     int16    `json:"checkpoints.topic.replication.factor"`
	EmitOffsetSyncs       bool     `json:"emit.offset-syncs.enabled"`
	OffsetSyncsFactor     int16    `json:"offset-syncs.topic.replication.factor"`
	OffsetLagMax          int64    `json:"offset.lag.max"`
	OffsetStorageTopic    string   `json:"offset.storage.topic"`
	OffsetStorageFactor   int16    `json:"offset.storage.replication.factor"`
	OffsetFlushInterval   int64    `json:"offset.flush.interval.ms"`
	AdminTimeout          int64    `json:"admin.timeout.ms"`
	ExactlyOnce           bool     `json:"exactly.once"`
	Name                  string   `json:"name"`
}

func viewOfFlow(f Flow) flowView {
	seconds := func(d time.Duration) int64 { return int64(d / time.Second) }
	return flowView{
		Source:  f.Source,
		Target:  f.Target,
		Enabled: f.Enabled,

		Topics:              orEmpty(f.Topics),
		TopicsExclude:       orEmpty(f.TopicsExclude),
		Groups:              orEmpty(f.Groups),
		GroupsExclude:       orEmpty(f.GroupsExclude),
		ReplicationFactor:   f.ReplicationFactor.Value,
		TasksMax:            f.TasksMax,
		PolicyClass:         f.PolicyClass,
		Separator:           f.Separator,
		SourceAlias:         f.SourceAlias,
		TargetAlias:         f.TargetAlias,
		RemoteNameOfOrders:  f.RemoteTopic("orders"),
		CheckpointsTopic:    f.CheckpointsTopic(),
		OffsetSyncsTopic:    f.OffsetSyncsTopic(),
		OffsetSyncsLocation: either(f.OffsetSyncsOnTarget, "target", "source"),
		SyncTopicACLs:       f.SyncTopicACLs.Enabled,
		SyncTopicConfigs:    f.SyncTopicConfigs.Enabled,
		RefreshTopics:       f.RefreshTopics.Enabled,
		EmitCheckpoints:     f.EmitCheckpoints.Enabled,
		CheckpointsInterval: seconds(f.EmitCheckpoints.Interval),
		SyncGroupOffsets:    f.SyncGroupOffsets.Enabled,
		SyncGroupInterval:   seconds(f.SyncGroupOffsets.Interval),
		AutoOffsetReset:     f.AutoOffsetReset,
		IsolationLevel:      f.IsolationLevel,
		MaxRequestSize:      f.target[Producer]["max.request.size"],

		Compat:    either(f.Compat, "mm2", "off"),
		Read:      f.Read,
		Holes:     f.Holes,
		Recreated: f.Recreated,
		Deleted:   "keep",
		BatchSize: f.BatchSize,
		Window:    f.BatchDelay.Milliseconds(),
		Metrics:   f.Metrics,

		MappingMetrics:  f.Mapping.Metrics,
		PartialFailures: f.Mapping.PartialFailures,
		PollersMin:      f.Mapping.Pollers.Minimum,
		PollersMax:      f.Mapping.Pollers.Maximum,
		PollersGroup:    f.Mapping.Pollers.Group,

		Others: otherSetting{
			RefreshTopicsInterval: seconds(f.RefreshTopics.Interval),
			RefreshGroups:         f.RefreshGroups.Enabled,
			RefreshGroupsInterval: seconds(f.RefreshGroups.Interval),
			ConfigsExclude:        orEmpty(f.ConfigPropertiesExclude),
			ConfigsInterval:       seconds(f.SyncTopicConfigs.Interval),
			ACLsInterval:          seconds(f.SyncTopicACLs.Interval),
			UseDefaultsFrom:       either(f.UseDefaultsFromSource, "source", "target"),
			EmitHeartbeats:        f.EmitHeartbeats.Enabled,
			HeartbeatsInterval:    seconds(f.EmitHeartbeats.Interval),
			HeartbeatsReplication: f.ReplicateHeartbeats,
			HeartbeatsFactor:      f.HeartbeatsReplicas.Value,
			CheckpointsFactor:     f.CheckpointsReplicas.Value,
			EmitOffsetSyncs:       f.EmitOffsetSyncs,
			OffsetSyncsFactor:     f.OffsetSyncsReplicas.Value,
			OffsetLagMax:          f.OffsetLagMax,
			OffsetStorageTopic:    f.PositionsTopic,
			OffsetStorageFactor:   f.OffsetStorageReplicas.Value,
			OffsetFlushInterval:   f.OffsetFlushInterval.Milliseconds(),
			AdminTimeout:          f.AdminTimeout.Milliseconds(),
			ExactlyOnce:           f.ExactlyOnce,
			Name:                  f.Connector,
		},
	}
}

func either[T any](condition bool, yes, no T) T {
	if condition {
		return yes
	}
	return no
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return new(s)
}
