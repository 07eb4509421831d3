package status

import (
	"fmt"
	"strconv"
	"time"
)

// Count writes a number with a comma for every thousand.
func Count(n int64) string {
	s := strconv.FormatInt(n, 10)
	start := 0
	if n < 0 {
		start = 1
	}
	for i := len(s) - 3; i > start; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Age writes how long ago something was, as short as a glance wants it: 0.4s,
// 3s, 4m12s, 2h, 5d. What lies ahead, by clocks that differ, is 0s.
func Age(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 100*time.Millisecond:
		return "0s"
	case d < time.Second:
		return fmt.Sprintf("0.%ds", d/(100*time.Millisecond))
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return units(int64(d/time.Minute), "m", int64(d%time.Minute/time.Second), "s")
	case d < day:
		return units(int64(d/time.Hour), "h", int64(d%time.Hour/time.Minute), "m")
	}
	return Count(int64(d/day)) + "d"
}

func units(n int64, unit string, more int64, smaller string) string {
	if more == 0 {
		return fmt.Sprintf("%d%s", n, unit)
	}
	return fmt.Sprintf("%d%s%d%s", n, unit, more, smaller)
}

func counted(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return Count(n) + " " + what
}
