package config_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"mirrorless/shared/config"
	"mirrorless/shared/flow"
)

// two is the start of most files.
const two = "clusters = A, B\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\n"

// read parses the start of most files and more lines.
func read(lines ...string) *config.Config {
	return config.Parse("f", []byte(two+strings.Join(lines, "\n")), config.Sources{})
}

func flowOf(t *testing.T, c *config.Config, name string) config.Flow {
	t.Helper()
	pair, err := flow.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	f, ok := c.Flow(pair)
	if !ok {
		t.Fatalf("no flow %s", name)
	}
	return f
}

// says reports whether a finding has the key and all parts in its message.
func says(findings []config.Finding, key string, parts ...string) bool {
	return slices.ContainsFunc(findings, func(f config.Finding) bool {
		for _, part := range parts {
			if !strings.Contains(f.Message, part) {
				return false
			}
		}
		return f.Key == key
	})
}

func TestWrongValuesAreErrorsThatSayWhatToSet(t *testing.T) {
	for line, want := range map[string]string{
		"A->B.enabled = yes":                                            "set true or false",
		"emit.heartbeats.enabled = 1":                                   "set true or false",
		"tasks.max = 0":                                                 "from 1 to",
		"tasks.max = 1.5":                                               "set a whole number",
		"replication.factor = 0":                                        "-1 for the broker's default",
		"replication.factor = -2":                                       "from -1 to",
		"checkpoints.topic.replication.factor = three":                  "set a whole number",
		"emit.checkpoints.interval.seconds = 0":                         "emit.checkpoints.enabled = false",
		"emit.checkpoints.interval.seconds = 1m":                        "set a whole number",
		"offset-syncs.topic.location = both":                            "set source or target",
		"A->B.use.defaults.from = broker":                               "set target or source",
		"B.exactly.once.source.support = yes":                           "set disabled or preparing or enabled",
		"A->B.consumer.auto.offset.reset = newest":                      "set earliest or latest or none",
		"A.consumer.isolation.level = committed":                        "set read_committed or read_uncommitted",
		"replication.policy.class = com.example.Mine":                   flow.IdentityPolicyClass,
		"A->B.topic.filter.class = com.example.Mine":                    "DefaultTopicFilter",
		"group.filter.class = com.example.Mine":                         "DefaultGroupFilter",
		"config.property.filter.class = com.example.Mine":               "DefaultConfigPropertyFilter",
		"forwarding.admin.class = com.example.Mine":                     "org.apache.kafka.clients.admin.ForwardingAdmin",
		"transforms = a":                                                "remove the key",
		"A->B.predicates = a":                                           "remove the key",
		"A->B.topics = a, b, a":                                         "twice",
		"topics = [a-z":                                                 "[a-z",
		`groups = [a&&b]`:                                               "&&",
		"topics.exclude = (":                                            "(",
		"A.security.protocol = TLS":                                     "sasl_ssl",
		"A.security.protocol = SASL_SSL":                                "sasl.mechanism",
		"B.producer.max.request.size = 5MB":                             "set a whole number",
		"A.admin.request.timeout.ms = soon":                             "set a whole number",
		"B.producer.compression.type = rar":                             "zstd",
		"mirrorless.compat = yes":                                       "set off or mm2",
		"mirrorless.read = fast":                                        "set event or source or auto",
		"mirrorless.holes = ignore":                                     "set continue or stop",
		"mirrorless.recreated = keep":                                   "set stop or copy",
		"mirrorless.deleted = delete":                                   "set keep",
		"mirrorless.batch.size = 10001":                                 "from 1 to 10000",
		"mirrorless.batch.window = 300001":                              "from 0 to 300000",
		"A.mirrorless.msk.arn = my-cluster":                             "arn:aws:kafka:",
		"A.mirrorless.ca.arn = my-ca.pem":                               "arn:aws:secretsmanager:",
		"mirrorless.metrics = all":                                      "set flow or topics or partitions or off",
		"mirrorless.mapping.metrics = EventCount":                       "set true or false",
		"mirrorless.mapping.pollers.min = 201":                          "from 1 to 200",
		"mirrorless.mapping.pollers.max = 0":                            "from 1 to 2000",
		"topics = ${TOPICS}":                                            "${env:TOPICS}",
		"topics = ${vault:a:b}":                                         "vault",
		"config.providers = x":                                          "config.providers.x.class",
		"A.ssl.truststore.location = <path>\nA.security.protocol = SSL": "set the path of a file",
		"A.ssl.truststore.type = BKS\nA.security.protocol = SSL":        "PKCS12",
	} {
		t.Run(line, func(t *testing.T) {
			c := read("A->B.enabled = true", line)
			key, _, _ := strings.Cut(line, " = ")
			if !says(c.Errors, key, want) && !says(c.Errors, "A.ssl.truststore.location", want) {
				t.Errorf("want an error of %s with %q, got %v", key, want, c.Errors)
			}
			// A duplicate is a warning of its own; nothing else may come of one bad line.
			if len(c.Errors) != 1 {
				t.Errorf("got %d errors want 1: %v", len(c.Errors), c.Errors)
			}
			if c.Err() == nil || !strings.Contains(c.Err().Error(), "f:") {
				t.Errorf("Err: got %v", c.Err())
			}
		})
	}
}

