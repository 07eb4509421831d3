package verify

// Fetch sets how many bytes are fetched at a time.
func (v *Verification) Fetch(bytes int32) *Verification {
	v.fetchBytes = bytes
	return v
}
