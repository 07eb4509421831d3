package cluster

import (
	"strings"
	"testing"
)

func FuzzTokenAnswer(f *testing.F) {
	f.Add([]byte(`{"access_token":"e30.eyJleHAiOjE3MDAwMDAwMDB9.x","expires_in":3600}`))
	f.Add([]byte(`{"id_token":"opaque","expires_in":-1e300}`))
	f.Add([]byte(`{"error":"invalid_client"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		token, life, err := parseToken("idp:443", body)
		if (token == "") != (err != nil) || life < 0 {
			t.Errorf("got token %q of %v and error %v", token, life, err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "idp:443 answers ") {
			t.Errorf("got error %v, want one that quotes nothing", err)
		}
	})
}
