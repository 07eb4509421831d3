// Package infra_test checks what no linter of templates sees, on what CloudFormation
// gets to see: template.yaml after its transform, and the stacks within the stack.
package infra_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mirrorless/localstack/samtest"
	"mirrorless/shared/cost"
)

// template is a CloudFormation template.
type template struct {
	Parameters map[string]parameter
	Rules      map[string]any
	Resources  map[string]resource
}

type parameter struct {
	Type, Description string
	Default           any
	AllowedPattern    string
}

type resource struct {
	Type                                string
	DeletionPolicy, UpdateReplacePolicy string
	DependsOn                           any
	Properties                          map[string]any
}

// show returns the templates, by path.
func show(t *testing.T) map[string]template {
	t.Helper()
	bin := samtest.Find(t)
	asked.Do(func() {
		cmd := exec.Command(filepath.Join(bin, "python"), ".ci/template.py", "show", "template.yaml")
		cmd.Dir, cmd.Env, cmd.Stderr = "..", samtest.Env(bin), os.Stderr
		answer.text, answer.err = cmd.Output()
	})
	if answer.err != nil {
		t.Fatal(answer.err)
	}
	var all map[string]template
	if err := json.Unmarshal(answer.text, &all); err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, []string{"infra/monitoring.yaml", "infra/roles.yaml", "template.yaml"}) {
		t.Fatalf("got templates %q", got)
	}
	return all
}

// The translator takes seconds, and is asked once.
var (
	asked  sync.Once
	answer struct {
		text []byte
		err  error
	}
)

// walk visits every object of a value, with its path.
func walk(at string, value any, visit func(at string, object map[string]any)) {
	switch value := value.(type) {
	case map[string]any:
		visit(at, value)
		for _, key := range slices.Sorted(maps.Keys(value)) {
			walk(at+"."+key, value[key], visit)
		}
	case []any:
		for i, element := range value {
			walk(at+"["+strconv.Itoa(i)+"]", element, visit)
		}
	}
}

// list is a value that may be one or several.
func list(value any) []any {
	if many, ok := value.([]any); ok {
		return many
	}
	return []any{value}
}

// faults are what is wrong with a template.
func faults(name string, tp template) (found []string) {
	fault := func(format string, args ...any) { found = append(found, name+": "+fmt.Sprintf(format, args...)) }
	for rule, body := range tp.Rules {
		walk(rule, body, func(at string, object map[string]any) {
			for key := range object {
				if strings.HasPrefix(key, "Fn::") && !slices.Contains(ruleFunctions, key) {
					fault("rule %s uses %s, which rules do not know", at, key)
				}
			}
		})
	}
	for parameter, p := range tp.Parameters {
		if !strings.HasSuffix(p.Description, ".") && name == "template.yaml" {
			fault("parameter %s has no description that is a sentence", parameter)
		}
		if p.AllowedPattern != "" {
			if pattern, err := regexp.Compile(p.AllowedPattern); err != nil || !pattern.MatchString(fmt.Sprint(p.Default)) {
				fault("parameter %s has a default that its pattern %s does not allow (%v)", parameter, p.AllowedPattern, err)
			}
		}
	}
	for id, r := range tp.Resources {
		walk(id, map[string]any(r.Properties), func(at string, object map[string]any) {
			if _, ok := object["Effect"]; ok && object["Principal"] == nil {
				found = append(found, statementFaults(name+": "+at, object)...)
			}
		})
		found = append(found, resourceFaults(name+": "+id, r)...)
	}
	slices.Sort(found)
	return found
}

// ruleFunctions are what CloudFormation's User Guide lists under "Rule functions";
// Fn::If, which older copies have, is refused.
var ruleFunctions = []string{
	"Fn::And", "Fn::Contains", "Fn::EachMemberEquals", "Fn::EachMemberIn", "Fn::Equals", "Fn::Not", "Fn::Or",
	"Fn::RefAll", "Fn::ValueOf", "Fn::ValueOfAll",
}

