package flow

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// translation is a Java regular expression in the syntax that Go's regexp and
// regexp2 share, for a match of the whole name.
type translation struct {
	expr         string
	backtracking bool // more than Go's regexp can do
}

// translate rewrites a Java regular expression (java.util.regex.Pattern without
// flags). It spells out what the engines disagree about (\d, \s, ".", "$", case
// folding, quoting, possessive quantifiers) and refuses what it cannot spell out.
func translate(source string) (translation, error) {
	t := translator{source: source, rest: source}
	if !utf8.ValidString(source) {
		return translation{}, t.errorf("not valid UTF-8")
	}
	if err := t.pattern(); err != nil {
		return translation{}, err
	}
	return translation{expr: t.out.String(), backtracking: t.backtracking}, nil
}

type translator struct {
	source string
	rest   string // not yet read
	out    strings.Builder

	backtracking bool
	flags        flags
	groups       []group

	captures       int            // capturing groups opened so far
	names          map[string]int // their numbers
	capturesBehind bool           // one of them is inside a lookbehind
}

type flags struct{ ignoreCase, dotAll bool }

// group is an open parenthesis.
type group struct {
	start      int   // where its text begins in out
	flags      flags // to restore when it closes
	capture    int   // its number, 0 if it does not capture
	lookbehind bool  // it is one, or is inside one
}

func (t *translator) errorf(format string, args ...any) error {
	return &PatternError{Pattern: t.source, Reason: fmt.Sprintf(format, args...)}
}

// read takes s if it comes next.
func (t *translator) read(s string) bool {
	rest, ok := strings.CutPrefix(t.rest, s)
	t.rest = rest
	return ok
}

// next takes one character; ok is false at the end.
func (t *translator) next() (r rune, ok bool) {
	if t.rest == "" {
		return 0, false
	}
	r, size := utf8.DecodeRuneInString(t.rest)
	t.rest = t.rest[size:]
	return r, true
}

func (t *translator) peek() rune {
	r, _ := utf8.DecodeRuneInString(t.rest)
	return r
}

func (t *translator) pattern() error {
	for t.rest != "" {
		start := t.out.Len()
		atom, err := t.element(&start)
		if err != nil {
			return err
		}
		if !atom {
			continue
		}
		if err := t.quantifier(start); err != nil {
			return err
		}
	}
	if len(t.groups) > 0 {
		return t.errorf("a group is not closed")
	}
	return nil
}

// element translates one element; atom says whether a quantifier may follow, and
// start is where in out the element begins.
func (t *translator) element(start *int) (atom bool, err error) {
	if t.read(`\Q`) {
		return false, t.quotation()
	}
	r, _ := t.next()
	switch r {
	case '|':
		t.out.WriteByte('|')
		return false, nil
	case '(':
		return false, t.open(*start)
	case ')':
		if len(t.groups) == 0 {
			return false, t.errorf("an unmatched )")
		}
		last := t.groups[len(t.groups)-1]
		t.groups = t.groups[:len(t.groups)-1]
		t.flags, *start = last.flags, last.start
		t.out.WriteByte(')')
		return true, nil
	case '*', '+', '?':
		return false, t.errorf("a dangling %c; any name is .*", r)
	case '{':
		return false, t.errorf("a dangling {; a comma separates the patterns of a list, so {1,2} cannot be used in one")
	case '[':
		return true, t.class()
	case '.':
		if t.flags.dotAll {
			t.out.WriteString(set{{0, utf8.MaxRune}}.String())
		} else {
			t.out.WriteString(lineTerminators.complement().String())
		}
	case '^':
		t.out.WriteString(`(?:\A)`)
	case '$':
		t.end()
	case '\\':
		return true, t.escape()
	default:
		t.literal(r)
	}
	return true, nil
}

