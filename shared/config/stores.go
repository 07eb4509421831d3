package config

import (
	"errors"
	"io/fs"
	"strings"
)

// checkStores looks for the files of truststores and keystores. That one is not
// here is a warning: the file may be read on another machine than the one that
// connects.
func (d *document) checkStores(enabled []Flow, sources Sources, r *report) {
	if sources.ReadFile == nil {
		return
	}
	errs := map[string]error{} // by path, each read once
	check := func(props map[string]entry) {
		if !strings.HasSuffix(strings.ToLower(props["security.protocol"].value), "ssl") {
			return
		}
		// PEM text in the file itself goes before a path.
		for store, text := range map[string]string{"truststore": "ssl.truststore.certificates", "keystore": "ssl.keystore.key"} {
			e := props["ssl."+store+".location"]
			if e.value == "" || props[text].value != "" || reference.MatchString(e.value) || unfilled.MatchString(e.value) {
				continue
			}
			err, known := errs[e.value]
			if !known {
				_, err = sources.ReadFile(e.value)
				errs[e.value] = err
			}
			if err != nil {
				r.warn(e, "the %s %s cannot be read here (%s), and without it nothing connects: correct the path, or put the file there", store, e.quote(), reasonOf(err))
			}
		}
	}
	for _, alias := range d.aliases {
		check(d.connection(alias))
		for _, role := range roles() {
			check(d.client(alias, role))
		}
	}
	for _, f := range enabled {
		for _, role := range roles() {
			check(d.flowClient(f.Flow, "source", f.Source, role))
			check(d.flowClient(f.Flow, "target", f.Target, role))
		}
		check(d.dataProducer(f.Flow))
	}
}

// reasonOf leaves out what a message already says.
func reasonOf(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}