func resourceFaults(at string, r resource) (found []string) {
	fault := func(format string, args ...any) { found = append(found, at+": "+fmt.Sprintf(format, args...)) }
	p := r.Properties
	number := func(object map[string]any, key string) (int, bool) {
		n, ok := object[key].(float64)
		return int(n), ok
	}
	switch r.Type {
	case "AWS::Scheduler::Schedule":
		if text, _ := p["ScheduleExpression"].(string); !scheduleExpression.MatchString(text) {
			fault("%q is no schedule expression", text)
		}
		if window, _ := p["FlexibleTimeWindow"].(map[string]any); window["Mode"] != "OFF" {
			fault("has a flexible time window: %v", window)
		}
		target, _ := p["Target"].(map[string]any)
		retry, _ := target["RetryPolicy"].(map[string]any)
		if n, ok := number(retry, "MaximumRetryAttempts"); !ok || n != 0 {
			fault("is tried again, later than it should be")
		}
	case "AWS::Lambda::EventInvokeConfig":
		if n, ok := number(p, "MaximumRetryAttempts"); !ok || n != 0 {
			fault("an asynchronous invocation is tried again, later than it should be")
		}
	case "AWS::Lambda::EventSourceMapping":
		if n, ok := number(p, "BatchSize"); !ok || n < 1 || n > 10_000 {
			fault("has batch size %v", p["BatchSize"])
		}
		if n, ok := number(p, "MaximumBatchingWindowInSeconds"); !ok || n < 0 || n > 300 {
			fault("has window %v", p["MaximumBatchingWindowInSeconds"])
		}
		if p["StartingPosition"] != "TRIM_HORIZON" && p["StartingPosition"] != "AT_TIMESTAMP" {
			fault("starts at %v", p["StartingPosition"])
		}
		if topics, _ := p["Topics"].([]any); len(topics) != 1 {
			fault("has topics %v", p["Topics"])
		}
		for _, not := range []string{"DestinationConfig", "FilterCriteria"} {
			if p[not] != nil {
				fault("has a %s", not)
			}
		}
		pollers, _ := p["ProvisionedPollerConfig"].(map[string]any)
		least, hasLeast := number(pollers, "MinimumPollers")
		most, hasMost := number(pollers, "MaximumPollers")
		if hasLeast && hasMost && least > most {
			fault("has %d pollers at least and %d at most", least, most)
		}
		for _, kind := range []string{"AmazonManagedKafkaEventSourceConfig", "SelfManagedKafkaEventSourceConfig"} {
			config, ok := p[kind].(map[string]any)
			if ok && config["ConsumerGroupId"] == nil {
				fault("has no consumer group of its own")
			}
			if config["SchemaRegistryConfig"] != nil {
				fault("has a schema registry")
			}
		}
	case "AWS::DynamoDB::Table":
		if r.DeletionPolicy != "Retain" && r.DeletionPolicy != "RetainExceptOnCreate" || r.UpdateReplacePolicy != "Retain" {
			fault("is not retained: %q, %q", r.DeletionPolicy, r.UpdateReplacePolicy)
		}
		if p["BillingMode"] != "PAY_PER_REQUEST" {
			fault("costs while idle: %v", p["BillingMode"])
		}
		if recovery, _ := p["PointInTimeRecoverySpecification"].(map[string]any); recovery["PointInTimeRecoveryEnabled"] != true {
			fault("has no point-in-time recovery")
		}
		if encryption, _ := p["SSESpecification"].(map[string]any); encryption["SSEEnabled"] != true {
			fault("is not encrypted")
		}
	case "AWS::Logs::LogGroup":
		if p["RetentionInDays"] == nil {
			fault("is kept for ever")
		}
	case "AWS::Lambda::Function":
		if p["Runtime"] != "provided.al2023" || p["Handler"] != "bootstrap" {
			fault("runs %v of %v", p["Handler"], p["Runtime"])
		}
		if n, ok := number(p, "Timeout"); !ok || n > 900 || strings.HasSuffix(at, "MirrorFunction") && n > 14*60 {
			fault("has time-out %v", p["Timeout"]) // Lambda's Kafka event sources take fourteen minutes
		}
		if p["LoggingConfig"] == nil {
			fault("logs into a group without retention")
		}
	case "AWS::IAM::Role":
		for _, policy := range list(p["ManagedPolicyArns"]) {
			if text, ok := policy.(string); ok {
				fault("has %s, which is somebody else's", text)
			}
		}
	}
	return found
}

// scheduleExpression is what EventBridge Scheduler's User Guide says of rates.
var scheduleExpression = regexp.MustCompile(`^rate\((1 (minute|hour|day)|([2-9]|[1-9]\d+) (minutes|hours|days))\)$`)

// reads are actions that change nothing.
var reads = regexp.MustCompile(`^(ec2:Describe|lambda:(Get|List))`)

