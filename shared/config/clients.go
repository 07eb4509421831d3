package config

import (
	"maps"
	"strconv"
	"strings"

	"mirrorless/shared/flow"
)

// roles are the prefixes of client settings.
func roles() []Role { return []Role{Admin, Consumer, Producer} }

// connection returns the connection settings of a cluster: its own, else those
// of the top level.
func (d *document) connection(alias string) map[string]entry {
	props := map[string]entry{}
	for _, k := range connectionKeys() {
		if e, ok := d.clusters[alias][k]; ok {
			props[k] = e
		} else if e, ok := d.top[k]; ok {
			props[k] = e
		}
	}
	return props
}

// client returns all settings of a cluster's clients of one role.
func (d *document) client(alias string, role Role) map[string]entry {
	props := d.connection(alias)
	maps.Copy(props, clientSettings(d.clusters[alias], string(role)+"."))
	return props
}

// clientSettings returns what stands under prefix, without it. Two keys of
// MirrorMaker 2 only look like client settings, and producer.override. is a
// prefix of its own.
func clientSettings(values map[string]entry, prefix string) map[string]entry {
	props := map[string]entry{}
	for key, e := range values {
		name, ok := strings.CutPrefix(key, prefix)
		if ok && !looksLikeClientSetting(key) && !(prefix == "producer." && strings.HasPrefix(name, "override.")) {
			props[name] = e
		}
	}
	return props
}

func looksLikeClientSetting(key string) bool {
	return key == "consumer.poll.timeout.ms" || key == "admin.timeout.ms"
}

// flowClient returns the settings of a flow's client of one of its clusters, as
// a connector of MirrorMaker 2 finds them, weakest first: the connection
// (source.cluster.), A->B.consumer., the cluster's own (source.consumer., which
// contains A.consumer. and the connection again), A->B.source.consumer. side is
// "source" or "target".
func (d *document) flowClient(f flow.Flow, side, alias string, role Role) map[string]entry {
	props := d.connection(alias)
	maps.Copy(props, clientSettings(d.flows[f], string(role)+"."))
	maps.Copy(props, d.client(alias, role))
	maps.Copy(props, clientSettings(d.flows[f], side+"."+string(role)+"."))
	return props
}

// dataProducer returns the settings of the producer of the copied records: it is
// the Connect worker's, which knows nothing of A->B.producer., but
// A->B.producer.override. reaches it.
func (d *document) dataProducer(f flow.Flow) map[string]entry {
	props := d.client(f.Target, Producer)
	maps.Copy(props, clientSettings(d.flows[f], "producer.override."))
	return props
}

// checkClient judges the values of settings that act and are numbers.
func (s settings) checkClient() {
	for name, k := range clientKeys() {
		if e, ok := s.values[name]; ok && k.acts && isNumeric(name) {
			if _, err := strconv.ParseInt(e.value, 10, 64); err != nil {
				s.bad(e, "set a whole number")
			}
		}
	}
}

func isNumeric(name string) bool {
	for _, end := range []string{".ms", ".bytes", ".size", ".level"} {
		if strings.HasSuffix(name, end) && name != "isolation.level" {
			return true
		}
	}
	return false
}

// clientID names a client of a flow as MirrorMaker 2 does,
// "[user|]A->B|connector|role".
func clientID(written string, f flow.Flow, role string) string {
	id := f.String() + "|mirrorless|" + role
	if written != "" {
		id = written + "|" + id
	}
	return id
}

// plain drops everything but the values, and sets what MirrorMaker 2 sets for
// every client of a role.
func plain(props map[string]entry, role Role) map[string]string {
	out := make(map[string]string, len(props)+2)
	for k, e := range props {
		out[k] = e.value
	}
	if role == Consumer {
		out["enable.auto.commit"] = "false"
		if _, ok := out["auto.offset.reset"]; !ok {
			out["auto.offset.reset"] = "earliest"
		}
	}
	return out
}
