package process

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are taken from below the range that kernels give to outgoing
// connections (32768 and up on Linux, 49152 elsewhere): there, a client that
// keeps dialling a stopped server's port can be given that very port and
// connect to itself.
const (
	firstPort = 20000
	lastPort  = 32000
)

// FreePorts returns n different ports on which nobody listens at 127.0.0.1 now.
// Another program may take one before it is used.
func FreePorts(n int) ([]int, error) {
	listeners := make([]net.Listener, 0, n)
	defer func() {
		for _, l := range listeners {
			l.Close()
		}
	}()
	ports := make([]int, 0, n)
	var errs []error
	for range 20 * (n + 1) {
		if len(ports) == n {
			return ports, nil
		}
		port := firstPort + rand.IntN(lastPort-firstPort)
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		listeners = append(listeners, l)
		ports = append(ports, port)
	}
	if len(ports) == n {
		return ports, nil
	}
	return nil, fmt.Errorf("find %d free ports: %w", n, errors.Join(errs...))
}
