package topics

// Report is what a round has come to, in plain numbers.
type Report struct {
	// NotEnabled are event sources that should be Enabled and are not, after the
	// round has done what it could. One that was just made, and that Lambda is
	// still Creating, is among them; none is where topics keeps no event sources.
	NotEnabled int
}

// report is of a plan whose event sources have been reconciled.
func (p Plan) report() (r Report) {
	for _, so := range p.bookkeeping.notEnabled {
		if so {
			r.NotEnabled++
		}
	}
	return r
}
