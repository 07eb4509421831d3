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
// 3s, 4m12s, 2h3m, 5d. What lies ahead, by clocks that differ, is 0s.
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
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return Count(int64(d/day)) + "d"
}

func counted(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return Count(n) + " " + what
}
