package eventsource

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// commit commits what was acknowledged, as soon as it is, and all there is at
// once: invocations do not wait for it.
func (m *Mapping) commit() {
	for {
		if m.wait(m.ctx, m.wantsCommit) != nil {
			return
		}
		err := m.commitOnce()
		if err != nil && m.ctx.Err() == nil {
			_ = pause(m.ctx, 500*time.Millisecond)
		}
	}
}

// wantsCommit also begins a commit, where there is one to be made. It needs m.mu.
func (m *Mapping) wantsCommit() bool {
	m.committing = !m.rebalancing && !m.allCommitted()
	return m.committing
}

// allCommitted needs m.mu.
func (m *Mapping) allCommitted() bool {
	for _, p := range m.partition {
		if p.dirty() {
			return false
		}
	}
	return true
}

func (m *Mapping) commitOnce() error {
	offsets := make(map[int32]kgo.EpochOffset)
	sent := make(map[*partition]int64)
	m.mu.Lock()
	for _, p := range m.partition {
		if p.dirty() {
			offsets[p.number] = kgo.EpochOffset{Epoch: p.epoch, Offset: p.next}
			sent[p] = p.next
		}
	}
	m.mu.Unlock()
	var result error
	refused := make(map[int32]error)
	m.client.CommitOffsetsSync(m.ctx, map[string]map[int32]kgo.EpochOffset{m.o.Topic: offsets},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, err error) {
			if result = err; err != nil {
				return
			}
			for _, t := range response.Topics {
				for _, p := range t.Partitions {
					if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
						refused[p.Partition] = err
						result = err
					}
				}
			}
		})
	m.mu.Lock()
	defer m.mu.Unlock()
	for p, offset := range sent {
		if result == nil || len(refused) > 0 && refused[p.number] == nil {
			p.committed = offset
			if m.begun != nil && !p.gone {
				m.begun[p.number] = true
			}
		}
	}
	if result != nil {
		result = fmt.Errorf("commit offsets of group %s: %w", m.o.Group, result)
		m.trouble.last = time.Now()
	}
	m.committing, m.trouble.commit = false, result
	switch {
	case m.ctx.Err() != nil:
	case m.trouble.committing.tell(result):
		m.log.Warn("committing fails", "error", result)
	case result == nil && m.trouble.committing.end():
		m.log.Info("commits again")
	}
	m.wake()
	return result
}