// quotation translates \Q...\E. A quantifier after it belongs to its last character.
func (t *translator) quotation() error {
	quoted, rest, _ := strings.Cut(t.rest, `\E`)
	t.rest = rest
	start := t.out.Len()
	for _, r := range quoted {
		start = t.out.Len()
		t.literal(r)
	}
	if quoted == "" {
		return nil
	}
	return t.quantifier(start)
}

// end translates "$": the end, or what stands before a line terminator at the
// end. Where nothing can follow in a match of the whole name it is the end.
func (t *translator) end() {
	after := strings.TrimLeft(t.rest, ")")
	if after == "" || len(t.groups) == 0 && t.rest[0] == '|' {
		t.out.WriteString(`(?:\z)`)
		return
	}
	t.backtracking = true
	// Not between the two of \r\n.
	t.out.WriteString(`(?=(?:\r\n|(?<!\r)\n|` + set{{'\r', '\r'}, {0x85, 0x85}, {0x2028, 0x2029}}.String() + `)?\z)`)
}

// open translates the beginning of a group.
func (t *translator) open(start int) error {
	g := group{start: start, flags: t.flags, lookbehind: t.inLookbehind()}
	for _, kind := range []string{"?=", "?!", "?>", "?<=", "?<!"} {
		if !t.read(kind) {
			continue
		}
		if kind == "?>" && g.lookbehind {
			return t.errorf("an atomic group inside a lookbehind is not supported")
		}
		g.lookbehind = g.lookbehind || kind[1] == '<'
		t.backtracking = true
		t.groups = append(t.groups, g)
		t.out.WriteString("(" + kind)
		return nil
	}
	switch {
	case !t.read("?"):
		g.capture = t.capture(g)
	case t.read(":"):
		t.out.WriteString("(?:")
	case t.read("<"):
		name, rest, ok := strings.Cut(t.rest, ">")
		if !ok || !groupName.MatchString(name) {
			return t.errorf("a named group without a proper name")
		}
		if _, taken := t.names[name]; taken {
			return t.errorf("the group name %s is used twice", name)
		}
		t.rest = rest
		g.capture = t.capture(g)
		if t.names == nil {
			t.names = make(map[string]int)
		}
		t.names[name] = g.capture
	default:
		return t.inlineFlags(g)
	}
	t.groups = append(t.groups, g)
	return nil
}

// capture opens a capturing group and returns its number.
func (t *translator) capture(g group) int {
	t.captures++
	if g.lookbehind {
		t.capturesBehind = true
	}
	t.out.WriteByte('(')
	return t.captures
}

func (t *translator) inLookbehind() bool {
	return len(t.groups) > 0 && t.groups[len(t.groups)-1].lookbehind
}

var groupName = regexp.MustCompile(`\A[A-Za-z][A-Za-z0-9]*\z`)

// inlineFlags translates (?i) and (?i:...). The flags are carried out here, never
// handed on: Java folds ASCII letters alone where the engines fold Unicode.
func (t *translator) inlineFlags(g group) error {
	f, on := t.flags, true
	for {
		r, ok := t.next()
		if !ok {
			return t.errorf("a group is not closed")
		}
		switch r {
		case 'i':
			f.ignoreCase = on
		case 's':
			f.dotAll = on
		case '-':
			if !on {
				return t.errorf("an unknown inline flag -")
			}
			on = false
		case ')':
			t.flags = f // until the enclosing group closes
			return nil
		case ':':
			t.flags = f
			t.groups = append(t.groups, g)
			t.out.WriteString("(?:")
			return nil
		case 'd', 'm', 'u', 'x', 'U':
			return t.errorf("the flag %c is not supported; i and s are", r)
		default:
			return t.errorf("an unknown inline flag %c", r)
		}
	}
}

