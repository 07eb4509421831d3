package function

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/aws/smithy-go"
)

// Vault reads what a properties file, or MIRRORLESS_CONFIG, names in AWS:
// parameters of Systems Manager, secrets of Secrets Manager, and objects of S3.
//
//	v := function.NewVault(sdk, function.VaultOptions{})
//	c, err := config.Load(path, config.Sources{…, Secret: v.Secret(ctx)})
//
// What it has read it keeps for a while, so that a secret with many keys, or a
// file that is read again, is one request. No value is in an error of its, and
// Hide, Logger and Error keep values out of what others say. It is safe for
// concurrent use.
type Vault struct {
	o   VaultOptions
	sdk func(context.Context) (aws.Config, error)

	mu     sync.Mutex
	cache  map[item]kept
	hidden map[string]bool // values that are secret
}

// VaultOptions of NewVault. The zero value is ready.
type VaultOptions struct {
	// Lifetime is how long a value is believed; ten minutes if zero.
	Lifetime time.Duration
	// Now is the clock; time.Now if nil.
	Now func() time.Time
}

// defaultLifetime is how long a rotated secret may go unnoticed while the old one
// still works.
const defaultLifetime = 10 * time.Minute

// Kind is a service of AWS that keeps texts.
type Kind string

// The kinds. The first two are also the words of Kafka's providers.
const (
	Parameter Kind = "ssm"            // by name or ARN
	Secret    Kind = "secretsmanager" // by name or ARN
	Object    Kind = "s3"             // by bucket/key
)

// item is something in AWS.
type item struct {
	Kind
	name string
}

type kept struct {
	value string
	until time.Time
}

// mostObject bounds an object of S3; a properties file has some kilobytes.
const mostObject = 4 << 20

// NewVault returns a Vault. It makes no request; sdk is asked when the first value
// is.
func NewVault(sdk func(context.Context) (aws.Config, error), o VaultOptions) *Vault {
	if o.Lifetime == 0 {
		o.Lifetime = defaultLifetime
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Vault{o: o, sdk: sdk, cache: map[item]kept{}, hidden: map[string]bool{}}
}

// Secret is config.Sources.Secret: the value of ${ssm:name} or
// ${secretsmanager:id:key}, where a secret without key is its whole text. Names
// may be ARNs, with their colons as they are or as %3A.
func (v *Vault) Secret(ctx context.Context) func(provider, path, key string) (string, error) {
	return func(provider, path, key string) (string, error) {
		name, key, err := nameOf(Kind(provider), path, key)
		if err != nil {
			return "", err
		}
		text, err := v.Read(ctx, Kind(provider), name)
		if err != nil || key == "" {
			return string(text), err
		}
		value, err := fieldOf(text, key)
		v.hide(value)
		return value, err
	}
}

// nameOf sorts out what Kafka's syntax has parted at the first two colons: a
// parameter has no key, and an ARN has colons of its own.
func nameOf(provider Kind, path, key string) (name, field string, err error) {
	name, field = path, key
	switch {
	case provider == Parameter:
		name, field = key, ""
		if path != "" {
			name = path + ":" + key
		}
	case path == "":
		name, field = key, ""
	case path == "arn" && strings.Count(key, ":") > 5:
		// arn:partition:secretsmanager:region:account:secret:name:key
		i := strings.LastIndexByte(key, ':')
		name, field = path+":"+key[:i], key[i+1:]
	case path == "arn":
		name, field = path+":"+key, ""
	}
	if unescaped, err := url.PathUnescape(name); err == nil {
		name = unescaped
	}
	if name == "" {
		return "", "", errors.New("it names nothing")
	}
	return name, field, nil
}

// fieldOf is a field of a secret that is a JSON object.
func fieldOf(text []byte, key string) (string, error) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) != nil { // whose error would quote the secret
		return "", errors.New("the secret is not a JSON object with keys")
	}
	raw, ok := fields[key]
	if !ok {
		return "", fmt.Errorf("the secret has no key %s", key)
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s, nil
	}
	return string(raw), nil // a number, or a flag
}

// Expire makes the next reading ask again, of everything.
func (v *Vault) Expire() {
	v.mu.Lock()
	defer v.mu.Unlock()
	clear(v.cache)
}

// Read reads a text. The error has its name, and what AWS said.
func (v *Vault) Read(ctx context.Context, kind Kind, name string) ([]byte, error) {
	i := item{kind, name}
	v.mu.Lock()
	known, ok := v.cache[i]
	v.mu.Unlock()
	if ok && v.o.Now().Before(known.until) {
		return []byte(known.value), nil
	}
	sdk, err := v.sdk(ctx)
	if err != nil {
		return nil, fmt.Errorf("set up the AWS client: %w", err)
	}
	value, secret, err := ask(ctx, sdk, i)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", i.name, reason(err))
	}
	if secret {
		v.hide(value)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cache[i] = kept{value, v.o.Now().Add(v.o.Lifetime)}
	return []byte(value), nil
}

// ask reads a text from AWS; secret says whether it is to be kept from logs. A
// properties file as a whole is not: what is secret in it has keys that say so.
func ask(ctx context.Context, sdk aws.Config, i item) (text string, secret bool, err error) {
	switch i.Kind {
	case Parameter:
		out, err := ssm.NewFromConfig(sdk).GetParameter(ctx, &ssm.GetParameterInput{Name: &i.name, WithDecryption: aws.Bool(true)})
		if err != nil {
			return "", false, err
		}
		if out.Parameter == nil || out.Parameter.Value == nil {
			return "", false, errors.New("the parameter has no value")
		}
		return *out.Parameter.Value, out.Parameter.Type == ssmtypes.ParameterTypeSecureString, nil
	case Secret:
		out, err := secretsmanager.NewFromConfig(sdk).GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: &i.name})
		if err != nil {
			return "", false, err
		}
		if out.SecretString == nil {
			return "", false, errors.New("the secret is binary, and no text")
		}
		return *out.SecretString, true, nil
	}
	bucket, key, _ := strings.Cut(i.name, "/")
	out, err := s3.NewFromConfig(sdk, func(o *s3.Options) {
		o.UsePathStyle = o.BaseEndpoint != nil             // an emulator's host has no names below it
		o.DisableLogOutputChecksumValidationSkipped = true // nor has it checksums
	}).GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		return "", false, err
	}
	defer out.Body.Close()
	read, err := io.ReadAll(io.LimitReader(out.Body, mostObject+1))
	if len(read) > mostObject {
		return "", false, fmt.Errorf("the object is larger than %d bytes", mostObject)
	}
	return string(read), false, err
}

// reason is what AWS said, without the SDK's account of the request.
func reason(err error) error {
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return err
	}
	return &refusedError{code: api.ErrorCode(), message: api.ErrorMessage(), err: err}
}

// refusedError is AWS's answer.
type refusedError struct {
	code, message string
	err           error
}

func (e *refusedError) Error() string {
	switch e.code {
	case "ParameterNotFound", "ResourceNotFoundException", "NoSuchKey", "NoSuchBucket":
		return "there is nothing of that name in this account and Region (" + e.code + ")"
	case "AccessDeniedException", "AccessDenied":
		return "the function's role may not read it (" + e.code + ")"
	}
	if e.message == "" {
		return e.code
	}
	return e.code + ": " + e.message
}

func (e *refusedError) Unwrap() error { return e.err }
