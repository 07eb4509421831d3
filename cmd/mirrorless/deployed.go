package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"mirrorless/shared/config"
	"mirrorless/shared/function"
	"mirrorless/shared/mapping"
	"mirrorless/shared/state"
	"mirrorless/shared/state/dynamo"
	"mirrorless/shared/status"
)

// deployedStack is a stack in AWS: its table bears its name, and Lambda knows its
// event sources.
type deployedStack struct {
	name  string
	sdk   aws.Config
	store state.Store
}

// openStack reaches the account that the environment names. It makes no request.
func openStack(ctx context.Context, name string) (deployedStack, error) {
	sdk, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return deployedStack{}, fmt.Errorf("set up the AWS client: %w", err)
	}
	return deployedStack{name, sdk, dynamo.New(dynamodb.NewFromConfig(sdk), name, dynamo.Options{})}, nil
}

// serves picks the stack's flow, of which its table knows once topics has worked.
func (s deployedStack) serves(ctx context.Context, flows []config.Flow) ([]config.Flow, error) {
	row, err := s.store.Flow(ctx)
	_, noTable := errors.AsType[*types.ResourceNotFoundException](err)
	switch {
	case err == nil:
		if i := slices.IndexFunc(flows, func(f config.Flow) bool { return f.Flow == row.Flow }); i >= 0 {
			return flows[i : i+1], nil
		}
		return nil, exit(exitUsage, fmt.Errorf("--stack: %s serves %s, and not %s", s.name, row.Flow, names(flows)))
	case !noTable && !errors.Is(err, state.ErrNotFound):
		return nil, fmt.Errorf("read the table of stack %s: %w", s.name, err)
	case len(flows) > 1:
		return nil, exit(exitUsage, fmt.Errorf("--stack: %s serves one of %s: say which with --flow", s.name, names(flows)))
	}
	return flows, nil
}

func names(flows []config.Flow) string {
	var all []string
	for _, f := range flows {
		all = append(all, f.String())
	}
	return strings.Join(all, ", ")
}

// parts are those of a plan.
func (s deployedStack) parts(config.Flow) (*function.Parts, error) {
	return &function.Parts{Store: s.store, AWS: &s.sdk, Stack: s.name}, nil
}

// eventSources asks Lambda, by topic.
func (s deployedStack) eventSources(ctx context.Context) (map[string]status.EventSource, error) {
	all, err := mapping.List(ctx, lambda.NewFromConfig(s.sdk), function.MirrorOf(s.name))
	if err != nil {
		return nil, err
	}
	found := map[string]status.EventSource{}
	for _, m := range all {
		found[m.Topic] = status.EventSource{ID: m.ID, Group: m.Group, State: m.State, LastResult: m.LastResult}
	}
	return found, nil
}

// stackStatus reports on the flow of a deployed stack.
func stackStatus(ctx context.Context, flags statusFlags, flows []config.Flow) ([]status.Report, error) {
	s, err := openStack(ctx, flags.stack)
	if err != nil {
		return nil, err
	}
	if flows, err = s.serves(ctx, flows); err == nil {
		var report status.Report
		report, err = flowStatus(ctx, status.Options{Settings: flows[0], Store: s.store, EventSources: s.eventSources, Timeout: flags.timeout})
		if err == nil {
			return []status.Report{report}, nil
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if _, usage := errors.AsType[*exitError](err); usage {
		return nil, err
	}
	if _, noTable := errors.AsType[*types.ResourceNotFoundException](err); noTable {
		err = fmt.Errorf("there is no table %s in %s: is the stack's name right, and are AWS_REGION and the account? (%w)", s.name, s.sdk.Region, err)
	}
	return nil, exit(exitUnreachable, err)
}
