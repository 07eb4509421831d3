package config

import (
	"fmt"

	"mirrorless/shared/flow"
)

// Sources are the ways out of the package; a nil func means that what it would
// read does not exist.
type Sources struct {
	// ReadFile returns the contents of a file: the properties file itself, and
	// what `${file:…}` and `${directory:…}` name.
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
	return &Config{File: name, pairs: map[flow.Flow]Flow{}}
}
