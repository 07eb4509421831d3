package config

import (
	"slices"
	"strings"
)

// classifier says of each key of a file whether it acts, and if not, why.
type classifier struct {
	doc     *document
	keys    map[string]Key
	clients map[string]clientKey
	silent  []string // connection settings that mean nothing here
	known   []string // what a misspelled key may have meant
	report  *report
}

func newClassifier(d *document, keys []Key, r *report) *classifier {
	c := &classifier{doc: d, keys: map[string]Key{}, clients: clientKeys(), silent: silentConnectionKeys(), report: r}
	for _, k := range keys {
		c.keys[k.Name] = k
		c.known = append(c.known, k.Name)
	}
	return c
}

func (c *classifier) run() {
	for _, e := range c.doc.entries {
		switch p := c.doc.placed[e.key]; {
		case e.key == "":
			c.report.warn(e, "the line has a value and no key: begin it with # if it is a comment")
		case p.place == 0:
			c.undeclared(e)
		case strings.HasPrefix(e.key, providersPrefix):
		default:
			c.one(e, p)
		}
		if before, _, ok := strings.Cut(e.raw, " #"); ok && !strings.Contains(e.key, "jaas") && strings.TrimSpace(before) != "" {
			c.report.warn(e, "a # inside a value begins no comment: all of the line belongs to the value")
		}
	}
}

// one judges a key that stands where p says.
func (c *classifier) one(e entry, p placement) {
	if k, ok := c.keys[p.name]; ok {
		c.keyOfTable(e, p, k)
		return
	}
	if now, ok := legacyKeys()[p.name]; ok {
		c.legacy(e, p, now)
		return
	}
	if p.name == "transforms" || p.name == "predicates" {
		c.report.err(e, "single message transforms are Java code that cannot be run here: remove the key")
		return
	}
	if role, name, ok := c.clientSetting(p); ok {
		c.client(e, p, role, name)
		return
	}
	if slices.Contains(c.silent, p.name) {
		c.report.ignore(e)
		return
	}
	if k, ok := c.clients[p.name]; ok && k.acts {
		c.report.warn(e, "does nothing here, as in MirrorMaker 2: write %s", c.rightPlaces(p, p.name, k))
		return
	}
	if _, ok := c.clients[p.name]; ok || isConnectKey(p.name) || p.place == TopLevel && isConnectKey(e.key) {
		c.report.ignore(e)
		return
	}
	c.unknown(e, p)
}

// keyOfTable judges a key that we read, in the right place or a wrong one.
func (c *classifier) keyOfTable(e entry, p placement, k Key) {
	switch {
	case k.Places&p.place == 0:
		c.report.warn(e, "does nothing here, as in MirrorMaker 2: write %s", c.tablePlaces(p, k))
	case k.Silent:
		c.report.ignore(e)
	case k.NotYet != "" && asksFor(k, e.value):
		c.report.warn(e, "%s", k.NotYet)
	}
}

// asksFor reports whether value wants what is not there yet.
func asksFor(k Key, value string) bool {
	switch k.Kind {
	case Boolean:
		return strings.EqualFold(value, "true")
	case Choice:
		return !strings.EqualFold(value, k.Default)
	}
	return true
}

// tablePlaces says where a key of the table belongs.
func (c *classifier) tablePlaces(p placement, k Key) string {
	var places []string
	if k.Places&TopLevel != 0 {
		places = append(places, k.Name)
	}
	if k.Places&OnFlow != 0 {
		places = append(places, c.anyFlow(p)+"."+k.Name)
	}
	if k.Places&OnCluster != 0 {
		places = append(places, c.anyCluster(p)+"."+k.Name)
	}
	return strings.Join(places, " or ")
}

// anyFlow names the flow that somebody who wrote p may have meant.
func (c *classifier) anyFlow(p placement) string {
	if p.place == OnFlow {
		return p.flow.String()
	}
	for _, f := range c.doc.pairs() {
		_, listed := c.doc.flows[f]
		if listed && (p.place == TopLevel || f.Source == p.alias || f.Target == p.alias) {
			return f.String()
		}
	}
	return "A->B"
}

func (c *classifier) anyCluster(p placement) string {
	switch p.place {
	case OnCluster:
		return p.alias
	case OnFlow:
		return p.flow.Target
	}
	return "<alias>"
}

