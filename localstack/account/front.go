package account

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"mirrorless/localstack/lambdaapi"
)

// front answers for the Lambda API, and hands CloudFormation's requests, which are
// the ones to the root, to the emulator. A template that is got back names the inner
// templates by the emulator's URL, of which SAM CLI cannot make out the bucket that
// it is to tidy up: it knows AWS's URLs, and so it sees these.
func front(api *lambdaapi.API, emulator *url.URL) http.Handler {
	cloudFormation := &httputil.ReverseProxy{
		Transport: deletions{},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(emulator)
			r.Out.Header.Del("Accept-Encoding")
		},
		ModifyResponse: func(r *http.Response) error {
			body, err := readAll(r)
			if err != nil {
				return err
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

func readAll(r *http.Response) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	if closing := r.Body.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return nil, fmt.Errorf("read the emulator's answer: %w", err)
	}
	return body, nil
}

// deletions carries requests to CloudFormation, and holds the answer to the one
// that deletes a stack until the stack is gone. SAM CLI asks at once whether it is,
// and again after half a minute only.
type deletions struct{}

const (
	deletionLimit = 20 * time.Second // below the time-outs of those who wait
	deletionPause = 200 * time.Millisecond
)

// RoundTrip implements http.RoundTripper.
func (d deletions) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		return http.DefaultTransport.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	answer, err := d.post(r.Context(), r, body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return answer, err
	}
	if form, err := url.ParseQuery(string(body)); err == nil && form.Get("Action") == "DeleteStack" {
		d.await(r, form)
	}
	return answer, nil
}

func (d deletions) post(ctx context.Context, like *http.Request, body []byte) (*http.Response, error) {
	r := like.Clone(ctx)
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	r.Header.Del("Content-Length")
	return http.DefaultTransport.RoundTrip(r)
}

// await waits for the end of a deletion. A stack that is gone is not described.
func (d deletions) await(r *http.Request, deletion url.Values) {
	ctx, cancel := context.WithTimeout(r.Context(), deletionLimit)
	defer cancel()
	describe := url.Values{"Action": {"DescribeStacks"}, "Version": deletion["Version"], "StackName": deletion["StackName"]}.Encode()
	for {
		answer, err := d.post(ctx, r, []byte(describe))
		if err != nil {
			return
		}
		body, err := readAll(answer)
		if err != nil || answer.StatusCode != http.StatusOK ||
			strings.Contains(string(body), "DELETE_COMPLETE") || strings.Contains(string(body), "DELETE_FAILED") {
			return
		}
		select {
		case <-time.After(deletionPause):
		case <-ctx.Done():
			return
		}
	}
}
