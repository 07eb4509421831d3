package faultproxy

import (
	"slices"
	"testing"
	"time"
)

func TestASeedRepeatsTheChoices(t *testing.T) {
	delays := func(seed uint64) (all []time.Duration) {
		p, err := Start(Options{Upstream: "127.0.0.1:1", Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		p.Delay(time.Millisecond, time.Second)
		for range 20 {
			all = append(all, p.delay())
		}
		return all
	}
	one := delays(1)
	if again := delays(1); !slices.Equal(one, again) {
		t.Errorf("got %v and %v with the same seed", one, again)
	}
	if two := delays(2); slices.Equal(one, two) {
		t.Errorf("got %v with two seeds", one)
	}
}
