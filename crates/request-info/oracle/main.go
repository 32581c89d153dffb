// Prints what k8s.io/apiserver reads in requests: each line of the standard input is a method, a space and a target, and each
// line of the output a JSON object, or null for a request that net/http or the API server refuses.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
)

func main() {
	// It logs each query that it cannot decode.
	klog.LogToStderr(false)
	klog.SetOutput(discard{})
	factory := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	lines, out := bufio.NewScanner(os.Stdin), bufio.NewWriter(os.Stdout)
	defer out.Flush()
	encoder := json.NewEncoder(out)
	for lines.Scan() {
		method, target, _ := strings.Cut(lines.Text(), " ")
		if err := encoder.Encode(info(factory, method, target)); err != nil {
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

type discard struct{}

func (discard) Write(bytes []byte) (int, error) { return len(bytes), nil }
