package flow

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/dlclark/regexp2"
)

// matchTimeout bounds one match of a pattern that needs backtracking. A name has
// at most 249 characters; a pattern that needs longer is of the kind that needs
// for ever.
const matchTimeout = 250 * time.Millisecond

// PatternError is returned for a pattern that Java refuses, or that this package
// would read otherwise than Java.
type PatternError struct {
	Pattern string // as written
	Reason  string
}

func (e *PatternError) Error() string {
	return fmt.Sprintf("compile pattern %q: %s", e.Pattern, e.Reason)
}

// Patterns is a list of Java regular expressions; a name matches if one of them
// matches the whole of it. The zero Patterns matches nothing.
type Patterns struct {
	source string
	fast   *regexp.Regexp  // where Go's engine can do it: linear time
	slow   *regexp2.Regexp // lookaround, back references, possessive quantifiers
}

// CompilePatterns compiles a list as MirrorMaker 2 does: the patterns joined by
// "|" are one Java regular expression, so that a flag or a parenthesis in one of
// them reaches into the next. An empty list matches nothing.
//
// Every construct is either given the meaning it has in Java or refused with a
// [PatternError]. Refused are, besides what Java refuses, nested character
// classes and intersections ("[" and "&&" inside a class), the flags d, m, u, x
// and U, the escapes \R, \X, \G and \N, and back references that engines read
// differently.
func CompilePatterns(patterns []string) (Patterns, error) {
	if len(patterns) == 0 {
		return Patterns{}, nil
	}
	p, err := compile(strings.Join(patterns, "|"))
	if err == nil {
		return p, nil
	}
	// Name the one pattern that is at fault, if it is one alone.
	for _, each := range patterns {
		if _, eachErr := compile(each); eachErr != nil {
			return Patterns{}, eachErr
		}
	}
	return Patterns{}, err
}

func compile(source string) (Patterns, error) {
	t, err := translate(source)
	if err != nil {
		return Patterns{}, err
	}
	whole := `\A(?:` + t.expr + `)\z`
	if !t.backtracking {
		// Go's engine has limits of size; what exceeds them goes to the other.
		if fast, err := regexp.Compile(whole); err == nil {
			return Patterns{source: source, fast: fast}, nil
		}
	}
	slow, err := regexp2.Compile(whole, regexp2.None)
	if err != nil {
		return Patterns{}, &PatternError{Pattern: source, Reason: err.Error()}
	}
	slow.MatchTimeout = matchTimeout
	return Patterns{source: source, slow: slow}, nil
}

// String is the joined Java regular expression, empty for the zero Patterns.
func (p Patterns) String() string { return p.source }

// Match reports whether a pattern matches the whole name; a match that ran out
// of time counts as none. Where that matters, use TryMatch.
func (p Patterns) Match(name string) bool {
	ok, err := p.TryMatch(name)
	return err == nil && ok
}

// TryMatch is Match with an error for a pattern that took longer than a quarter
// of a second over name.
func (p Patterns) TryMatch(name string) (bool, error) {
	switch {
	case p.fast != nil:
		return p.fast.MatchString(name), nil
	case p.slow != nil:
		ok, err := p.slow.MatchString(name)
		if err != nil {
			return false, fmt.Errorf("match pattern %q with %q: %w", p.source, name, err)
		}
		return ok, nil
	}
	return false, nil
}
