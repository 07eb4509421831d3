package config

import (
	"encoding/binary"
	"regexp/syntax"
	"slices"

	"mirrorless/shared/flow"
)

// neverCopied matches what no flow with unchanged names copies, whatever its
// lists say: internal topics, and heartbeats, which get a prefix.
const neverCopied = `__.*|\..*|mm2.*internal|.*checkpoints.internal|.*heartbeats`

// overlap looks for a name that passes all filters. It returns one of the
// shortest, or ok and "" where a filter cannot be analysed or the search grows
// too large: the filters may then overlap.
//
// It walks the automata of all patterns at once, over the characters that a
// topic's name may have.
func overlap(filters []flow.Filter) (witness string, ok bool) {
	var w walk
	for _, f := range filters {
		in, known := automatonOf(f.Include)
		if !known {
			return "", true
		}
		ex, known := automatonOf(f.Exclude)
		if !known {
			return "", true
		}
		w.include = append(w.include, in)
		w.exclude = append(w.exclude, ex)
	}
	internal, _ := compileAutomaton(neverCopied)
	w.exclude = append(w.exclude, internal)
	return w.search()
}

// walk is the product of the automata: those that must accept a name and those
// that must not.
type walk struct{ include, exclude []*automaton }

type step struct {
	from int // index of the step before
	char rune
	sets [][]uint32 // the set of states of each automaton
}

func (w walk) search() (string, bool) {
	const enough = 4000
	all := slices.Concat(w.include, w.exclude)
	first := step{from: -1}
	for _, a := range all {
		first.sets = append(first.sets, a.start())
	}
	steps, seen := []step{first}, map[string]bool{}
	for i := 0; i < len(steps); i++ {
		if len(steps) > enough {
			return "", true
		}
		for _, c := range topicChars {
			next := step{from: i, char: c}
			for j, a := range all {
				next.sets = append(next.sets, a.advance(steps[i].sets[j], c))
			}
			if w.isDead(next.sets) || seen[keyOf(next.sets)] {
				continue
			}
			seen[keyOf(next.sets)] = true
			steps = append(steps, next)
			if w.accepts(next.sets) {
				return spell(steps, len(steps)-1), true
			}
		}
	}
	return "", false
}

const topicChars = "orders-_.0123456789abcdefghijklmnpqtuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// isDead reports whether an include list can no longer match.
func (w walk) isDead(sets [][]uint32) bool {
	return slices.ContainsFunc(sets[:len(w.include)], func(set []uint32) bool { return len(set) == 0 })
}

func (w walk) accepts(sets [][]uint32) bool {
	for i, a := range w.include {
		if !a.accepts(sets[i]) {
			return false
		}
	}
	for i, a := range w.exclude {
		if a.accepts(sets[len(w.include)+i]) {
			return false
		}
	}
	return true
}

func spell(steps []step, i int) string {
	var name []rune
	for ; steps[i].from >= 0; i = steps[i].from {
		name = append(name, steps[i].char)
	}
	slices.Reverse(name)
	return string(name)
}

func keyOf(sets [][]uint32) string {
	var b []byte
	for _, set := range sets {
		for _, pc := range set {
			b = binary.AppendUvarint(b, uint64(pc)+1)
		}
		b = append(b, 0)
	}
	return string(b)
}

// automaton simulates a compiled pattern on a whole name.
type automaton struct{ prog *syntax.Prog }

// automatonOf returns the automaton of a list; known is false for patterns that
// Go's syntax cannot express, and for word boundaries, which look both ways.
func automatonOf(p flow.Patterns) (a *automaton, known bool) {
	if p.String() == "" {
		return &automaton{}, true
	}
	return compileAutomaton(p.String())
}

func compileAutomaton(pattern string) (*automaton, bool) {
	re, err := syntax.Parse("(?:"+pattern+")", syntax.Perl|syntax.DotNL)
	if err != nil {
		return nil, false
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil || slices.ContainsFunc(prog.Inst, isWordBoundary) {
		return nil, false
	}
	return &automaton{prog}, true
}

func isWordBoundary(in syntax.Inst) bool {
	const both = syntax.EmptyWordBoundary | syntax.EmptyNoWordBoundary
	return in.Op == syntax.InstEmptyWidth && syntax.EmptyOp(in.Arg)&both != 0
}

const (
	atStart = syntax.EmptyBeginLine | syntax.EmptyBeginText
	atEnd   = syntax.EmptyEndLine | syntax.EmptyEndText
)

func (a *automaton) start() []uint32 {
	if a.prog == nil {
		return nil
	}
	return a.closure([]uint32{uint32(a.prog.Start)}, atStart)
}

// advance returns the states after one more character.
func (a *automaton) advance(set []uint32, c rune) []uint32 {
	var next []uint32
	for _, pc := range set {
		in := &a.prog.Inst[pc]
		switch in.Op {
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			if in.MatchRune(c) {
				next = append(next, in.Out)
			}
		}
	}
	return a.closure(next, 0)
}

// accepts reports whether the name may end here.
func (a *automaton) accepts(set []uint32) bool {
	if a.prog == nil {
		return false
	}
	for _, pc := range a.closure(set, atEnd) {
		if a.prog.Inst[pc].Op == syntax.InstMatch {
			return true
		}
	}
	return false
}

// closure follows everything that takes no character; conditions are those that
// hold here. States that wait for the end of the name stay in the set.
func (a *automaton) closure(from []uint32, conditions syntax.EmptyOp) []uint32 {
	var set []uint32
	stack := slices.Clone(from)
	visited := map[uint32]bool{}
	for len(stack) > 0 {
		pc := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if visited[pc] {
			continue
		}
		visited[pc] = true
		switch in := &a.prog.Inst[pc]; in.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			stack = append(stack, in.Out, in.Arg)
		case syntax.InstCapture, syntax.InstNop:
			stack = append(stack, in.Out)
		case syntax.InstEmptyWidth:
			switch need := syntax.EmptyOp(in.Arg); {
			case need&^conditions == 0:
				stack = append(stack, in.Out)
			case need&atEnd != 0:
				set = append(set, pc)
			}
		case syntax.InstFail:
		default:
			set = append(set, pc)
		}
	}
	slices.Sort(set)
	return slices.Compact(set)
}
