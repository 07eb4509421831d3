package config

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// cluster works out everything about one declared cluster.
func (d *document) cluster(alias string, r *report) Cluster {
	s := settings{d.connection(alias), r}
	own := settings{d.clusters[alias], r}
	c := Cluster{
		Alias:            alias,
		BootstrapServers: s.bootstrapServers(alias, d.top["clusters"]),
		SecurityProtocol: strings.ToUpper(s.choice("security.protocol", "plaintext", securityProtocols())),
		SASLMechanism:    s.text("sasl.mechanism", ""),
		MSK: MSK{
			ARN:            own.text("mirrorless.msk.arn", ""),
			SecretARN:      own.text("mirrorless.secret.arn", ""),
			CAARN:          own.text("mirrorless.ca.arn", ""),
			Subnets:        own.list("mirrorless.subnets", ""),
			SecurityGroups: own.list("mirrorless.security.groups", ""),
		},
		TruststoreLocation: s.text("ssl.truststore.location", ""),
		clients:            map[Role]map[string]string{},
	}
	if e, ok := s.values["ssl.endpoint.identification.algorithm"]; ok {
		c.EndpointIdentification = new(e.value)
	}
	own.checkARN("mirrorless.msk.arn", "kafka")
	own.checkARN("mirrorless.secret.arn", "secretsmanager")
	own.checkARN("mirrorless.ca.arn", "secretsmanager")
	if e, ok := own.values["mirrorless.ca.arn"]; ok && c.MSK.ARN != "" {
		r.warn(e, "does nothing beside %s.mirrorless.msk.arn: the brokers of Amazon MSK have public certificates", alias)
	}
	c.SASLUsername = s.checkConnection(alias)
	for _, role := range roles() {
		client := settings{d.client(alias, role), r}
		// The role's own settings may break what the cluster's made whole.
		client.checkConnection(alias)
		values := plain(client.values, role)
		if values["client.id"] == "" {
			values["client.id"] = "mirrorless"
		}
		if len(c.BootstrapServers) > 0 && !strings.Contains(client.text("bootstrap.servers", ""), "${") {
			client.bootstrapServers(alias, entry{})
		}
		c.clients[role] = values
	}
	return c
}

func securityProtocols() []string {
	return []string{"plaintext", "ssl", "sasl_plaintext", "sasl_ssl"}
}

// hostPort is ClientUtils.HOST_PORT_PATTERN of Kafka 4, which refuses what
// earlier versions turned into an empty host and dialled on localhost.
var hostPort = regexp.MustCompile(`^(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)$`)

// unfilled is what templates have where a value is to go.
var unfilled = regexp.MustCompile(`(?i)^<.*>|^\[[^0-9a-f:]|\{\{|change.?me|replace.?me|placeholder|^your[-_]`)

// bootstrapServers returns the host:port pairs, without a protocol in front of
// them, which Kafka allows and ignores. declared is the key `clusters`.
func (s settings) bootstrapServers(alias string, declared entry) []string {
	const key = "bootstrap.servers"
	e, ok := s.values[key]
	if odd := oddIn(alias); !ok && odd != "" {
		s.report.err(entry{line: declared.line, key: "clusters"}, "the alias %s has %s in it: only commas part aliases, and all else belongs to them; write clusters = %s", named(alias), odd, strings.Join(plainAliases(declared.value), ", "))
		return nil
	}
	if !ok {
		s.report.err(entry{line: declared.line, key: alias + "." + key}, "the cluster %s is declared and has no servers: set %s.%s = host:port", alias, alias, key)
		return nil
	}
	if reference.MatchString(e.value) {
		return nil // reported where it did not resolve
	}
	// What a provider gave may be no business of the reader's.
	show := func(item string) string {
		if e.value != e.raw {
			return e.raw
		}
		return item
	}
	var servers []string
	for _, item := range splitList(e.value) {
		m := hostPort.FindStringSubmatch(item)
		switch {
		case unfilled.MatchString(item):
			s.report.err(e, "%q is a placeholder that nobody filled in: set host:port", show(item))
			continue
		case m == nil:
			s.report.err(e, "%q is no server: set host:port, with commas between several", show(item))
			continue
		case m[1] == "":
			s.report.err(e, "%q has no host: set host:port", show(item))
			continue
		}
		if port, err := strconv.Atoi(m[2]); err != nil || port < 1 || port > 65535 {
			s.report.err(e, "%q has no valid port: set 1 to 65535", show(item))
			continue
		}
		server := item
		if _, after, ok := strings.Cut(item, "://"); ok {
			server = after
		}
		if slices.Contains(servers, server) {
			s.report.warn(e, "%q is there twice", show(item))
			continue
		}
		servers = append(servers, server)
	}
	if len(servers) == 0 && len(splitList(e.value)) == 0 {
		s.report.err(e, "the cluster %s has no servers: set %s = host:port", alias, e.key)
	}
	return servers
}

// oddIn says what an alias has that was hardly meant to belong to it.
func oddIn(alias string) string {
	switch {
	case strings.ContainsAny(alias, `"'`):
		return "a quotation mark"
	case strings.ContainsAny(alias, " \t\f"):
		return "a blank"
	case strings.Contains(alias, ";"):
		return "a semicolon"
	case strings.ContainsAny(alias, "[]{}()"):
		return "a bracket"
	}
	return ""
}

// named is an alias in a message, in quotation marks where its ends would not
// be seen.
func named(alias string) string {
	if odd := oddIn(alias); odd == "" || odd == "a quotation mark" {
		return alias
	}
	return `"` + alias + `"`
}

