package function

import (
	"net"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrorless/shared/config"
)

func TestTheClusterThatCannotBeReachedIsNamed(t *testing.T) {
	there, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dark := l.Addr().String()
	l.Close()
	for name, servers := range map[string][2]string{
		"A": {dark, there.ListenAddrs()[0]}, "B": {there.ListenAddrs()[0], dark},
	} {
		c := config.Parse("mm2.properties", []byte("clusters = A, B\nA.bootstrap.servers = "+servers[0]+"\nB.bootstrap.servers = "+servers[1]+"\nA->B.enabled = true\n"), config.Sources{})
		p := &Parts{Config: c, Settings: c.Enabled()[0]}
		a, b, err := p.both(config.Admin, config.Admin)
		if err != nil {
			t.Fatal(err)
		}
		_, errA := kmsg.NewPtrMetadataRequest().RequestWith(t.Context(), a)
		_, errB := kmsg.NewPtrMetadataRequest().RequestWith(t.Context(), b)
		if errA != nil {
			err = errA
		} else {
			err = errB
		}
		if got := p.explain(err).Error(); !strings.Contains(got, "connect to cluster "+name+" at "+dark) || strings.Contains(got, there.ListenAddrs()[0]) {
			t.Errorf("got %q, want cluster %s at %s named alone", got, name, dark)
		}
		p.Close()
	}
}
