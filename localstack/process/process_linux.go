package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit returns true when the child has ended and is left a zombie, false
// where it cannot tell.
func awaitExit(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// userHz is the unit of the times in /proc, fixed at 100 in Linux's interface
// to user space.
const userHz = 100

func usage(pid int) (Usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("read usage of process %d: %w", pid, err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("read usage of process %d: %w", pid, err)
	}
	return parseUsage(string(stat), string(status))
}

func parseUsage(stat, status string) (Usage, error) {
	// The second field is the program's name in brackets and may hold anything.
	_, rest, ok := cutLast(stat, ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 13 {
		return Usage{}, fmt.Errorf("parse /proc stat %q", stat)
	}
	var u Usage
	for _, ticks := range fields[11:13] {
		n, err := strconv.ParseInt(ticks, 10, 64)
		if err != nil {
			return Usage{}, fmt.Errorf("parse /proc stat: %w", err)
		}
		u.CPU += time.Duration(n) * time.Second / userHz
	}
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		kilobytes, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch name {
		case "VmRSS":
			u.Memory = kilobytes << 10
		case "VmHWM":
			u.PeakMemory = kilobytes << 10
		}
	}
	return u, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func peakMemory(state *os.ProcessState) int64 {
	rusage, ok := state.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	return rusage.Maxrss << 10
}
