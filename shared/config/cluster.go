package config

// Role names the kind of client that a set of client properties is for.
type Role string

// The roles of a Kafka client, by the prefix their keys carry in the file.
const (
	Admin    Role = "admin"
	Producer Role = "producer"
	Consumer Role = "consumer"
)

// Cluster is one declared cluster.
type Cluster struct {
	Alias string
	// BootstrapServers are the host:port pairs of bootstrap.servers, trimmed.
	BootstrapServers []string
	// SecurityProtocol is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
	SecurityProtocol string
	// SASLMechanism is as written; "" where nobody wrote it.
	SASLMechanism string
	// SASLUsername is the user name of sasl.jaas.config, "" without one.
	SASLUsername string
	// TruststoreLocation is ssl.truststore.location.
	TruststoreLocation string
	// EndpointIdentification is ssl.endpoint.identification.algorithm: nil where
	// nobody wrote it, which checks host names, "" where somebody switched that
	// check off.
	EndpointIdentification *string
	// MSK holds what AWS knows the cluster by; see the <alias>.mirrorless. keys.
	MSK MSK

	clients map[Role]map[string]string
}

// MSK names a cluster and the way to it in AWS.
type MSK struct {
	ARN            string   // of the Amazon MSK cluster; "" for a self-managed one
	SecretARN      string   // of the Secrets Manager secret with its credentials
	CAARN          string   // of the one with the certificates that its brokers are trusted by
	Subnets        []string // subnet ids in which the cluster is reached
	SecurityGroups []string // security group ids to reach it with
}
