package eventsource

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// trouble is what hinders the mapping as a whole. The client tells only of what
// goes wrong: while a topic is idle, no fetch says that all is well again. What
// does is the group's next session, and an error that is not repeated while the
// cluster answers. All of it is guarded by Mapping.mu.
type trouble struct {
	locate error // why there are no partitions
	group  error // why there is no session of the group
	commit error
	// fetch is by partition, wholeTopic for all.
	fetch map[int32]fetchFailure
	// last is when something was noted.
	last time.Time

	reading, committing alarm
}

type fetchFailure struct {
	err error
	at  time.Time
	// once: the client does not fetch the partition any more, and will not
	// repeat the error.
	once bool
}

const wholeTopic int32 = -1

// quiet is how long a failing fetch may be silent before it counts as over.
// Metadata is read, and its errors are told, at least every 30 seconds.
const quiet = 40 * time.Second

// heed notes what a poll says of errors, and returns those of this poll.
func (m *Mapping) heed(fetches kgo.Fetches) error {
	now := time.Now()
	var errs []error
	m.mu.Lock()
	defer m.mu.Unlock()
	fetches.EachTopic(func(t kgo.FetchTopic) {
		for _, p := range t.Partitions {
			if p.Err == nil {
				delete(m.trouble.fetch, p.Partition)
				delete(m.trouble.fetch, wholeTopic)
				continue
			}
			m.trouble.last = now
			if session, ok := errors.AsType[*kgo.ErrGroupSession](p.Err); ok {
				m.trouble.group = fmt.Errorf("read %s: %w", m.o.Topic, session)
				errs = append(errs, m.trouble.group)
				continue
			}
			number, where := wholeTopic, m.o.Topic
			if t.Topic != "" && p.Partition >= 0 {
				number, where = p.Partition, fmt.Sprintf("%s-%d", m.o.Topic, p.Partition)
			}
			err := fmt.Errorf("fetch %s: %w", where, p.Err)
			m.trouble.fetch[number] = fetchFailure{err: err, at: now, once: once(t.TopicID, p)}
			errs = append(errs, err)
		}
	})
	err := errors.Join(errs...)
	if m.trouble.reading.tell(err) {
		m.log.Warn("reading fails", "error", err)
	}
	m.readsAgain()
	return err
}

// once reports errors that come once, because the partition is given up: of the
// group's offset, which are not of a fetch and so without a topic id, and of a
// batch too large to be decompressed.
func once(id [16]byte, p kgo.FetchPartition) bool {
	_, large := errors.AsType[*kgo.ErrDecompressTooLarge](p.Err)
	_, refused := errors.AsType[*kerr.Error](p.Err)
	return large || refused && !kerr.IsRetriable(p.Err) && id == [16]byte{} && p.Partition >= 0
}

// inSession is called at the begin of a session of the group, with the new
// partitions. It needs m.mu.
func (m *Mapping) inSession(numbers []int32) {
	m.trouble.group = nil
	for _, number := range numbers {
		delete(m.trouble.fetch, number)
	}
	m.readsAgain()
}

// silent reports fetches that failed and were not heard of since. It needs m.mu.
func (t *trouble) silent(now time.Time) bool {
	for _, f := range t.fetch {
		if !f.once && now.Sub(f.at) >= quiet {
			return true
		}
	}
	return false
}

// located is called with the cluster's answer to where the partitions end. It
// needs m.mu.
func (m *Mapping) located(err error, now time.Time) {
	if err == nil {
		maps.DeleteFunc(m.trouble.fetch, func(_ int32, f fetchFailure) bool { return !f.once && now.Sub(f.at) >= quiet })
	}
	if len(m.partition) > 0 || m.ctx.Err() != nil {
		err = nil // the fetches tell
	}
	if m.trouble.locate = err; err != nil {
		m.trouble.last = now
		if m.trouble.reading.tell(err) {
			m.log.Warn("no partitions to read", "error", err)
		}
	}
	m.readsAgain()
}

// readsAgain says so where that is news. It needs m.mu.
func (m *Mapping) readsAgain() {
	t := &m.trouble
	if t.locate == nil && t.group == nil && len(t.fetch) == 0 && t.reading.end() {
		m.log.Info("reads again")
	}
}

// error is all of it, nil for none. It needs m.mu.
func (m *Mapping) error() error {
	t := &m.trouble
	errs := []error{t.locate, t.group}
	for _, number := range slices.Sorted(maps.Keys(t.fetch)) {
		errs = append(errs, t.fetch[number].err)
	}
	if !m.allCommitted() { // else what could not be committed has gone elsewhere
		errs = append(errs, t.commit)
	}
	return errors.Join(errs...)
}

// alarm tells each kind of failure once until its end: an outage repeats a few
// messages every second, in turn and with the address of another broker.
type alarm struct{ told map[string]bool }

// tell reports whether an error, which may be joined of several, has news.
func (a *alarm) tell(err error) (news bool) {
	if err == nil {
		return false
	}
	for line := range strings.Lines(err.Error()) {
		k := kind(line)
		if !a.told[k] {
			news = true
			if a.told == nil {
				a.told = make(map[string]bool)
			}
			a.told[k] = true
		}
	}
	return news
}

// end reports whether there was anything to be ended.
func (a *alarm) end() bool {
	rang := len(a.told) > 0
	a.told = nil
	return rang
}

var (
	addresses = regexp.MustCompile(`(\[[0-9a-fA-F:.%]+\]|[\w.-]+):\d+(->)?`)
	numbers   = regexp.MustCompile(`\d+`)
)

// kind is an error's text without what changes from one time to the next.
func kind(text string) string {
	text = addresses.ReplaceAllString(strings.TrimSpace(text), "@")
	return numbers.ReplaceAllString(text, "0")
}
