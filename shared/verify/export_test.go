package verify

// Fetch sets how many bytes are fetched at a time.
func (v *Verification) Fetch(bytes int32) *Verification {
	v.fetchBytes = bytes
	return v
}

// Ranges sets how many records a proven range has.
func (v *Verification) Ranges(records int64) *Verification {
	v.length = records
	return v
}