func TestADeadLetterTopicNeedsANameThatKafkaTakes(t *testing.T) {
	const key = "errors.deadletterqueue.topic.name"
	for value, want := range map[string]string{
		"":  "set a name, or remove the line for mirrorless-dead-letters.A.internal",
		".": "but not . or ..", "..": "but not . or ..", "dead letters": "set a topic's name", "a/b": "set a topic's name",
		strings.Repeat("x", 250): "1 to 249",
	} {
		for _, prefix := range []string{"", "A->B."} {
			c := read("A->B.enabled = true", "errors.tolerance = all", prefix+key+" = "+value)
			if !says(c.Errors, prefix+key, want) || len(c.Errors) != 1 || c.Errors[0].File != "f" || c.Errors[0].Line != 6 {
				t.Errorf("%s%s = %q: want one error of line 6 with %q, got %v", prefix, key, value, want, c.Errors)
			}
		}
		// Without dead letters nobody asks for the name.
		if c := read("A->B.enabled = true", key+" = "+value); len(c.Errors) > 0 {
			t.Errorf("%q without errors.tolerance: got %v, want no error", value, c.Errors)
		}
	}
	for _, value := range []string{"x", "...", "Dead_letters-1.internal", strings.Repeat("x", 249)} {
		if c := read("A->B.enabled = true", "errors.tolerance = all", key+" = "+value); len(c.Errors) > 0 {
			t.Errorf("%q: got %v, want no error", value, c.Errors)
		}
	}
}

func TestServersMustBeHostsWithPorts(t *testing.T) {
	for value, want := range map[string]string{
		"":                       "has no servers",
		" , ":                    "has no servers",
		"broker":                 `"broker" is no server`,
		":9092":                  "has no host",
		"SASL_SSL://:9092":       "has no host",
		"a:0":                    "no valid port",
		"a:65536":                "no valid port",
		"a:9092;b:9092":          "is no server",
		"=a:9092":                `"=a:9092" is no server`,
		"<host>:9092":            "placeholder",
		"[CHANGEME]:9092":        "placeholder",
		"{{ host }}:9092":        "placeholder",
		"your-broker:9092":       "placeholder",
		"a:1, REPLACE_ME:1, b:1": `"REPLACE_ME:1" is a placeholder`,
	} {
		c := config.Parse("f", []byte("clusters = A\nA.bootstrap.servers = "+value), config.Sources{})
		if !says(c.Errors, "A.bootstrap.servers", want) || len(c.Errors) != 1 {
			t.Errorf("%q: want one error with %q, got %v", value, want, c.Errors)
		}
	}
	for value, want := range map[string][]string{
		"a:1,b:2":               {"a:1", "b:2"},
		" a:1 ,, b_2.c:65535 ,": {"a:1", "b_2.c:65535"},
		"SSL://a:1":             {"a:1"},
		"[::1]:9092":            {"[::1]:9092"},
		"a:1,a:1":               {"a:1"},
	} {
		c := config.Parse("f", []byte("clusters = A\nA.bootstrap.servers = "+value), config.Sources{})
		if got := c.Clusters[0].BootstrapServers; !slices.Equal(got, want) || len(c.Errors) > 0 {
			t.Errorf("%q: got %v want %v, errors %v", value, got, want, c.Errors)
		}
	}
}

