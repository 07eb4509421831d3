package config

import (
	"slices"
	"strings"
)

// nearest returns the known name that somebody who wrote name most likely
// meant, "" where none is near.
func nearest(name string, known []string) string {
	name = strings.ToLower(strings.Trim(name, `"',`))
	best, bestDistance := "", 0
	for _, k := range known {
		d := distance(name, k)
		if best == "" || d < bestDistance {
			best, bestDistance = k, d
		}
	}
	// More than a third of the letters wrong is another word, not a slip.
	if bestDistance > len(name)/3+1 {
		return ""
	}
	return best
}

// distance is the edit distance of what somebody wrote and a known key, but the
// two are also near where first or last words were left out (emit.heartbeats),
// or the words are in another order (max.tasks).
func distance(written, known string) int {
	d := min(levenshtein(written, known), 1+levenshtein(sortedWords(written), sortedWords(known)))
	if strings.HasPrefix(known, written+".") || strings.HasSuffix(known, "."+written) {
		d = min(d, strings.Count(known, ".")-strings.Count(written, "."))
	}
	return d
}

func sortedWords(key string) string {
	words := strings.Split(key, ".")
	slices.Sort(words)
	return strings.Join(words, ".")
}

// levenshtein counts the bytes to insert, delete or replace.
func levenshtein(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
