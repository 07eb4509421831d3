package function

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/cluster"
)

// withCredentials is an option of Kafka clients that lets them log in to
// Amazon MSK as provider's identity. It is asked for each connection, and the
// AWS SDK's providers renew what is about to expire.
func withCredentials(provider aws.CredentialsProvider) kgo.Opt {
	return cluster.WithCredentials(func(ctx context.Context) (cluster.Credentials, error) {
		c, err := provider.Retrieve(ctx)
		if err != nil {
			return cluster.Credentials{}, err
		}
		return cluster.Credentials{AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey, SessionToken: c.SessionToken}, nil
	})
}
