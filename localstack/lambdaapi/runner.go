package lambdaapi

import "time"

// Runner makes mappings work. Calls for one mapping do not overlap; those for
// different ones do. A mapping stays in its passing state for as long as a call
// takes.
type Runner interface {
	// Run runs a mapping as it is now, from where its group is: it starts it, or
	// replaces what it runs under this UUID. An error shows as the mapping's
	// LastProcessingResult.
	Run(m Mapping) error
	// Stop ends what runs under a UUID, after what is in flight, and deletes
	// nothing of its group. To stop what does not run is no error.
	Stop(uuid string) error
}

// Report sets a mapping's LastProcessingResult: "OK", "No records processed", or
// "PROBLEM: …". A mapping that is gone takes no notice.
func (a *API) Report(uuid, result string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.mappings[uuid]; e != nil {
		e.LastProcessingResult = result
	}
}

// The states of a mapping.
const (
	Creating  = "Creating"
	Enabling  = "Enabling"
	Enabled   = "Enabled"
	Updating  = "Updating"
	Disabling = "Disabling"
	Disabled  = "Disabled"
	Deleting  = "Deleting"
)

// entry is a mapping and what becomes of it.
type entry struct {
	Mapping
	number  int // in the order of creation
	enabled bool
}

func (e *entry) settled() bool { return e.State == Enabled || e.State == Disabled }

// become puts a mapping into a passing state. It needs a.mu.
func (a *API) become(e *entry, state string) {
	e.State = state
	e.StateTransitionReason = "USER_INITIATED"
	e.LastModified = Epoch{time.Now()}
}

// settle brings a mapping from its passing state to the settled one: at once, or
// after the delay.
func (a *API) settle(e *entry) {
	if a.o.Delay == 0 {
		a.arrive(e)
		return
	}
	a.work.Go(func() {
		timer := time.NewTimer(a.o.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
			a.arrive(e)
		case <-a.ctx.Done():
		}
	})
}

func (a *API) arrive(e *entry) {
	a.mu.Lock()
	m, enabled, gone := e.clone(), e.enabled, e.State == Deleting
	a.mu.Unlock()
	var err error
	if a.o.Runner != nil {
		if enabled && !gone {
			err = a.o.Runner.Run(m)
		} else {
			err = a.o.Runner.Stop(m.UUID)
		}
	}
	if err != nil {
		a.o.Logger.Warn("event source mapping has a problem", "uuid", m.UUID, "topic", m.Topic(), "error", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case gone:
		delete(a.mappings, m.UUID)
		return
	case enabled:
		e.State = Enabled
	default:
		e.State = Disabled
	}
	if err != nil {
		e.LastProcessingResult = "PROBLEM: " + err.Error()
	}
	e.LastModified = Epoch{time.Now()}
}