func TestJAASErrorsSayWhatIsMissing(t *testing.T) {
	const plain = "org.apache.kafka.common.security.plain.PlainLoginModule required "
	for jaas, want := range map[string]string{
		plain + `username="u" password="hunter2"`: "semicolon at the end is missing",
		plain + `username="u" password=2hunter2;`: "the option password has no value, or one that needs quotation marks",
		plain + `username="u";`:                   "the option password is missing",
		plain + `password="hunter2";`:             "the option username is missing",
		strings.ReplaceAll(plain, "plain.Plain", "scram.Scram") + `username="u" password="hunter2";`: "PLAIN goes with PlainLoginModule",
		`username="u" password="hunter2";`: "the word required",
		"":                                 "no login module",
	} {
		c := read("A.security.protocol = SASL_PLAINTEXT", "A.sasl.mechanism = PLAIN", "A.sasl.jaas.config = "+jaas)
		if !says(c.Errors, "A.sasl.jaas.config", want) {
			t.Errorf("%s: want an error with %q, got %v", jaas, want, c.Errors)
		}
		if strings.Contains(fmt.Sprint(c.Errors, c.Warnings), "hunter2") {
			t.Errorf("%s: the password is in %v", jaas, c.Errors)
		}
	}
}

func TestSecretsAreNeverShown(t *testing.T) {
	const secret = "hunter2"
	env := func(string) (string, bool) { return secret, true }
	for _, key := range []string{
		"sasl.jaas.config", "ssl.truststore.password", "ssl.keystore.password", "ssl.key.password", "ssl.keystore.key",
		"ssl.keystore.certificate.chain", "ssl.truststore.certificates", "sasl.oauthbearer.client.credentials.client.secret",
		"sasl.jaas.confg", "ssl.truststore.passwrd.password",
	} {
		for _, prefix := range []string{"", "A.", "A.consumer.", "A->B.", "producer.", "A.producer.override."} {
			for _, value := range []string{secret, secret + " # a note", `"` + secret, "${" + secret + "}", "${env:X}", "${env:X", "$" + secret} {
				c := config.Parse("f", []byte(two+"security.protocol = SASL_SSL\nsasl.mechanism = PLAIN\nA->B.enabled = true\n"+
					prefix+key+" = "+value+"\n"+prefix+key+" = "+value), config.Sources{LookupEnv: env})
				data, err := json.Marshal(c)
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(string(data), secret) {
					t.Errorf("%s%s = %s: the secret is in %s", prefix, key, value, data)
				}
			}
		}
	}
	// What a provider gave is not quoted either, whatever the key.
	for _, key := range []string{"A.bootstrap.servers", "replication.factor", "A->B.enabled", "replication.policy.class", "A.security.protocol", "A.sasl.mechanism", "offset-syncs.topic.location"} {
		c := config.Parse("f", []byte(two+"security.protocol = SASL_SSL\nA->B.enabled = true\n"+key+" = ${env:X}"), config.Sources{LookupEnv: env})
		if text := fmt.Sprint(c.Errors, c.Warnings); len(c.Errors) == 0 || strings.Contains(text, secret) {
			t.Errorf("%s: got %s", key, text)
		}
	}
}

