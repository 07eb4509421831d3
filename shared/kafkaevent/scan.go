package kafkaevent

import (
	"bytes"
	"math"
	"unicode/utf8"
)

// maxDepth bounds the nesting of values that are skipped. An event itself is
// seven deep.
const maxDepth = 128

// scanner reads JSON from buf, strictly by RFC 8259, without copying. After an
// error (a string that says what was wanted, empty for none) pos is where the
// trouble is.
type scanner struct {
	buf []byte
	pos int
}

// space skips white space and returns the next byte without taking it, or 0 at
// the end (a NUL is not legal outside of strings, so the two need no telling
// apart until an error is made).
func (s *scanner) space() byte {
	for s.pos < len(s.buf) {
		c := s.buf[s.pos]
		if c > ' ' || c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return c
		}
		s.pos++
	}
	return 0
}

// take skips white space and takes c, or returns false.
func (s *scanner) take(c byte) bool {
	if s.space() != c {
		return false
	}
	s.pos++
	return true
}

// text is a string as it stands in the buffer, without its quotes.
type text struct {
	raw     []byte
	escaped bool // raw holds backslashes
}

const wantString = "want a string"

// str takes a string and checks it: no control characters, legal escapes, valid
// UTF-8.
func (s *scanner) str() (text, string) {
	if s.space() != '"' {
		return text{}, wantString
	}
	start := s.pos + 1
	i, high := start, byte(0)
	escaped := false
	for i < len(s.buf) {
		c := s.buf[i]
		switch {
		case c == '"':
			s.pos = i + 1
			raw := s.buf[start:i:i]
			if high >= utf8.RuneSelf && !utf8.Valid(raw) {
				s.pos = start
				return text{}, "a string is not UTF-8"
			}
			return text{raw, escaped}, ""
		case c == '\\':
			escaped = true
			n := escapeLen(s.buf[i:])
			if n == 0 {
				s.pos = i
				return text{}, "illegal escape in a string"
			}
			i += n
			continue
		case c < ' ':
			s.pos = i
			return text{}, "control character in a string"
		}
		high |= c
		i++
	}
	s.pos = len(s.buf)
	return text{}, "a string does not end"
}

// escapeLen returns the length of the escape that b begins with, 0 if it is not
// a legal one.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if _, ok := hex4(b[2:]); ok {
			return 6
		}
	}
	return 0
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// unescape returns the string's bytes: raw itself, or a copy where there were
// escapes. It is false for half a surrogate pair, which is legal JSON but not a
// string of characters: any replacement would change a name.
func (t text) unescape() ([]byte, bool) {
	if !t.escaped {
		return t.raw, true
	}
	out := make([]byte, 0, len(t.raw))
	for i := 0; i < len(t.raw); {
		c := t.raw[i]
		if c != '\\' {
			out = append(out, c)
			i++
			continue
		}
		switch c = t.raw[i+1]; c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r, n, ok := codePoint(t.raw[i:])
			if !ok {
				return nil, false
			}
			out = utf8.AppendRune(out, r)
			i += n
			continue
		}
		out = append(out, c)
		i += 2
	}
	return out, true
}

// codePoint reads \uXXXX, or the two of a surrogate pair.
func codePoint(b []byte) (r rune, n int, ok bool) {
	const high, low, end = 0xd800, 0xdc00, 0xe000
	r, _ = hex4(b[2:])
	if r < high || r >= end {
		return r, 6, true
	}
	if r >= low || len(b) < 12 || b[6] != '\\' || b[7] != 'u' {
		return 0, 0, false
	}
	l, ok := hex4(b[8:])
	if !ok || l < low || l >= end {
		return 0, 0, false
	}
	return (r-high)<<10 + (l - low) + 0x10000, 12, true
}

// plain takes a string that needs no escapes, fast, and leaves the check of its
// characters to the caller; ok is false where the string has a backslash or does
// not end, and then nothing was taken.
func (s *scanner) plain() (raw []byte, ok bool) {
	start := s.pos + 1
	n := bytes.IndexByte(s.buf[start:], '"')
	if n < 0 {
		return nil, false
	}
	raw = s.buf[start : start+n : start+n]
	if bytes.IndexByte(raw, '\\') >= 0 {
		return nil, false
	}
	s.pos = start + n + 1
	return raw, true
}

// number is a JSON number read as an integer.
type number struct {
	value int64
	// whole is false for a fraction, an exponent, or more than 64 bits.
	whole bool
}

const wantNumber = "want a number"

// num takes a number. The next byte must be its first.
func (s *scanner) num() (number, string) {
	b, i := s.buf, s.pos
	negative := i < len(b) && b[i] == '-'
	if negative {
		i++
	}
	first := i
	var u uint64
	whole := true
	for i < len(b) && b[i]-'0' <= 9 {
		if u > math.MaxUint64/10-1 {
			whole = false
		}
		u = u*10 + uint64(b[i]-'0')
		i++
	}
	if i == first || b[first] == '0' && i > first+1 {
		s.pos = first
		return number{}, wantNumber
	}
	if i < len(b) && b[i] == '.' {
		whole = false
		i++
		first = i
		for i < len(b) && b[i]-'0' <= 9 {
			i++
		}
		if i == first {
			s.pos = i
			return number{}, wantNumber
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		whole = false
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		first = i
		for i < len(b) && b[i]-'0' <= 9 {
			i++
		}
		if i == first {
			s.pos = i
			return number{}, wantNumber
		}
	}
	s.pos = i
	switch {
	case negative && u <= 1<<63:
		return number{-int64(u), whole}, ""
	case !negative && u <= math.MaxInt64:
		return number{int64(u), whole}, ""
	}
	return number{}, ""
}

// literal takes null, true or false where one stands.
func (s *scanner) literal(word string) bool {
	if len(s.buf)-s.pos < len(word) || string(s.buf[s.pos:s.pos+len(word)]) != word {
		return false
	}
	s.pos += len(word)
	return true
}

// skip takes a value of any kind and checks its grammar.
func (s *scanner) skip(depth int) string {
	c := s.space()
	if (c == '{' || c == '[') && depth >= maxDepth {
		return "nested too deep"
	}
	switch c {
	case '"':
		_, bad := s.str()
		return bad
	case '{':
		return s.object(func(text) string { return s.skip(depth + 1) })
	case '[':
		return s.array(func(int) string { return s.skip(depth + 1) })
	case 'n', 't', 'f':
		if s.literal("null") || s.literal("true") || s.literal("false") {
			return ""
		}
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		_, bad := s.num()
		return bad
	}
	return "want a value"
}

// object takes an object: member is called after each name and its colon, and
// takes the value.
func (s *scanner) object(member func(name text) string) string {
	if !s.take('{') {
		return "want an object"
	}
	if s.take('}') {
		return ""
	}
	for {
		name, bad := s.str()
		if bad != "" {
			return bad
		}
		if !s.take(':') {
			return "want ':'"
		}
		if bad := member(name); bad != "" {
			return bad
		}
		if s.take('}') {
			return ""
		}
		if !s.take(',') {
			return "want ',' or '}'"
		}
	}
}

// array takes an array: element is called for each element and takes it.
func (s *scanner) array(element func(i int) string) string {
	if !s.take('[') {
		return "want an array"
	}
	if s.take(']') {
		return ""
	}
	for i := 0; ; i++ {
		if bad := element(i); bad != "" {
			return bad
		}
		if s.take(']') {
			return ""
		}
		if !s.take(',') {
			return "want ',' or ']'"
		}
	}
}
