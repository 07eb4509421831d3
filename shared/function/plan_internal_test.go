package function

import (
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"mirrorless/localstack/lambdaapi"
	"mirrorless/shared/config"
	"mirrorless/shared/topics"
)

func TestEventSourcesAreMadeAsTheFileSays(t *testing.T) {
	const start = `clusters = A, B
A.bootstrap.servers = a:9096
B.bootstrap.servers = b:9092
A->B.enabled = true
A.mirrorless.subnets = subnet-1
A.mirrorless.security.groups = sg-1
`
	for _, test := range []struct {
		name, lines string
		want        types.EventSourceMappingConfiguration
		partial     bool
	}{
		{name: "nothing is asked for", want: types.EventSourceMappingConfiguration{}},
		{
			name: "all is",
			lines: `A.security.protocol = SSL
A.mirrorless.ca.arn = arn:aws:secretsmanager:us-east-1:123456789012:secret:ca
mirrorless.mapping.metrics = true
mirrorless.mapping.partial.failures = true
mirrorless.mapping.pollers.min = 1
mirrorless.mapping.pollers.max = 4
mirrorless.mapping.pollers.group = dr
`,
			want: types.EventSourceMappingConfiguration{
				MetricsConfig:           &types.EventSourceMappingMetricsConfig{Metrics: []types.EventSourceMappingMetric{"EventCount", "ErrorCount", "KafkaMetrics"}},
				ProvisionedPollerConfig: &types.ProvisionedPollerConfig{MinimumPollers: aws.Int32(1), MaximumPollers: aws.Int32(4), PollerGroupName: aws.String("dr")},
				SourceAccessConfigurations: []types.SourceAccessConfiguration{
					{Type: "SERVER_ROOT_CA_CERTIFICATE", URI: aws.String("arn:aws:secretsmanager:us-east-1:123456789012:secret:ca")},
				},
			},
			partial: true,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := config.Parse("mm2.properties", []byte(start+test.lines), config.Sources{})
			if err := c.Err(); err != nil {
				t.Fatal(err)
			}
			sdk := aws.Config{
				Region: "us-east-1", BaseEndpoint: aws.String("http://lambda.test"),
				Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
				HTTPClient:  &http.Client{Transport: lambdaapi.New(lambdaapi.Options{})},
			}
			p := &Parts{Config: c, Settings: c.Enabled()[0], Stack: "dev", AWS: &sdk}
			defer p.Close()
			o, err := p.topics()
			if err != nil {
				t.Fatal(err)
			}
			if o.PartialFailures != test.partial {
				t.Errorf("partial failures: got %t, want %t", o.PartialFailures, test.partial)
			}
			made, err := o.EventSources.Create(t.Context(), topics.EventSourceSpec{Topic: "orders", Group: "g", BatchSize: 10})
			if err != nil {
				t.Fatal(err)
			}
			got, err := lambda.NewFromConfig(sdk).GetEventSourceMapping(t.Context(), &lambda.GetEventSourceMappingInput{UUID: &made.ID})
			if err != nil {
				t.Fatal(err)
			}
			test.want.SourceAccessConfigurations = append(test.want.SourceAccessConfigurations,
				types.SourceAccessConfiguration{Type: "VPC_SUBNET", URI: aws.String("subnet:subnet-1")},
				types.SourceAccessConfiguration{Type: "VPC_SECURITY_GROUP", URI: aws.String("security_group:sg-1")})
			if diff := cmp.Diff(test.want, types.EventSourceMappingConfiguration{
				MetricsConfig: got.MetricsConfig, ProvisionedPollerConfig: got.ProvisionedPollerConfig, SourceAccessConfigurations: got.SourceAccessConfigurations,
			}, cmpopts.IgnoreUnexported(types.EventSourceMappingConfiguration{}, types.EventSourceMappingMetricsConfig{}, types.ProvisionedPollerConfig{}, types.SourceAccessConfiguration{})); diff != "" {
				t.Errorf("the mapping differs (-want +got):\n%s", diff)
			}
		})
	}
}