func TestProvidersResolveAsDeclared(t *testing.T) {
	sources := config.Sources{
		LookupEnv: func(name string) (string, bool) {
			v, ok := map[string]string{"TOPICS": "a, b", "GROUPS": " g "}[name]
			return v, ok
		},
		ReadFile: func(path string) ([]byte, error) {
			data, ok := map[string]string{"/etc/s.properties": "topics = caf\u00e9\n= nameless\nother\\u00e9=x", "/run/secrets/topics": "from-a-file\n"}[path]
			if !ok {
				return nil, fmt.Errorf("no %s", path)
			}
			return []byte(data), nil
		},
		Secret: func(provider, path, key string) (string, error) { return provider + "-" + path + "-" + key, nil },
	}
	const classes = "org.apache.kafka.common.config.provider."
	for name, c := range map[string]struct {
		lines []string
		want  string // of topics, "" for an error
		warns string
	}{
		"environment":                          {[]string{"config.providers = env", "config.providers.env.class = " + classes + "EnvVarConfigProvider", "topics = ${env:TOPICS}"}, "a b", ""},
		"under another name, twice in a value": {[]string{"config.providers = e", "config.providers.e.class = " + classes + "EnvVarConfigProvider", "topics = ${e:TOPICS},${e:GROUPS}"}, "a b g", ""},
		"undeclared environment":               {[]string{"topics = ${env:TOPICS}"}, "a b", "not declared"},
		"file":                                 {[]string{"config.providers = file", "config.providers.file.class = " + classes + "FileConfigProvider", "topics = ${file:/etc/s.properties:topics}"}, "caf\u00e9", ""},
		"undeclared file":                      {[]string{"topics = ${file:/etc/s.properties:topics}"}, "caf\u00e9", "not declared"},
		"file without the key":                 {[]string{"topics = ${file:/etc/s.properties:nothing}"}, "", ""},
		"file that is not there":               {[]string{"topics = ${file:/etc/x:topics}"}, "", ""},
		"folder":                               {[]string{"config.providers = d", "config.providers.d.class = " + classes + "DirectoryConfigProvider", "topics = ${d:/run/secrets:topics}"}, "from-a-file", ""},
		"out of the folder":                    {[]string{"config.providers = d", "config.providers.d.class = " + classes + "DirectoryConfigProvider", "topics = ${d:/run/secrets:../secrets/topics}"}, "from-a-file", ""},
		"above the folder":                     {[]string{"config.providers = d", "config.providers.d.class = " + classes + "DirectoryConfigProvider", "topics = ${d:/run/secrets:../topics}"}, "", ""},
		"path that is allowed":                 {[]string{"config.providers = d", "config.providers.d.class = " + classes + "DirectoryConfigProvider", "config.providers.d.param.allowed.paths = /etc,/run", "topics = ${d:/run/secrets:topics}"}, "from-a-file", ""},
		"path that is not":                     {[]string{"config.providers = d", "config.providers.d.class = " + classes + "DirectoryConfigProvider", "config.providers.d.param.allowed.paths = /etc", "topics = ${d:/run/secrets:topics}"}, "", ""},
		"variable that is not":                 {[]string{"config.providers = e", "config.providers.e.class = " + classes + "EnvVarConfigProvider", "config.providers.e.param.allowlist.pattern = SAFE_.*", "topics = ${e:TOPICS}"}, "", ""},
		"AWS":                                  {[]string{"config.providers = s", "config.providers.s.class = com.amazonaws.kafka.config.providers.SecretsManagerConfigProvider", "topics = ${s:my-secret:topics}"}, "secretsmanager-my-secret-topics", ""},
		"unset variable":                       {[]string{"topics = ${env:NOTHING}"}, "", ""},
		"class of one's own":                   {[]string{"config.providers = v", "config.providers.v.class = com.example.Vault", "topics = ${v:a:b}"}, "", ""},
		"results are final":                    {[]string{"topics = ${env:TOPICS}$"}, "a b$", "not declared"},
	} {
		t.Run(name, func(t *testing.T) {
			got := config.Parse("f", []byte(two+strings.Join(c.lines, "\n")), sources)
			if c.want == "" {
				if !says(got.Errors, "topics") {
					t.Errorf("want an error, got %v", got.Errors)
				}
				return
			}
			if topics := strings.Join(flowOf(t, got, "A->B").Topics, " "); topics != c.want {
				t.Errorf("topics: got %q want %q (errors %v)", topics, c.want, got.Errors)
			}
			if says(got.Warnings, "topics", "not declared") != (c.warns != "") {
				t.Errorf("warnings: got %v want %q", got.Warnings, c.warns)
			}
		})
	}
}

