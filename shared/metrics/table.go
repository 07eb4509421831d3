package metrics

import "mirrorless/shared/config"

// Metric is one metric's name and meaning.
type Metric struct {
	Name string
	// Unit is one of CloudWatch's.
	Unit string
	// Of says which dimensions it has beside source and target, by what
	// mirrorless.metrics is; none for one of the flow as a whole.
	Of map[config.Metrics][]string
	// From is the function that writes it.
	From string
	// Sentence says what it is.
	Sentence string
	// MM2 is what MirrorMaker 2's users know it by: attributes of its MBeans.
	MM2 string
}

// The units that are written.
const (
	count          = "Count"
	countPerSecond = "Count/Second"
	byteCount      = "Bytes"
	bytesPerSecond = "Bytes/Second"
	milliseconds   = "Milliseconds"
)

// The names of the metrics. Those that MirrorMaker 2 has are its own.
const (
	recordCount       = "record-count"
	recordRate        = "record-rate"
	byteCountOfValues = "byte-count"
	byteRate          = "byte-rate"
	copiedBytes       = "copied-bytes"
	recordAge         = "record-age-ms"
	latency           = "replication-latency-ms"
	checkpointLatency = "checkpoint-latency-ms"
	offsetLag         = "offset-lag"
	heartbeatAge      = "heartbeat-age-ms"
	holes             = "holes"
	refused           = "duplicates-refused"
	detected          = "duplicates-detected"
	lostHeaders       = "unmirrorable-headers"
	deadLetters       = "dead-letters"
	notEnabled        = "event-sources-not-enabled"
)

// Table lists every metric that is written.
func Table() []Metric {
	topics := map[config.Metrics][]string{
		config.MetricsTopics:     {topicName},
		config.MetricsPartitions: {topicName, partitionName},
	}
	groups := map[config.Metrics][]string{
		config.MetricsTopics:     {groupName, topicName},
		config.MetricsPartitions: {groupName, topicName, partitionName},
	}
	const mirror, checkpoint, topic = "mirror", "checkpoint", "topics"
	return []Metric{
		{
			recordCount, count, topics, mirror,
			"Records copied. A record counts once, in the invocation that stores the position behind it.",
			"`record-count`; its difference over time is the statistic Sum here",
		},
		{
			recordRate, countPerSecond, topics, mirror,
			"Records copied a second while an invocation was at work. Over a period, that is Sum of record-count, divided by the period.",
			"`record-rate`, which is over the time that passes",
		},
		{
			byteCountOfValues, byteCount, topics, mirror,
			"Bytes of their values alone, as MirrorMaker 2 counts.",
			"`byte-count`",
		},
		{
			byteRate, bytesPerSecond, topics, mirror,
			"The same a second, as record-rate.",
			"`byte-rate`",
		},
		{
			copiedBytes, byteCount, topics, mirror,
			"Bytes of their keys, values and headers.",
			"",
		},
		{
			recordAge, milliseconds, topics, mirror,
			"From a record's timestamp to the begin of the invocation that copied it.",
			"`record-age-ms`, `-min`, `-max` and `-avg`: the statistics Minimum, Maximum and Average",
		},
		{
			latency, milliseconds, topics, mirror,
			"From a record's timestamp to the target's acknowledgement.",
			"`replication-latency-ms`, `-min`, `-max` and `-avg`, in the same way",
		},
		{
			refused, count, topics, mirror,
			"Records that came once more, after a time-out or a crash, and were on the target already: so many second copies were not made.",
			"",
		},
		{
			detected, count, topics, mirror,
			"Records that are on the target twice, by the one window that the guarantees name. Anything but 0 is worth a look.",
			"",
		},
		{
			holes, count, topics, mirror,
			"Ranges of offsets that could not be copied: gone from the source, or out of reach. `mirrorless status` lists them.",
			"",
		},
		{
			lostHeaders, count, topics, mirror,
			"Records copied without a header whose name Lambda's event did not carry, because its value is null.",
			"",
		},
		{
			deadLetters, count, topics, mirror,
			"Records that the target refused, and that went to the dead-letter topic (errors.tolerance).",
			"",
		},
		{
			offsetLag, count, topics, checkpoint,
			"Offsets between the last record copied and the end of the source, once a minute, whether anything moves or not. Of the flow, the sum.",
			"",
		},
		{
			heartbeatAge, milliseconds, nil, checkpoint,
			"Age of the newest heartbeat that has come through the flow; of the newest one on the target, where none are copied.",
			"",
		},
		{
			checkpointLatency, milliseconds, groups, checkpoint,
			"From a group's offset being read on the source to its checkpoint being acknowledged on the target.",
			"`checkpoint-latency-ms`, `-min`, `-max` and `-avg`, of each group by itself",
		},
		{
			notEnabled, count, nil, topic,
			"Event sources that should be Enabled and are not, after topics has done what it could.",
			"",
		},
	}
}