func (c *classifier) legacy(e entry, p placement, now string) {
	switch k := c.keys[now]; {
	case now == "":
		c.report.warn(e, "Kafka 4.0 removed this key; it does nothing")
	case k.Places&p.place == 0:
		c.report.warn(e, "does nothing here; it is now called %s", now)
	default:
		values := c.doc.top
		if p.place == OnFlow {
			values = c.doc.flows[p.flow]
		}
		if newer, ok := values[now]; ok {
			c.report.warn(e, "does nothing beside %s on line %d, which is its new name", newer.key, newer.line)
			return
		}
		c.report.warn(e, "is read as %s; Kafka 4.0 stopped reading it without a word, so rename it", now)
	}
}

// clientSetting finds the role and the name of a key like consumer.fetch.min.bytes.
// side is there on flows only, as in source.consumer.fetch.min.bytes.
func (c *classifier) clientSetting(p placement) (role Role, name string, ok bool) {
	rest := p.name
	if p.place == OnFlow {
		for _, side := range []string{"source.", "target."} {
			rest = strings.TrimPrefix(rest, side)
		}
	}
	for _, role := range roles() {
		if name, ok := strings.CutPrefix(rest, string(role)+"."); ok {
			return role, name, true
		}
	}
	return "", "", false
}

// client judges a setting with consumer., producer. or admin. before it.
func (c *classifier) client(e entry, p placement, role Role, name string) {
	bare, override := name, false
	if role == Producer {
		bare, override = strings.CutPrefix(name, "override.")
	}
	connection := slices.Contains(connectionKeys(), bare)
	k, known := c.clients[bare]
	switch {
	case !known && !connection:
		c.unknownClient(e, role, bare)
	case known && !k.acts, slices.Contains(c.silent, bare):
		c.report.ignore(e)
	case known && !slices.Contains(k.roles, role):
		c.report.warn(e, "does nothing: %s is no setting of a %s; write %s", bare, role, c.rightPlaces(p, bare, k))
	case override && p.place != OnFlow, p.place == TopLevel:
		if connection {
			c.report.warn(e, "does nothing here, as in MirrorMaker 2: write %s, or <alias>.%s", bare, bare)
			return
		}
		c.report.warn(e, "does nothing here, as in MirrorMaker 2: write %s", c.rightPlaces(p, bare, clientKey{roles: []Role{role}}))
	case p.place == OnFlow && role == Producer && !override:
		c.report.warn(e, "reaches only the producer of the offset syncs, as in MirrorMaker 2; for the copied records write %s.producer.%s or %s.producer.override.%s",
			p.flow.Target, bare, p.flow, bare)
	}
}

// rightPlaces says where a client setting acts.
func (c *classifier) rightPlaces(p placement, name string, k clientKey) string {
	var places []string
	for _, role := range k.roles {
		switch {
		case p.place == OnCluster:
			places = append(places, p.alias+"."+string(role)+"."+name)
		case p.place == OnFlow && role == Producer:
			places = append(places, p.flow.Target+".producer."+name)
		case p.place == OnFlow && role == Consumer:
			places = append(places, p.flow.Source+".consumer."+name)
		case p.place == OnFlow:
			places = append(places, p.flow.Source+".admin."+name)
		default:
			places = append(places, "<alias>."+string(role)+"."+name)
		}
	}
	return strings.Join(places, " or ")
}

// declared lists the declared clusters.
func (c *classifier) declared() string {
	names := make([]string, len(c.doc.aliases))
	for i, alias := range c.doc.aliases {
		names[i] = named(alias)
	}
	return strings.Join(names, ", ")
}

// undeclared explains a flow key that fits no two declared clusters.
func (c *classifier) undeclared(e entry) {
	declared := c.declared()
	left, right, _ := strings.Cut(e.key, "->")
	name := right
	for _, alias := range c.doc.aliases {
		if rest, ok := strings.CutPrefix(strings.TrimLeft(right, " "), alias+"."); ok && rest != "" {
			name = rest
		}
	}
	switch {
	case strings.Contains(e.key, "*"):
		c.report.warn(e, "does nothing: flows have no wildcards, so write one key for each pair of clusters (%s)", declared)
	case slices.Contains(c.doc.aliases, strings.TrimSpace(left)) && name != right && left != strings.TrimSpace(left) || strings.HasPrefix(right, " "):
		c.report.warn(e, "does nothing: write the flow without blanks, %s->%s", strings.TrimSpace(left), strings.TrimSpace(right))
	case slices.Contains(c.doc.aliases, left) && strings.HasPrefix(right, left+"."):
		c.report.warn(e, "does nothing: a flow needs two different clusters")
	default:
		c.report.warn(e, "does nothing: the flow %s is not between declared clusters (%s)", flowOf(e.key), declared)
	}
}

