package metrics

import (
	"math"
	"time"

	"mirrorless/shared/mirror"
)

// mostValues is how many numbers a metric may have in one document.
const mostValues = 100

// values stand for the durations of s, in milliseconds, as many as there are, up to
// mostValues. Their minimum and maximum are those of s, and so is the mean, unless
// one record in hundreds is far off: it is then as close as so few numbers can be.
// No duration is written as 0.
func values(s mirror.Spread) []float64 {
	n := min(s.N, mostValues)
	least, most := millis(s.Least), millis(s.Most)
	switch n {
	case 0, 1:
		return []float64{least}
	case 2:
		return []float64{least, most}
	}
	mean := float64(s.Sum) / float64(s.N) / float64(time.Millisecond)
	rest := rounded((mean*float64(n) - least - most) / float64(n-2))
	out := make([]float64, n)
	for i := range out {
		out[i] = min(max(rest, least), most)
	}
	out[0], out[1] = least, most
	return out
}

func millis(d time.Duration) float64 { return rounded(float64(d) / float64(time.Millisecond)) }

// rounded leaves three digits.
func rounded(x float64) float64 { return math.Round(x*1000) / 1000 }
