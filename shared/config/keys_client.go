package config

import (
	"slices"
	"strings"
)

// clientKey is one setting of Kafka's Java clients.
type clientKey struct {
	roles []Role
	// acts: our clients do something with it; see package cluster.
	acts bool
}

// clientKeys returns the settings of Kafka's Java clients that are no
// connection settings: those are in the key table.
func clientKeys() map[string]clientKey {
	keys := map[string]clientKey{}
	add := func(acts bool, roles []Role, names string) {
		for name := range strings.FieldsSeq(names) {
			keys[name] = clientKey{roles, acts}
		}
	}
	all := []Role{Consumer, Producer, Admin}
	add(true, all, `client.id connections.max.idle.ms metadata.max.age.ms request.timeout.ms
		retry.backoff.ms retry.backoff.max.ms socket.connection.setup.timeout.ms`)
	add(false, all, `auto.include.jmx.reporter client.dns.lookup enable.metrics.push
		metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters
		metrics.num.samples metrics.recording.level metrics.sample.window.ms
		receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms
		security.providers send.buffer.bytes socket.connection.setup.timeout.max.ms`)
	add(false, []Role{Consumer, Admin}, `default.api.timeout.ms`)
	add(false, []Role{Producer, Admin}, `retries`)
	add(false, []Role{Consumer, Producer}, `interceptor.classes`)
	add(false, []Role{Admin}, `bootstrap.controllers`)

	add(true, []Role{Producer}, `compression.type compression.gzip.level compression.lz4.level
		compression.zstd.level max.request.size`)
	add(false, []Role{Producer}, `acks batch.size buffer.memory delivery.timeout.ms
		enable.idempotence key.serializer linger.ms max.block.ms
		max.in.flight.requests.per.connection metadata.max.idle.ms partitioner.class
		partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms
		partitioner.ignore.keys transaction.timeout.ms transaction.two.phase.commit.enable
		transactional.id value.serializer`)

	add(true, []Role{Consumer}, `auto.offset.reset client.rack fetch.max.bytes fetch.max.wait.ms
		fetch.min.bytes isolation.level max.partition.fetch.bytes`)
	add(false, []Role{Consumer}, `allow.auto.create.topics auto.commit.interval.ms check.crcs
		enable.auto.commit exclude.internal.topics group.id group.instance.id group.protocol
		group.remote.assignor heartbeat.interval.ms key.deserializer max.poll.interval.ms
		max.poll.records partition.assignment.strategy session.timeout.ms value.deserializer`)
	return keys
}

// connectionKeys returns the names that flow from the top level to a cluster
// and from there to its clients: MirrorClientConfig.CLIENT_CONFIG_DEF.
func connectionKeys() []string {
	var names []string
	for _, k := range clusterKeys() {
		names = append(names, k.Name)
	}
	return append(names, silentConnectionKeys()...)
}

// silentConnectionKeys are connection settings of the Java client that mean
// nothing to ours: JAAS carries the credentials, and Java's own classes and
// tickets do not exist here.
func silentConnectionKeys() []string {
	return strings.Fields(`sasl.client.callback.handler.class sasl.kerberos.kinit.cmd
		sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name
		sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
		sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms
		sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
		sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
		sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms
		sasl.login.retry.backoff.ms sasl.oauthbearer.assertion.algorithm
		sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
		sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
		sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
		sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
		sasl.oauthbearer.assertion.private.key.passphrase
		sasl.oauthbearer.assertion.template.file
		sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
		sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode
		sasl.oauthbearer.jwks.endpoint.refresh.ms
		sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
		sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
		sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
		sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
		ssl.engine.factory.class ssl.keymanager.algorithm ssl.protocol ssl.provider
		ssl.secure.random.implementation ssl.trustmanager.algorithm`)
}

// isConnectKey reports whether name is a setting of Kafka Connect: of its
// workers, of the frame around every connector, or of a converter. None of them
// reaches us, for there is no worker, and bytes are copied as they are.
func isConnectKey(name string) bool {
	for _, prefix := range []string{
		"access.control.", "admin.listeners", "errors.", "header.converter", "inter.worker.",
		"key.converter", "listeners.", "metrics.", "offsets.storage.", "plugin.", "predicates.",
		"producer.override.", "response.http.headers.", "rest.", "topic.creation.",
		"topic.tracking.", "transaction.boundary", "transforms.", "value.converter", "worker.",
	} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return slices.Contains(strings.Fields(`client.id config.action.reload config.storage.topic
		connect.protocol connector.class connector.client.config.override.policy
		connector.plugin.version exactly.once.support group.id heartbeat.interval.ms
		metric.reporters offset.flush.timeout.ms rebalance.timeout.ms
		scheduled.rebalance.max.delay.ms session.timeout.ms status.storage.partitions
		status.storage.topic task.shutdown.graceful.timeout.ms tasks.max.enforce
		worker.sync.timeout.ms`), name)
}

// legacyKeys maps the names that Kafka 4.0 stopped reading, silently, to what
// they were. "" is a name whose effect is gone.
func legacyKeys() map[string]string {
	return map[string]string{
		"topics.blacklist":              "topics.exclude",
		"groups.blacklist":              "groups.exclude",
		"config.properties.blacklist":   "config.properties.exclude",
		"add.source.alias.to.metrics":   "",
		"use.incremental.alter.configs": "",
	}
}

// isSecret reports whether the value of a key must never be shown. It errs on
// the side of silence.
func isSecret(key string) bool {
	key = strings.ToLower(key)
	for _, word := range []string{
		"password", "passphrase", "secret", "jaas", "token", "credential", "access.key",
		"ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.truststore.certificates",
		"private.key", "api.key", "apikey", "user.info", "userinfo",
	} {
		if strings.Contains(key, word) && !strings.HasSuffix(key, "secret.arn") {
			return true
		}
	}
	return false
}
