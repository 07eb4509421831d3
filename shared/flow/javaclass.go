package flow

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// class translates a character class; its [ is read.
func (t *translator) class() error {
	negated := t.read("^")
	var all set
	for first := true; ; first = false {
		switch {
		case t.rest == "":
			return t.errorf("a character class is not closed")
		case !first && t.read("]"):
			if negated {
				all = all.complement()
			}
			t.out.WriteString(all.String())
			return nil
		case t.read("["):
			return t.errorf(`an unescaped [ inside a character class, which Java takes for a nested class: write \[`)
		case t.read("&&"):
			return t.errorf("&& inside a character class, which Java takes for an intersection: write out the class")
		case t.read(`\Q`):
			quoted, rest, _ := strings.Cut(t.rest, `\E`)
			t.rest = rest
			for _, r := range quoted {
				all = append(all, t.fold(set{{r, r}})...)
			}
			if t.isRange() {
				return t.errorf("a range that begins with a quotation is not supported")
			}
			continue
		}
		s, err := t.classItem()
		if err != nil {
			return err
		}
		if s.named || s.single < 0 || !t.isRange() {
			if !s.named {
				s.set = t.fold(s.set)
			}
			all = append(all, s.set...)
			continue
		}
		t.read("-")
		end, err := t.classItem()
		if err != nil {
			return err
		}
		if end.single < s.single {
			return t.errorf("an illegal range in a character class")
		}
		all = append(all, t.fold(set{{s.single, end.single}})...)
	}
}

// isRange: a "-" is a range unless the class ends after it.
func (t *translator) isRange() bool {
	return strings.HasPrefix(t.rest, "-") && !strings.HasPrefix(t.rest, "-]") && !strings.HasPrefix(t.rest, "-[")
}

func (t *translator) fold(s set) set {
	if t.flags.ignoreCase {
		return s.foldASCII()
	}
	return s
}

// item is a character or a set that an escape names.
type item struct {
	set    set
	single rune // −1 unless the item is one character
	named  bool // the set is not subject to case folding
}

func one(r rune) item { return item{set: set{{r, r}}, single: r} }

func (t *translator) classItem() (item, error) {
	r, ok := t.next()
	if !ok {
		return item{}, t.errorf("a character class is not closed")
	}
	if r == '\\' {
		if strings.HasPrefix(t.rest, "v-") {
			return item{}, t.errorf(`\v before a - is not supported: Java reads it as U+000B there`)
		}
		return t.classEscape()
	}
	if r == '[' {
		return item{}, t.errorf(`an unescaped [ inside a character class, which Java takes for a nested class: write \[`)
	}
	return one(r), nil
}

// classEscape reads a backslash sequence that stands for a character or a set.
func (t *translator) classEscape() (item, error) {
	r, ok := t.next()
	if !ok {
		return item{}, t.errorf("a backslash at the end")
	}
	if s, ok := escapedSets[r]; ok {
		return item{set: s, single: -1, named: true}, nil
	}
	if c, ok := controls[r]; ok {
		return one(c), nil
	}
	switch r {
	case '0':
		return t.number(octal, 8, `\0 without an octal number`)
	case 'x':
		if t.read("{") {
			found, err := t.number(hexBraced, 16, `\x{ without a hexadecimal number`)
			if err == nil && !t.read("}") {
				err = t.errorf(`\x{ is not closed`)
			}
			return found, err
		}
		return t.number(hexTwo, 16, `\x without two hexadecimal digits`)
	case 'u':
		return t.number(hexFour, 16, `\u without four hexadecimal digits`)
	case 'c':
		c, ok := t.next()
		if !ok || c > 0x7f {
			return item{}, t.errorf(`\c without a character`)
		}
		return one(c ^ 0x40), nil
	case 'p', 'P':
		return t.property(r == 'P')
	}
	if isASCIILetter(r) || r >= '1' && r <= '9' {
		return item{}, t.errorf(`the escape \%c is not supported`, r)
	}
	return one(r), nil
}

var (
	octal     = regexp.MustCompile(`\A(?:[0-3][0-7]{2}|[0-7]{1,2})`)
	hexBraced = regexp.MustCompile(`\A[0-9A-Fa-f]{1,6}`)
	hexTwo    = regexp.MustCompile(`\A[0-9A-Fa-f]{2}`)
	hexFour   = regexp.MustCompile(`\A[0-9A-Fa-f]{4}`)
)

func (t *translator) number(digits *regexp.Regexp, base int, missing string) (item, error) {
	found := digits.FindString(t.rest)
	if found == "" {
		return item{}, t.errorf("%s", missing)
	}
	t.rest = t.rest[len(found):]
	n, err := strconv.ParseInt(found, base, 32)
	if err != nil || !utf8.ValidRune(rune(n)) {
		return item{}, t.errorf("%s is no character", found)
	}
	return one(rune(n)), nil
}

func (t *translator) property(negated bool) (item, error) {
	name := t.rest[:min(1, len(t.rest))]
	if rest, ok := strings.CutPrefix(t.rest, "{"); ok {
		inner, after, closed := strings.Cut(rest, "}")
		if !closed {
			return item{}, t.errorf(`\p{ is not closed`)
		}
		name, t.rest = inner, after
	} else {
		t.rest = t.rest[len(name):]
	}
	s, ok := property(name)
	if !ok {
		return item{}, t.errorf(`the property \p{%s} is not supported: write out the class`, name)
	}
	if t.flags.ignoreCase && slices.Contains(caseSensitive, name) {
		return item{}, t.errorf(`the property \p{%s} under the flag i is not supported: write out the class`, name)
	}
	if negated {
		s = s.complement()
	}
	return item{set: s, single: -1, named: true}, nil
}
