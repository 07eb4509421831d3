package metrics

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mirrorless/shared/mirror"
)

func TestValuesStandForASpread(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		mirror.Spread
		want []float64
	}{
		"none":               {mirror.Spread{}, []float64{0}},
		"one":                {mirror.Spread{Least: 5 * ms, Most: 5 * ms, Sum: 5 * ms, N: 1}, []float64{5}},
		"two":                {mirror.Spread{Least: 1 * ms, Most: 5 * ms, Sum: 6 * ms, N: 2}, []float64{1, 5}},
		"three":              {mirror.Spread{Least: 1 * ms, Most: 5 * ms, Sum: 8 * ms, N: 3}, []float64{1, 5, 2}},
		"a part of a second": {mirror.Spread{Least: 1500 * time.Microsecond, Most: 1500 * time.Microsecond, Sum: 1500 * time.Microsecond, N: 1}, []float64{1.5}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, values(test.Spread)); diff != "" {
				t.Errorf("values (-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzValues tries spreads that durations can have.
func FuzzValues(f *testing.F) {
	f.Add(int64(3), int64(10), int64(4), uint16(3))
	f.Add(int64(0), int64(3_600_000), int64(1), uint16(10_000))
	f.Add(int64(7), int64(0), int64(0), uint16(500))
	f.Fuzz(func(t *testing.T, least, width, middle int64, n uint16) {
		const year = 365 * 24 * int64(time.Hour/time.Millisecond)
		if least < 0 || least > 50*year || width < 0 || width > 50*year || middle < 0 || middle > width || n < 2 {
			t.Skip()
		}
		// One is the least, one the most, all others are in between.
		ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
		s := mirror.Spread{Least: ms(least), Most: ms(least + width), N: int64(n)}
		sum := float64(least) + float64(least+width) + float64(n-2)*float64(least+middle)
		if sum > math.MaxInt64/float64(time.Millisecond) {
			t.Skip()
		}
		s.Sum = ms(least) + ms(least+width) + time.Duration(n-2)*ms(least+middle)
		got := values(s)
		if want := min(int(n), mostValues); len(got) != want {
			t.Fatalf("got %d values, want %d", len(got), want)
		}
		if slices.Min(got) != float64(least) || slices.Max(got) != float64(least+width) {
			t.Errorf("got %g to %g, want %d to %d", slices.Min(got), slices.Max(got), least, least+width)
		}
		var total float64
		for _, v := range got {
			total += v
		}
		mean, want := total/float64(len(got)), sum/float64(n)
		// Exact, but for rounding; of more records than values, within a hundredth of
		// the width.
		off := 0.001 + want*1e-9
		if n > mostValues {
			off += float64(width) / mostValues
		}
		if math.Abs(mean-want) > off {
			t.Errorf("got mean %g, want %g ± %g", mean, want, off)
		}
	})
}