// statementFaults are what is wrong with a statement of a policy.
func statementFaults(at string, statement map[string]any) (found []string) {
	everything := slices.Contains(list(statement["Resource"]), any("*"))
	for _, action := range list(statement["Action"]) {
		name, _ := action.(string)
		switch {
		case strings.Contains(name, "*") || name == "":
			found = append(found, fmt.Sprintf("%s allows %v", at, action))
		case !everything || reads.MatchString(name):
		case slices.Contains(interfaces, name):
		case name == "lambda:CreateEventSourceMapping" && conditioned(statement):
		default:
			found = append(found, fmt.Sprintf("%s allows %s on everything", at, name))
		}
		if strings.HasPrefix(name, "lambda:") && strings.HasSuffix(name, "EventSourceMapping") && !reads.MatchString(name) && !conditioned(statement) {
			found = append(found, fmt.Sprintf("%s allows %s for every function", at, name))
		}
	}
	if statement["NotAction"] != nil || statement["NotResource"] != nil {
		found = append(found, at+" says what is not meant")
	}
	return found
}

// interfaces are what Lambda does with a role to attach a function to a VPC; none of
// them can be limited to what is not there yet.
var interfaces = []string{
	"ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface", "ec2:AssignPrivateIpAddresses", "ec2:UnassignPrivateIpAddresses",
}

// conditioned says whether a statement is for one function only.
func conditioned(statement map[string]any) bool {
	condition, _ := statement["Condition"].(map[string]any)
	like, _ := condition["ArnLike"].(map[string]any)
	arn, _ := like["lambda:FunctionArn"].(map[string]any)
	text, _ := arn["Fn::Sub"].(string)
	return strings.HasSuffix(text, ":function:${Name}-mirror")
}

func TestTheTemplatesHaveNoFaults(t *testing.T) {
	for name, tp := range show(t) {
		for _, fault := range faults(name, tp) {
			t.Error(fault)
		}
	}
}

func TestOnlyTopicsMayCallTheLambdaAPI(t *testing.T) {
	var got []string
	for name, tp := range show(t) {
		for id, r := range tp.Resources {
			walk(id, map[string]any(r.Properties), func(_ string, object map[string]any) {
				if object["Effect"] == nil || object["Principal"] != nil {
					return
				}
				for _, action := range list(object["Action"]) {
					if text, _ := action.(string); strings.HasPrefix(text, "lambda:") {
						got = append(got, name+" "+id+" "+text)
					}
				}
			})
		}
	}
	slices.Sort(got)
	want := []string{
		"infra/roles.yaml ScheduleRole lambda:InvokeFunction",
		"infra/roles.yaml TopicsRole lambda:CreateEventSourceMapping",
		"infra/roles.yaml TopicsRole lambda:DeleteEventSourceMapping",
		"infra/roles.yaml TopicsRole lambda:GetEventSourceMapping",
		"infra/roles.yaml TopicsRole lambda:ListEventSourceMappings",
		"infra/roles.yaml TopicsRole lambda:UpdateEventSourceMapping",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights on Lambda's API (-want +got):\n%s", diff)
	}
}

func TestEachFunctionHasItsOwnRoleAndLog(t *testing.T) {
	all := show(t)
	for _, name := range []string{"Topics", "Mirror", "Heartbeat", "Checkpoint"} {
		p := all["template.yaml"].Resources[name+"Function"].Properties
		if diff := cmp.Diff(map[string]any{"Fn::GetAtt": []any{"Roles", "Outputs." + name + "RoleArn"}}, p["Role"]); diff != "" {
			t.Errorf("role of %s (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(map[string]any{"LogGroup": map[string]any{"Ref": name + "Logs"}}, p["LoggingConfig"]); diff != "" {
			t.Errorf("logs of %s (-want +got):\n%s", name, diff)
		}
		role, err := json.Marshal(all["infra/roles.yaml"].Resources[name+"Role"].Properties)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(role), ":log-group:/aws/lambda/${Name}-"+strings.ToLower(name)+":*"); n != 1 || strings.Count(string(role), ":log-group:") != 1 {
			t.Errorf("role of %s may write other logs than its own", name)
		}
	}
}

func TestInnerStacksGetTheParametersThatTheyHave(t *testing.T) {
	all := show(t)
	for id, r := range all["template.yaml"].Resources {
		if r.Type != "AWS::CloudFormation::Stack" {
			continue
		}
		_, path, _ := strings.Cut(fmt.Sprint(r.Properties["TemplateURL"]), ".com/")
		given, _ := r.Properties["Parameters"].(map[string]any)
		if diff := cmp.Diff(slices.Sorted(maps.Keys(all[path].Parameters)), slices.Sorted(maps.Keys(given))); diff != "" {
			t.Errorf("parameters of %s in %s (-has +gets):\n%s", id, path, diff)
		}
	}
}

