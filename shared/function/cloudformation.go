package function

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	lambdaservice "github.com/aws/aws-sdk-go-v2/service/lambda"

	"mirrorless/shared/config"
	"mirrorless/shared/mapping"
	"mirrorless/shared/topics"
)

// StartTopics runs the topics function under Lambda's runtime. It does not return.
//
// Topics is the stack's custom resource, too, because it makes what
// CloudFormation does not know of: the event source mappings. When the resource
// is created or changed, it runs a round, so that a stack that is there is at
// work; when it is deleted, it removes every mapping of mirror. CloudFormation
// waits for an answer, an hour if need be, so it always gets one: also where the
// set-up fails, which is then the reason why the stack does, or the work panics.
//
// The resource's properties: Function, the name of mirror; EventSources, "none"
// where topics keeps none; Settle, the seconds for which a deletion goes on
// looking for the mappings of a round that is still under way elsewhere.
//
// Its attributes: Source and Target, the flow's aliases; Heartbeats, "true" where it
// emits them; HeartbeatMetric, "true" where their age is told, too, which an alarm
// then waits for; FirstRound, what hindered the first round, "ok" if nothing.
func StartTopics() {
	logger := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	r := &resource{logger: logger, transport: http.DefaultTransport}
	r.build = func(ctx context.Context) (Handler, error) {
		return setUp(ctx, func(p *Parts) (Handler, error) {
			r.settings = p.Settings
			return Topics(p)
		}, logger)
	}
	r.sources = func(ctx context.Context, function string) (remover, error) {
		sdk, err := awsconfig.LoadDefaultConfig(ctx)
		if err != nil {
			return nil, fmt.Errorf("set up the AWS client: %w", err)
		}
		return mapping.New(lambdaservice.NewFromConfig(sdk), mapping.Options{Function: function, Cluster: anyCluster, Logger: logger})
	}
	// What is found wrong now would be so at the first invocation, which tells.
	_, _ = r.ready(context.Background())
	lambda.Start(r)
}

// anyCluster stands for the source, which has no part in removing mappings: its
// settings may be what is wrong.
var anyCluster = config.Cluster{MSK: config.MSK{ARN: "any"}}

const (
	// roundLimit bounds a round below the time to the next one, where the
	// function's own limit leaves a deletion of thousands of mappings the time
	// that it takes.
	roundLimit = 55 * time.Second
	// firstRoundLimit bounds a round that a deployment waits for.
	firstRoundLimit = 40 * time.Second
	// answerMargin is the part of an invocation's time that is kept for the answer.
	answerMargin = 20 * time.Second
	// removePause is between two looks at mappings that are being deleted.
	removePause = 2 * time.Second
	// defaultSettle is longer than a round.
	defaultSettle = 60 * time.Second

	answerAttempts = 4
	answerTimeout  = 4 * time.Second
	// mostText keeps an answer below CloudFormation's limit of 4,096 bytes.
	mostText = 1000
)

// remover are the mappings of a function, to be removed.
type remover interface {
	List(context.Context) ([]topics.EventSource, error)
	Delete(ctx context.Context, id string) error
}

// resource is topics as a Lambda function and as a custom resource.
type resource struct {
	// build sets topics up; it is called until it succeeds.
	build   func(context.Context) (Handler, error)
	sources func(ctx context.Context, function string) (remover, error)
	// transport carries the answers.
	transport http.RoundTripper
	logger    *slog.Logger

	mu       sync.Mutex
	topics   Handler // nil until it is set up
	settings config.Flow
}

// ready sets topics up, once.
func (r *resource) ready(ctx context.Context) (Handler, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.topics != nil {
		return r.topics, nil
	}
	h, err := r.build(ctx)
	if err != nil {
		return nil, fmt.Errorf("set up topics: %w", err)
	}
	r.topics = h
	return h, nil
}

// request is CloudFormation's, as in its User Guide under "Custom resource request
// objects".
type request struct {
	RequestType        string
	ResponseURL        string
	StackID            string `json:"StackId"`
	RequestID          string `json:"RequestId"`
	LogicalResourceID  string `json:"LogicalResourceId"`
	PhysicalResourceID string `json:"PhysicalResourceId"`
	ResourceProperties struct {
		Function, EventSources, Settle string
	}
}

// The request types.
const (
	create = "Create"
	update = "Update"
	remove = "Delete"
)

// response is the answer, as in CloudFormation's User Guide under "Custom resource
// response objects".
type response struct {
	Status             string
	Reason             string `json:",omitempty"`
	PhysicalResourceID string `json:"PhysicalResourceId"`
	StackID            string `json:"StackId"`
	RequestID          string `json:"RequestId"`
	LogicalResourceID  string `json:"LogicalResourceId"`
	Data               any    `json:",omitempty"`
}

// attributes are what a template can get of the resource.
type attributes struct{ Source, Target, Heartbeats, HeartbeatMetric, FirstRound string }

