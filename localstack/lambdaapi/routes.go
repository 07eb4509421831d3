package lambdaapi

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// mostItems is how many mappings a page has, whatever is asked for.
const mostItems = 100

func (a *API) create(r *http.Request) (int, any, error) {
	var s settings
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
		return 0, nil, invalid("Could not parse request body into json: %v", err)
	}
	function, err := a.functionARN(s.FunctionName)
	if err != nil {
		return 0, nil, err
	}
	id := newUUID()
	m := Mapping{
		UUID: id, FunctionArn: function,
		EventSourceMappingArn:               fmt.Sprintf("arn:aws:lambda:%s:%s:event-source-mapping:%s", a.o.Region, a.o.Account, id),
		EventSourceArn:                      s.EventSourceArn,
		AmazonManagedKafkaEventSourceConfig: s.AmazonManagedKafkaEventSourceConfig,
		SelfManagedEventSource:              s.SelfManagedEventSource,
		SelfManagedKafkaEventSourceConfig:   s.SelfManagedKafkaEventSourceConfig,
		Topics:                              s.Topics,
		StartingPosition:                    s.StartingPosition,
		StartingPositionTimestamp:           s.StartingPositionTimestamp,
		BatchSize:                           100,
		LastProcessingResult:                "No records processed",
	}
	s.apply(&m)
	if err := check(m); err != nil {
		return 0, nil, err
	}
	// Without a group of its own, a mapping's group is its UUID.
	switch {
	case m.Group() != "":
	case m.EventSourceArn != "":
		m.AmazonManagedKafkaEventSourceConfig = &KafkaConfig{ConsumerGroupID: id}
	default:
		m.SelfManagedKafkaEventSourceConfig = &KafkaConfig{ConsumerGroupID: id}
	}
	// As Lambda does with the servers.
	slices.Sort(m.servers())

	a.mu.Lock()
	if err := a.unique(m); err != nil {
		a.mu.Unlock()
		return 0, nil, err
	}
	a.made++
	e := &entry{Mapping: m, number: a.made, enabled: s.Enabled == nil || *s.Enabled}
	a.become(e, Creating)
	a.mappings[id] = e
	now := e.clone()
	a.mu.Unlock()
	a.settle(e)
	return http.StatusAccepted, now, nil
}

// unique refuses a second mapping of a topic to a function, and a second one with
// a group, while the first one is there. It needs a.mu.
func (a *API) unique(m Mapping) error {
	for _, e := range a.mappings {
		switch {
		case e.Topic() == m.Topic() && e.FunctionArn == m.FunctionArn && e.source() == m.source():
			return conflict("An event source mapping with event source (%q), function (%q) and topics (%q) already exists. Please update or delete the existing mapping with UUID %s", m.source(), m.FunctionArn, m.Topic(), e.UUID)
		case e.Group() == m.Group():
			return conflict("An event source mapping with consumer group (%q) already exists. Please update or delete the existing mapping with UUID %s", m.Group(), e.UUID)
		}
	}
	return nil
}

func (a *API) list(r *http.Request) (int, any, error) {
	query := r.URL.Query()
	function := query.Get("FunctionName")
	if function != "" {
		var err error
		if function, err = a.functionARN(function); err != nil {
			return 0, nil, err
		}
	}
	most := mostItems
	if v := query.Get("MaxItems"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > 10_000 {
			return 0, nil, invalid("MaxItems %q is not within 1 and 10000.", v)
		}
		most = min(n, mostItems)
	}
	// A marker is the number of the last one that was shown: what comes and goes
	// between two pages moves nothing.
	after := 0
	if v := query.Get("Marker"); v != "" {
		var err error
		if after, err = strconv.Atoi(strings.TrimPrefix(v, "after-")); err != nil {
			return 0, nil, invalid("Invalid Marker.")
		}
	}
	page := struct {
		EventSourceMappings []Mapping
		NextMarker          string `json:",omitempty"`
	}{EventSourceMappings: []Mapping{}}
	a.mu.Lock()
	defer a.mu.Unlock()
	inOrder := slices.SortedFunc(maps.Values(a.mappings), func(a, b *entry) int { return cmp.Compare(a.number, b.number) })
	last := 0
	for _, e := range inOrder {
		switch {
		case e.number <= after,
			function != "" && e.FunctionArn != function,
			query.Get("EventSourceArn") != "" && e.EventSourceArn != query.Get("EventSourceArn"):
			continue
		}
		if len(page.EventSourceMappings) == most {
			page.NextMarker = "after-" + strconv.Itoa(last)
			break
		}
		page.EventSourceMappings = append(page.EventSourceMappings, e.clone())
		last = e.number
	}
	return http.StatusOK, page, nil
}

func (a *API) get(r *http.Request) (int, any, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.mappings[r.PathValue("uuid")]
	if e == nil {
		return 0, nil, notFound()
	}
	return http.StatusOK, e.clone(), nil
}

func (a *API) update(r *http.Request) (int, any, error) {
	var s settings
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
		return 0, nil, invalid("Could not parse request body into json: %v", err)
	}
	e, now, err := a.change(r.PathValue("uuid"), s)
	if err != nil {
		return 0, nil, err
	}
	a.settle(e)
	return http.StatusAccepted, now, nil
}

func (a *API) change(uuid string, s settings) (*entry, Mapping, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.mappings[uuid]
	switch {
	case e == nil:
		return nil, Mapping{}, notFound()
	case !e.settled():
		return nil, Mapping{}, inUse("update")
	}
	changed := e.clone()
	s.apply(&changed)
	if s.FunctionName != "" {
		var err error
		if changed.FunctionArn, err = a.functionARN(s.FunctionName); err != nil {
			return nil, Mapping{}, err
		}
	}
	if err := check(changed); err != nil {
		return nil, Mapping{}, err
	}
	e.Mapping = changed
	was := e.enabled
	if s.Enabled != nil {
		e.enabled = *s.Enabled
	}
	switch {
	case e.enabled && !was:
		a.become(e, Enabling)
	case !e.enabled && was:
		a.become(e, Disabling)
	default:
		a.become(e, Updating)
	}
	return e, e.clone(), nil
}

func (a *API) delete(r *http.Request) (int, any, error) {
	e, now, err := a.remove(r.PathValue("uuid"))
	if err != nil {
		return 0, nil, err
	}
	a.settle(e)
	return http.StatusAccepted, now, nil
}

func (a *API) remove(uuid string) (*entry, Mapping, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.mappings[uuid]
	switch {
	case e == nil:
		return nil, Mapping{}, notFound()
	case !e.settled():
		return nil, Mapping{}, inUse("delete")
	}
	a.become(e, Deleting)
	return e, e.clone(), nil
}

// functionARN completes what a request calls a function: a name, with or without
// a qualifier, a part of an ARN, or all of it.
func (a *API) functionARN(name string) (string, error) {
	parts := strings.Split(name, ":")
	switch {
	case name == "":
		return "", invalid("FunctionName is required.")
	case strings.HasPrefix(name, "arn:"):
		if len(parts) < 7 || parts[2] != "lambda" || parts[5] != "function" {
			return "", invalid("%q is not the ARN of a function.", name)
		}
		return name, nil
	case len(parts) >= 3 && parts[1] == "function":
		return fmt.Sprintf("arn:aws:lambda:%s:%s", a.o.Region, name), nil
	default:
		return fmt.Sprintf("arn:aws:lambda:%s:%s:function:%s", a.o.Region, a.o.Account, name), nil
	}
}

// newUUID returns a random UUID (RFC 9562, version 4).
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
