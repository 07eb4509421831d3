package config

import (
	"bytes"
	"strings"

	"github.com/magiconair/properties"
)

// entry is one key of the file with its value.
type entry struct {
	line  int    // where it begins, from 1
	key   string // unescaped
	raw   string // the value as written, unescaped and trimmed
	value string // raw with ${provider:…} resolved
}

// badLine is a line that Java would not load.
type badLine struct {
	line    int
	message string
}

// scan splits a properties file into its entries, duplicates included, in file
// order. It finds the logical lines (comments, continuations) and leaves keys,
// values and escapes to the properties library, one line at a time: so every
// key has its line number and a bad escape spoils one line only.
func scan(data []byte) ([]entry, []badLine) {
	var (
		entries []entry
		bad     []badLine
	)
	loader := properties.Loader{Encoding: properties.ISO_8859_1, DisableExpansion: true}
	for _, l := range logicalLines(data) {
		nameless := l.text[0] == '=' || l.text[0] == ':'
		if nameless {
			// Java reads a key of no characters here, which the library refuses.
			l.text = append([]byte("x"), l.text...)
		}
		p, err := loader.LoadBytes(l.text)
		if err != nil {
			bad = append(bad, badLine{l.number, `a \u escape needs four hexadecimal digits: write \\u for a backslash before a u`})
			continue
		}
		for _, key := range p.Keys() {
			value, _ := p.Get(key)
			value = trim(value)
			if nameless {
				key = ""
			}
			entries = append(entries, entry{line: l.number, key: key, raw: value, value: value})
		}
	}
	return entries, bad
}

type logicalLine struct {
	number int    // of its first natural line, from 1
	text   []byte // continuations joined; never empty, no leading blanks
}

// logicalLines does what java.util.Properties.LineReader does: it drops blank
// lines and comments, and joins a line that ends in an odd number of
// backslashes with the next one, whose leading blanks go.
func logicalLines(data []byte) []logicalLine {
	const blanks = " \t\f"
	var lines []logicalLine
	natural := naturalLines(data)
	for i := 0; i < len(natural); i++ {
		number := i + 1
		text := bytes.TrimLeft(natural[i], blanks)
		if len(text) == 0 || text[0] == '#' || text[0] == '!' {
			continue
		}
		text = bytes.Clone(text)
		for continues(text) {
			text = text[:len(text)-1]
			i++
			if i == len(natural) {
				break
			}
			text = append(text, bytes.TrimLeft(natural[i], blanks)...)
		}
		if len(text) > 0 {
			lines = append(lines, logicalLine{number, text})
		}
	}
	return lines
}

// naturalLines splits at \n, \r and \r\n.
func naturalLines(data []byte) [][]byte {
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	data = bytes.ReplaceAll(data, []byte("\r"), []byte("\n"))
	return bytes.Split(data, []byte("\n"))
}

func continues(line []byte) bool {
	slashes := len(line) - len(bytes.TrimRight(line, `\`))
	return slashes%2 == 1
}

// trim drops what Java's String.trim drops. Java itself keeps the blanks at the
// end of a value, and one code path of MirrorMaker 2 trims where another does
// not, so that "true " switches a flow half on.
func trim(s string) string {
	return strings.TrimFunc(s, func(r rune) bool { return r <= ' ' })
}

// withoutBOM drops a byte-order mark that an editor wrote; Java would take it
// for three characters of the first key.
func withoutBOM(data []byte) []byte {
	return bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
}