// flowOf guesses where the flow in a key ends: at the last dot before a name
// that the table has, else at the first after the arrow.
func flowOf(key string) string {
	left, right, _ := strings.Cut(key, "->")
	alias, _, _ := strings.Cut(right, ".")
	return left + "->" + alias
}

// unknown warns of a key that nothing reads.
func (c *classifier) unknown(e entry, p placement) {
	if p.place == TopLevel && strings.HasPrefix(e.raw, "->") {
		c.report.warn(e, "does nothing: a blank ends a key, so this is the key %q; write %s%s without blanks before the last =", e.key, e.key, strings.ReplaceAll(strings.SplitN(e.raw, "=", 2)[0], " ", ""))
		return
	}
	prefix := strings.TrimSuffix(e.key, p.name)
	if p.place == TopLevel {
		for _, alias := range c.doc.aliases {
			// cluster.A.bootstrap.servers and its like.
			if _, rest, ok := strings.Cut(e.key, "."+alias+"."); ok && c.keys[rest].Places&OnCluster != 0 {
				c.report.warn(e, "unknown key: did you mean %s.%s?", alias, rest)
				return
			}
		}
	}
	if alias, name, ok := c.undeclaredCluster(e, p); ok {
		declared := c.declared()
		if i := slices.IndexFunc(c.doc.aliases, func(a string) bool { return strings.EqualFold(a, alias) }); i >= 0 {
			c.report.warn(e, "does nothing: there is no %s in clusters, which has %s; write %s.%s", alias, declared, c.doc.aliases[i], name)
			return
		}
		c.report.warn(e, "does nothing: there is no %s in clusters, which has %s", alias, declared)
		return
	}
	near := nearest(p.name, c.candidates(p))
	if now, ok := legacyKeys()[near]; ok && now != "" {
		c.report.warn(e, "unknown key: did you mean %s%s (%s in old files)?", prefix, now, near)
		return
	}
	switch k, ok := c.keys[near]; {
	case near == "":
		c.report.warn(e, "unknown key; it does nothing")
	case ok && k.Places&p.place == 0:
		c.report.warn(e, "unknown key: did you mean %s?", c.tablePlaces(p, k))
	default:
		c.report.warn(e, "unknown key: did you mean %s%s?", prefix, near)
	}
}

// undeclaredCluster splits the key of a cluster that the file does not declare.
func (c *classifier) undeclaredCluster(e entry, p placement) (alias, name string, ok bool) {
	if p.place != TopLevel {
		return "", "", false
	}
	for i, char := range e.key {
		name := e.key[i+1:]
		if char == '.' && i > 0 && (slices.Contains(connectionKeys(), name) || c.keys[name].Places == OnCluster) {
			return e.key[:i], name, true
		}
	}
	return "", "", false
}

// candidates are the names that a key at p's place may have meant.
func (c *classifier) candidates(p placement) []string {
	names := slices.Clone(c.known)
	for old, now := range legacyKeys() {
		if now != "" {
			names = append(names, old)
		}
	}
	slices.Sort(names)
	if p.place != TopLevel {
		for name := range c.clients {
			names = append(names, name)
		}
		slices.Sort(names[len(names)-len(c.clients):])
	}
	return names
}

func (c *classifier) unknownClient(e entry, role Role, name string) {
	var names []string
	for n, k := range c.clients {
		if slices.Contains(k.roles, role) {
			names = append(names, n)
		}
	}
	names = append(names, connectionKeys()...)
	slices.Sort(names)
	if near := nearest(name, names); near != "" {
		c.report.warn(e, "unknown key: did you mean %s%s?", strings.TrimSuffix(e.key, name), near)
		return
	}
	c.report.warn(e, "unknown key; it does nothing")
}
