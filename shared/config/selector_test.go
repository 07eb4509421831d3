package config_test

import (
	"testing"
)

func TestSelectorsOfOddNamesCopyWhatMirrorMakerCopies(t *testing.T) {
	for _, c := range []struct {
		file, flow, topic string
		copy              bool
		remote            string
	}{
		{"02-space-separated-clusters-and-cutline.properties", "source->target", "orders", true, "orders"},
		{"02-space-separated-clusters-and-cutline.properties", "source->target", "target", true, "target"},
		{"21-client-overrides-at-cluster-level-empty-separator.properties", "A->B", "orders", true, "orders"},
		{"21-client-overrides-at-cluster-level-empty-separator.properties", "A->B", "Banana", true, "Banana"},
		{"21-client-overrides-at-cluster-level-empty-separator.properties", "A->B", "__consumer_offsets", false, ""},
		{"38-separator-of-blanks-alias-named-source.properties", "source->target", "orders", true, "orders"},
		{"28-empty-excludes.properties", "primary->secondary", "__mine", false, ""},
		{"28-empty-excludes.properties", "primary->secondary", "mm2-offset-syncs.secondary.internal", false, ""},
		{"29-caret-exclude-producer-override-empty-last-key.properties", "source->destination", "orders", true, "orders"},
		{"20-double-backslash-regex-custom-policy-rf-minus-one.properties", "source->target", "heartbeats", true, "source.heartbeats"},
		{"07-hyphen-digit-alias-underscore-separator.properties", "CLUSTER-1->CLUSTER-2", "orders", true, "CLUSTER-1_orders"},
		{"07-hyphen-digit-alias-underscore-separator.properties", "CLUSTER-1->CLUSTER-2", "CLUSTER-2_orders", false, ""},
		{"25-per-flow-groups-exclude-keeps-connect-groups.properties", "dcnorth->dcsouth", "connect_x", false, ""},
		{"49-stock-template-with-consumer-overrides.properties", "A->B", "orders", true, "orders"},
	} {
		s := flowOf(t, load(t, c.file), c.flow).Selector()
		v := s.Select(c.topic)
		if v.Copy != c.copy {
			t.Errorf("%s, %s: got %+v want %v", c.file, c.topic, v, c.copy)
		}
		if c.copy && s.Remote(c.topic) != c.remote {
			t.Errorf("%s, %s: remote %q want %q", c.file, c.topic, s.Remote(c.topic), c.remote)
		}
	}
}

func TestGroupFiltersOfTheCaseBook(t *testing.T) {
	f := flowOf(t, load(t, "25-per-flow-groups-exclude-keeps-connect-groups.properties"), "dcnorth->dcsouth")
	for group, want := range map[string]bool{"connect-sink": true, "cdc-connect-1": false, "console-consumer-1": false, "app": true} {
		if got := f.GroupFilter.Match(group); got != want {
			t.Errorf("%s: got %v want %v", group, got, want)
		}
	}
	f = flowOf(t, load(t, "28-empty-excludes.properties"), "primary->secondary")
	for _, group := range []string{"console-consumer-1", "__x", "connect-a"} {
		if !f.GroupFilter.Match(group) {
			t.Errorf("%s: excluded by an empty list", group)
		}
	}
}

func TestConfigsLeftOutByDefault(t *testing.T) {
	f := flowOf(t, read(), "A->B")
	for name, want := range map[string]bool{"retention.ms": true, "min.insync.replicas": false, "message.timestamp.type": false, "message.timestamp.before.max.ms": true} {
		if got := f.ConfigFilter.Match(name); got != want {
			t.Errorf("%s: got %v want %v", name, got, want)
		}
	}
}
