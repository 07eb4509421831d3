package mapping

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"mirrorless/shared/config"
)

// mostServers is how many bootstrap servers a mapping takes. They only lead to
// the others.
const mostServers = 10

// source is a cluster as a mapping names it.
type source struct {
	arn     string   // of MSK; or
	servers []string // of a self-managed cluster
	// access is never nil: an empty list takes away what a mapping has, nil would
	// leave it.
	access []types.SourceAccessConfiguration
}

// sourceOf works out how Lambda gets to a cluster.
func sourceOf(c config.Cluster) (source, error) {
	s := source{arn: c.MSK.ARN, access: []types.SourceAccessConfiguration{}}
	var errs []error
	login, err := loginOf(c)
	errs = append(errs, err)
	if login != nil {
		s.access = append(s.access, *login)
	}
	if s.arn != "" {
		return s, errors.Join(errs...)
	}
	s.servers = c.BootstrapServers[:min(len(c.BootstrapServers), mostServers)]
	if len(s.servers) == 0 {
		errs = append(errs, fmt.Errorf("it has no servers: set %s.bootstrap.servers", c.Alias))
	}
	if c.MSK.CAARN != "" {
		s.access = append(s.access, uri(types.SourceAccessTypeServerRootCaCertificate, c.MSK.CAARN))
	}
	subnets, groups := key(c, "subnets"), key(c, "security.groups")
	switch network := c.MSK; {
	case len(network.Subnets) > 0 && len(network.SecurityGroups) == 0:
		errs = append(errs, fmt.Errorf("it has subnets and no security groups: set %s", groups))
	case len(network.Subnets) == 0 && len(network.SecurityGroups) > 0:
		errs = append(errs, fmt.Errorf("it has security groups and no subnets: set %s", subnets))
	case len(network.Subnets) == 0 && login == nil && err == nil:
		// Lambda refuses a mapping without any access configuration.
		errs = append(errs, fmt.Errorf("it is self-managed, and without a login Lambda reaches it in a VPC only: set %s and %s, or %s if it is Amazon MSK", subnets, groups, key(c, "msk.arn")))
	}
	for _, id := range c.MSK.Subnets {
		s.access = append(s.access, uri(types.SourceAccessTypeVpcSubnet, "subnet:"+id))
	}
	for _, id := range c.MSK.SecurityGroups {
		s.access = append(s.access, uri(types.SourceAccessTypeVpcSecurityGroup, "security_group:"+id))
	}
	return s, errors.Join(errs...)
}

// loginOf is how Lambda's consumers log in: as the cluster's own do, with the
// credentials from a secret. nil is for no login, or one with the function's
// role, which MSK assumes.
func loginOf(c config.Cluster) (*types.SourceAccessConfiguration, error) {
	protocol, mechanism := c.SecurityProtocol, c.SASLMechanism
	msk := c.MSK.ARN != ""
	switch {
	case protocol == "SASL_PLAINTEXT":
		return nil, fmt.Errorf("the event source logs in over TLS only: set %s.security.protocol = SASL_SSL, and the servers' TLS ports", c.Alias)
	case protocol == "SSL" && (c.MSK.SecretARN != "" || presentsCertificate(c)):
		return withSecret(c, types.SourceAccessTypeClientCertificateTlsAuth, "the client's certificate and key")
	case protocol != "SASL_SSL":
		return nil, nil
	case mechanism == "AWS_MSK_IAM" && msk:
		return nil, nil
	case mechanism == "AWS_MSK_IAM":
		return &types.SourceAccessConfiguration{Type: types.SourceAccessTypeIamAuth}, nil
	case mechanism == "SCRAM-SHA-512":
		return withSecret(c, types.SourceAccessTypeSaslScram512Auth, "username and password")
	case msk:
		return nil, fmt.Errorf("MSK has no %s: set %s.sasl.mechanism to SCRAM-SHA-512 or AWS_MSK_IAM", mechanism, c.Alias)
	case mechanism == "SCRAM-SHA-256":
		return withSecret(c, types.SourceAccessTypeSaslScram256Auth, "username and password")
	case mechanism == "PLAIN":
		return withSecret(c, types.SourceAccessTypeBasicAuth, "username and password")
	case mechanism == "OAUTHBEARER":
		return withSecret(c, types.SourceAccessTypeOauthbearerAuth, "the OAuth client's credentials")
	default:
		return nil, fmt.Errorf("the event source knows no %s: set %s.sasl.mechanism to PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or AWS_MSK_IAM", mechanism, c.Alias)
	}
}

func withSecret(c config.Cluster, kind types.SourceAccessType, what string) (*types.SourceAccessConfiguration, error) {
	if c.MSK.SecretARN == "" {
		return nil, fmt.Errorf("the event source finds %s in a secret of Secrets Manager: set %s to its ARN", what, key(c, "secret.arn"))
	}
	access := uri(kind, c.MSK.SecretARN)
	return &access, nil
}

// presentsCertificate says whether the cluster's consumers have a certificate of
// their own.
func presentsCertificate(c config.Cluster) bool {
	client := c.Client(config.Consumer)
	return slices.ContainsFunc([]string{"ssl.keystore.location", "ssl.keystore.key"}, func(k string) bool {
		return strings.TrimSpace(client[k]) != ""
	})
}

func key(c config.Cluster, name string) string { return c.Alias + ".mirrorless." + name }

func uri(kind types.SourceAccessType, value string) types.SourceAccessConfiguration {
	return types.SourceAccessConfiguration{Type: kind, URI: &value}
}