// docs/cost.md counts with these.
func TestCostsAreOfWhatTheTemplatesMake(t *testing.T) {
	all := show(t)
	memory := func(function string) string {
		return fmt.Sprint(all["template.yaml"].Resources[function].Properties["MemorySize"])
	}
	alarms := 0
	for _, r := range all["infra/monitoring.yaml"].Resources {
		if r.Type == "AWS::CloudWatch::Alarm" {
			alarms++
		}
	}
	got := []string{
		fmt.Sprint(all["template.yaml"].Parameters["MirrorMemory"].Default),
		memory("TopicsFunction"), memory("CheckpointFunction"), memory("HeartbeatFunction"), fmt.Sprint(alarms),
	}
	want := []string{
		fmt.Sprint(cost.DefaultMemory),
		fmt.Sprint(cost.ScheduledMemory), fmt.Sprint(cost.ScheduledMemory), fmt.Sprint(cost.HeartbeatMemory), fmt.Sprint(cost.Measured().Alarms),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("memory of mirror, topics, checkpoint and heartbeat, and alarms (-shared/cost +templates):\n%s", diff)
	}
}

func TestTheScheduleOfTopicsIsDeletedBeforeTheMappings(t *testing.T) {
	if got := show(t)["template.yaml"].Resources["TopicsSchedule"].DependsOn; fmt.Sprint(got) != "EventSources" {
		t.Errorf("got DependsOn %v, want EventSources: a round would make the mappings again", got)
	}
}