// quantifier translates what follows the atom that begins at start in out.
func (t *translator) quantifier(start int) error {
	var q string
	switch {
	case t.read("*"):
		q = "*"
	case t.read("+"):
		q = "+"
	case t.read("?"):
		q = "?"
	case strings.HasPrefix(t.rest, "{"):
		counts := repetition.FindStringSubmatch(t.rest)
		if counts == nil {
			return t.errorf("a { that begins no repetition; a comma separates the patterns of a list, so {1,2} cannot be used in one")
		}
		least, err := strconv.Atoi(counts[1])
		most := least
		if err == nil && counts[3] != "" {
			most, err = strconv.Atoi(counts[3])
		}
		if err != nil || most < least || most > maxRepetition {
			return t.errorf("the repetition %s is out of range", counts[0])
		}
		q = counts[0]
		t.rest = t.rest[len(q):]
	default:
		return nil
	}
	if t.inLookbehind() && strings.HasPrefix(t.rest, "+") {
		return t.errorf("a possessive quantifier inside a lookbehind is not supported")
	}
	switch {
	case t.read("?"):
		t.out.WriteString(q + "?")
	case t.read("+"):
		// A possessive quantifier is a greedy one in an atomic group.
		t.backtracking = true
		all := t.out.String()
		t.out.Reset()
		t.out.WriteString(all[:start] + "(?>" + all[start:] + q + ")")
	default:
		t.out.WriteString(q)
	}
	if r := t.peek(); t.rest != "" && (r == '*' || r == '+' || r == '?' || r == '{') {
		return t.errorf("a dangling %c", r)
	}
	return nil
}

// maxRepetition is more than any name is long.
const maxRepetition = 100_000

var repetition = regexp.MustCompile(`\A\{([0-9]+)(,([0-9]*))?\}`)

// literal writes a character that means itself.
func (t *translator) literal(r rune) {
	if t.flags.ignoreCase && isASCIILetter(r) {
		t.out.WriteString(set{{r, r}}.foldASCII().String())
		return
	}
	t.out.WriteString(regexp.QuoteMeta(string(r)))
}

// escape translates a backslash sequence outside a class.
func (t *translator) escape() error {
	r := t.peek()
	switch {
	case t.rest == "":
		return t.errorf("a backslash at the end")
	case r >= '1' && r <= '9':
		t.next()
		return t.backReference(int(r - '0'))
	case t.read("k<"):
		name, rest, ok := strings.Cut(t.rest, ">")
		n := t.names[name]
		if !ok || n == 0 {
			return t.errorf(`\k names no group before it`)
		}
		t.rest = rest
		return t.reference(n)
	case t.read("A"):
		t.out.WriteString(`(?:\A)`)
		return nil
	case t.read("z"):
		t.out.WriteString(`(?:\z)`)
		return nil
	case t.read("Z"):
		t.end()
		return nil
	case t.read("b{"):
		return t.errorf(`\b{g} is not supported`)
	case t.read("b"), t.read("B"):
		t.out.WriteString(`(?:\` + string(r) + `)`)
		return nil
	}
	s, err := t.classEscape()
	if err != nil {
		return err
	}
	if t.flags.ignoreCase && !s.named {
		s.set = s.set.foldASCII()
	}
	t.out.WriteString(s.set.String())
	return nil
}

func (t *translator) backReference(n int) error {
	if n > t.captures {
		return t.errorf(`\%d names no group before it`, n)
	}
	// Java reads further digits as long as there are that many groups.
	for t.rest != "" && t.peek() >= '0' && t.peek() <= '9' {
		more := n*10 + int(t.peek()-'0')
		if more > t.captures {
			break
		}
		t.next()
		n = more
	}
	return t.reference(n)
}

func (t *translator) reference(n int) error {
	if t.flags.ignoreCase {
		return t.errorf("a back reference under the flag i is not supported")
	}
	// Engines differ in what a group holds while it is open, or was read backwards.
	open := func(g group) bool { return g.capture == n }
	if t.capturesBehind || t.inLookbehind() || slices.ContainsFunc(t.groups, open) {
		return t.errorf("a back reference into an open group or with a lookbehind is not supported")
	}
	t.backtracking = true
	t.out.WriteString(`(?:\` + strconv.Itoa(n) + `)`)
	return nil
}
