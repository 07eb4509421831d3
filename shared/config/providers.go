package config

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/magiconair/properties"
)

const (
	providersKey    = "config.providers"
	providersPrefix = providersKey + "."
)

// reference is a placeholder in a value. The second form, without a provider,
// is a shell's or a template engine's; nothing resolves it.
var reference = regexp.MustCompile(`\$\{([^}:]*)(?::((?:[^}:]*:)?)([^}]*))?\}`)

// shellName is what a placeholder is called; anything else inside a secret may
// be a part of it.
var shellName = regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)

// providers resolves ${provider:path:key} as Kafka's ConfigTransformer does.
type providers struct {
	declared map[string]provider
	sources  Sources
	files    map[string]map[string]string
}

type provider struct {
	kind    string // env, file, directory, ssm, secretsmanager; "" for a class that is not known
	class   string
	allowed *regexp.Regexp // names of variables
	paths   []string       // files and folders below which a path must be
}

// readProviders reads config.providers and its parameters.
func readProviders(entries []entry, sources Sources, r *report) *providers {
	p := &providers{declared: map[string]provider{}, sources: sources, files: map[string]map[string]string{}}
	values := map[string]entry{}
	for _, e := range entries {
		if e.key == providersKey || strings.HasPrefix(e.key, providersPrefix) {
			values[e.key] = e
		}
	}
	for _, name := range splitList(values[providersKey].value) {
		class, ok := values[providersPrefix+name+".class"]
		if !ok {
			r.err(values[providersKey], "provider %s has no class: set %s%s.class", name, providersPrefix, name)
			continue
		}
		d := provider{kind: providerKind(class.value), class: class.value}
		if d.kind == "" {
			r.err(class, "the provider class %q is Java code that cannot be run here: use Kafka's EnvVarConfigProvider, FileConfigProvider or DirectoryConfigProvider", class.value)
		}
		if e, ok := values[providersPrefix+name+".param.allowlist.pattern"]; ok {
			re, err := regexp.Compile(`\A(?:` + e.value + `)\z`)
			if err != nil {
				r.err(e, "the pattern %q does not compile", e.value)
			}
			d.allowed = re
		}
		d.paths = splitList(values[providersPrefix+name+".param.allowed.paths"].value)
		p.declared[name] = d
	}
	return p
}

// providerKind tells what a provider class does; the AWS classes are those of
// aws-msk-config-providers and of the libraries it replaced.
func providerKind(class string) string {
	name := class[strings.LastIndexByte(class, '.')+1:]
	switch {
	case name == "EnvVarConfigProvider":
		return "env"
	case name == "FileConfigProvider":
		return "file"
	case name == "DirectoryConfigProvider":
		return "directory"
	case strings.HasPrefix(name, "Ssm"):
		return "ssm"
	case strings.HasPrefix(name, "SecretsManager"), strings.HasPrefix(name, "SecretManager"):
		return "secretsmanager"
	}
	return ""
}

// resolve replaces the references in e's value. What it finds is not looked
// through for further ones, as in Kafka.
func (p *providers) resolve(e entry, r *report) entry {
	if !strings.Contains(e.raw, "${") || strings.HasPrefix(e.key, providersPrefix) || e.key == providersKey {
		return e
	}
	e.value = reference.ReplaceAllStringFunc(e.raw, func(text string) string {
		m := reference.FindStringSubmatch(text)
		// Without a colon it is no reference of Kafka's.
		if !strings.Contains(text, ":") {
			if isSecret(e.key) && !shellName.MatchString(m[1]) {
				r.err(e, "nothing resolves the ${…} in the value: Kafka reads ${provider:path:key}")
				return text
			}
			r.err(e, "nothing resolves %s: Kafka reads ${provider:path:key}, so replace it, or write ${env:%s}", text, m[1])
			return text
		}
		value, err := p.lookup(m[1], strings.TrimSuffix(m[2], ":"), m[3], e, r)
		if err != nil {
			r.err(e, "resolve %s: %v", text, err)
			return text
		}
		return value
	})
	e.value = trim(e.value)
	return e
}

func (p *providers) lookup(name, dir, key string, e entry, r *report) (string, error) {
	d, ok := p.declared[name]
	if !ok {
		switch name {
		case "env", "file", "ssm", "secretsmanager":
			d.kind = name
			r.warn(e, "the provider %s is not declared, and MirrorMaker 2 would not resolve ${%s:…}: set %s = %s and %s%s.class", name, name, providersKey, name, providersPrefix, name)
		case "directory":
			return "", fmt.Errorf("the provider %s is not declared: set %s and %s%s.class", name, providersKey, providersPrefix, name)
		default:
			return "", fmt.Errorf("there is no provider %q: declare it with %s", name, providersKey)
		}
	}
	switch d.kind {
	case "env":
		return p.variable(d, key)
	case "file":
		return p.property(d, dir, key)
	case "directory":
		return p.content(d, dir, key)
	case "ssm", "secretsmanager":
		if p.sources.Secret == nil {
			return "", errors.New("values from AWS cannot be read here")
		}
		return p.sources.Secret(d.kind, dir, key)
	}
	return "", errors.New("its provider cannot be run here")
}

func (p *providers) variable(d provider, name string) (string, error) {
	if d.allowed != nil && !d.allowed.MatchString(name) {
		return "", fmt.Errorf("allowlist.pattern does not let the variable %s through", name)
	}
	if p.sources.LookupEnv != nil {
		if value, ok := p.sources.LookupEnv(name); ok {
			return value, nil
		}
	}
	return "", fmt.Errorf("the variable %s is not set", name)
}

// property reads a key of a properties file, which Kafka reads as UTF-8.
func (p *providers) property(d provider, file, key string) (string, error) {
	if err := d.allows(file); err != nil {
		return "", err
	}
	values, ok := p.files[file]
	if !ok {
		data, err := p.read(file)
		if err != nil {
			return "", err
		}
		values = map[string]string{}
		loader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
		for _, l := range logicalLines(withoutBOM(data)) {
			// A line that does not parse may hold a secret: it is passed over.
			if props, err := loader.LoadBytes(l.text); err == nil {
				for _, k := range props.Keys() {
					values[k], _ = props.Get(k)
				}
			}
		}
		p.files[file] = values
	}
	value, ok := values[key]
	if !ok {
		return "", fmt.Errorf("the file has no key %s", key)
	}
	return value, nil
}

// content reads a file of a folder, whole.
func (p *providers) content(d provider, dir, name string) (string, error) {
	file := path.Join(dir, name)
	if path.Dir(file) != path.Clean(dir) {
		return "", fmt.Errorf("%q is not the name of a file in the folder", name)
	}
	if err := d.allows(file); err != nil {
		return "", err
	}
	data, err := p.read(file)
	return string(data), err
}

func (p *providers) read(file string) ([]byte, error) {
	if p.sources.ReadFile == nil {
		return nil, errors.New("no files can be read here")
	}
	return p.sources.ReadFile(file)
}

// allows checks allowed.paths (KIP-993).
func (d provider) allows(file string) error {
	file = path.Clean(file)
	if len(d.paths) == 0 || slices.ContainsFunc(d.paths, func(allowed string) bool {
		allowed = path.Clean(allowed)
		return file == allowed || strings.HasPrefix(file, strings.TrimSuffix(allowed, "/")+"/")
	}) {
		return nil
	}
	return errors.New("allowed.paths does not let the path through")
}