// plainAliases guesses the aliases that a value of `clusters` was to have.
func plainAliases(value string) []string {
	return strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(" \t\f,;\"'[]{}()", r) })
}

// checkConnection judges TLS and SASL settings, and returns the user name.
func (s settings) checkConnection(alias string) (username string) {
	protocol := s.choice("security.protocol", "plaintext", securityProtocols())
	if strings.HasSuffix(protocol, "ssl") {
		s.checkTLS()
	}
	jaasEntry, hasJAAS := s.values["sasl.jaas.config"]
	var jaas JAAS
	if hasJAAS {
		var err error
		jaas, err = ParseJAAS(jaasEntry.value)
		username = jaas.Options["username"]
		if err != nil {
			hasJAAS = false
			if !reference.MatchString(jaasEntry.value) {
				s.report.err(jaasEntry, "%v", strings.TrimPrefix(err.Error(), "parse sasl.jaas.config: "))
			}
		}
	}
	if !strings.HasPrefix(protocol, "sasl") {
		if e, ok := s.values["sasl.mechanism"]; ok {
			s.report.warn(e, "without security.protocol = SASL_SSL or SASL_PLAINTEXT nobody logs in to %s", alias)
		}
		return username
	}
	mechanism, written := s.values["sasl.mechanism"]
	switch mechanism.value {
	case "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512":
		s.checkCredentials(alias, mechanism, jaas, hasJAAS)
	case "AWS_MSK_IAM":
		if protocol == "sasl_plaintext" {
			s.report.err(s.values["security.protocol"], "AWS_MSK_IAM needs TLS: set SASL_SSL")
		}
	case "OAUTHBEARER":
		s.checkToken(alias, mechanism, jaas)
	default:
		const hint = "set sasl.mechanism to PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM"
		if !written {
			s.report.err(s.values["security.protocol"], "%s has no sasl.mechanism, and Kafka's default, GSSAPI, is not supported: %s", alias, hint)
		} else {
			s.bad(mechanism, hint)
		}
	}
	return username
}

// checkCredentials judges what PLAIN and SCRAM need.
func (s settings) checkCredentials(alias string, mechanism entry, jaas JAAS, hasJAAS bool) {
	e, written := s.values["sasl.jaas.config"]
	switch {
	case !written:
		s.report.err(mechanism, "%s needs credentials for %s: set sasl.jaas.config", mechanism.value, alias)
		return
	case !hasJAAS, reference.MatchString(e.value):
		return
	}
	want := "Plain"
	if strings.HasPrefix(mechanism.value, "SCRAM") {
		want = "Scram"
	}
	if !strings.HasSuffix(jaas.Module, "."+want+"LoginModule") {
		s.report.err(e, "%s goes with %sLoginModule; the file has %s", mechanism.value, want, shown(jaas.Module))
		return
	}
	for _, option := range []string{"username", "password"} {
		if _, ok := jaas.Options[option]; !ok {
			s.report.err(e, "the option %s is missing", option)
		}
	}
}

// checkToken judges what OAUTHBEARER needs: where tokens come from, and
// credentials for that, in keys of their own or in the JAAS line as before Kafka
// 4.1.
func (s settings) checkToken(alias string, mechanism entry, jaas JAAS) {
	const endpoint = "sasl.oauthbearer.token.endpoint.url"
	where, ok := s.values[endpoint]
	if !ok {
		s.report.err(mechanism, "OAUTHBEARER needs tokens for %s: set %s", alias, endpoint)
		return
	}
	if strings.HasPrefix(where.value, "file:") || reference.MatchString(s.values["sasl.jaas.config"].value) {
		return
	}
	for _, c := range []struct{ key, option string }{
		{"sasl.oauthbearer.client.credentials.client.id", "clientId"},
		{"sasl.oauthbearer.client.credentials.client.secret", "clientSecret"},
	} {
		if _, ok := s.values[c.key]; !ok && jaas.Options[c.option] == "" {
			s.report.err(mechanism, "OAUTHBEARER needs credentials for %s: set %s", alias, c.key)
		}
	}
}

// checkTLS judges what can be judged of TLS without opening a file.
func (s settings) checkTLS() {
	for _, key := range []string{"ssl.truststore.location", "ssl.keystore.location"} {
		if e, ok := s.values[key]; ok && unfilled.MatchString(e.value) {
			s.report.err(e, "%s is a placeholder that nobody filled in: set the path of a file", e.quote())
		}
	}
	for _, key := range []string{"ssl.truststore.type", "ssl.keystore.type"} {
		if e, ok := s.values[key]; ok && !slices.Contains([]string{"PEM", "JKS", "PKCS12"}, strings.ToUpper(e.value)) {
			s.bad(e, "set PEM, PKCS12 or JKS")
		}
	}
	if e, ok := s.values["ssl.endpoint.identification.algorithm"]; ok {
		switch strings.ToLower(e.value) {
		case "https":
		case "":
			s.report.warn(e, "empty: the names in the brokers' certificates are not checked")
		default:
			s.bad(e, "set https, or nothing to switch the check of host names off")
		}
	}
}

// checkARN wants an ARN of a service.
func (s settings) checkARN(key, service string) {
	if e, ok := s.values[key]; ok && !regexp.MustCompile(`^arn:[a-z-]+:`+service+`:`).MatchString(e.value) {
		s.bad(e, "set an ARN, arn:aws:"+service+":…")
	}
}

// Client returns the Java client properties of a client of this cluster that
// belongs to no flow: top level, then the cluster's own, then role's. The map
// belongs to the caller. It holds secrets.
func (c Cluster) Client(role Role) map[string]string { return maps.Clone(c.clients[role]) }