// Invoke handles a request of CloudFormation, and leaves everything else to topics.
func (r *resource) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	var q request
	if err := json.Unmarshal(payload, &q); err != nil || q.RequestType == "" || q.ResponseURL == "" {
		return r.round(ctx, payload, roundLimit)
	}
	data, err := r.serve(ctx, q)
	a := response{
		Status: "SUCCESS", Data: data,
		// An id that stays, so that no update deletes what it replaces.
		PhysicalResourceID: cmp.Or(q.PhysicalResourceID, q.StackID+"/"+q.LogicalResourceID),
		StackID:            q.StackID, RequestID: q.RequestID, LogicalResourceID: q.LogicalResourceID,
	}
	if err != nil {
		a.Status, a.Reason = "FAILED", brief(err.Error())
		r.logger.ErrorContext(ctx, "custom resource failed", "request", q.RequestType, "error", err.Error())
	}
	return nil, r.answer(context.WithoutCancel(ctx), q.ResponseURL, a)
}

// round runs topics.
func (r *resource) round(ctx context.Context, payload []byte, limit time.Duration) ([]byte, error) {
	h, err := r.ready(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return h.Invoke(ctx, payload)
}

// serve does what is asked, in the time that there is but for the answer.
func (r *resource) serve(ctx context.Context, q request) (data any, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			data, err = nil, fmt.Errorf("%s the event sources: panic: %v", strings.ToLower(q.RequestType), reason)
		}
	}()
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-answerMargin))
		defer cancel()
	}
	switch q.RequestType {
	case create, update:
		if _, err := r.ready(ctx); err != nil {
			return nil, err
		}
		beats := r.settings.EmitHeartbeats.Enabled
		d := attributes{
			Source: r.settings.Source, Target: r.settings.Target, FirstRound: "ok",
			Heartbeats:      strconv.FormatBool(beats),
			HeartbeatMetric: strconv.FormatBool(beats && r.settings.Metrics != config.MetricsOff),
		}
		// What hinders a round now may be gone in a minute: no reason to take back
		// a deployment, but to say it.
		if err := r.firstRound(ctx, q); err != nil {
			d.FirstRound = brief(err.Error())
			r.logger.WarnContext(ctx, "first round failed", "error", err.Error())
		}
		return d, nil
	case remove:
		if q.ResourceProperties.EventSources == "none" {
			return nil, nil
		}
		return nil, r.remove(ctx, q)
	default:
		return nil, fmt.Errorf("serve CloudFormation: there is no request type %q", q.RequestType)
	}
}

func (r *resource) firstRound(ctx context.Context, q request) error {
	payload, err := json.Marshal(map[string]string{"eventSources": q.ResourceProperties.EventSources})
	if err != nil {
		return err
	}
	_, err = r.round(ctx, payload, firstRoundLimit)
	return err
}

// remove deletes the mappings until there are none. The schedule of topics is gone
// by then, but a round that it has started may go on elsewhere and make one more:
// hence the settling.
func (r *resource) remove(ctx context.Context, q request) error {
	sources, err := r.sources(ctx, q.ResourceProperties.Function)
	if err != nil {
		return err
	}
	settle := defaultSettle
	if n, err := strconv.Atoi(q.ResourceProperties.Settle); err == nil {
		settle = time.Duration(n) * time.Second
	}
	settled := time.Now().Add(settle)
	for left := -1; ; {
		// The mappings' pace refuses what would come after the deadline, before it.
		if left, err = removeOnce(ctx, sources); err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if err == nil && left == 0 && !time.Now().Before(settled) {
			return nil
		}
		pause := time.NewTimer(removePause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			if left == 0 {
				return nil
			}
			return fmt.Errorf("delete the event source mappings of %s: out of time: delete the stack again for the rest", q.ResourceProperties.Function)
		}
	}
}

// removeOnce deletes the mappings that can be deleted now, and returns how many
// there were.
func removeOnce(ctx context.Context, sources remover) (int, error) {
	all, err := sources.List(ctx)
	if err != nil {
		return -1, err
	}
	for _, s := range all {
		if s.State == "Deleting" {
			continue
		}
		if err := sources.Delete(ctx, s.ID); err != nil && !errors.Is(err, mapping.ErrInUse) {
			return len(all), err
		}
	}
	return len(all), nil
}

// answer tells CloudFormation. Its URL is signed for a request without content
// type.
func (r *resource) answer(ctx context.Context, to string, a response) error {
	body, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("answer CloudFormation: %w", err)
	}
	for attempt := range answerAttempts {
		if attempt > 0 {
			time.Sleep(time.Duration(attempt) * 500 * time.Millisecond)
		}
		if err = r.put(ctx, to, body); err == nil {
			return nil
		}
	}
	return fmt.Errorf("answer CloudFormation: %w", err)
}

func (r *resource) put(ctx context.Context, to string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodPut, to, bytes.NewReader(body))
	if err != nil {
		return errors.New("its URL cannot be used")
	}
	got, err := (&http.Client{Transport: r.transport}).Do(q)
	if err != nil {
		// The URL is as good as a password, and in the text of the outer error.
		if outer, ok := errors.AsType[*url.Error](err); ok {
			return outer.Err
		}
		return err
	}
	defer got.Body.Close()
	if got.StatusCode/100 != 2 {
		return fmt.Errorf("got %s", got.Status)
	}
	return nil
}

// brief cuts a text to what fits an answer.
func brief(text string) string {
	if len(text) <= mostText {
		return text
	}
	return strings.ToValidUTF8(text[:mostText], "") + "…"
}
