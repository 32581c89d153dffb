// Prints what Go reads in requests: each line of the standard input is a method, a space and a target, and each line of the
// output a JSON object, in which `attributes` is what k8s.io/apiserver reads, and `http` what net/http and net/url read. Either
// is null for a request that they refuse.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
)

type answer struct {
	Attributes map[string]string `json:"attributes"`
	HTTP       map[string]string `json:"http"`
}

func main() {
	// It logs each query that it cannot decode.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	factory := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	lines, out := bufio.NewScanner(os.Stdin), bufio.NewWriter(os.Stdout)
	defer out.Flush()
	encoder := json.NewEncoder(out)
	for lines.Scan() {
		method, target, _ := strings.Cut(lines.Text(), " ")
		if err := encoder.Encode(answer{info(factory, method, target), parsed(method, target)}); err != nil {
			log.Fatal(err)
		}
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
}

// info returns nil for what is refused.
func info(factory *request.RequestInfoFactory, method, target string) map[string]string {
	parsed, err := url.ParseRequestURI(target)
	if err != nil {
		return nil
	}
	of, err := factory.NewRequestInfo(&http.Request{Method: method, URL: parsed})
	if err != nil {
		return nil
	}
	return map[string]string{
		"is_resource": fmt.Sprint(of.IsResourceRequest), "path": of.Path, "verb": of.Verb, "api_prefix": of.APIPrefix,
		"api_group": of.APIGroup, "api_version": of.APIVersion, "namespace": of.Namespace, "resource": of.Resource,
		"subresource": of.Subresource, "name": of.Name, "parts": strings.Join(of.Parts, "\x00"),
		"field_selector": of.FieldSelector, "label_selector": of.LabelSelector,
	}
}

// parsed is the request as a server reads it from its connection, or nil.
func parsed(method, target string) map[string]string {
	wire := method + " " + target + " HTTP/1.1\r\nHost: a\r\n\r\n"
	read, err := http.ReadRequest(bufio.NewReader(strings.NewReader(wire)))
	if err != nil {
		return nil
	}
	parameters, err := url.ParseQuery(read.URL.RawQuery)
	return map[string]string{
		"method": read.Method, "host": read.Host, "path": read.URL.Path, "query": read.URL.RawQuery,
		// Sorted, and encoded again. A pair that cannot be read is left out, and is an error.
		"parameters": parameters.Encode(), "has_bad_parameters": fmt.Sprint(err != nil),
		// What Go's own proxies send on, and what a program reads that cleans the path first.
		"sent_on": read.URL.RequestURI(), "clean": path.Clean(read.URL.Path),
	}
}
