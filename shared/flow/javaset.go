package flow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// span is an inclusive range of characters.
type span struct{ lo, hi rune }

// set is a set of characters, in no order.
type set []span

// What Java's escapes stand for, without the flag UNICODE_CHARACTER_CLASS.
var (
	digits          = set{{'0', '9'}}
	words           = set{{'a', 'z'}, {'A', 'Z'}, {'0', '9'}, {'_', '_'}}
	spaces          = set{{'\t', '\r'}, {' ', ' '}}
	lineTerminators = set{{'\n', '\n'}, {'\r', '\r'}, {0x85, 0x85}, {0x2028, 0x2029}}
	vertical        = set{{'\n', '\r'}, {0x85, 0x85}, {0x2028, 0x2029}}
	horizontal      = set{
		{' ', ' '},
		{'\t', '\t'},
		{0xA0, 0xA0},
		{0x1680, 0x1680},
		{0x180e, 0x180e},
		{0x2000, 0x200a},
		{0x202f, 0x202f},
		{0x205f, 0x205f},
		{0x3000, 0x3000},
	}

	escapedSets = map[rune]set{
		'd': digits, 'D': digits.complement(),
		'w': words, 'W': words.complement(),
		's': spaces, 'S': spaces.complement(),
		'h': horizontal, 'H': horizontal.complement(),
		'v': vertical, 'V': vertical.complement(),
	}
	controls = map[rune]rune{'t': '\t', 'n': '\n', 'r': '\r', 'f': '\f', 'a': '\a', 'e': 0x1b}

	properties = map[string]set{
		"Lower":  {{'a', 'z'}},
		"Upper":  {{'A', 'Z'}},
		"ASCII":  {{0, 0x7f}},
		"Alpha":  {{'a', 'z'}, {'A', 'Z'}},
		"Digit":  digits,
		"Alnum":  {{'a', 'z'}, {'A', 'Z'}, {'0', '9'}},
		"Punct":  {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}},
		"Graph":  {{'!', '~'}},
		"Print":  {{' ', '~'}},
		"Blank":  {{' ', ' '}, {'\t', '\t'}},
		"Cntrl":  {{0, 0x1f}, {0x7f, 0x7f}},
		"XDigit": {{'0', '9'}, {'a', 'f'}, {'A', 'F'}},
		"Space":  spaces,
	}
)

// property is what \p{name} stands for: a POSIX class of ASCII, or a Unicode
// general category or script ("L", "IsLu", "IsLatin").
func property(name string) (set, bool) {
	if s, ok := properties[name]; ok {
		return s, true
	}
	short, is := strings.CutPrefix(name, "Is")
	table, ok := unicode.Categories[short]
	if !ok && is {
		table, ok = unicode.Scripts[short]
	}
	if !ok {
		return nil, false
	}
	var s set
	for _, r := range table.R16 {
		s = appendStride(s, rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range table.R32 {
		s = appendStride(s, rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return s, true
}

func appendStride(s set, lo, hi, stride rune) set {
	if stride == 1 {
		return append(s, span{lo, hi})
	}
	for r := lo; r <= hi; r += stride {
		s = append(s, span{r, r})
	}
	return s
}

// caseSensitive are the properties that Java widens under CASE_INSENSITIVE, not
// the same way in every version.
var caseSensitive = []string{"Lower", "Upper", "Lu", "Ll", "Lt", "IsLu", "IsLl", "IsLt"}

// complement is every other character.
func (s set) complement() set {
	sorted := slices.SortedFunc(slices.Values(s), func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
	var rest set
	from := rune(0)
	for _, c := range sorted {
		if c.lo > from {
			rest = append(rest, span{from, c.lo - 1})
		}
		from = max(from, c.hi+1)
	}
	if from <= utf8.MaxRune {
		rest = append(rest, span{from, utf8.MaxRune})
	}
	return rest
}

// foldASCII adds the other case of every ASCII letter, as Java's
// CASE_INSENSITIVE does without UNICODE_CASE.
func (s set) foldASCII() set {
	folded := slices.Clone(s)
	for _, c := range s {
		for _, letters := range []struct {
			span
			to rune
		}{{span{'a', 'z'}, 'A' - 'a'}, {span{'A', 'Z'}, 'a' - 'A'}} {
			if lo, hi := max(c.lo, letters.lo), min(c.hi, letters.hi); lo <= hi {
				folded = append(folded, span{lo + letters.to, hi + letters.to})
			}
		}
	}
	return folded
}

// String is a character class of Go's regexp and of regexp2 alike.
func (s set) String() string {
	var b strings.Builder
	if len(s) == 0 {
		return `(?:[^` + classRune(0) + "-" + classRune(utf8.MaxRune) + `])` // nothing
	}
	b.WriteByte('[')
	for _, c := range s {
		b.WriteString(classRune(c.lo))
		if c.hi > c.lo {
			b.WriteByte('-')
			b.WriteString(classRune(c.hi))
		}
	}
	b.WriteByte(']')
	return b.String()
}

func classRune(r rune) string {
	if strings.ContainsRune(`\[]^-&`, r) {
		// Not a backslash and the character: regexp2 misreads \- as the end of a range.
		return fmt.Sprintf(`\x%02x`, r)
	}
	return string(r)
}

func isASCIILetter(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }
