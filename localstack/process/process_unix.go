//go:build unix

package process

import (
	"os"
	"syscall"
)

const (
	terminate = syscall.SIGTERM
	freeze    = syscall.SIGSTOP
	thaw      = syscall.SIGCONT
)

func signalGroup(pid int, s os.Signal) error {
	return syscall.Kill(-pid, s.(syscall.Signal))
}
