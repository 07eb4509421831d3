package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"mirrorless/shared/config"
	"mirrorless/shared/verify"
)

// readReport reads a file that verify has written; without one there is nothing
// to build on.
func readReport(path string) (comparisons, error) {
	var c comparisons
	if path == "" {
		return c, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return c, exit(exitUsage, fmt.Errorf("--since: %w", err))
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, exit(exitUsage, fmt.Errorf("--since: read %s, which verify --report should have written: %w", path, err))
	}
	for _, f := range c.Flows {
		if f.Kept == nil {
			return c, exit(exitUsage, fmt.Errorf("--since: %s was not written by verify --report; the output of --json cannot be built on", path))
		}
	}
	return c, nil
}

// of returns the report of a flow, or nil.
func (c *comparisons) of(f config.Flow) *verify.Report {
	for i := range c.Flows {
		if c.Flows[i].Flow == f.String() {
			return &c.Flows[i].Report
		}
	}
	return nil
}

// with returns the comparisons and those flows of an earlier report that were not
// come to now.
func (c *comparisons) with(earlier comparisons) *comparisons {
	all := *c
	all.Flows = slices.Clone(c.Flows)
	for _, old := range earlier.Flows {
		if !slices.ContainsFunc(c.Flows, func(v verified) bool { return v.Flow == old.Flow }) {
			all.Flows = append(all.Flows, old)
		}
	}
	return &all
}

// write puts the comparisons in the place of a file, whole or not at all.
func (c *comparisons) write(path string) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	defer os.Remove(file.Name()) // which is no longer there if all went well
	e := json.NewEncoder(file)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	err = errors.Join(e.Encode(c), file.Chmod(0o644), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("--report: write %s: %w", path, err)
	}
	return nil
}

// forget drops what is only of use in a file.
func (c *comparisons) forget() {
	for i := range c.Flows {
		c.Flows[i].Kept = nil
		for j := range c.Flows[i].Topics {
			for k := range c.Flows[i].Topics[j].Partitions {
				c.Flows[i].Topics[j].Partitions[k].Ranges = nil
			}
		}
	}
}
