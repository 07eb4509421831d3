package topics

import (
	"context"
	"errors"
	"fmt"

	"mirrorless/shared/state"
)

// ErrSameCluster is returned when both aliases of a flow are one cluster: it would
// copy its topics into itself.
var ErrSameCluster = errors.New("both aliases are one and the same cluster")

// ErrForeignState is returned when the store belongs to another flow: a table
// serves one.
var ErrForeignState = errors.New("the state belongs to another flow")

// ClusterChangedError is returned when an alias stands for another cluster than
// the one that the state describes.
type ClusterChangedError struct {
	Alias string
	// Source: it is the flow's source, else its target.
	Source      bool
	Stored, Now string // cluster ids
}

func (e *ClusterChangedError) Error() string {
	msg := fmt.Sprintf("cluster %s is another one than before (cluster id %s, was %s): ", e.Alias, e.Now, e.Stored)
	if e.Source {
		return msg + "its offsets have nothing to do with the positions in the state, so records would be skipped or copied out of place; " +
			"point the alias back, or start anew with an empty state"
	}
	return msg + "nothing of what the state calls copied is on it, and it would not be copied again; " +
		"point the alias back, or start anew with an empty state, which copies everything that the source still holds"
}

// checkFlow compares the flow's row with the clusters. A row of version 0 is none.
func (r rules) checkFlow(row state.FlowRow, source, target view) error {
	s := r.settings
	if source.id != "" && source.id == target.id {
		return fmt.Errorf("%s and %s, cluster id %s: %w", s.Source, s.Target, source.id, ErrSameCluster)
	}
	if row.Version == 0 {
		return nil
	}
	if row.Flow != s.Flow {
		return fmt.Errorf("%s: %w, %s", s.Flow, ErrForeignState, row.Flow)
	}
	var errs []error
	if row.SourceClusterID != "" && source.id != "" && row.SourceClusterID != source.id {
		errs = append(errs, &ClusterChangedError{Alias: s.Source, Source: true, Stored: row.SourceClusterID, Now: source.id})
	}
	if row.TargetClusterID != "" && target.id != "" && row.TargetClusterID != target.id {
		errs = append(errs, &ClusterChangedError{Alias: s.Target, Stored: row.TargetClusterID, Now: target.id})
	}
	return errors.Join(errs...)
}

// complete is the row with what it lacks but for the producer id. It is equal to
// row where nothing is to be written.
func (r rules) complete(row state.FlowRow, o observation) state.FlowRow {
	if row.Version == 0 {
		row = state.FlowRow{Flow: r.settings.Flow, ProducerID: state.NoProducerID, Created: o.now}
	}
	if row.SourceClusterID == "" {
		row.SourceClusterID = o.source.id
	}
	if row.TargetClusterID == "" {
		row.TargetClusterID = o.target.id
	}
	return row
}

// settleFlow returns the flow's row with a producer id, and writes it where it is
// new. Who loses a race for it takes the winner's: a second producer id would be
// a second writer.
func (t *Topics) settleFlow(ctx context.Context, o observation) (state.FlowRow, error) {
	row := o.flow
	for {
		next := t.rules.complete(row, o)
		if next == row && next.ProducerID != state.NoProducerID {
			return row, nil
		}
		if next.ProducerID == state.NoProducerID {
			id, err := t.Log.NewProducer(ctx)
			if err != nil {
				return row, err
			}
			next.ProducerID = id
		}
		stored, err := t.Store.PutFlow(ctx, next)
		if err == nil {
			return stored, nil
		}
		if !errors.Is(err, state.ErrConflict) {
			return row, fmt.Errorf("store the flow: %w", err)
		}
		if row, err = t.Store.Flow(ctx); err != nil {
			return row, fmt.Errorf("read the flow: %w", err)
		}
		if err := t.rules.checkFlow(row, o.source, o.target); err != nil {
			return row, err
		}
	}
}