func TestAWrittenReplicationFactorIsToldFromADefault(t *testing.T) {
	f := flowOf(t, read("A->B.replication.factor = 2"), "A->B")
	if want := (config.ReplicationFactor{Key: "A->B.replication.factor", Value: 2, Written: true}); f.ReplicationFactor != want {
		t.Errorf("got %+v want %+v", f.ReplicationFactor, want)
	}
	f = flowOf(t, read(), "A->B")
	if want := (config.ReplicationFactor{Key: "replication.factor", Value: 2}); f.ReplicationFactor != want {
		t.Errorf("got %+v want %+v", f.ReplicationFactor, want)
	}
	if want := (config.ReplicationFactor{Key: "heartbeats.topic.replication.factor", Value: 3}); f.HeartbeatsReplicas != want {
		t.Errorf("got %+v want %+v", f.HeartbeatsReplicas, want)
	}
}

func TestIntervalsKeepSeconds(t *testing.T) {
	f := flowOf(t, read("refresh.topics.interval.seconds = 5", "A->B.emit.checkpoints.interval.seconds = -1"), "A->B")
	if want := (config.Periodic{Enabled: true, Interval: 5 * time.Second}); f.RefreshTopics != want {
		t.Errorf("refresh: got %v want %v", f.RefreshTopics, want)
	}
	if f.EmitCheckpoints.Enabled {
		t.Error("a negative interval leaves checkpoints on")
	}
}

func TestTheReverseDirectionIsThereWithoutAKeyOfItsOwn(t *testing.T) {
	c := read("A->B.enabled = true", "emit.heartbeats.interval.seconds = 7")
	if len(c.Flows) != 1 {
		t.Errorf("flows: got %d want 1", len(c.Flows))
	}
	if f := flowOf(t, c, "B->A"); f.Enabled || f.EmitHeartbeats != (config.Periodic{Enabled: true, Interval: 7 * time.Second}) {
		t.Errorf("B->A: got enabled %v, heartbeats %v", f.Enabled, f.EmitHeartbeats)
	}
}

func TestLegacyListsAreReadAndGiveWayToNewOnes(t *testing.T) {
	c := read("topics.blacklist = old", "A->B.topics.blacklist = older", "groups.blacklist = g1", "groups.exclude = g2", "A->B.enabled = true")
	f := flowOf(t, c, "A->B")
	if got := f.TopicsExclude; !slices.Equal(got, []string{"older"}) {
		t.Errorf("A->B excludes %v", got)
	}
	if got := flowOf(t, c, "B->A").TopicsExclude; !slices.Equal(got, []string{"old"}) {
		t.Errorf("B->A excludes %v", got)
	}
	if !slices.Equal(f.GroupsExclude, []string{"g2"}) || !says(c.Warnings, "groups.blacklist", "does nothing beside groups.exclude on line 7") {
		t.Errorf("groups: got %v, warnings %v", f.GroupsExclude, c.Warnings)
	}
	if f.TopicFilter.Match("older") || !f.TopicFilter.Match("old") {
		t.Error("the filter is not the list's")
	}
}

func TestStorageOfTheWorkerIsTheTargets(t *testing.T) {
	f := flowOf(t, read("A.offset.storage.topic = on-a", "B.offset.storage.topic = on-b", "B.offset.flush.interval.ms = 5000", "B.exactly.once.source.support = enabled"), "A->B")
	if f.PositionsTopic != "on-b" || f.OffsetFlushInterval != 5*time.Second || !f.ExactlyOnce {
		t.Errorf("got %q, %v, %v", f.PositionsTopic, f.OffsetFlushInterval, f.ExactlyOnce)
	}
	// MirrorMaker 2 puts the top level over the cluster here.
	f = flowOf(t, read("B.offset.storage.topic = on-b", "offset.storage.topic = top"), "A->B")
	if f.PositionsTopic != "top" {
		t.Errorf("got %q", f.PositionsTopic)
	}
}

