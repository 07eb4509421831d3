package function

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"strings"

	"mirrorless/shared/config"
)

// reference is what MIRRORLESS_CONFIG says: where the properties are.
type reference struct {
	text string
	// kind is "file", "ssm" or "s3".
	kind string
	// name is the path or the parameter, and bucket and key name the object.
	name, bucket, key string
}

// parseReference reads a path, ssm:/name or s3://bucket/key.
func parseReference(text string) (reference, error) {
	r := reference{text: text, kind: "file", name: text}
	if name, ok := strings.CutPrefix(text, "ssm:"); ok {
		r.kind, r.name = "ssm", name
		if name == "" {
			return r, fmt.Errorf("MIRRORLESS_CONFIG is %q: name a parameter, as in ssm:/mirrorless/mm2", text)
		}
		return r, nil
	}
	if object, ok := strings.CutPrefix(text, "s3:"); ok {
		r.kind = "s3"
		object, slashes := strings.CutPrefix(object, "//")
		if r.bucket, r.key, _ = strings.Cut(object, "/"); !slashes || r.bucket == "" || r.key == "" {
			return r, fmt.Errorf("MIRRORLESS_CONFIG is %q: name an object, as in s3://bucket/mm2.properties", text)
		}
	}
	return r, nil
}

// properties is a configuration that was read.
type properties struct {
	config *config.Config
	// remote: a part of it came from AWS, or was to. It may be another one later,
	// and an error may pass.
	remote bool
	// print is the same where nothing has changed: the text and all secrets in it.
	print [sha256.Size]byte
}

// loadProperties reads the configuration that MIRRORLESS_CONFIG names. The error
// joins all that is wrong in it.
func loadProperties(ctx context.Context, text string, v *Vault) (p properties, err error) {
	r, err := parseReference(text)
	if err != nil {
		return p, err
	}
	p.remote = r.kind != "file"
	data, err := r.read(ctx, v)
	if err != nil {
		return p, fmt.Errorf("read MIRRORLESS_CONFIG: %w", err)
	}
	print := sha256.New()
	print.Write(data)
	secret := v.Secret(ctx)
	p.config = config.Parse(r.text, data, config.Sources{
		ReadFile: os.ReadFile, LookupEnv: os.LookupEnv,
		Secret: func(provider, path, key string) (string, error) {
			p.remote = true
			value, err := secret(provider, path, key)
			fmt.Fprintf(print, "\x00%s", value)
			return value, err
		},
	})
	print.Sum(p.print[:0])
	return p, p.config.Err()
}

func (r reference) read(ctx context.Context, v *Vault) ([]byte, error) {
	switch r.kind {
	case "ssm":
		return v.Read(ctx, Parameter, r.name)
	case "s3":
		return v.Read(ctx, Object, r.bucket+"/"+r.key)
	}
	return os.ReadFile(r.name)
}
