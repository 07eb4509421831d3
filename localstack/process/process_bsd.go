//go:build unix && !linux

package process

import (
	"errors"
	"os"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitExit cannot wait without collecting the child.
func awaitExit(int) bool { return false }

func usage(int) (Usage, error) { return Usage{}, errors.ErrUnsupported }

func peakMemory(*os.ProcessState) int64 { return 0 }
