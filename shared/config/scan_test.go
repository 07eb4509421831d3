package config

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/magiconair/properties"
)

func latin1Bytes(s string) []byte {
	var b []byte
	for _, r := range s {
		b = append(b, byte(r))
	}
	return b
}

func TestFilesAreReadAsJavaReadsThem(t *testing.T) {
	data, err := os.ReadFile("testdata/java/properties.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		In, Error string
		Out       map[string]string
	}
	if err := json.Unmarshal(data, &rows); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		entries, bad := scan(latin1Bytes(row.In))
		if (len(bad) > 0) != (row.Error != "") {
			t.Errorf("%q: got errors %v, Java %q", row.In, bad, row.Error)
			continue
		}
		if row.Error != "" {
			continue // Java loads nothing then
		}
		got := map[string]string{}
		for _, e := range entries {
			got[e.key] = e.raw
		}
		// A line of nothing but a continuation is a key and a value of nothing.
		if got[""] == "" && row.Out[""] == "" {
			delete(got, "")
			delete(row.Out, "")
		}
		// Values are trimmed here, which Java leaves to whoever reads them.
		for key, value := range row.Out {
			row.Out[key] = trim(value)
		}
		if diff := cmp.Diff(row.Out, got); diff != "" {
			t.Errorf("%q (-Java +got):\n%s", row.In, diff)
		}
	}
}

func TestLinesAreCountedWhereAKeyBegins(t *testing.T) {
	entries, _ := scan([]byte("# one\n\na = b, \\\n  c\r\n! four\\\r\nd = e\rd = f\n"))
	var got []string
	for _, e := range entries {
		got = append(got, e.key+" "+string(rune('0'+e.line)))
	}
	if want := []string{"a 3", "d 6", "d 7"}; !slices.Equal(got, want) {
		t.Errorf("got %v want %v", got, want)
	}
}

// keysOf is the library's own reading of the whole file.
func keysOf(data []byte) ([]string, error) {
	loader := properties.Loader{Encoding: properties.ISO_8859_1, DisableExpansion: true}
	p, err := loader.LoadBytes(data)
	if err != nil {
		return nil, err
	}
	return p.Keys(), nil
}

func TestScannerAndLibrarySeeTheSameKeys(t *testing.T) {
	files, err := os.ReadDir("testdata/properties")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		data, err := os.ReadFile("testdata/properties/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(f.Name(), ".properties") {
			sameKeys(t, withoutBOM(data))
		}
	}
}

func FuzzScannerAndLibrarySeeTheSameKeys(f *testing.F) {
	for _, seed := range []string{"a=b\n", "a\\ b : c\\\n  d\n#e\n", "\\u0041=x\n!f\na\n", " \t\f=x\n", "a=\\"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(sameKeys)
}

func sameKeys(t *testing.T, data []byte) {
	// Where the library departs from Java: a line end of two characters, a key
	// that goes on on the next line, a key of no characters, a backslash at the end.
	entries, bad := scan(data)
	lines := logicalLines(data)
	var joined []byte
	for _, l := range lines {
		if l.text[0] != '=' && l.text[0] != ':' {
			joined = append(append(joined, l.text...), '\n')
		}
	}
	whole, err := keysOf(joined)
	if (err != nil) != (len(bad) > 0) {
		t.Fatalf("%q: the library says %v, the scanner %v", data, err, bad)
	}
	if err != nil {
		return
	}
	seen := map[string]bool{}
	for _, e := range entries {
		if e.key != "" {
			seen[e.key] = true
		}
	}
	got, want := slices.Sorted(maps.Keys(seen)), slices.Sorted(slices.Values(whole))
	if !slices.Equal(got, want) {
		t.Fatalf("%q: got %q want %q", data, got, want)
	}
}
