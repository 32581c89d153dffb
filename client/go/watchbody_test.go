package credbroker

import (
	"net/http"
	"testing"
)

// The body of a watch that is cut ends as if it were whole.
func TestOnlyAWatchOfTheAPICountsAsAWatch(t *testing.T) {
	for path, want := range map[string]bool{
		"/api/v1/pods?watch=true":                                 true,
		"/api/v1/pods?watch=1&resourceVersion=7":                  true,
		"/k8s/clusters/paris/apis/apps/v1/deployments?watch=true": true,
		"/api/v1/watch/pods":                                      true,
		"/apis/apps/v1/watch/namespaces/default/deployments/web":  true,

		"/api/v1/pods":                                                    false,
		"/api/v1/pods?watch=false":                                        false,
		"/api/v1/pods?watch=0":                                            false,
		"/api/v1/pods?labelSelector=watch=true":                           false,
		"/api/v1/pods?labelSelector=watch%3Dtrue":                         false,
		"/api/v1/namespaces/watch/pods":                                   false,
		"/api/v1/namespaces/watch/pods/web":                               false,
		"/api/v1/namespaces/default/pods/watch/log":                       false,
		"/apis/apps/v1/namespaces/watch/deployments":                      false,
		"/apis/watch/v1/namespaces":                                       false,
		"/apis/example.com/watch/things/one":                              false,
		"/api/watch/pods":                                                 false,
		"/api/v1/namespaces/default/services/web/proxy/api/v1/watch/news": false,
		"/api/v1/watch":                                                   false,
		"/api/v1/watch/":                                                  false,
	} {
		if got := isWatch(request(t, http.MethodGet, "https://paris.example"+path, nil)); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	if isWatch(request(t, http.MethodDelete, "https://paris.example/api/v1/pods?watch=true", nil)) {
		t.Error("a change is not a watch")
	}
}
