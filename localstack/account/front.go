package account

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"

	"mirrorless/localstack/lambdaapi"
)

// front answers for the Lambda API, and hands CloudFormation's requests, which are
// the ones to the root, to the emulator. A template that is got back names the inner
// templates by the emulator's URL, of which SAM CLI cannot make out the bucket that
// it is to tidy up: it knows AWS's URLs, and so it sees these.
func front(api *lambdaapi.API, emulator *url.URL) http.Handler {
	cloudFormation := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(emulator)
			r.Out.Header.Del("Accept-Encoding")
		},
		ModifyResponse: func(r *http.Response) error {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return fmt.Errorf("read the emulator's answer: %w", err)
			}
			if err := r.Body.Close(); err != nil {
				return fmt.Errorf("read the emulator's answer: %w", err)
			}
			if bytes.Contains(body, []byte("GetTemplateResult")) {
				body = bytes.ReplaceAll(body, []byte(emulator.String()+"/"), []byte("https://s3."+Region+".amazonaws.com/"))
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			r.ContentLength = int64(len(body))
			r.Header.Set("Content-Length", strconv.Itoa(len(body)))
			return nil
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			cloudFormation.ServeHTTP(w, r)
		} else {
			api.ServeHTTP(w, r)
		}
	})
}
