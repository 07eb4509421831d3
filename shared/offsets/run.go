package offsets

import "fmt"

// Run is a stretch of records of one partition that were copied without a gap on
// either side: the record at Upstream+i has its copy at Downstream+i, for i from
// 0 to Length−1.
type Run struct {
	Upstream   int64 // offset on the source
	Downstream int64 // offset on the target
	Length     int64 // records, at least 1
}

// end is where the next record would have to be to belong to the run.
func (r Run) end() edge { return edge{r.Upstream + r.Length, r.Downstream + r.Length} }

// valid: no offset is negative or past the last one there can be.
func (r Run) valid() bool {
	e := r.end()
	return r.Upstream >= 0 && r.Downstream >= 0 && r.Length >= 1 && e.upstream > 0 && e.downstream > 0
}

func (r Run) check() {
	if !r.valid() {
		panic(fmt.Sprintf("offsets: %+v is not a run", r))
	}
}

// edge is a pair of offsets between two runs: behind the one, before the other.
type edge struct{ upstream, downstream int64 }