func TestKeysOfOurOwnAreRead(t *testing.T) {
	c := read("mirrorless.compat = mm2", "A->B.mirrorless.holes = stop", "mirrorless.recreated = copy", "mirrorless.batch.size = 100",
		"mirrorless.batch.window = 0", "A.mirrorless.msk.arn = arn:aws:kafka:eu-west-1:1:cluster/a", "B.mirrorless.subnets = subnet-1, subnet-2",
		"B.mirrorless.security.groups = sg-1", "A.mirrorless.secret.arn = arn:aws:secretsmanager:eu-west-1:1:secret:s")
	f := flowOf(t, c, "A->B")
	if !f.Compat || f.Holes != config.HoleStop || f.Recreated != config.RecreatedCopy || f.BatchSize != 100 || f.BatchDelay != 0 || !f.Selector().Compat {
		t.Errorf("got %+v", f)
	}
	a, _ := c.Cluster("A")
	b, _ := c.Cluster("B")
	if a.MSK.ARN == "" || a.MSK.SecretARN == "" || !slices.Equal(b.MSK.Subnets, []string{"subnet-1", "subnet-2"}) || len(b.MSK.SecurityGroups) != 1 {
		t.Errorf("got %+v and %+v", a.MSK, b.MSK)
	}
	if len(c.Errors)+len(c.Warnings) != 1 { // no flow is enabled
		t.Errorf("got %v %v", c.Errors, c.Warnings)
	}
}

func TestMappingsAreAskedForWhatTheKeysSay(t *testing.T) {
	c := read("A->B.enabled = true", "mirrorless.metrics = Topics", "mirrorless.mapping.metrics = true", "A->B.mirrorless.mapping.partial.failures = true",
		"mirrorless.mapping.pollers.min = 2", "A->B.mirrorless.mapping.pollers.max = 3", "mirrorless.mapping.pollers.group = dr_2-a",
		"A.mirrorless.ca.arn = arn:aws:secretsmanager:eu-west-1:1:secret:ca")
	f := flowOf(t, c, "A->B")
	want := config.Mapping{Metrics: true, PartialFailures: true, Pollers: config.Pollers{Minimum: 2, Maximum: 3, Group: "dr_2-a"}}
	if f.Mapping != want || f.Metrics != config.MetricsTopics {
		t.Errorf("got %+v and metrics %q, want %+v and topics", f.Mapping, f.Metrics, want)
	}
	if a, _ := c.Cluster("A"); a.MSK.CAARN != "arn:aws:secretsmanager:eu-west-1:1:secret:ca" {
		t.Errorf("got %+v", a.MSK)
	}
	if len(c.Errors)+len(c.Warnings) != 0 {
		t.Errorf("got %v %v", c.Errors, c.Warnings)
	}
	if f := flowOf(t, c, "B->A"); f.Mapping.PartialFailures || f.Metrics != config.MetricsTopics {
		t.Errorf("the other direction: got %+v and metrics %q", f.Mapping, f.Metrics)
	}
	if f := flowOf(t, read("A->B.enabled = true"), "A->B"); f.Mapping != (config.Mapping{}) || f.Metrics != config.MetricsFlow {
		t.Errorf("by default: got %+v and metrics %q", f.Mapping, f.Metrics)
	}
}

