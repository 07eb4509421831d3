package config

import (
	"bytes"
	"fmt"
	"slices"

	"mirrorless/shared/flow"
)

// Sources are the ways out of the package; a nil func means that what it would
// read does not exist.
type Sources struct {
	// ReadFile returns the contents of a file: the properties file itself, what
	// `${file:…}` and `${directory:…}` name, and keystores and truststores, of
	// which only the error counts; without it those are not looked for.
	ReadFile func(path string) ([]byte, error)
	// LookupEnv returns a variable of the environment, for `${env:…}`.
	LookupEnv func(name string) (value string, ok bool)
	// Secret returns a value that an AWS provider names, for `${ssm:…}` and
	// `${secretsmanager:…}`; provider is one of the two.
	Secret func(provider, path, key string) (string, error)
}

// Load reads the file at path. The error says only that the file cannot be
// read; what is wrong inside it is in Config.Errors, all at once.
func Load(path string, sources Sources) (*Config, error) {
	data, err := sources.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return Parse(path, data, sources), nil
}

// Parse reads data as Load does; name is what findings call it.
func Parse(name string, data []byte, sources Sources) *Config {
	r := newReport(name)
	c := &Config{File: name, pairs: map[flow.Flow]Flow{}}
	d := read(data, sources, r)
	keys := Keys()
	newClassifier(d, keys, r).run()

	for _, alias := range d.aliases {
		c.Clusters = append(c.Clusters, d.cluster(alias, r))
	}
	for _, pair := range d.pairs() {
		f := d.flowSettings(pair, keys, r)
		c.pairs[pair] = f
		if _, listed := d.flows[pair]; listed {
			c.Flows = append(c.Flows, f)
		}
	}
	d.validate(c, keys, r)
	d.checkStores(c.Enabled(), sources, r)
	c.Warnings, c.Errors = r.finish()
	return c
}

// read scans the file and resolves its values.
func read(data []byte, sources Sources, r *report) *document {
	if bytes.HasPrefix(data, []byte("\xfe\xff")) || bytes.HasPrefix(data, []byte("\xff\xfe")) {
		r.err(entry{line: 1}, "the file is UTF-16: save it as UTF-8 or ISO 8859-1")
		return &document{}
	}
	entries, bad := scan(withoutBOM(data))
	for _, b := range bad {
		r.err(entry{line: b.line}, "%s", b.message)
	}
	d := &document{entries: unique(entries, r)}
	providers := readProviders(d.entries, sources, r)
	for i, e := range d.entries {
		d.entries[i] = providers.resolve(e, r)
	}
	d.readAliases(r)
	table := map[string]Key{}
	for _, k := range Keys() {
		table[k.Name] = k
	}
	d.sortKeys(table)
	return d
}

// readAliases reads the key `clusters`.
func (d *document) readAliases(r *report) {
	i := slices.IndexFunc(d.entries, func(e entry) bool { return e.key == "clusters" })
	if i < 0 {
		r.err(entry{key: "clusters"}, "the key is missing: set clusters = A, B, with aliases of yours")
		return
	}
	e := d.entries[i]
	for _, alias := range splitList(e.value) {
		if slices.Contains(d.aliases, alias) {
			r.warn(e, "%s is there twice", alias)
			continue
		}
		d.aliases = append(d.aliases, alias)
	}
	if len(d.aliases) == 0 {
		r.err(e, "the list is empty: set clusters = A, B, with aliases of yours")
	}
}
