package config

const refusedGroup = "Records that the target refuses"

// refusedKeys are Connect's keys for dead letters (KIP-298). Connect has dead
// letters for sinks alone; of a source's records it leaves out, in silence, those
// that the producer cannot send (KIP-779).
func refusedKeys() []Key {
	return []Key{
		{
			Name: "errors.tolerance", Group: refusedGroup, Kind: Choice, Choices: []string{"none", "all"}, Default: "none", Places: Anywhere,
			Sentence: "What to do with a record that the target will never take: too large, its timestamp out of range, invalid for the topic. none stops its partition; all writes it to the dead-letter topic and goes on, while MirrorMaker 2 leaves it out. A topic that is refused as a whole, for want of a right, stops in both.",
		},
		{
			Name: "errors.deadletterqueue.topic.name", Group: refusedGroup, Kind: Text, Default: "mirrorless-dead-letters.A.internal", Places: Anywhere,
			Sentence: "The dead-letter topic, on the target. The topics function creates it where errors.tolerance is all. A record can be there twice, after a crash.",
		},
		{
			Name: "errors.deadletterqueue.topic.replication.factor", Group: refusedGroup, Kind: Factor, Default: "3", Places: Anywhere,
			Sentence: "Its replication factor.",
		},
		{
			Name: "errors.deadletterqueue.context.headers.enable", Group: refusedGroup, Kind: Boolean, Default: "true", Places: Anywhere,
			Sentence: "Whether Connect's headers `__connect.errors.*` say where a dead letter comes from and why it is one. Connect leaves them out unless told.",
		},
	}
}