func TestPollersThatCannotBe(t *testing.T) {
	for _, test := range []struct {
		lines []string
		want  string
	}{
		{
			[]string{"mirrorless.mapping.pollers.max = 2", "A->B.mirrorless.mapping.pollers.min = 5"},
			"f:4: mirrorless.mapping.pollers.max: 2 is below mirrorless.mapping.pollers.min, which is 5 on line 5: set it to 5 or more",
		},
		{
			[]string{"A->B.mirrorless.mapping.pollers.group = dr"},
			"f:4: A->B.mirrorless.mapping.pollers.group: only provisioned pollers have a group: set mirrorless.mapping.pollers.min, or remove the group",
		},
		{
			[]string{"mirrorless.mapping.pollers.group = d r", "mirrorless.mapping.pollers.min = 1"},
			`f:4: mirrorless.mapping.pollers.group: "d r" is not valid: set 1 to 128 letters, digits, hyphens and underscores`,
		},
	} {
		c := read(test.lines...)
		if got := fmt.Sprint(c.Err()); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
	c := read("A->B.enabled = true", "A.mirrorless.msk.arn = arn:aws:kafka:eu-west-1:1:cluster/a", "A.mirrorless.ca.arn = arn:aws:secretsmanager:eu-west-1:1:secret:ca")
	if !says(c.Warnings, "A.mirrorless.ca.arn", "beside A.mirrorless.msk.arn") {
		t.Errorf("want a warning of an authority that MSK does not need, got %v", c.Warnings)
	}
}

func TestNearestKeys(t *testing.T) {
	for written, want := range map[string]string{
		"A->B.enable": "A->B.enabled", "emit.heartbeats": "emit.heartbeats.enabled", "max.tasks": "tasks.max", "Topics": "topics",
		"topics.whitelist": "topics.exclude", "A->B.group": "A->B.groups", "B.bootstrap.server": "B.bootstrap.servers",
		"A.consumer.fetch.min.byte": "A.consumer.fetch.min.bytes", "B.producer.compresion.type": "B.producer.compression.type",
		"B.mirrorless.msk.am": "B.mirrorless.msk.arn", "mirrorless.hole": "mirrorless.holes", "sync.group.offset.enabled": "sync.group.offsets.enabled",
	} {
		c := read("A->B.enabled = true", written+" = true")
		if !says(c.Warnings, written, "did you mean "+want) {
			t.Errorf("%s: want %s, got %v", written, want, c.Warnings)
		}
	}
	c := read("A->B.enabled = true", "zzz = 1")
	if !says(c.Warnings, "zzz", "unknown key") || says(c.Warnings, "zzz", "did you mean") {
		t.Errorf("got %v", c.Warnings)
	}
}

func TestAPatternThatCannotMeanWhatItSaysIsNamed(t *testing.T) {
	for line, want := range map[string]string{
		`A->B.topics = "orders.*"`:                `"orders.*", so that it matches no topic: write orders.*`,
		`topics = 'a', b`:                         `'a', so that it matches no topic: write a`,
		`topics.exclude = "tmp-.*"`:               `matches no topic: write tmp-.*`,
		`groups = "billing"`:                      `matches no group without one in its name: write billing`,
		`groups.exclude = 'x'`:                    `write x`,
		`topics = orders*, pay.*`:                 `* only repeats the "s" before it: did you mean orders.*?`,
		`A->B.topics = pay.*, orders-*`:           `did you mean orders-.*?`,
		`topics.exclude = tmp_*`:                  `did you mean tmp_.*?`,
		`groups = app1*`:                          `did you mean app1.*?`,
		`groups.exclude = connect*`:               `did you mean connect.*?`,
		`A->B.topics.blacklist = tmp*`:            `did you mean tmp.*?`,
		`topics = *`:                              "",
		`topics = orders.*, a[0-9]*, \\d*, (ab)*`: "",
		`groups = \\w*, x-\\d+`:                   "",
	} {
		t.Run(line, func(t *testing.T) {
			c := read("A->B.enabled = true", line)
			key, _, _ := strings.Cut(line, " = ")
			if want != "" && (!says(c.Warnings, key, want) || len(c.Errors) > 0) {
				t.Errorf("want a warning with %q, got %v %v", want, c.Warnings, c.Errors)
			}
			if want == "" && len(c.Warnings) > 0 {
				t.Errorf("want no warning, got %v", c.Warnings)
			}
		})
	}
}

func TestAliasesWithQuotesOrBlanksAreNamedAsTheCause(t *testing.T) {
	const rest = "\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\nA->B.enabled = true\n"
	for line, want := range map[string]string{
		`clusters = "A", "B"`: "a quotation mark",
		`clusters = "A, B"`:   "a quotation mark",
		`clusters = 'A','B'`:  "a quotation mark",
		`clusters = A B`:      "a blank",
		`clusters: A B`:       "a blank",
		`clusters A B`:        "a blank",
		`clusters = A;B`:      "a semicolon",
		`clusters = [A, B]`:   "a bracket",
	} {
		c := config.Parse("f", []byte(line+rest), config.Sources{})
		if !says(c.Errors, "clusters", want, "write clusters = A, B") {
			t.Errorf("%s: want %q and what to write, got %v", line, want, c.Errors)
		}
		for _, key := range []string{"A.bootstrap.servers", "B.bootstrap.servers"} {
			alias := key[:1]
			if says(c.Errors, key) || says(c.Warnings, key, "did you mean") || !says(c.Warnings, key, "there is no "+alias+" in clusters") {
				t.Errorf("%s: got %v %v", line, c.Warnings, c.Errors)
			}
		}
	}
	c := config.Parse("f", []byte("clusters = A B"+rest), config.Sources{})
	if !says(c.Errors, "clusters", `the alias "A B" has`) || !says(c.Warnings, "A.bootstrap.servers", `which has "A B"`) {
		t.Errorf("want the alias in quotation marks, got %v %v", c.Warnings, c.Errors)
	}
	// A blank in an alias is allowed to who means it.
	c = config.Parse("f", []byte("clusters = my A, B\nmy\\ A.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\nB->my\\ A.enabled = true\n"), config.Sources{})
	if len(c.Errors)+len(c.Warnings) > 0 || len(c.Enabled()) != 1 {
		t.Errorf("got %v %v", c.Warnings, c.Errors)
	}
}

func TestKeysOfAnUndeclaredClusterSaySo(t *testing.T) {
	for written, want := range map[string]string{
		"C.bootstrap.servers":         "there is no C in clusters, which has A, B",
		"eu.west.security.protocol":   "there is no eu.west in clusters, which has A, B",
		"C.ssl.truststore.location":   "there is no C in clusters",
		"C.mirrorless.msk.arn":        "there is no C in clusters",
		"a.bootstrap.servers":         "write A.bootstrap.servers",
		"cluster.A.bootstrap.servers": "did you mean A.bootstrap.servers?",
	} {
		c := read("A->B.enabled = true", written+" = x:1")
		if !says(c.Warnings, written, want) || len(c.Warnings) != 1 {
			t.Errorf("%s: want %q, got %v", written, want, c.Warnings)
		}
	}
}

func TestAnUnreadableFileIsOneError(t *testing.T) {
	for name, data := range map[string]string{"UTF-16": "\xff\xfec\x00", "nothing": "", "no clusters": "a=b", "empty clusters": "clusters ="} {
		c := config.Parse("f", []byte(data), config.Sources{})
		if len(c.Errors) != 1 {
			t.Errorf("%s: got %v", name, c.Errors)
		}
	}
	c := read(`A->B.topics = \u12`)
	if len(c.Errors) != 1 || c.Errors[0].Line != 4 {
		t.Errorf("bad escape: got %v", c.Errors)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(two + "A->B.enabled = true"))
	f.Add([]byte("clusters=a,a->b,->\na->a->b.topics=x\n${=}\n"))
	f.Add([]byte(two + "A->B.enabled=true\nB->A.enabled=true\nreplication.policy.class=IdentityReplicationPolicy\ntopics=a*b|c\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := config.Parse("f", data, config.Sources{})
		lines := strings.Count(string(data), "\n") + strings.Count(string(data), "\r") + 1
		for _, finding := range slices.Concat(c.Errors, c.Warnings) {
			if finding.Line > lines || finding.Message == "" {
				t.Errorf("%+v in a file of %d lines", finding, lines)
			}
		}
		if _, err := json.Marshal(c); err != nil {
			t.Error(err)
		}
	})
}

func FuzzParseJAAS(f *testing.F) {
	for _, seed := range []string{`a.LoginModule required u="x" p='y';`, `a // b`, `a required u=1;`, `a /* required`, "\"\\"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		j, err := config.ParseJAAS(value)
		if err == nil && (j.Flag == "" || j.Options == nil) {
			t.Errorf("%q: got %+v", value, j)
		}
	})
}