func TestTheDashboardIsJSON(t *testing.T) {
	body, _ := show(t)["infra/monitoring.yaml"].Resources["Graphs"].Properties["DashboardBody"].(map[string]any)
	text, _ := body["Fn::Sub"].(string)
	var dashboard struct {
		Widgets []struct {
			Type       string
			Properties struct {
				Title   string
				Metrics [][]any
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, w := range dashboard.Widgets {
		if w.Properties.Title == "" || len(w.Properties.Metrics) == 0 {
			t.Errorf("got a widget without title or metrics: %+v", w)
		}
	}
}

// A check that finds nothing may be one that looks nowhere.
func TestFaultsAreFound(t *testing.T) {
	good := show(t)
	for want, spoil := range map[string]func(map[string]template){
		`"rate(1 minutes)" is no schedule expression`: func(all map[string]template) {
			all["template.yaml"].Resources["TopicsSchedule"].Properties["ScheduleExpression"] = "rate(1 minutes)"
		},
		"TopicsSchedule: has a flexible time window": func(all map[string]template) {
			delete(all["template.yaml"].Resources["TopicsSchedule"].Properties, "FlexibleTimeWindow")
		},
		"HeartbeatSchedule: is tried again": func(all map[string]template) {
			delete(all["template.yaml"].Resources["HeartbeatSchedule"].Properties["Target"].(map[string]any), "RetryPolicy")
		},
		"MSKEventSource: has 5 pollers at least and 2 at most": func(all map[string]template) {
			all["template.yaml"].Resources["MSKEventSource"].Properties["ProvisionedPollerConfig"] = map[string]any{"MinimumPollers": 5.0, "MaximumPollers": 2.0}
		},
		"MSKEventSource: has window 301": func(all map[string]template) {
			all["template.yaml"].Resources["MSKEventSource"].Properties["MaximumBatchingWindowInSeconds"] = 301.0
		},
		"SelfManagedEventSource: starts at LATEST": func(all map[string]template) {
			all["template.yaml"].Resources["SelfManagedEventSource"].Properties["StartingPosition"] = "LATEST"
		},
		"MSKEventSource: has a DestinationConfig": func(all map[string]template) {
			all["template.yaml"].Resources["MSKEventSource"].Properties["DestinationConfig"] = map[string]any{}
		},
		"Table: is not retained": func(all map[string]template) {
			r := all["template.yaml"].Resources["Table"]
			r.DeletionPolicy = "Delete"
			all["template.yaml"].Resources["Table"] = r
		},
		"Table: has no point-in-time recovery": func(all map[string]template) {
			delete(all["template.yaml"].Resources["Table"].Properties, "PointInTimeRecoverySpecification")
		},
		"Table: is not encrypted": func(all map[string]template) {
			delete(all["template.yaml"].Resources["Table"].Properties, "SSESpecification")
		},
		"SelfManagedEventSource: has topics": func(all map[string]template) {
			all["template.yaml"].Resources["SelfManagedEventSource"].Properties["Topics"] = []any{"a", "b"}
		},
		"SelfManagedEventSource: has no consumer group of its own": func(all map[string]template) {
			delete(all["template.yaml"].Resources["SelfManagedEventSource"].Properties["SelfManagedKafkaEventSourceConfig"].(map[string]any), "ConsumerGroupId")
		},
		"MSKEventSource: has batch size 0": func(all map[string]template) {
			all["template.yaml"].Resources["MSKEventSource"].Properties["BatchSize"] = 0.0
		},
		"an asynchronous invocation is tried again": func(all map[string]template) {
			all["template.yaml"].Resources["TopicsFunctionEventInvokeConfig"].Properties["MaximumRetryAttempts"] = 2.0
		},
		"MirrorFunction: logs into a group without retention": func(all map[string]template) {
			delete(all["template.yaml"].Resources["MirrorFunction"].Properties, "LoggingConfig")
		},
		"Table: costs while idle": func(all map[string]template) {
			all["template.yaml"].Resources["Table"].Properties["BillingMode"] = "PROVISIONED"
		},
		"MirrorFunction: has time-out 900": func(all map[string]template) {
			all["template.yaml"].Resources["MirrorFunction"].Properties["Timeout"] = 900.0
		},
		"TopicsLogs: is kept for ever": func(all map[string]template) {
			delete(all["template.yaml"].Resources["TopicsLogs"].Properties, "RetentionInDays")
		},
		"uses Fn::Join, which rules do not know": func(all map[string]template) {
			all["template.yaml"].Rules["VpcIsWhole"] = map[string]any{"Assertions": []any{map[string]any{"Assert": map[string]any{"Fn::Join": []any{}}}}}
		},
		"allows dynamodb:PutItem on everything": func(all map[string]template) {
			all["infra/roles.yaml"].Resources["TablePolicy"].Properties["PolicyDocument"].(map[string]any)["Statement"].([]any)[0].(map[string]any)["Resource"] = "*"
		},
		"allows dynamodb:*": func(all map[string]template) {
			all["infra/roles.yaml"].Resources["TablePolicy"].Properties["PolicyDocument"].(map[string]any)["Statement"].([]any)[0].(map[string]any)["Action"] = "dynamodb:*"
		},
		"allows lambda:CreateEventSourceMapping on everything": func(all map[string]template) {
			walk("", all["infra/roles.yaml"].Resources["TopicsRole"].Properties, func(_ string, object map[string]any) { delete(object, "Condition") })
		},
		"allows lambda:DeleteEventSourceMapping for every function": func(all map[string]template) {
			walk("", all["infra/roles.yaml"].Resources["TopicsRole"].Properties, func(_ string, object map[string]any) { delete(object, "Condition") })
		},
		"MirrorRole: has arn:aws:iam::aws:policy/AdministratorAccess": func(all map[string]template) {
			all["infra/roles.yaml"].Resources["MirrorRole"].Properties["ManagedPolicyArns"] = []any{"arn:aws:iam::aws:policy/AdministratorAccess"}
		},
		"parameter Flow has a default": func(all map[string]template) {
			all["template.yaml"].Parameters["Flow"] = parameter{Description: "The flow.", Default: "A", AllowedPattern: "->"}
		},
	} {
		t.Run(want, func(t *testing.T) {
			text, err := json.Marshal(good)
			if err != nil {
				t.Fatal(err)
			}
			var all map[string]template
			if err := json.Unmarshal(text, &all); err != nil {
				t.Fatal(err)
			}
			spoil(all)
			var got []string
			for name, tp := range all {
				got = append(got, faults(name, tp)...)
			}
			if !slices.ContainsFunc(got, func(fault string) bool { return strings.Contains(fault, want) }) {
				t.Errorf("got faults %q, want one with %q", got, want)
			}
		})
	}
}

// "make template" has the linter.
func TestSAMValidatesWithoutNetworkAndAccount(t *testing.T) {
	bin := samtest.Find(t)
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "sam"), "validate", "--region", "us-east-1")
	cmd.Dir, cmd.Env = "..", offline(bin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("sam validate: %v\n%s", err, out)
	}
}

// offline is an environment from which nobody is reached, and which has no AWS
// account.
func offline(bin string) []string {
	env := slices.DeleteFunc(samtest.Env(bin), func(variable string) bool {
		return strings.HasPrefix(variable, "AWS_") && !strings.HasPrefix(variable, "AWS_EC2_METADATA")
	})
	const nobody = "http://127.0.0.1:9"
	return append(env, "http_proxy="+nobody, "https_proxy="+nobody, "HTTP_PROXY="+nobody, "HTTPS_PROXY="+nobody, "GOPROXY=off", "HOME="+os.Getenv("HOME"))
}
