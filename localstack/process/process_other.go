//go:build !unix

package process

import (
	"errors"
	"os"
	"syscall"
)

// unsupported is a signal that signalGroup refuses.
type unsupported struct{}

func (unsupported) String() string { return "unsupported" }
func (unsupported) Signal()        {}

var (
	terminate    = os.Kill
	freeze, thaw unsupported
)

func attributes() *syscall.SysProcAttr { return nil }

func awaitExit(int) bool { return false }

func signalGroup(pid int, s os.Signal) error {
	if s != os.Kill {
		return errors.ErrUnsupported
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}

func usage(int) (Usage, error) { return Usage{}, errors.ErrUnsupported }

func peakMemory(*os.ProcessState) int64 { return 0 }
