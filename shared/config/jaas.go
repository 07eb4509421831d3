package config

import (
	"errors"
	"fmt"
	"strings"
)

// JAAS is one login module of a sasl.jaas.config value. Its options are secrets.
type JAAS struct {
	Module  string // Java class name
	Flag    string // required, requisite, sufficient or optional, in lower case
	Options map[string]string
}

// ParseJAAS reads a sasl.jaas.config value as Kafka's JaasConfig and JaasContext
// classes do: exactly one module, options with or without quotation marks, a
// semicolon at the end. Its errors quote no value.
func ParseJAAS(value string) (JAAS, error) {
	t := tokenizer{rest: []rune(value)}
	var modules []JAAS
	for t.next() != tokenEnd {
		m, err := parseLoginModule(&t)
		if err != nil {
			return JAAS{}, fmt.Errorf("parse sasl.jaas.config: %w", err)
		}
		modules = append(modules, m)
	}
	switch {
	case len(modules) == 0:
		return JAAS{}, errors.New("parse sasl.jaas.config: it names no login module")
	case len(modules) > 1:
		return JAAS{}, fmt.Errorf("parse sasl.jaas.config: it has %d login modules; write one", len(modules))
	}
	return modules[0], nil
}

// parseLoginModule reads one entry; its first token is the current one.
func parseLoginModule(t *tokenizer) (JAAS, error) {
	m := JAAS{Module: t.text, Options: map[string]string{}}
	if !t.word {
		return JAAS{}, errors.New("it does not begin with the class name of a login module")
	}
	if t.next() == tokenEnd {
		return JAAS{}, fmt.Errorf("after %s the word required is missing", shown(m.Module))
	}
	m.Flag = strings.ToLower(t.text)
	switch m.Flag {
	case "required", "requisite", "sufficient", "optional":
	default:
		return JAAS{}, fmt.Errorf("after %s there must be the word required", shown(m.Module))
	}
	for t.next() != tokenEnd && t.kind != ';' {
		name := t.text
		if !t.word {
			// Java goes on with a nameless option; nobody can mean that.
			return JAAS{}, fmt.Errorf("%s: an option begins with a character that no option name has; put the value before it in quotation marks", shown(m.Module))
		}
		if t.next() != '=' || t.next() == tokenEnd || !t.word {
			return JAAS{}, fmt.Errorf("%s: %s has no value, or one that needs quotation marks", shown(m.Module), shownOption(name))
		}
		m.Options[name] = t.text
	}
	if t.kind != ';' {
		return JAAS{}, fmt.Errorf("%s: the semicolon at the end is missing", shown(m.Module))
	}
	return m, nil
}

// shown is how a module is called in an error. In a value that does not parse,
// what stands in its place may be a part of a password.
func shown(module string) string {
	if name := module[strings.LastIndexByte(module, '.')+1:]; strings.HasSuffix(name, "LoginModule") {
		return name
	}
	return "the login module"
}

func shownOption(name string) string {
	if name == "username" || name == "password" {
		return "the option " + name
	}
	return "an option"
}

const (
	tokenEnd    = rune(-1)
	tokenWord   = rune(-2)
	tokenNumber = rune(-3)
)

// tokenizer is java.io.StreamTokenizer as JaasConfig sets it up: // and /* */
// comments, and the characters - _ $ in words. What surprises is Java's: a word
// that begins with a digit is a number and has no text, a lone / begins a
// comment, and a quoted string ends at the end of the line.
type tokenizer struct {
	rest []rune
	kind rune   // tokenEnd, tokenWord, tokenNumber, a quotation mark, or the character itself
	text string // of a word or a quoted string
	word bool   // whether text is one
}

func (t *tokenizer) next() rune {
	t.text, t.word = "", false
	t.skip()
	if len(t.rest) == 0 {
		t.kind = tokenEnd
		return t.kind
	}
	switch c := t.rest[0]; {
	case isDigit(c):
		t.number()
	case isAlpha(c):
		end := 0
		for end < len(t.rest) && (isAlpha(t.rest[end]) || isDigit(t.rest[end])) {
			end++
		}
		t.kind, t.text, t.word = tokenWord, string(t.rest[:end]), true
		t.rest = t.rest[end:]
	case c == '"' || c == '\'':
		t.quoted(c)
	default:
		t.kind = c
		t.rest = t.rest[1:]
	}
	return t.kind
}

// skip drops white space and comments.
func (t *tokenizer) skip() {
	for len(t.rest) > 0 {
		switch c := t.rest[0]; {
		case c >= 0 && c <= ' ':
			t.rest = t.rest[1:]
		case c == '/' && len(t.rest) > 1 && t.rest[1] == '*':
			t.rest = t.rest[2:]
			for len(t.rest) > 0 {
				if t.rest[0] == '*' && len(t.rest) > 1 && t.rest[1] == '/' {
					t.rest = t.rest[2:]
					break
				}
				t.rest = t.rest[1:]
			}
		case c == '/':
			for len(t.rest) > 0 && t.rest[0] != '\n' && t.rest[0] != '\r' {
				t.rest = t.rest[1:]
			}
		default:
			return
		}
	}
}

// number reads digits and one dot, after one minus sign. A minus sign with no
// number behind it is a character of its own.
func (t *tokenizer) number() {
	t.kind = tokenNumber
	if t.rest[0] == '-' {
		t.rest = t.rest[1:]
		if len(t.rest) == 0 || !isDigit(t.rest[0]) || t.rest[0] == '-' {
			t.kind = '-'
			return
		}
	}
	dots := 0
	for len(t.rest) > 0 {
		switch c := t.rest[0]; {
		case c == '.' && dots == 0:
			dots++
		case c >= '0' && c <= '9':
		default:
			return
		}
		t.rest = t.rest[1:]
	}
}

func (t *tokenizer) quoted(quote rune) {
	var b strings.Builder
	t.rest = t.rest[1:]
	for len(t.rest) > 0 {
		c := t.rest[0]
		if c == quote {
			t.rest = t.rest[1:]
			break
		}
		if c == '\n' || c == '\r' {
			break
		}
		t.rest = t.rest[1:]
		if c == '\\' {
			c = t.escape()
		}
		if c >= 0 {
			b.WriteRune(c)
		}
	}
	t.kind, t.text, t.word = quote, b.String(), true
}

// escape reads what follows a backslash; -1 at the end of the value.
func (t *tokenizer) escape() rune {
	if len(t.rest) == 0 {
		return -1
	}
	c := t.rest[0]
	t.rest = t.rest[1:]
	switch c {
	case 'a':
		return 7
	case 'b':
		return '\b'
	case 'f':
		return 0xC
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'v':
		return 0xB
	}
	if c < '0' || c > '7' {
		return c
	}
	// Up to three octal digits, as long as they are a byte.
	octal, most := c-'0', 1
	if c <= '3' {
		most = 2
	}
	for ; most > 0 && len(t.rest) > 0 && t.rest[0] >= '0' && t.rest[0] <= '7'; most-- {
		octal = octal*8 + t.rest[0] - '0'
		t.rest = t.rest[1:]
	}
	return octal
}

// isDigit is StreamTokenizer's numeric class.
func isDigit(c rune) bool { return c >= '0' && c <= '9' || c == '.' || c == '-' }

// isAlpha is StreamTokenizer's alphabetic class, with JaasConfig's additions.
func isAlpha(c rune) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '-', c == '_', c == '$':
		return true
	}
	return c >= 160
}
