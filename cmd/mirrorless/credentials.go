package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrorless/shared/cluster"
)

// account lets Kafka clients log in to Amazon MSK as whoever the AWS SDK finds
// here. It looks for nobody before a cluster with AWS_MSK_IAM is connected to.
func account() kgo.Opt {
	load := sync.OnceValues(func() (aws.Config, error) { return awsconfig.LoadDefaultConfig(context.Background()) })
	return cluster.WithCredentials(func(ctx context.Context) (cluster.Credentials, error) {
		sdk, err := load()
		if err != nil {
			return cluster.Credentials{}, fmt.Errorf("set up the AWS client: %w", err)
		}
		c, err := sdk.Credentials.Retrieve(ctx)
		if err != nil {
			return cluster.Credentials{}, err
		}
		return cluster.Credentials{AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey, SessionToken: c.SessionToken}, nil
	})
}
