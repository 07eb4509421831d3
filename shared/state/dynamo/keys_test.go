package dynamo

import (
	"testing"
	"unicode/utf8"
)

// FuzzCheckpointBlockKey puts any group into a key and takes any key apart.
func FuzzCheckpointBlockKey(f *testing.F) {
	f.Add("group", "=g#A.orders#3")
	f.Add("a#b#1", "%61#t#0")
	f.Add("\xff", "##")
	f.Add("", "=#t#-1")
	f.Add("#", "%##0")
	f.Fuzz(func(t *testing.T, group, sk string) {
		want := block{topic: "A.orders", number: 12}
		key := checkpointBlockKey(group, want)
		if !utf8.ValidString(key) {
			t.Errorf("%q is not UTF-8", key)
		}
		gotGroup, got, err := splitCheckpointBlockKey(key)
		if err != nil || gotGroup != group || got != want {
			t.Errorf("%q came back as %q, %v and error %v", group, gotGroup, got, err)
		}
		if _, b, err := splitCheckpointBlockKey(sk); err == nil && (b.topic == "" || b.number < 0) {
			t.Errorf("%q was taken apart into %v", sk, b)
		}
	})
}
